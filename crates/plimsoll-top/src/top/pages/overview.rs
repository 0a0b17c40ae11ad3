//! An overview of the program.

use super::super::units::{bytes, bytes_per_second, exact, per_second, percent};
use super::{Field, or_dash, share_of_time};
use plimsoll_watch::watch::metrics::HEAP;
use plimsoll_watch::watch::model::Model;
use plimsoll_watch::watch::readings::{ALLOCATED, Trend};

/// The memory that Plimsoll itself uses.
const OWN: [&str; 4] = [
    "plimsoll_memory_classes_metadata_mcache_free_bytes",
    "plimsoll_memory_classes_metadata_mcache_inuse_bytes",
    "plimsoll_memory_classes_other_bytes",
    "plimsoll_memory_classes_profiling_buckets_bytes",
];

/// How the names of the counts of events begin that could not be recorded.
const LOST: [&str; 2] = ["plimsoll_gc_lost_", "plimsoll_lost_"];

pub(super) fn fields(model: &Model) -> Vec<Field> {
    let readings = &model.readings;
    let number = |name: &str| readings.number(name);
    let rate = |name: &str| readings.rate(name);
    let peak = readings.at().map(|_| readings.peak());
    let allocated = [ALLOCATED, "plimsoll_gc_heap_allocs_objects_total"];
    let freed = [
        "plimsoll_gc_heap_frees_bytes_total",
        "plimsoll_gc_heap_frees_objects_total",
    ];
    let of_both = |[size, count]: [&str; 2]| {
        let size = or_dash(rate(size), bytes_per_second);
        format!("{size}, {}", or_dash(rate(count), per_second))
    };
    let waited = or_dash(
        rate("plimsoll_sync_mutex_wait_seconds_total"),
        share_of_time,
    );
    let waits = or_dash(rate("plimsoll_sync_lock_waits_total"), per_second);
    let own_time = or_dash(rate("plimsoll_self_cpu_seconds_total"), percent);
    let own = or_dash(
        readings.metrics().and_then(|metrics| metrics.sum(&OWN)),
        bytes,
    );
    let lost = readings.metrics().and_then(|metrics| metrics.sum(&LOST));
    vec![
        Field::new("heap", or_dash(number(HEAP), bytes)),
        Field::new("peak seen", or_dash(peak, bytes)),
        Field::new("trend", trend(readings.trend())),
        Field::new(
            "objects",
            or_dash(number("plimsoll_gc_heap_objects"), exact),
        ),
        Field::new("allocated", of_both(allocated)),
        Field::new("freed", of_both(freed)),
        Field::new("threads", or_dash(number("plimsoll_threads"), exact)),
        Field::new("tasks", or_dash(number("plimsoll_tasks"), exact)),
        Field::new("lock waits", format!("{waited}, {waits}")),
        Field::new("GC", cycles(model)),
        Field::new("Plimsoll", format!("{own} mapped, {own_time} CPU")),
        Field::new(
            "lost",
            or_dash(lost, |lost| format!("{} events", exact(lost))),
        ),
    ]
}

/// Formats a trend per minute, because most trends are slow.
fn trend(trend: Trend) -> String {
    let a_minute = |slope: f64| format!("{}/min", bytes(60.0 * slope));
    match trend {
        Trend::Unknown => "-".into(),
        Trend::Steady => "steady".into(),
        Trend::Rising(slope) => format!("rising {}", a_minute(slope)),
        Trend::Falling(slope) => format!("falling {}", a_minute(slope)),
    }
}

fn cycles(model: &Model) -> String {
    const CYCLES: &str = "plimsoll_gc_cycles_total";
    match model.readings.number(CYCLES) {
        None => "-".into(),
        Some(0.0) => "none".into(),
        Some(cycles) => {
            let rate = or_dash(model.readings.rate(CYCLES), per_second);
            format!("{} cycles, {rate}", exact(cycles))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trends_are_by_the_minute() {
        assert_eq!(trend(Trend::Rising(1024.0)), "rising 60.0 KiB/min");
        assert_eq!(trend(Trend::Falling(1024.0)), "falling 60.0 KiB/min");
        assert_eq!(trend(Trend::Steady), "steady");
    }
}
