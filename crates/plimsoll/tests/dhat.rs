//! The names of the crate `dhat`, in programs as its documentation has them.
//!
//! Each test runs in a separate process: counts are of all threads, and a process has one profiler.

#![cfg(not(plimsoll_sanitized))]

use std::hint::black_box;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::sync::Barrier;
use std::{fs, thread};

use plimsoll::dhat;
use plimsoll_testkit::{child, pprof::Profile};

#[global_allocator]
static ALLOC: dhat::Alloc = dhat::Alloc;

/// Returns the path of a file for this process.
fn file() -> PathBuf {
    std::env::temp_dir().join(format!("plimsoll-dhat-{}.pb.gz", std::process::id()))
}

/// Reads a profile and removes its file.
fn read(path: PathBuf) -> Profile {
    let profile = Profile::read(&fs::read(&path).unwrap());
    fs::remove_file(path).unwrap();
    profile
}

/// Returns the lines that the profiler printed. Messages of panics begin like them.
fn printed(errors: &str) -> Vec<&str> {
    let starts = ["Total: ", "At t-", "The data ", "error: "];
    let is_printed = |line: &&str| {
        let text = line.strip_prefix("dhat: ");
        text.is_some_and(|text| starts.iter().any(|start| text.starts_with(start)))
    };
    errors.lines().filter(is_printed).collect()
}

/// Returns the message of a panic.
fn message(work: fn()) -> String {
    let payload = catch_unwind(work).expect_err("it panics");
    let text = payload.downcast_ref::<String>().cloned();
    text.unwrap_or_else(|| payload.downcast_ref::<&str>().unwrap().to_string())
}

fn vector(length: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(length))
}

#[test]
fn a_test_counts_requested_bytes_and_prints_nothing_if_it_passes() {
    let name = "a_test_counts_requested_bytes_and_prints_nothing_if_it_passes";
    let errors = child::stderr_of(name, "", || {
        let _profiler = dhat::Profiler::builder().testing().build();
        let _kept = black_box(vec![1, 2, 3, 4]);
        drop(vec![5, 6, 7, 8]);
        drop(vec![9, 10, 11, 12]);
        let stats = dhat::HeapStats::get();
        dhat::assert_eq!(stats.total_blocks, 3);
        dhat::assert_eq!(stats.total_bytes, 48, "with {}", "a message");
        dhat::assert_eq!(stats.max_blocks, 2);
        dhat::assert_eq!(stats.max_bytes, 32);
        dhat::assert!(stats.curr_blocks == 1);
        dhat::assert!(stats.curr_bytes == 16, "{stats:?}");
        dhat::assert_ne!(stats.curr_bytes, 48);
        // Sizes that no size class has, and a grown block.
        let mut text = vector(1001);
        text.reserve_exact(5003);
        let stats = dhat::HeapStats::get();
        assert_eq!(
            (stats.total_blocks, stats.total_bytes),
            (5, 48 + 1001 + 5003)
        );
        assert_eq!((stats.curr_blocks, stats.curr_bytes), (2, 16 + 5003));
        assert_eq!((stats.max_blocks, stats.max_bytes), (2, 16 + 5003));
        text.shrink_to(0);
        drop(text);
        assert_eq!(dhat::HeapStats::get().curr_bytes, 16);
        assert_eq!(dhat::HeapStats::get().max_bytes, 16 + 5003);
    });
    if let Some(errors) = errors {
        assert_eq!(printed(&errors), [""; 0]);
    }
}

#[inline(never)]
fn site_of_kept() -> Vec<Vec<u8>> {
    black_box((0..1000).map(|_| vector(1000)).collect())
}

#[inline(never)]
fn site_at_the_peak() -> Vec<Vec<u8>> {
    black_box((0..1000).map(|_| vector(2000)).collect())
}

/// Less than is in use later: otherwise the peak would be at the beginning.
#[inline(never)]
fn older() -> Vec<Vec<u8>> {
    black_box((0..100).map(|_| vector(3000)).collect())
}

