//! Free space in mimalloc's pages, and its sites.

use plimsoll::stats::{Unavailable, fragmentation};
use plimsoll_checks::{pages, relations};
use plimsoll_testkit::{child, pprof};

#[path = "../holes/mod.rs"]
mod holes;

fn tested(name: &str, test: fn()) {
    child::run(name, "", test);
}

#[test]
fn one_small_block_of_each_slab_is_left() {
    tested("one_small_block_of_each_slab_is_left", || {
        holes::one_of_each_slab_is_left::<1000>(1024, 64 << 10);
        holes::one_of_each_slab_is_left::<60>(64, 64 << 10);
    });
}

/// Blocks above 32 KiB, up to 512 KiB, share pages as well.
#[test]
fn larger_blocks_have_holes_between_them() {
    tested("larger_blocks_have_holes_between_them", || {
        let mut blocks: Vec<_> = (0..800).map(|_| pages::touched(100_000)).collect();
        let full = fragmentation().unwrap();
        let mut number = 0;
        blocks.retain(|_| {
            number += 1;
            number % 2 == 0
        });
        let half = fragmentation().unwrap();
        let [full, half] = [full, half].map(|reading| holes::class_of(&reading, 100_000));
        assert_eq!(full.in_use - half.in_use, 400);
        assert!(half.sparse() - full.sparse() >= 400 * 100_000);
        assert_eq!(half.live, None);
        drop(blocks);
    });
}

/// The reading includes blocks of other threads. Blocks that one thread frees for another become
/// free space once their owner collects them.
#[test]
fn pages_of_all_threads_are_seen() {
    tested("pages_of_all_threads_are_seen", || {
        let (send, receive) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            send.send(holes::filled::<400>(10_000)).unwrap();
            // The thread stays alive and does not collect freed blocks.
            let _ = wait.recv();
        });
        let blocks = receive.recv().unwrap();
        let class = || holes::class_of(&fragmentation().unwrap(), 400);
        let with = class();
        assert!(with.in_use >= 9_900, "{with:?}");
        let live = with.live.unwrap().blocks;
        assert!((9_900..10_500).contains(&live), "{with:?}");
        drop(blocks);
        let freed = class();
        assert!(freed.live.unwrap().blocks < 500, "{freed:?}");
        eprintln!("{with:?}\n{freed:?}");
        drop(end);
        thread.join().unwrap();
    });
}

#[test]
fn sites_of_sparse_pages_are_named() {
    child::run(
        "sites_of_sparse_pages_are_named",
        "heap_rate=16k",
        holes::sites_of_sparse_pages_are_named,
    );
}

#[test]
fn the_page_is_a_table_or_json() {
    tested("the_page_is_a_table_or_json", holes::pages);
}

#[test]
fn readings_under_load_are_consistent() {
    tested("readings_under_load_are_consistent", || {
        let backend = plimsoll::stats::backend().unwrap();
        holes::read_under_load(500, true, |reading| {
            let committed = backend.pages().committed.bytes;
            // Bytes that four threads may have freed meanwhile.
            assert!(reading.active() < committed + (180 << 20), "{reading}");
        });
    });
}

#[test]
fn a_forks_child_can_ask() {
    tested("a_forks_child_can_ask", holes::a_forks_child_can_ask);
}

/// Plimsoll does not walk mimalloc's list of pages where mimalloc may unmap it during the walk.
#[test]
fn fragmentation_is_not_reported_where_that_is_unsafe() {
    const NAME: &str = "fragmentation_is_not_reported_where_that_is_unsafe";
    const SETTING: &str = "MIMALLOC_VISIT_ABANDONED";
    if std::env::var_os(SETTING).is_some() {
        assert_eq!(fragmentation(), Err(Unavailable::ByBackend("mimalloc")));
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([&*plimsoll_testkit::child::full_name(NAME), "--exact"])
        .env(SETTING, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

#[test]
fn memory_has_owners() {
    tested("memory_has_owners", holes::memory_has_owners);
}

#[test]
fn other_mappings_are_nobodys() {
    tested(
        "other_mappings_are_nobodys",
        holes::other_mappings_are_nobodys,
    );
}
