//! Measurements of what a thread allocates, over the allocator of the test.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, realloc};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use plimsoll::measure::{Budget, Measurement, measure_with_sites};
use plimsoll::{assert_allocs, assert_no_alloc, measure};
use plimsoll_testkit::child;

/// Every allocation is sampled; one in 500 bytes; none.
const RATES: [&str; 3] = ["heap_rate=1", "heap_rate=500", "heap_rate=0"];

fn block(size: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(size))
}

#[test]
fn an_empty_closure_allocates_nothing() {
    let measured = measure(|| 7);
    assert_eq!(measured.result, 7);
    assert_eq!((measured.allocations, measured.frees), (0, 0));
    assert_eq!((measured.net_bytes(), measured.max_bytes), (0, 0));
    assert!(measured.sites().is_empty());
}

#[test]
fn allocations_frees_bytes_and_maximum_are_exact() {
    let measured = measure(|| {
        let first = block(100);
        drop(block(1000));
        drop(block(200_000));
        let second = block(50);
        drop(first);
        second
    });
    assert_eq!((measured.allocations, measured.frees), (4, 3));
    assert_eq!(measured.allocated_bytes, 201_150);
    assert_eq!(measured.freed_bytes, 201_100);
    assert_eq!((measured.net_bytes(), measured.net_blocks()), (50, 1));
    assert_eq!(measured.max_bytes, 200_100);
    // Frees of older blocks.
    let older = measured.result;
    let measured = measure(move || drop(older));
    assert_eq!((measured.allocations, measured.frees), (0, 1));
    assert_eq!((measured.net_bytes(), measured.max_bytes), (-50, 0));
}

/// The counts of a measurement by the test's own bookkeeping.
#[derive(Default)]
struct Expected {
    counts: [u64; 4],
    max: i64,
}

impl Expected {
    fn change(&mut self, allocated: Option<usize>, freed: Option<usize>) {
        for (at, size) in [(0, allocated), (2, freed)] {
            if let Some(size) = size {
                self.counts[at] += 1;
                self.counts[at + 1] += size as u64;
            }
        }
        let net = self.counts[1] as i64 - self.counts[3] as i64;
        self.max = self.max.max(net);
    }
}

/// Makes random calls of the allocator, and returns their counts.
fn random_work(seed: u64, calls: usize) -> Expected {
    let mut random = seed;
    let mut next = move |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % below
    };
    const EMPTY: Option<(*mut u8, Layout)> = None;
    let mut blocks = [EMPTY; 64];
    let mut expected = Expected::default();
    for _ in 0..calls {
        let at = next(64);
        // Small sizes, all up to those beyond the size classes, some of them large.
        let most = [200, 2_000, 40_000, 100_000][next(4)];
        let size = 1 + next(most);
        let align = 1 << next(8);
        // SAFETY: each block is used with its layout, and freed once.
        unsafe {
            match blocks[at] {
                None => {
                    let layout = Layout::from_size_align(size, align).unwrap();
                    let made = match next(2) {
                        0 => alloc(layout),
                        _ => alloc_zeroed(layout),
                    };
                    assert!(!made.is_null());
                    blocks[at] = Some((made, layout));
                    expected.change(Some(size), None);
                }
                Some((block, layout)) if next(3) == 0 => {
                    let moved = realloc(block, layout, size);
                    assert!(!moved.is_null());
                    let new = Layout::from_size_align(size, layout.align()).unwrap();
                    blocks[at] = Some((moved, new));
                    expected.change(Some(size), Some(layout.size()));
                }
                Some((block, layout)) => {
                    dealloc(block, layout);
                    blocks[at] = None;
                    expected.change(None, Some(layout.size()));
                }
            }
        }
    }
    for (block, layout) in blocks.iter().flatten() {
        // SAFETY: the block is live, with this layout.
        unsafe { dealloc(*block, *layout) };
        expected.change(None, Some(layout.size()));
    }
    expected
}

