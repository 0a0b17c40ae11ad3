//! Declared memory, beside what is allocated.

use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use plimsoll::http;
use plimsoll::stats::{Declared, declared, footprint};
use plimsoll::task::TrackExt;
use plimsoll_testkit::{child, exposition};

const MIB: u64 = 1 << 20;

#[test]
fn sums_agree_with_their_parts_while_threads_declare() {
    let engine = Declared::new("sums");
    let operators: Vec<Declared> = (0..4).map(|at| engine.child(&at.to_string())).collect();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for operator in &operators {
            scope.spawn(|| {
                let partition = operator.child("partition");
                let mut seed = 1_u64;
                while !is_done.load(Ordering::Relaxed) {
                    seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
                    let bytes = seed >> 50;
                    partition.grow(bytes);
                    operator.grow(1);
                    partition.shrink(bytes);
                    operator.shrink(1);
                }
            });
        }
        for _ in 0..2_000 {
            let all = declared();
            for account in all
                .iter()
                .filter(|account| account.path.starts_with("sums"))
            {
                let inside = format!("{}/", account.path);
                let children = all.iter().filter(|child| {
                    let name = child.path.strip_prefix(&inside);
                    name.is_some_and(|name| !name.contains('/'))
                });
                let sum: u64 = children.map(|child| child.declared).sum();
                assert_eq!(account.declared, account.own_declared + sum, "{all:#?}");
                assert!(account.declared <= account.peak_declared && account.declared < 1 << 40);
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!(engine.stats().declared, 0);
    assert!(engine.stats().peak_declared > 0);
}

#[test]
fn threads_that_share_an_account_take_back_no_more_than_is_declared() {
    const EACH: u64 = 50_000;
    let (pool, part) = (Declared::new("shared"), AtomicU64::new(0));
    let operator = pool.child("operator");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..EACH).for_each(|_| operator.grow(3)));
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..EACH {
                    operator.shrink(3);
                }
                part.fetch_add(3 * EACH, Ordering::Relaxed);
            });
        }
    });
    let stats = operator.stats();
    assert_eq!(stats.declared, stats.excess, "{stats}");
    assert_eq!(pool.stats().declared, stats.declared);
    for stats in [stats, pool.stats()] {
        assert!(stats.peak_declared <= 6 * EACH, "{stats}");
    }
    operator.shrink(u64::MAX);
    assert_eq!((operator.stats().declared, pool.stats().declared), (0, 0));
    assert_eq!(part.into_inner(), 6 * EACH);
}

#[test]
fn a_footprint_agrees_with_its_parts() {
    let pool = Declared::new("footprint");
    pool.grow(3 * MIB);
    let kept = black_box(vec![1_u8; 2 * MIB as usize]);
    let memory = footprint();
    assert_eq!(memory.allocated, memory.heap + memory.committed);
    let outermost = memory
        .accounts
        .iter()
        .filter(|account| !account.path.contains('/'));
    assert_eq!(
        memory.declared,
        outermost.map(|account| account.declared).sum::<u64>()
    );
    assert!(memory.declared >= 3 * MIB && memory.peak_declared >= memory.declared);
    assert!(memory.heap >= 2 * MIB);
    assert_eq!(
        memory.undeclared(),
        memory.allocated as i64 - memory.declared as i64
    );
    if let Some(resident) = memory.resident {
        assert_eq!(
            memory.unallocated(),
            Some(resident as i64 - memory.allocated as i64)
        );
    }
    drop(kept);
}

/// The kernel's exact sum over all mappings.
#[cfg(target_os = "linux")]
fn resident_by_mappings() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[test]
#[cfg(target_os = "linux")]
fn resident_memory_is_the_kernels_to_a_hundredth() {
    let kept = black_box(vec![1_u8; 256 * MIB as usize]);
    // Other tests allocate and free between the two readings.
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let (resident, exact) = (
            footprint().resident.unwrap(),
            resident_by_mappings().unwrap(),
        );
        if resident.abs_diff(exact) <= exact / 100 {
            break;
        }
        assert!(Instant::now() < end, "{resident} {exact}");
    }
    drop(kept);
}

