//! Memory carries the labels of its allocation.

use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use plimsoll::label::{self, Labels};
use plimsoll::profile::{self, Detail, Format};
use plimsoll::task::TrackExt;
use plimsoll_checks::profile::{read_profile, read_with_idle};

use super::pprof::{Profile, Values};
use super::{by_label, child, labelled};

/// A size that no list of pointers to the blocks has.
const SIZE: usize = 104;

type Block = Box<[u8; SIZE]>;

#[inline(never)]
fn keeps_blocks(count: usize) -> Vec<Block> {
    let mut kept = Vec::with_capacity(count);
    for _ in 0..count {
        kept.push(Box::new(black_box([7; SIZE])));
    }
    kept
}

/// Returns the profile's values for the blocks with this label.
fn blocks_of(profile: &Profile, key: &str, value: &str) -> Values {
    let samples = labelled(profile, key, value).into_iter();
    profile.sum(samples.filter(|sample| profile.number(sample, "bytes") == Some(SIZE as i64)))
}

fn values(allocated: i64, in_use: i64) -> Values {
    Values {
        alloc_objects: allocated,
        alloc_space: SIZE as i64 * allocated,
        inuse_objects: in_use,
        inuse_space: SIZE as i64 * in_use,
    }
}

fn each_tenant_has_what_it_allocated() {
    let mut kept = Vec::new();
    for tenant in 0..10 {
        let _tenant = label::with([("tenant", format!("t{tenant}"))]);
        kept.push(keeps_blocks(10 * (tenant + 1)));
        drop(keeps_blocks(5));
    }
    let nobodys = keeps_blocks(33);
    for name in ["heap", "allocs"] {
        let profile = read_profile(name);
        for tenant in 0..10i64 {
            let blocks = blocks_of(&profile, "tenant", &format!("t{tenant}"));
            let in_use = 10 * (tenant + 1);
            assert_eq!(blocks, values(in_use + 5, in_use), "{name}, {tenant}");
        }
        let at = profile.at("keeps_blocks");
        let at = at
            .into_iter()
            .filter(|sample| profile.number(sample, "bytes") == Some(SIZE as i64));
        let objects = by_label(&profile, at, "tenant", 0);
        assert_eq!(objects[&None], 33);
        assert_eq!(objects.values().sum::<i64>(), 550 + 50 + 33);
    }

    // Another thread frees the block, under other labels.
    let last = kept.pop().unwrap();
    std::thread::spawn(move || {
        let _tenant = label::with([("tenant", "frees")]);
        drop(last);
    })
    .join()
    .unwrap();
    drop(nobodys);
    let profile = read_profile("heap");
    assert_eq!(blocks_of(&profile, "tenant", "t9"), values(105, 0));
    assert_eq!(blocks_of(&profile, "tenant", "t8"), values(95, 90));
    assert_eq!(blocks_of(&profile, "tenant", "frees"), values(0, 0));

    let mut text = Vec::new();
    let heap = profile::lookup("heap").unwrap();
    heap.write_to(&mut text, Format::Text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let row = text
        .lines()
        .skip_while(|line| !line.starts_with("90: 9360 [90: 9361] @ 0x"));
    let row: Vec<_> = row.take(2).collect();
    assert_eq!(row.get(1), Some(&r#"# labels: {"tenant":"t8"}"#), "{text}");
    let labelled = text.lines().filter(|line| line.starts_with("# labels: "));
    assert!(labelled.clone().count() >= 20);
    assert!(labelled.clone().all(|line| line.ends_with("\"}")), "{text}");
}

#[test]
fn memory_is_split_by_tenant() {
    child::run(
        "memory::memory_is_split_by_tenant",
        "heap_rate=1",
        each_tenant_has_what_it_allocated,
    );
}

#[inline(never)]
fn grows(mut grown: Vec<u8>, size: usize) -> Vec<u8> {
    grown.reserve_exact(black_box(size) - grown.len());
    grown
}

/// A block that grows takes the labels of the reallocation; large blocks behave as small ones do.
fn a_grown_block_has_the_labels_of_the_reallocation() {
    let in_use = |tenant| {
        let profile = read_with_idle("heap", Detail::Addresses);
        let samples = labelled(&profile, "tenant", tenant).into_iter();
        profile.sum(samples).inuse_space
    };
    for (tenants, small, large) in [(["a", "b"], 1000, 200_000), (["c", "d"], 50_000, 400_000)] {
        let [first, second] = tenants;
        let grown = {
            let _tenant = label::with([("tenant", first)]);
            grows(Vec::new(), small)
        };
        assert_eq!(in_use(first), small as i64);
        let grown = {
            let _tenant = label::with([("tenant", second)]);
            grows(grown, large)
        };
        assert_eq!((in_use(first), in_use(second)), (0, large as i64));
        drop(grown);
        assert_eq!((in_use(first), in_use(second)), (0, 0));
    }
}

#[test]
fn blocks_that_grow_have_the_labels_of_the_reallocation() {
    child::run(
        "memory::blocks_that_grow_have_the_labels_of_the_reallocation",
        "heap_rate=1",
        a_grown_block_has_the_labels_of_the_reallocation,
    );
}

fn guards_are_followed() {
    let mut kept = Vec::new();
    {
        let _outer = label::with([("stage", "outer"), ("tenant", "nested")]);
        kept.push(keeps_blocks(1));
        {
            let _inner = label::with([("stage", "inner")]);
            kept.push(keeps_blocks(2));
        }
        kept.push(keeps_blocks(4));
        let panics = std::panic::catch_unwind(|| {
            let _inner = label::with([("stage", "panics")]);
            black_box(keeps_blocks(8));
            // Resumes a panic without its message, which might allocate blocks of the same size.
            std::panic::resume_unwind(Box::new("a panic requested by the test"));
        });
        assert!(panics.is_err());
        kept.push(keeps_blocks(16));
    }
    kept.push(keeps_blocks(32));
    let profile = read_profile("heap");
    let of = |stage| blocks_of(&profile, "stage", stage);
    assert_eq!(of("outer"), values(1 + 4 + 16, 1 + 4 + 16));
    assert_eq!(of("inner"), values(2, 2));
    assert_eq!(of("panics"), values(8, 0));
    assert_eq!(blocks_of(&profile, "tenant", "nested"), values(31, 23));
}

#[test]
fn labels_go_with_their_guards() {
    child::run(
        "memory::labels_go_with_their_guards",
        "heap_rate=1",
        guards_are_followed,
    );
}

fn polls_are_labelled() {
    let mut context = Context::from_waker(Waker::noop());
    let kept = std::sync::Mutex::new(Vec::new());
    let keeps = |count| kept.lock().unwrap().push(keeps_blocks(count));
    let _here = label::with([("task", "none")]);
    let task = |name: &'static str, count| {
        let mut polls = 0;
        let future = poll_fn(move |_| {
            keeps(count);
            polls += 1;
            if polls == 3 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        future.tracked().label("task", name)
    };
    let mut first = pin!(task("first", 1));
    let mut second = pin!(task("second", 10));
    for _ in 0..3 {
        let _ = first.as_mut().poll(&mut context);
        keeps(100);
        let _ = second.as_mut().poll(&mut context);
        keeps(100);
    }
    let profile = read_profile("heap");
    assert_eq!(blocks_of(&profile, "task", "first"), values(3, 3));
    assert_eq!(blocks_of(&profile, "task", "second"), values(30, 30));
    assert_eq!(blocks_of(&profile, "task", "none"), values(600, 600));
}

#[test]
fn allocations_in_polls_belong_to_the_task() {
    child::run(
        "memory::allocations_in_polls_belong_to_the_task",
        "heap_rate=1",
        polls_are_labelled,
    );
}

const THREADS: usize = 10;
const TURNS: usize = 1000;

fn ten_threads_change_labels() {
    let over = AtomicBool::new(false);
    let finished = std::thread::scope(|scope| {
        let works: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let mut kept = Vec::new();
                    for turn in 0..TURNS {
                        let (thread, turn) = (format!("r{thread}"), format!("{}", turn % 7));
                        let both = format!("{thread}.{turn}");
                        let before = label::set(Labels::of([("racer", &thread), ("both", &both)]));
                        assert!(before.is_empty() || before.get("racer") == Some(&thread));
                        let _turn = label::with([("turn", &turn)]);
                        kept.extend(keeps_blocks(2));
                        kept.pop();
                    }
                    kept
                })
            })
            .collect();
        let (over, reader) = (&over, |name: &'static str| {
            let mut readings = 0;
            while !over.load(Ordering::Relaxed) || readings < 3 {
                let profile = read_with_idle(name, Detail::Addresses);
                for sample in &profile.sample {
                    let label = |key| profile.label(sample, key);
                    let Some(both) = label("both") else { continue };
                    let (thread, turn) = both.split_once('.').unwrap();
                    assert_eq!(label("racer"), Some(thread));
                    // The label `turn` is not set between the two changes.
                    assert!(label("turn").is_none_or(|of| of == turn), "{both}");
                }
                readings += 1;
            }
        });
        let readers = ["heap", "goroutine"].map(|name| scope.spawn(move || reader(name)));
        let kept: Vec<_> = works.into_iter().map(|work| work.join().unwrap()).collect();
        over.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
        kept
    });
    let profile = read_profile("heap");
    for thread in 0..THREADS {
        for turn in 0..7 {
            let turns = (0..TURNS).filter(|at| at % 7 == turn).count() as i64;
            let both = format!("r{thread}.{turn}");
            assert_eq!(blocks_of(&profile, "both", &both), values(2 * turns, turns));
        }
    }
    drop(finished);
    let profile = read_profile("heap");
    for thread in 0..THREADS {
        let blocks = blocks_of(&profile, "racer", &format!("r{thread}"));
        assert_eq!(blocks, values(2 * TURNS as i64, 0));
    }
}

#[test]
fn labels_change_while_profiles_are_taken() {
    child::run(
        "memory::labels_change_while_profiles_are_taken",
        "heap_rate=1",
        ten_threads_change_labels,
    );
}