fn assert_random_work_is_exact() {
    for seed in 0..20 {
        let measured = measure(|| random_work(seed, 2_000));
        let Expected { counts, max } = measured.result;
        let [allocations, allocated, frees, freed] = counts;
        assert_eq!((measured.allocations, measured.frees), (allocations, frees));
        assert_eq!(measured.allocated_bytes, allocated);
        assert_eq!(measured.freed_bytes, freed);
        assert_eq!(measured.max_bytes, max as u64);
    }
}

#[test]
fn random_work_is_measured_exactly_if_all_is_sampled() {
    child::run(
        "random_work_is_measured_exactly_if_all_is_sampled",
        RATES[0],
        assert_random_work_is_exact,
    );
}

#[test]
fn random_work_is_measured_exactly_if_some_is_sampled() {
    child::run(
        "random_work_is_measured_exactly_if_some_is_sampled",
        RATES[1],
        assert_random_work_is_exact,
    );
}

#[test]
fn random_work_is_measured_exactly_if_nothing_is_sampled() {
    child::run(
        "random_work_is_measured_exactly_if_nothing_is_sampled",
        RATES[2],
        assert_random_work_is_exact,
    );
}

#[test]
fn random_work_is_measured_exactly_with_counters_of_each_thread() {
    child::run(
        "random_work_is_measured_exactly_with_counters_of_each_thread",
        "ledger=per-thread,heap_rate=500",
        assert_random_work_is_exact,
    );
}

/// A container that grows, a map, texts: the work of an ordinary test.
fn ordinary_work() -> usize {
    let mut map = std::collections::HashMap::new();
    for number in 0..100_u32 {
        map.insert(format!("key {number}"), vec![number; 10]);
    }
    let mut texts: Vec<String> = map.into_keys().collect();
    texts.sort();
    texts.concat().len()
}

/// Other threads allocate, are measured themselves, and keep both processors busy.
#[test]
fn a_thousand_runs_on_a_busy_machine_have_the_same_counts() {
    static ENOUGH: AtomicBool = AtomicBool::new(false);
    let first = measure(ordinary_work);
    let busy: Vec<_> = (0..6)
        .map(|number| {
            thread::spawn(move || {
                while !ENOUGH.load(Ordering::Relaxed) {
                    if number % 2 == 0 {
                        black_box(block(100 + number));
                    } else {
                        assert_allocs!(1, || drop(block(100)));
                    }
                }
            })
        })
        .collect();
    for _ in 0..1000 {
        assert_eq!(measure(ordinary_work), first);
    }
    ENOUGH.store(true, Ordering::Relaxed);
    for thread in busy {
        thread.join().unwrap();
    }
}

#[test]
fn measurements_nest_and_end_in_any_order() {
    let outer = measure(|| {
        drop(block(1000));
        let inner = measure(|| drop(block(10)));
        assert_eq!((inner.allocations, inner.max_bytes), (1, 10));
        let first = Measurement::start();
        let kept = block(100);
        let second = Measurement::start();
        drop(kept);
        let third = Measurement::start_with_sites();
        let first = first.finish();
        assert_eq!((first.allocations, first.net_bytes()), (1, 0));
        drop(block(300));
        drop(second.so_far());
        let second = second.finish();
        assert_eq!((second.allocations, second.frees), (1, 2));
        assert_eq!((second.net_bytes(), second.max_bytes), (-100, 200));
        drop(block(5));
        assert_eq!(third.finish().allocations, 2);
    });
    // The last measurement returned a vector of two sites, whose memory is the test's.
    assert_eq!((outer.allocations, outer.max_bytes), (6, 1000));
    assert_eq!(outer.net_bytes(), 0);
}

#[test]
fn a_panic_ends_the_measurement_and_continues() {
    let outer = Measurement::start();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        measure(|| {
            let _kept = block(100);
            panic!("on purpose");
        })
    }));
    assert_eq!(
        *caught.unwrap_err().downcast_ref::<&str>().unwrap(),
        "on purpose"
    );
    assert!(outer.finish().allocations > 0);
    assert_eq!(measure(|| drop(block(1))).allocations, 1);
}