#[test]
fn charged_work_is_counted_exactly_in_all_accounts_around_it() {
    let engine = Declared::new("charged");
    let (sort, join) = (engine.child("sort"), engine.child("join"));
    let rows = sort.charge(|| vec![0_u8; 10_000]);
    // Inside the work of the engine, each operation counts once there.
    let table = engine.charge(|| {
        let own = vec![0_u8; 100];
        let table = join.charge(|| vec![0_u8; 5_000]);
        drop(own);
        table
    });
    let allocated = |account: &Declared| account.stats().allocated;
    assert_eq!(
        [&engine, &sort, &join].map(allocated),
        [15_000, 10_000, 5_000]
    );
    assert_eq!(engine.stats().peak_allocated, 15_100);
    let from_elsewhere = std::thread::scope(|scope| {
        let sort = &sort;
        scope
            .spawn(move || sort.charge(|| vec![0_u8; 700]))
            .join()
            .unwrap()
    });
    assert_eq!([&engine, &sort].map(allocated), [15_700, 10_700]);
    sort.charge(|| drop((rows, from_elsewhere)));
    join.charge(|| drop(table));
    assert_eq!([&engine, &sort, &join].map(allocated), [0; 3]);
}

#[test]
fn tracked_tasks_are_charged_wherever_they_are_polled() {
    let query = Declared::new("tasks");
    let mut polls = 0;
    let work = std::future::poll_fn(move |_| {
        polls += 1;
        let block = black_box(vec![0_u8; 1_000]);
        std::mem::forget(block);
        if polls < 3 {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    });
    let mut task = pin!(work.tracked().declared_by(&query));
    let mut context = Context::from_waker(Waker::noop());
    while task.as_mut().poll(&mut context).is_pending() {}
    assert_eq!(query.stats().allocated, 3_000);
}

#[test]
fn what_an_ended_account_declares_is_taken_from_the_others() {
    let engine = Declared::new("ended");
    let operator = engine.child("operator");
    let partition = operator.child("partition");
    partition.grow(500);
    operator.grow(30);
    drop(operator);
    assert_eq!(engine.stats().declared, 530, "its child keeps it");
    drop(partition);
    let stats = engine.stats();
    assert_eq!((stats.declared, stats.peak_declared), (0, 530));
    assert!(
        !declared()
            .iter()
            .any(|account| account.path.starts_with("ended/"))
    );
    engine.grow(10);
    engine.shrink(25);
    assert_eq!((engine.stats().declared, engine.stats().excess), (0, 15));
    engine.grow(u64::MAX);
    assert_eq!(engine.stats().declared, 1 << 48, "at most");
    engine.shrink(u64::MAX);
    assert_eq!(engine.stats().declared, 0);
}

#[test]
fn a_threshold_is_passed_once_until_the_difference_is_gone() {
    let cache = Declared::new("threshold");
    let entries = cache.child("entries");
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    cache.on_undeclared(10, move |stats| {
        assert_eq!(stats.path, "threshold");
        assert!(stats.undeclared() > 0);
        counted.fetch_add(1, Ordering::Relaxed);
    });
    assert!(!cache.on_undeclared(1, |_| panic!("the first one stays")));
    let calls = || calls.load(Ordering::Relaxed);
    cache.grow(MIB);
    let fits = entries.charge(|| vec![0_u8; MIB as usize]);
    assert_eq!(calls(), 0);
    let more = entries.charge(|| vec![0_u8; MIB as usize / 2]);
    assert_eq!(calls(), 1);
    let again = entries.charge(|| vec![0_u8; 10]);
    assert_eq!(calls(), 1, "it is still above");
    cache.grow(MIB);
    entries.charge(|| ());
    cache.shrink(MIB);
    assert_eq!(calls(), 2, "it was below in between");
    entries.charge(|| drop((fits, more, again)));
}

#[inline(never)]
fn build_hash_table() -> Vec<u8> {
    black_box(vec![0_u8; 3 * MIB as usize])
}

#[test]
fn an_account_that_declares_too_little_is_named_with_its_sites() {
    let join = Declared::with_sites("query");
    let build = join.child("build");
    build.grow(MIB);
    let table = join.charge(|| build.charge(build_hash_table));
    for account in [&join, &build] {
        let sites = account.sites();
        assert_eq!(
            sites.iter().map(|site| site.bytes).sum::<u64>(),
            3 * MIB,
            "{sites:?}"
        );
    }
    plimsoll::assert_declared!(join, within = 200 %);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        plimsoll::assert_declared!(join, within = 10 %);
    }));
    let message = *panic.unwrap_err().downcast::<String>().unwrap();
    assert!(
        message.contains("more than 10 % are not declared: query: 1048576 bytes declared"),
        "{message}"
    );
    assert!(
        message.contains("query/build: 1048576 bytes declared"),
        "{message}"
    );
    assert!(message.contains("declared::build_hash_table"), "{message}");
    drop(table);
}

