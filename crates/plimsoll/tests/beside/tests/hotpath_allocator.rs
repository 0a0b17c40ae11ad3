//! hotpath's allocator over Plimsoll's. Both count each allocation of the program: hotpath by the function that makes
//! it.

#[path = "hotpath/report.rs"]
mod report;

use std::alloc::System;

use hotpath::{CountingAllocator, Format, HotpathGuardBuilder, Section};
use plimsoll::Alloc;
use plimsoll::task::TrackExt;
use plimsoll_beside::{
    BLOCKS, Gate, Kept, NAME, POLLS, POLLS_BEFORE_GATE, SIZE, TASKS, allocates_in_each_poll,
    does_the_work, in_child,
};
use report::Report;

#[global_allocator]
static ALLOC: CountingAllocator<Alloc<System>> = CountingAllocator::with(Alloc::system());

/// The number of calls of [`allocates`].
const CALLS: usize = 25;

#[hotpath::measure]
fn allocates() -> Vec<u8> {
    std::hint::black_box(Vec::with_capacity(SIZE))
}

#[hotpath::measure]
async fn measured(gate: Gate) -> Kept {
    hotpath::future!(allocates_in_each_poll(gate), label = "beside").await
}

fn hotpath_counts_allocations() {
    let plimsoll = plimsoll::start();
    let pages = plimsoll.http_address().expect("the settings request pages");
    let report = Report::new("allocations");
    let guard = HotpathGuardBuilder::new("hotpath_counts_allocations")
        .format(Format::Json)
        .output_path(report.path())
        .limit(0)
        .sections(vec![
            Section::FunctionsAlloc,
            Section::Futures,
            Section::Threads,
        ])
        .build();
    let runtime = report::runtime();
    does_the_work(&runtime, pages, |gate| {
        tokio::spawn(measured(gate).tracked_as(NAME))
    });
    let counted = plimsoll_testkit::counts::added(SIZE, || {
        for _ in 0..CALLS {
            drop(allocates());
        }
    });
    assert_eq!(counted[..2], [CALLS as u64; 2]);
    drop(guard);

    let report = report.read();
    let calls = report.function("functions_alloc", "allocates");
    assert_eq!(calls["calls"], CALLS);
    assert_eq!(calls["total"], CALLS.to_string());
    let tasks = report.function("functions_alloc", "measured");
    assert_eq!(tasks["calls"], TASKS);
    let future = report.future("beside");
    assert_eq!(future["call_count"], TASKS);
    assert_eq!(future["total_polls"], TASKS * POLLS);
    // The blocks and one vector for each task. Plimsoll's own memory is not in hotpath's figures.
    assert_eq!(future["total_poll_alloc_count"], BLOCKS + TASKS);
    let vector = POLLS_BEFORE_GATE * size_of::<Vec<u8>>();
    assert_eq!(
        future["total_poll_alloc_bytes"],
        BLOCKS * SIZE + TASKS * vector
    );
}

#[test]
fn hotpath_and_plimsoll_count_the_same_allocations() {
    let name = "hotpath_and_plimsoll_count_the_same_allocations";
    in_child(name, &report::VARIABLES, hotpath_counts_allocations);
}
