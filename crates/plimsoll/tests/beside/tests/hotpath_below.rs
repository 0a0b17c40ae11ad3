//! hotpath's allocator below Plimsoll's. Plimsoll takes the memory of sampled blocks from its own mappings, so hotpath
//! counts the others.

#[path = "hotpath/report.rs"]
mod report;

use std::alloc::System;

use hotpath::{CountingAllocator, Format, HotpathGuardBuilder, Section};
use plimsoll::Alloc;
use plimsoll::task::TrackExt;
use plimsoll_beside::{BLOCKS, BLOCKS_BOUND, NAME, POLLS, TASKS};
use plimsoll_beside::{allocates_in_each_poll, does_the_work, in_child};
use report::Report;

#[global_allocator]
static ALLOC: Alloc<CountingAllocator<System>> = Alloc::new(CountingAllocator::new());

fn hotpath_counts_blocks_that_are_not_sampled() {
    let plimsoll = plimsoll::start();
    let pages = plimsoll.http_address().expect("the settings request pages");
    let report = Report::new("below");
    let guard = HotpathGuardBuilder::new("below")
        .format(Format::Json)
        .output_path(report.path())
        .limit(0)
        .sections(vec![Section::Futures])
        .build();
    let runtime = report::runtime();
    does_the_work(&runtime, pages, |gate| {
        let task = hotpath::future!(allocates_in_each_poll(gate), label = "beside");
        tokio::spawn(task.tracked_as(NAME))
    });
    drop(guard);

    let report = report.read();
    let future = report.future("beside");
    assert_eq!(future["total_polls"], TASKS * POLLS);
    let counted = future["total_poll_alloc_count"].as_u64();
    let counted = counted.expect("hotpath counts allocations");
    // 28 per cent of the blocks, with five standard deviations, which are less than BLOCKS_BOUND, and the vectors.
    let expected = (BLOCKS * 28 / 100 + TASKS) as u64;
    assert!(counted.abs_diff(expected) <= BLOCKS_BOUND, "{counted}");
}

#[test]
fn hotpath_below_plimsoll_counts_the_blocks_that_are_not_sampled() {
    let name = "hotpath_below_plimsoll_counts_the_blocks_that_are_not_sampled";
    in_child(
        name,
        &report::VARIABLES,
        hotpath_counts_blocks_that_are_not_sampled,
    );
}