#[test]
fn a_profiler_prints_the_counts_and_writes_each_site() {
    let errors = child::stderr_of(
        "a_profiler_prints_the_counts_and_writes_each_site",
        "",
        || {
            let older = older();
            let file = file();
            let rate = plimsoll::profile::heap_rate();
            let profiler = dhat::Profiler::builder().file_name(&file).build();
            drop(older);
            let kept = site_of_kept();
            drop(site_at_the_peak());
            drop(profiler);
            drop(kept);
            assert_eq!(plimsoll::profile::heap_rate(), rate);

            let profile = read(file);
            let types = profile.sample_types();
            assert_eq!(types[0], ("alloc_objects", "count"));
            assert_eq!(
                types[4..],
                [("peak_objects", "count"), ("peak_space", "bytes")]
            );
            let of = |site: &str| {
                let samples = profile.sample.iter();
                let here =
                    samples.filter(|it| profile.names(it).iter().any(|name| name.contains(site)));
                here.fold([0; 6], |sum, sample| {
                    std::array::from_fn(|at| sum[at] + sample.value[at])
                })
            };
            // With the vector of vectors: 24,000 bytes, of the size class 24,576.
            let kept = 1000 * 1000 + 24_576;
            assert_eq!(of("site_of_kept"), [1001, kept, 1001, kept, 1001, kept]);
            // The class of 2,000 bytes is 2,048.
            let peak = 1000 * 2048 + 24_576;
            assert_eq!(of("site_at_the_peak"), [1001, peak, 0, 0, 1001, peak]);
            assert_eq!(of("dhat::older"), [0; 6]);
            let total = of("");
            assert_eq!(total[0], 2002);
            let leaves = profile.sample.iter().map(|sample| profile.names(sample)[0]);
            for leaf in leaves {
                assert!(
                    leaf.contains("dhat::vector") || leaf.contains("dhat::site"),
                    "{leaf}"
                );
            }
        },
    );
    let Some(errors) = errors else { return };
    let printed = printed(&errors);
    assert_eq!(
        printed[..3],
        [
            "dhat: Total:     3,048,000 bytes in 2,002 blocks",
            "dhat: At t-gmax: 3,048,000 bytes in 2,002 blocks",
            "dhat: At t-end:  1,024,000 bytes in 1,001 blocks",
        ]
    );
    assert!(printed[3].contains("has been saved to"), "{}", printed[3]);
    assert_eq!(printed.len(), 4);
}

#[test]
fn blocks_older_than_the_profiler_do_not_count() {
    child::run("blocks_older_than_the_profiler_do_not_count", "", || {
        let [freed, mut grown, kept] = [1000, 2000, 3000].map(vector);
        let profiler = dhat::Profiler::builder().testing().build();
        drop(freed);
        let stats = dhat::HeapStats::get();
        assert_eq!(
            (stats.total_blocks, stats.curr_blocks, stats.max_bytes),
            (0, 0, 0)
        );
        grown.reserve_exact(100_000);
        let stats = dhat::HeapStats::get();
        assert_eq!((stats.total_blocks, stats.total_bytes), (1, 100_000));
        assert_eq!((stats.curr_blocks, stats.curr_bytes), (1, 100_000));
        drop(profiler);

        // A second profiler begins at zero and knows none of the first one's blocks.
        let _profiler = dhat::Profiler::builder().testing().build();
        drop((grown, kept));
        let stats = dhat::HeapStats::get();
        assert_eq!(
            (stats.total_blocks, stats.curr_blocks, stats.curr_bytes),
            (0, 0, 0)
        );
    });
}

#[test]
fn all_threads_count_together() {
    child::run("all_threads_count_together", "", || {
        const THREADS: usize = 8;
        let _profiler = dhat::Profiler::builder().testing().build();
        let at_peak = Barrier::new(THREADS);
        let work = || {
            for size in 1..=2000 {
                drop(vector(size));
            }
            at_peak.wait();
            let kept = vector(1 << 20);
            at_peak.wait();
            kept
        };
        let before = dhat::HeapStats::get();
        let kept = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
            threads
                .into_iter()
                .map(|it| it.join().unwrap())
                .collect::<Vec<_>>()
        });
        let after = dhat::HeapStats::get();
        // Threads allocate some blocks themselves, of a few hundred bytes each.
        let blocks = after.total_blocks - before.total_blocks;
        assert!(
            (THREADS as u64 * 2001..THREADS as u64 * 2021).contains(&blocks),
            "{after:?}"
        );
        let own = after.total_bytes - (THREADS * (2000 * 2001 / 2 + (1 << 20))) as u64;
        assert!(own < 50_000, "{after:?}");
        assert!(
            (THREADS << 20..(THREADS << 20) + 50_000).contains(&after.max_bytes),
            "{after:?}"
        );
        // Freed by another thread than the one that allocated them.
        let in_use = dhat::HeapStats::get();
        let bytes: usize = kept.iter().map(Vec::capacity).sum();
        let list = kept.capacity() * size_of::<Vec<u8>>();
        drop(kept);
        let after = dhat::HeapStats::get();
        assert_eq!(in_use.curr_bytes - after.curr_bytes, bytes + list);
        assert_eq!(in_use.curr_blocks - after.curr_blocks, THREADS + 1);
    });
}

