//! dial9's allocator over Plimsoll's. dial9 records each of the blocks and its free,
//! and Plimsoll counts each.

#[path = "dial9/trace.rs"]
mod trace;

use std::alloc::System;
use std::time::Duration;

use dial9::RecorderPerfExt as _;
use dial9::cpu::CpuProfilingConfig;
use dial9::memory::{Dial9Allocator, MemoryProfilingConfig};
use plimsoll::Alloc;
use plimsoll::task::TrackExt;
use plimsoll_beside::{BLOCKS, NAME, SIZE, allocates_in_each_poll, does_the_work, in_child};
use trace::{Folder, attach};

#[global_allocator]
static ALLOC: Dial9Allocator<Alloc<System>> = Dial9Allocator::new(Alloc::system());

/// Mean bytes between dial9's samples. The probability that it misses one of the blocks is
/// 1,000 * exp(-21,000 / 768), which is 1e-9.
const RATE: u64 = 768;

/// More than the samples between two readings of the queue by dial9.
const CAPACITY: usize = 1 << 16;

fn dial9_records_memory() {
    let plimsoll = plimsoll::start();
    let pages = plimsoll.http_address().expect("the settings request pages");
    let folder = Folder::new("memory");
    let memory = MemoryProfilingConfig::builder()
        .sample_rate_bytes(RATE)
        .track_liveset(true)
        .ring_capacity(CAPACITY)
        .build();
    let recorder = dial9::recorder(folder.writer())
        .with_memory_profiling(memory)
        .with_cpu_profiling(CpuProfilingConfig::default())
        .build();
    assert!(dial9::memory::is_installed());
    let runtime = attach(&recorder);
    let handle = runtime.handle().clone();
    let done = does_the_work(&runtime, pages, |gate| {
        dial9::spawn_in(&handle, allocates_in_each_poll(gate).tracked_as(NAME))
    });
    assert!(done.burns > 0);
    drop(runtime);
    recorder.graceful_shutdown(Duration::from_secs(60));

    let events = folder.events();
    events.assert_tasks("tests/dial9_allocator.rs");
    assert_eq!(events.memory(SIZE), [BLOCKS; 2]);
    assert!(events.cpu_samples_in("src/cpu.rs") > 0);
}

#[test]
fn dial9_and_plimsoll_record_the_same_allocations() {
    let name = "dial9_and_plimsoll_record_the_same_allocations";
    in_child(name, &[], dial9_records_memory);
}
