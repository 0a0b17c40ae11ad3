//! hotpath measures functions and futures of a program whose allocations go to Plimsoll's allocator.

#[path = "hotpath/report.rs"]
mod report;

use hotpath::{Format, HotpathGuardBuilder, Section};
use plimsoll::task::TrackExt;
use plimsoll_beside::{
    BURN, Gate, Kept, NAME, POLLS, TASKS, allocates_in_each_poll, burns_here, does_the_work,
    in_child,
};
use report::Report;

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

/// The number of calls of [`burns_again`].
const CALLS: u64 = 3;

#[hotpath::measure]
async fn measured(gate: Gate) -> Kept {
    hotpath::future!(allocates_in_each_poll(gate), label = "beside").await
}

#[hotpath::measure]
fn burns_again() -> u64 {
    burns_here()
}

fn hotpath_measures() {
    let plimsoll = plimsoll::start();
    let pages = plimsoll.http_address().expect("the settings request pages");
    let report = Report::new("timing");
    let guard = HotpathGuardBuilder::new("hotpath_measures")
        .format(Format::Json)
        .output_path(report.path())
        .limit(0)
        .sections(vec![
            Section::FunctionsTiming,
            Section::Futures,
            Section::Threads,
        ])
        .build();
    let runtime = report::runtime();
    does_the_work(&runtime, pages, |gate| {
        tokio::spawn(measured(gate).tracked_as(NAME))
    });
    let cpu: u64 = (0..CALLS).map(|_| burns_again()).sum();
    drop(guard);

    let report = report.read();
    let tasks = report.function("functions_timing", "measured");
    assert_eq!(tasks["calls"], TASKS);
    let burns = report.function("functions_timing", "burns_again");
    assert_eq!(burns["calls"], CALLS);
    // Elapsed time, which is at least the CPU time. The report rounds it to two decimals.
    let total = burns["total"].as_str().and_then(hotpath::parse_duration);
    let total = total.expect("a duration");
    assert!(total >= cpu - cpu / 100, "{total} of {cpu} ns");
    assert!(
        total >= CALLS * BURN.as_nanos() as u64 * 99 / 100,
        "{total}"
    );
    let future = report.future("beside");
    assert_eq!(future["call_count"], TASKS);
    assert_eq!(future["total_polls"], TASKS * POLLS);
}

#[test]
fn hotpath_and_plimsoll_count_the_same_calls_and_polls() {
    let name = "hotpath_and_plimsoll_count_the_same_calls_and_polls";
    in_child(name, &report::VARIABLES, hotpath_measures);
}
