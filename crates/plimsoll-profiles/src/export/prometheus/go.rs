//! The default metrics of Go's client for Prometheus (`go_*`), so that dashboards and alerts made
//! for Go programs work for this one.

use super::exposition::{Family, Format, Kind, Number, Page};
use super::series;
use crate::metrics::{Gathered, Value};
use plimsoll_stats::gc::record::PAUSES;
use plimsoll_stats::stats::MemStats;

/// A figure of `MemStats`: its name behind `go_memstats_`, its unit, and its help text.
struct Figure(
    &'static str,
    &'static str,
    Kind,
    fn(&MemStats) -> u64,
    &'static str,
);

const GAUGE: Kind = Kind::Gauge;

const MEMORY: &[Figure] = &[
    Figure(
        "alloc_bytes",
        "bytes",
        GAUGE,
        |memory| memory.alloc,
        "Bytes of blocks in use, in size classes. Exact.",
    ),
    Figure(
        "alloc_bytes_total",
        "",
        Kind::NamedInFull,
        |memory| memory.total_alloc,
        "Bytes ever allocated, in size classes. Exact.",
    ),
    Figure(
        "buck_hash_sys_bytes",
        "bytes",
        GAUGE,
        |memory| memory.buck_hash_sys,
        "Bytes of the profiler's tables.",
    ),
    Figure(
        "frees",
        "",
        Kind::Counter,
        |memory| memory.frees,
        "Blocks ever freed. Exact.",
    ),
    Figure(
        "gc_sys_bytes",
        "bytes",
        GAUGE,
        |memory| memory.gc_sys,
        "Bytes of collectors' bookkeeping.",
    ),
    Figure(
        "heap_alloc_bytes",
        "bytes",
        GAUGE,
        |memory| memory.heap_alloc,
        "Bytes of blocks in use: the same as go_memstats_alloc_bytes.",
    ),
    Figure(
        "heap_idle_bytes",
        "bytes",
        GAUGE,
        |memory| memory.heap_idle,
        "Bytes of free memory that the allocator holds, as far as known.",
    ),
    Figure(
        "heap_inuse_bytes",
        "bytes",
        GAUGE,
        |memory| memory.heap_inuse,
        "Bytes of memory that contains blocks, as far as known.",
    ),
    Figure(
        "heap_objects",
        "objects",
        GAUGE,
        |memory| memory.heap_objects,
        "Blocks in use. Exact.",
    ),
    Figure(
        "heap_released_bytes",
        "bytes",
        GAUGE,
        |memory| memory.heap_released,
        "Idle bytes that were returned to the system, as far as known.",
    ),
    Figure(
        "heap_sys_bytes",
        "bytes",
        GAUGE,
        |memory| memory.heap_sys,
        "Bytes that the allocator obtained from the system, as far as known.",
    ),
    Figure(
        "mallocs",
        "",
        Kind::Counter,
        |memory| memory.mallocs,
        "Blocks ever allocated. Exact.",
    ),
    Figure(
        "mcache_inuse_bytes",
        "bytes",
        GAUGE,
        |memory| memory.mcache_inuse,
        "Bytes of the counters in use.",
    ),
    Figure(
        "mcache_sys_bytes",
        "bytes",
        GAUGE,
        |memory| memory.mcache_sys,
        "Bytes of the counters.",
    ),
    Figure(
        "mspan_inuse_bytes",
        "bytes",
        GAUGE,
        |memory| memory.mspan_inuse,
        "Bytes of the allocator's bookkeeping in use, as far as known.",
    ),
    Figure(
        "mspan_sys_bytes",
        "bytes",
        GAUGE,
        |memory| memory.mspan_sys,
        "Bytes of the allocator's bookkeeping, as far as known.",
    ),
    Figure(
        "next_gc_bytes",
        "bytes",
        GAUGE,
        |memory| memory.next_gc,
        "The heap size at which the next collection begins.",
    ),
    Figure(
        "other_sys_bytes",
        "bytes",
        GAUGE,
        |memory| memory.other_sys,
        "Bytes of all other memory that Plimsoll uses itself.",
    ),
    Figure(
        "stack_inuse_bytes",
        "bytes",
        GAUGE,
        |memory| memory.stack_inuse,
        "Bytes of stacks in use, as far as known.",
    ),
    Figure(
        "stack_sys_bytes",
        "bytes",
        GAUGE,
        |memory| memory.stack_sys,
        "Bytes of stacks, as far as known.",
    ),
    Figure(
        "sys_bytes",
        "bytes",
        GAUGE,
        |memory| memory.sys,
        "Bytes obtained from the system: the sum of the metrics whose names end in _sys_bytes.",
    ),
];