#[test]
fn a_failed_assertion_writes_a_profile_and_ends_the_profiler() {
    let name = "a_failed_assertion_writes_a_profile_and_ends_the_profiler";
    let errors = child::stderr_of(name, "", || {
        let _profiler = dhat::Profiler::builder()
            .testing()
            .file_name(file())
            .build();
        let kept = vector(1000);
        assert_eq!(
            message(|| dhat::assert_eq!(dhat::HeapStats::get().total_bytes, 7, "{}", "why")),
            "dhat: getting heap stats after the profiler has asserted"
        );
        drop(kept);
        let profile = read(file());
        assert_eq!(profile.sum(&profile.sample).alloc_objects, 1);
        assert_eq!(
            message(|| dhat::assert!(true)),
            "dhat: asserting after the profiler has asserted"
        );
    });
    if let Some(errors) = errors {
        let printed = printed(&errors);
        assert_eq!(printed[0], "dhat: Total:     1,000 bytes in 1 blocks");
        assert_eq!(printed[2], "dhat: At t-end:  1,000 bytes in 1 blocks");
        assert_eq!(printed.len(), 4, "and nothing when it is dropped");
    }
}

#[test]
fn messages_of_assertions_are_those_of_dhat() {
    child::run("messages_of_assertions_are_those_of_dhat", "", || {
        for (expected, work) in [
            (
                "dhat: assertion failed: 1 > 2",
                (|| dhat::assert!(1 > 2)) as fn(),
            ),
            ("dhat: assertion failed: 1 > 2: because 3", || {
                dhat::assert!(1 > 2, "because {}", 3)
            }),
            (
                "dhat: assertion failed: `(left == right)`\n  left: `1`,\n right: `2`",
                || dhat::assert_eq!(1, 2),
            ),
            (
                "dhat: assertion failed: `(left == right)`\n  left: `1`,\n right: `2`: a",
                || dhat::assert_eq!(1, 2, "a"),
            ),
            (
                "dhat: assertion failed: `(left != right)`\n  left: `1`,\n right: `1`: a",
                || dhat::assert_ne!(1, 1, "a"),
            ),
        ] {
            let _profiler = dhat::Profiler::builder()
                .testing()
                .file_name(file())
                .build();
            assert_eq!(message(work), expected);
        }
        fs::remove_file(file()).unwrap();
    });
}

#[test]
fn misuse_panics() {
    child::run("misuse_panics", "", || {
        assert_eq!(
            message(|| {
                dhat::HeapStats::get();
            }),
            "dhat: getting heap stats when no profiler is running"
        );
        assert_eq!(
            message(|| dhat::assert!(true)),
            "dhat: asserting when no profiler is running"
        );
        let profiler = dhat::Profiler::builder().file_name(file()).build();
        assert_eq!(
            message(|| drop(dhat::Profiler::new_heap())),
            "dhat: creating a profiler while a profiler is already running"
        );
        assert_eq!(
            message(|| dhat::assert!(true)),
            "dhat: asserting while not in testing mode"
        );
        drop(profiler);
        fs::remove_file(file()).unwrap();
    });
}

#[test]
fn a_file_that_cannot_be_written_is_reported_and_the_environment_sets_the_rate() {
    let name = "a_file_that_cannot_be_written_is_reported_and_the_environment_sets_the_rate";
    let errors = child::stderr_of(name, "heap_rate=64k", || {
        let builder = dhat::Profiler::builder().file_name("/none/heap.pb.gz");
        let _profiler = builder.trim_backtraces(Some(1)).build();
        assert_eq!(plimsoll::profile::heap_rate(), 64 << 10);
        assert_eq!(plimsoll::profile::set_stack_depth(4), 4);
    });
    if let Some(errors) = errors {
        let last = *printed(&errors).last().unwrap();
        assert!(
            last.starts_with("dhat: error: cannot write /none/heap.pb.gz: "),
            "{last}"
        );
    }
}

#[test]
fn a_forked_child_continues_its_counts_alone() {
    child::run("a_forked_child_continues_its_counts_alone", "", || {
        let _profiler = dhat::Profiler::builder().testing().build();
        let kept = vector(1000);
        // SAFETY: this process has one thread, and the child ends without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(kept);
            let more = vector(5000);
            let stats = dhat::HeapStats::get();
            let is_right =
                (stats.total_bytes, stats.curr_bytes, stats.max_blocks) == (6000, 5000, 1);
            drop(more);
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        assert_eq!(plimsoll_testkit::child::wait(child), 0);
        assert_eq!(dhat::HeapStats::get().total_bytes, 1000);
    });
}
