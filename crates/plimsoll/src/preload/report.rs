//! The report of a process at its end: profiles with addresses, which the reader of the report
//! resolves to names, and numbers.
//!
//! The numbers are written last, and atomically: if they exist, the report is complete.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use plimsoll_pprof::kinds::{AT_EXIT, ProfileKind};
use plimsoll_symbolize::Detail;
use plimsoll_sys::os::clock;
use plimsoll_sys::primitives::{AtomicU64, Ordering};

use super::inherited::{self, Counted, Inherited};
use super::wall;
use crate::alloc::malloc::{self, UnderlyingKind};
use crate::export::{self, Extent};
use crate::json;
use crate::profile;
use crate::profile::reading::Reading;
use crate::stack;
use crate::stats::HeapStats;
use crate::stats::mem_stats;
use crate::{internal_heap, sampler};

/// The start of the process, as far as this library knows it, by [`clock::since_boot`].
static BEGAN: AtomicU64 = AtomicU64::new(0);

pub(super) fn begin() {
    BEGAN.store(clock::since_boot(), Ordering::Relaxed);
}

/// Writes everything; parts that cannot be written are missing.
pub(super) fn write(directory: &Path, ending: &str) {
    let process = std::process::id();
    let inherited = inherited::get();
    // Read before the profiles, to exclude their memory. The numbers of mappings are the sums of
    // their profile, because other threads map and unmap meanwhile.
    let counted = Counted::read();
    stack::refresh_modules();
    let mmap = inherited::own_reading(inherited, "mmap");
    let mapped = mmap.as_ref().map(Mapped::of).unwrap_or_default();
    let numbers = numbers(ending, &counted, inherited, mapped);
    for ProfileKind { name, .. } in AT_EXIT {
        if name == "profile" && profile::cpu::rate() == 0 {
            continue;
        }
        let reading = match name {
            "mmap" => mmap.clone(),
            "wall" => wall::read(),
            _ => inherited::own_reading(inherited, name),
        };
        let Some(reading) = reading else {
            continue;
        };
        let extent = Extent {
            detail: Detail::Addresses,
            idle: false,
        };
        let bytes = export::pprof(&reading, extent);
        let _ = std::fs::write(directory.join(format!("{process}.{name}.pb.gz")), bytes);
    }
    internal_heap::trim();
    let beside = directory.join(format!("{process}.part"));
    let written = std::fs::write(&beside, numbers);
    let _ =
        written.and_then(|()| std::fs::rename(&beside, directory.join(format!("{process}.json"))));
}

/// Mappings of the program, by the values of their profile.
#[derive(Clone, Copy, Default)]
struct Mapped {
    calls: i64,
    bytes: i64,
    mappings: i64,
    live_bytes: i64,
}

impl Mapped {
    fn of(reading: &Reading) -> Self {
        let mut sum = Self::default();
        for sample in &reading.samples {
            let [calls, bytes, mappings, live_bytes, ..] = sample.values;
            sum.calls += calls;
            sum.bytes += bytes;
            sum.mappings += mappings;
            sum.live_bytes += live_bytes;
        }
        sum
    }
}