/// Figures other than memory: the name, its unit, the metric, and the help text.
const OTHERS: &[(&str, &str, &str, &str)] = &[
    (
        "go_gc_gogc_percent",
        "percent",
        "/gc/gogc:percent",
        "Percentage by which the heap may grow between collections.",
    ),
    (
        "go_gc_gomemlimit_bytes",
        "bytes",
        "/gc/gomemlimit:bytes",
        "The memory limit in bytes; the largest number if no limit is set.",
    ),
    (
        "go_goroutines",
        "goroutines",
        "/sched/goroutines:goroutines",
        "Threads and tracked tasks.",
    ),
    (
        "go_sched_gomaxprocs_threads",
        "threads",
        "/sched/gomaxprocs:threads",
        "Processors that the process may use.",
    ),
    (
        "go_threads",
        "threads",
        "/sched/threads/total:threads",
        "Threads of the process.",
    ),
];

pub(super) fn write(page: &mut Page, gathered: &Gathered) {
    let memory = gathered.mem();
    write_pauses(page, memory);
    for &(name, unit, metric, help) in OTHERS {
        let value = match series::position(metric).map(|at| series::value(gathered, at)) {
            Some(Value::Uint64(value)) => Number::Whole(value),
            Some(Value::Float64(value)) => Number::Float(value),
            _ => continue,
        };
        let family = Family {
            name,
            help,
            kind: GAUGE,
            unit,
        };
        page.single(&family, value);
    }
    let info = page.family(&Family {
        name: "go_info",
        help: "The source of these metrics: Plimsoll instead of Go.",
        kind: GAUGE,
        unit: "",
    });
    let version = concat!("plimsoll ", env!("CARGO_PKG_VERSION"));
    page.sample(&info, &[("version", version)], 1);
    for &Figure(name, unit, kind, value, help) in MEMORY {
        let family = Family {
            name: &format!("go_memstats_{name}"),
            help,
            kind,
            unit,
        };
        page.single(&family, value(memory));
    }
    page.single(
        &Family {
            name: "go_memstats_last_gc_time_seconds",
            help: "End of the last collection, in seconds since 1970; 0 before the first one.",
            kind: GAUGE,
            unit: "seconds",
        },
        memory.last_gc as f64 / 1e9,
    );
}

/// Writes the last pauses by Go's rule. The first four of the five quantiles are the pauses at `i`
/// quarters of their number; the last is the longest.
fn write_pauses(page: &mut Page, memory: &MemStats) {
    let name = page.family(&Family {
        name: "go_gc_duration_seconds",
        help: "Pauses of collections; the quantiles are of the last 256.",
        kind: Kind::Summary,
        unit: "seconds",
    });
    let mut pauses = memory.pause_ns[..PAUSES.min(memory.num_gc as usize)].to_vec();
    pauses.sort_unstable();
    // A quantile is a number, which OpenMetrics writes with a decimal point.
    let quantiles: [&str; 5] = match page.format() {
        Format::Text => ["0", "0.25", "0.5", "0.75", "1"],
        Format::OpenMetrics => ["0.0", "0.25", "0.5", "0.75", "1.0"],
    };
    for (quarter, quantile) in quantiles.into_iter().enumerate() {
        let at = (pauses.len() * quarter / 4).min(pauses.len().saturating_sub(1));
        let pause = pauses.get(at).copied().unwrap_or(0);
        page.sample(&name, &[("quantile", quantile)], pause as f64 / 1e9);
    }
    let sum = memory.pause_total_ns as f64 / 1e9;
    page.sample(&format!("{name}_sum"), &[], sum);
    page.sample(&format!("{name}_count"), &[], u64::from(memory.num_gc));
}
