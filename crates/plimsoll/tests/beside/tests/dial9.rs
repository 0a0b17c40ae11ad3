//! dial9 records tasks and CPU samples of a program whose allocations go to Plimsoll's allocator. Both have a timer
//! for each thread: dial9's sends SIGPROF, and Plimsoll's a real-time signal.

#[path = "dial9/trace.rs"]
mod trace;

use std::time::Duration;

use dial9::RecorderPerfExt as _;
use dial9::cpu::CpuProfilingConfig;
use plimsoll::task::TrackExt;
use plimsoll_beside::{BURN, NAME, allocates_in_each_poll, does_the_work, in_child};
use trace::{Folder, attach};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

/// dial9's samples for each second of CPU time.
const RATE: u64 = 99;

fn dial9_records() {
    let plimsoll = plimsoll::start();
    let pages = plimsoll.http_address().expect("the settings request pages");
    let folder = Folder::new("tasks");
    let recorder = dial9::recorder(folder.writer())
        .with_cpu_profiling(CpuProfilingConfig::with_ctimer_backend().frequency_hz(RATE))
        .build();
    let runtime = attach(&recorder);
    let handle = runtime.handle().clone();
    let done = does_the_work(&runtime, pages, |gate| {
        dial9::spawn_in(&handle, allocates_in_each_poll(gate).tracked_as(NAME))
    });
    drop(runtime);
    recorder.graceful_shutdown(Duration::from_secs(60));

    let events = folder.events();
    events.assert_tasks("tests/dial9.rs");
    let samples = events.cpu_samples_in("src/cpu.rs");
    // The samples of each of those polls stand for its CPU time. On a busy machine, dial9 makes one sample of several
    // late signals, so half of the samples suffice.
    let expected = done.cpu * RATE / 1_000_000_000;
    assert!(
        samples >= expected / 2 && samples <= expected + expected / 20 + 2 * done.burns,
        "{samples} samples, expected {expected} in {} polls of {BURN:?}",
        done.burns
    );
}

#[test]
fn dial9_and_plimsoll_record_the_same_polls_and_cpu_time() {
    let name = "dial9_and_plimsoll_record_the_same_polls_and_cpu_time";
    in_child(name, &[], dial9_records);
}