#[test]
fn threads_are_measured_apart() {
    // A thread's first operations are within the measurement.
    let threads: Vec<_> = (1..=8)
        .map(|number| {
            thread::spawn(move || {
                let measured = measure(|| {
                    for _ in 0..1000 * number {
                        drop(block(number));
                    }
                });
                assert_eq!(measured.allocations as usize, 1000 * number);
                assert_eq!(measured.freed_bytes as usize, 1000 * number * number);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn only_frees_of_the_measured_thread_count() {
    let (to, from) = mpsc::channel::<Vec<u8>>();
    let (back, again) = mpsc::channel::<Vec<u8>>();
    let other = thread::spawn(move || {
        for mine in from {
            drop(mine);
            back.send(block(70)).unwrap();
        }
    });
    let blocks: Vec<Vec<u8>> = (0..10).map(|_| block(30)).collect();
    // The channels allocate, too.
    let mut theirs = Vec::with_capacity(10);
    let measured = measure(|| {
        for mine in blocks {
            to.send(mine).unwrap();
            theirs.push(again.recv().unwrap());
        }
        theirs.clear();
    });
    // Ten blocks of the other thread, the vector of those sent, and what the channels free.
    assert!(
        measured.frees >= 11 && measured.freed_bytes >= 10 * 70,
        "{measured}"
    );
    drop(to);
    other.join().unwrap();
    let theirs = thread::spawn(|| block(70)).join().unwrap();
    let measured = measure(|| drop(theirs));
    assert_eq!((measured.frees, measured.freed_bytes), (1, 70));
}

/// A leaked measurement stays active while the thread ends.
#[test]
fn a_leaked_measurement_harms_nothing() {
    struct AtEnd(Vec<u8>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            self.0 = block(200);
            assert_allocs!(1, || drop(block(10)));
        }
    }
    thread_local! {
        static AT_END: std::cell::RefCell<Option<AtEnd>> = const { std::cell::RefCell::new(None) };
    }
    thread::spawn(|| {
        std::mem::forget(Measurement::start());
        AT_END.set(Some(AtEnd(block(100))));
        assert_eq!(measure(|| drop(block(10))).frees, 1);
    })
    .join()
    .unwrap();
}

/// A measurement in thread-local storage ends after the allocator's own work for the thread.
#[test]
fn a_measurement_may_end_with_its_thread() {
    thread_local! {
        static KEPT: std::cell::RefCell<Option<Measurement>> = const { std::cell::RefCell::new(None) };
    }
    for _ in 0..100 {
        thread::spawn(|| {
            drop(block(10));
            KEPT.set(Some(Measurement::start_with_sites()));
            drop(block(10));
        })
        .join()
        .unwrap();
    }
}

#[test]
fn a_forked_child_is_measured_on() {
    let measurement = Measurement::start();
    drop(block(10));
    // SAFETY: the child only allocates, frees and ends.
    let child = unsafe { libc::fork() };
    drop(block(20));
    if child == 0 {
        let so_far = measurement.so_far();
        let is_right = (so_far.allocations, so_far.allocated_bytes) == (2, 30);
        // SAFETY: ends the process.
        unsafe { libc::_exit(if is_right { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the status is valid for a write.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 7);
    assert_eq!(measurement.finish().allocations, 2);
}

#[inline(never)]
fn surplus() -> Vec<u8> {
    block(33)
}

#[inline(never)]
fn wanted() -> Vec<u8> {
    block(44)
}

fn message(work: impl FnOnce()) -> String {
    let caught = catch_unwind(AssertUnwindSafe(work)).unwrap_err();
    caught.downcast_ref::<String>().unwrap().clone()
}

#[test]
fn a_budget_that_is_kept_returns_the_result() {
    let exact = Budget::new()
        .allocations(2)
        .allocated_bytes(1100)
        .max_bytes(1000)
        .net_bytes(100);
    let kept = exact.check(|| {
        drop(block(1000));
        block(100)
    });
    assert_eq!(kept.capacity(), 100);
    assert_eq!(assert_allocs!(..=1, || block(10)).capacity(), 10);
    assert_eq!(assert_allocs!(0..=2, || block(10)).capacity(), 10);
}

#[test]
fn a_budget_that_is_exceeded_names_the_limit_and_the_sites() {
    let limits = [
        (
            Budget::new().allocations(1),
            "2 allocations of 1100 bytes",
            "1 allocations",
        ),
        (
            Budget::new().allocated_bytes(1099),
            "1100 bytes",
            "1099 allocated bytes",
        ),
        (
            Budget::new().max_bytes(999),
            "at most 1000 bytes",
            "999 bytes at once",
        ),
        (
            Budget::new().net_bytes(99),
            "1000 bytes",
            "99 bytes at the end",
        ),
    ];
    for (budget, counted, limit) in limits {
        let exceeded = catch_unwind(AssertUnwindSafe(|| {
            budget.check(|| {
                drop(block(1000));
                block(100)
            })
        }));
        let message = *exceeded.unwrap_err().downcast::<String>().unwrap();
        let begin = format!("the budget of {limit} is exceeded: made ");
        assert!(
            message.starts_with(&begin) && message.contains(counted),
            "{message}"
        );
        assert!(message.contains("a_budget_that_is_exceeded"), "{message}");
    }
    let outside = catch_unwind(|| assert_allocs!(2..=3, || block(10)));
    let message = *outside.unwrap_err().downcast::<String>().unwrap();
    assert!(
        message.contains("differs: 2..=3 expected, made 1 allocations"),
        "{message}"
    );
}

#[test]
fn an_assertion_that_fails_names_the_sites() {
    let text = message(|| {
        assert_allocs!(1, || {
            drop(wanted());
            for _ in 0..3 {
                drop(surplus());
            }
        });
    });
    assert!(
        text.contains("1 expected, made 4 allocations of 143 bytes"),
        "{text}"
    );
    let line = |of: &str| {
        let found = text.lines().find(|line| line.contains(of));
        found.unwrap_or_else(|| panic!("{of} in {text}")).to_owned()
    };
    assert!(line("::surplus").starts_with("  3 of 99 bytes: "), "{text}");
    assert!(line("::wanted").starts_with("  1 of 44 bytes: "), "{text}");
    assert!(line("::surplus").contains("measure.rs:"), "{text}");
    assert!(!text.contains("plimsoll_core::alloc"), "{text}");
    assert!(!text.contains("plimsoll_profiles::measure"), "{text}");
    let text = message(|| drop(assert_no_alloc!(surplus, "in round {}", 5)));
    assert!(
        text.starts_with("in round 5: 0 expected, made 1 alloc"),
        "{text}"
    );
    assert!(text.contains("::surplus"), "{text}");
}

#[test]
fn an_assertion_that_holds_returns_the_result() {
    let mut buffer = Vec::with_capacity(10);
    assert_no_alloc!(|| buffer.push(1));
    assert_eq!(assert_no_alloc!(|| buffer.len(), "none"), 1);
    assert_eq!(assert_allocs!(1, || block(10)).capacity(), 10);
    // Frees are permitted.
    let older = block(10);
    assert_no_alloc!(|| drop(older));
}

/// More sites than a measurement holds are counted together.
#[test]
fn the_sites_of_a_measurement_are_limited_and_add_up() {
    #[inline(never)]
    fn nested(depth: usize) {
        drop(block(depth + 1));
        if depth < 100 {
            nested(depth + 1);
        }
        black_box(depth);
    }
    let measured = measure_with_sites(|| nested(0));
    assert_eq!(measured.allocations, 101);
    let at_sites: u64 = measured.sites().iter().map(|site| site.allocations).sum();
    assert!((60..101).contains(&at_sites), "{at_sites}");
    let others = format!("\n  {} at sites that are not recorded", 101 - at_sites);
    assert!(measured.to_string().ends_with(&others), "{measured}");
}