#[test]
fn the_child_of_a_fork_declares_as_well() {
    let pool = Declared::new("forks");
    pool.grow(100);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                pool.grow(1);
                pool.shrink(1);
            }
        });
        for _ in 0..50 {
            // SAFETY: the child only declares, and ends.
            let process = unsafe { libc::fork() };
            if process == 0 {
                let _deadline = child::kill_after_a_minute();
                let before = pool.stats().declared;
                pool.grow(7);
                let is_right = pool.stats().declared == before + 7 && before >= 100;
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(i32::from(!is_right)) };
            }
            assert_eq!(child::wait(process), 0);
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

fn seen_from_outside() {
    let page = |path: &str| {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        String::from_utf8(http::handle("GET", path, query).body).unwrap()
    };
    let json = |path| -> serde_json::Value { serde_json::from_str(&page(path)).unwrap() };
    assert!(!page("/metrics").contains("plimsoll_memory_declared_account"));
    assert_eq!(json("/debug/vars").get("plimsoll_declared"), None);
    let engine = Declared::new("engine");
    // Two queries sort at the same time.
    let operators = ["sort", "sort", "join"].map(|name| engine.child(name));
    let partition = operators[2].child("partition");
    operators.iter().for_each(|operator| operator.grow(70));
    partition.grow(5);
    let kept = partition.charge(|| vec![0_u8; 3000]);
    // The reader refuses families and samples that occur twice.
    let metrics = exposition::parse(&page("/metrics"), exposition::Format::Text).unwrap();
    let value = |name: &str, path: &str| metrics.value(name, &[("account", path)]);
    for (path, declared) in [
        ("engine", 215.0),
        ("engine/sort", 140.0),
        ("engine/join", 75.0),
    ] {
        assert_eq!(
            value("plimsoll_memory_declared_account_bytes", path),
            declared
        );
    }
    assert_eq!(
        value("plimsoll_memory_declared_account_allocated_bytes", "engine"),
        3000.0
    );
    assert_eq!(metrics.value("plimsoll_memory_declared_bytes", &[]), 215.0);
    let vars = json("/debug/vars")["plimsoll_declared"].take();
    assert_eq!(vars.as_array().unwrap().len(), 5);
    let expected = serde_json::json!({"Path": "engine/join/partition", "Declared": 5, "PeakDeclared": 5,
        "Allocated": 3000, "PeakAllocated": 3000, "Excess": 0});
    assert_eq!(vars[4], expected);
    let memory = json("/debug/plimsoll/memory?format=json")["footprint"].take();
    assert_eq!(memory["declared"], 215);
    let sum = memory["heap"].as_u64().unwrap() + memory["committed"].as_u64().unwrap();
    assert_eq!(memory["allocated"].as_u64(), Some(sum));
    let text = page("/debug/plimsoll/memory");
    let line = "engine/sort: 70 bytes declared, 70 at the peak; 0 allocated, 0 at the peak";
    assert!(text.lines().any(|found| found == line), "{text}");
    drop(kept);
}

#[test]
fn declared_memory_is_in_the_pages() {
    child::run("declared_memory_is_in_the_pages", "", seen_from_outside);
}
