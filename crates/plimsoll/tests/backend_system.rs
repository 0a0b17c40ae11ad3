//! The C library's allocator, with figures from its own statistics.

#[global_allocator]
static ALLOC: plimsoll::Alloc =
    plimsoll::Alloc::with_backend(std::alloc::System, &System::DETAILED);

use plimsoll::mem_stats;
use plimsoll::stats::backend::System;
use plimsoll::stats::{self, Exactness};
use plimsoll_checks::{pages, relations};
use plimsoll_testkit::child;

use pages::{MIB, touched};

fn tested(name: &str, test: fn()) {
    child::run(name, "", test);
}

#[test]
fn figures_are_those_of_mallinfo2() {
    tested("figures_are_those_of_mallinfo2", || {
        let backend = stats::backend().expect("one exists");
        assert_eq!(backend.name(), "system");
        let kept = touched(3_000_000);
        let pages = backend.pages();
        // SAFETY: callable at any time.
        let info = unsafe { libc::mallinfo2() };
        assert_eq!(pages.reserved.bytes, (info.arena + info.hblkhd) as u64);
        assert_eq!(pages.active.bytes, (info.uordblks + info.hblkhd) as u64);
        assert_eq!(pages.reserved.exactness, Exactness::Racy);
        assert_eq!(pages.active.exactness, Exactness::Racy);
        assert_eq!(pages.committed.known(), None);
        assert_eq!(pages.metadata.known(), None);
        assert!(info.hblkhd > 3_000_000, "a separate mapping");
        drop(kept);
    });
}

/// Known amounts of memory that are mapped, touched, freed and returned.
#[test]
fn known_amounts_are_reported() {
    tested("known_amounts_are_reported", || {
        let empty = mem_stats();
        let mut blocks: Vec<_> = (0..1024).map(|_| touched(64 << 10)).collect();
        let full = mem_stats();
        let grown = full.heap_inuse - empty.heap_inuse;
        assert!((64 * MIB..65 * MIB).contains(&grown), "{grown} more in use");
        assert!(full.heap_sys - empty.heap_sys >= 63 * MIB);
        // Frees every other block: shrinking the heap cannot return this memory.
        let mut at = 0;
        blocks.retain(|_| {
            at += 1;
            at % 2 == 0
        });
        let half = mem_stats();
        let freed = full.heap_inuse - half.heap_inuse;
        assert!((31 * MIB..33 * MIB).contains(&freed), "{freed} not in use");
        assert!(half.heap_idle >= 31 * MIB);
        assert_eq!(half.heap_released, 0, "not known");
        drop(blocks);
    });
}

#[test]
fn free_os_memory_gives_back() {
    tested("free_os_memory_gives_back", || {
        let (before, after) = pages::free_os_memory_gives_back();
        assert!(before.heap_inuse - after.heap_inuse >= 31 * MIB);
    });
}

/// Blocks of 1025 bytes count as 1152 bytes, and glibc uses 1040 bytes for each.
#[test]
fn counted_bytes_above_the_allocators_figure_are_slack() {
    tested(
        "counted_bytes_above_the_allocators_figure_are_slack",
        || {
            // Takes the first 64 KiB of free memory that the heap may have kept.
            let _rest = touched(2 << 20);
            let blocks: Vec<_> = (0..20_000).map(|_| touched(1025)).collect();
            let stats = mem_stats();
            relations::assert_relations(&stats);
            assert!(stats.heap_slack > 1_000_000, "{}", stats.heap_slack);
            assert_eq!(stats.heap_inuse, stats.heap_alloc);
            drop(blocks);
            assert_eq!(mem_stats().heap_slack, 0);
        },
    );
}

#[test]
fn relations_hold_in_every_reading_under_load() {
    tested("relations_hold_in_every_reading_under_load", || {
        let (readings, with_slack) = pages::read_under_load(2000, 1);
        eprintln!("{with_slack} of {readings} readings with slack");
    });
}

#[test]
fn metrics_agree_while_large_blocks_churn() {
    tested(
        "metrics_agree_while_large_blocks_churn",
        pages::metrics_agree_while_large_blocks_churn,
    );
}