fn numbers(
    ending: &str,
    counted: &Counted,
    inherited: Option<&Inherited>,
    mapped: Mapped,
) -> String {
    let none = Counted::default();
    let before = inherited.map_or(&none, |inherited| &inherited.counted);
    let most = malloc::most(HeapStats::of(&counted.heap).live_bytes());
    let inherited_stats = HeapStats::of(&before.heap);
    let inherited_heap = match inherited {
        Some(_) => format!(
            "[{},{}]",
            inherited_stats.live_objects(),
            inherited_stats.live_bytes()
        ),
        None => "null".to_owned(),
    };
    let counted = counted.since(before);
    let heap = HeapStats::of(&counted.heap);
    let (locks, lost) = (&counted.locks, &counted.lost);
    let own = mem_stats();
    let elapsed =
        Duration::from_nanos(clock::since_boot().saturating_sub(BEGAN.load(Ordering::Relaxed)));
    let allocator = match malloc::underlying_kind() {
        UnderlyingKind::Libc => "libc",
        UnderlyingKind::Other => "other",
        UnderlyingKind::Unmeasured => "unmeasured",
        UnderlyingKind::Program => "program",
    };
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let mut to = String::new();
    let classes = heap.by_class.iter().filter(|class| class.mallocs != 0);
    let classes: Vec<String> = classes
        .map(|class| format!("[{},{},{}]", class.size, class.mallocs, class.frees))
        .collect();
    // Writing to a string does not fail.
    let _ = write!(
        to,
        concat!(
            "{{\"version\":1,\"inherited\":{inherited},\"process\":{process},\"program\":{program},\"ending\":{ending},",
            "\"seconds\":{seconds},\"allocator\":\"{allocator}\",\"heap_rate\":{rate},",
            "\"block_rate\":{block_rate},\"mutex_fraction\":{mutex_fraction},",
            "\"mallocs\":{mallocs},\"frees\":{frees},\"malloc_bytes\":{malloc_bytes},",
            "\"free_bytes\":{free_bytes},\"asked_bytes\":{asked},\"peak_bytes\":{peak},\"peak_estimated\":{peak_estimated},",
            "\"exact\":{exact},\"classes\":[{classes}],",
            "\"large\":[{large_mallocs},{large_frees},{large_malloc_bytes},{large_free_bytes}],",
            "\"threads\":{threads},\"waits\":{waits},\"waited_ns\":{waited},",
            "\"lock_waits\":{lock_waits},\"lock_waited_ns\":{lock_waited},",
            "\"contended_releases\":{releases},\"blamed_ns\":{blamed},",
            "\"without_stack\":{without_stack},\"cut_stacks\":{cut_stacks},\"table_full\":{table_full},",
            "\"untracked\":{untracked},\"lost_waits\":{lost_waits},",
            "\"mappings\":{mappings},\"mapping_calls\":{mapping_calls},\"mapped_bytes\":{mapped_bytes},",
            "\"unmapped_bytes\":{unmapped_bytes},\"lost_mappings\":{lost_mappings},\"own_bytes\":{own_bytes}}}\n",
        ),
        inherited = inherited_heap,
        process = std::process::id(),
        program = quoted(&program.to_string_lossy()),
        ending = quoted(ending),
        seconds = elapsed.as_secs_f64(),
        allocator = allocator,
        rate = sampler::rate(),
        block_rate = profile::block_rate().as_nanos(),
        mutex_fraction = profile::mutex_fraction(),
        mallocs = heap.mallocs,
        frees = heap.frees,
        malloc_bytes = heap.malloc_bytes,
        free_bytes = heap.free_bytes,
        asked = counted.heap.delta.asked_bytes,
        peak = most.bytes.saturating_sub(inherited_stats.live_bytes()),
        peak_estimated = most.is_estimated,
        exact = heap.exact,
        classes = classes.join(","),
        large_mallocs = heap.large.mallocs,
        large_frees = heap.large.frees,
        large_malloc_bytes = heap.large.malloc_bytes,
        large_free_bytes = heap.large.free_bytes,
        threads = counted.threads,
        waits = locks.waits,
        waited = locks.waited.as_nanos(),
        lock_waits = locks.lock_waits,
        lock_waited = locks.mutex_wait_total().as_nanos(),
        releases = locks.contended_releases,
        blamed = locks.blamed.as_nanos(),
        without_stack = lost.without_stack,
        cut_stacks = lost.cut_stacks,
        table_full = lost.table_full,
        untracked = lost.untracked,
        lost_waits = lost.waits,
        mappings = mapped.mappings.max(0),
        mapping_calls = mapped.calls,
        mapped_bytes = mapped.bytes,
        unmapped_bytes = mapped.bytes - mapped.live_bytes,
        lost_mappings = lost.mappings,
        own_bytes = own.mcache_sys + own.buck_hash_sys + own.other_sys,
    );
    to
}

fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    // Writing to a string does not fail.
    let _ = json::put_string(&mut quoted, text);
    quoted
}
