//! Free space in jemalloc's pages, compared with jemalloc's own statistics, and its sites.

#[global_allocator]
static ALLOC: plimsoll::Alloc<Jemalloc> = plimsoll::Alloc::jemalloc();

use plimsoll_checks::{pages, relations};
use plimsoll_testkit::{child, pprof};
use std::ffi::CString;
use std::ptr::null_mut;

use plimsoll::stats::backend::Jemalloc;
use plimsoll::stats::fragmentation;

#[path = "holes/mod.rs"]
mod holes;

fn tested(name: &str, test: fn()) {
    child::run(name, "", test);
}

/// Returns a figure from jemalloc's last copy of its statistics.
fn jemalloc_figure(name: &str) -> u64 {
    let name = CString::new(name).unwrap();
    let (mut is, mut size) = (0_usize, size_of::<usize>());
    // SAFETY: every figure that this file reads has this type.
    let failed = unsafe {
        tikv_jemalloc_sys::mallctl(
            name.as_ptr(),
            (&raw mut is).cast(),
            &raw mut size,
            null_mut(),
            0,
        )
    };
    assert_eq!(failed, 0, "{name:?}");
    is as u64
}

#[test]
fn one_small_block_of_each_slab_is_left() {
    tested("one_small_block_of_each_slab_is_left", || {
        holes::one_of_each_slab_is_left::<1000>(1024, 4096);
        holes::one_of_each_slab_is_left::<60>(64, 4096);
    });
}

/// The sums over all classes equal jemalloc's active and allocated bytes exactly. Allocated blocks
/// that are not live are in threads' caches.
#[test]
fn sums_are_those_of_jemalloc() {
    tested("sums_are_those_of_jemalloc", || {
        let mut kept = holes::filled::<1000>(3000);
        let large: Vec<_> = (0..50).map(|at| vec![0_u8; 5000 * at]).collect();
        kept.truncate(1000);
        for _ in 0..2 {
            let reading = fragmentation().unwrap();
            assert_eq!(reading.active(), jemalloc_figure("stats.active"));
            let allocated = jemalloc_figure("stats.allocated");
            assert_eq!(reading.active() - reading.sparse(), allocated);
            let of_all = |name| jemalloc_figure(&format!("stats.arenas.4096.{name}")) as i64;
            let expected = of_all("tcache_bytes") + of_all("internal");
            // A live block above 1 KiB counts in one of Go's classes, which may span the end of one
            // of jemalloc's. It may then count in jemalloc's next class, which is larger by up to a
            // quarter.
            let (mut kept, mut unknown) = (0, 0);
            for class in reading
                .classes
                .iter()
                .filter(|class| class.largest <= 32_768)
            {
                let live = class.live.unwrap().blocks as i64;
                kept += (class.in_use as i64 - live) * class.largest as i64;
                if class.largest > 1024 {
                    unknown += live * class.largest as i64 / 4;
                }
            }
            eprintln!(
                "{reading}\n{expected} cached or its own, {kept} kept, {unknown} less or not"
            );
            assert!(
                kept <= expected + unknown && kept + 4096 >= expected,
                "{reading}"
            );
        }
        drop((kept, large));
    });
}

/// The sums also hold where hooks would change how jemalloc works, so that its pages are not
/// reported.
#[test]
fn sums_hold_however_jemalloc_is_set_up() {
    for settings in [
        "retain:false",
        "hpa:true",
        "percpu_arena:percpu",
        "cache_oblivious:false",
        "tcache:false",
        "disable_large_size_classes:false",
    ] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                &*plimsoll_testkit::child::full_name("sums_are_those_of_jemalloc"),
                "--exact",
            ])
            .env("_RJEM_MALLOC_CONF", settings)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{settings}: {said}"
        );
    }
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
        holes::read_under_load(100, true, |_| {});
        let mut furthest = 0;
        holes::read_under_load(200, false, |reading| {
            // From the same copy of the statistics.
            let active = jemalloc_figure("stats.active");
            furthest = furthest.max(reading.active().abs_diff(active));
        });
        eprintln!("at most {furthest} bytes apart");
        // jemalloc reads an arena's pages and its bins one after another. Meanwhile, each thread
        // may have freed up to 41 blocks of up to 1 MiB.
        assert!(furthest < 180 << 20, "{furthest}");
    });
}

#[test]
fn a_forks_child_can_ask() {
    tested("a_forks_child_can_ask", holes::a_forks_child_can_ask);
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
