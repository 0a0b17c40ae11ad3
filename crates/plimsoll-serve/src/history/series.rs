//! The series of the history, and their reading.

use plimsoll_process::residency;
use plimsoll_sys::os::clock;

use super::rings::Point;
use plimsoll_limits::memory_limit;
use plimsoll_profiles::metrics::{self, Sample, Value};
use plimsoll_stats::stats;
use plimsoll_stats::stats::reconciliation::own_resident;

/// The names of all series.
///
/// | series | meaning |
/// |---|---|
/// | `heap_bytes` | bytes of blocks in use; in a longer interval the highest value |
/// | `heap_objects` | blocks in use |
/// | `allocated_bytes`, `freed_bytes`, `allocated_objects`, `freed_objects` | sums since the process began |
/// | `resident_bytes` | resident memory of the process; in a longer interval the highest value |
/// | `limit_bytes` | the [memory limit](plimsoll_limits::memory_limit::set_memory_limit) |
/// | `plimsoll_bytes` | resident memory of Plimsoll itself, without its code and the stacks of its threads |
/// | `threads` | threads of the program |
/// | `tasks_running`, `tasks_runnable`, `tasks_waiting` | tracked tasks by state, absent at some readings if there are many tasks |
/// | `lock_waits`, `lock_wait_seconds` | waits for locks since the process began, while they are recorded |
/// | `gc_cycles`, `gc_pause_seconds` | collections since the process began |
/// | `cpu_seconds` | CPU time of the process since it began |
/// | `declared_bytes` | bytes that the program declares in its [accounts](plimsoll_stats::stats::Declared), absent without one |
/// | `returned_bytes` | memory that was returned to the system since the process began |
pub const SERIES: [&str; 20] = [
    "heap_bytes",
    "heap_objects",
    "allocated_bytes",
    "freed_bytes",
    "allocated_objects",
    "freed_objects",
    "resident_bytes",
    "limit_bytes",
    "plimsoll_bytes",
    "threads",
    "tasks_running",
    "tasks_runnable",
    "tasks_waiting",
    "lock_waits",
    "lock_wait_seconds",
    "gc_cycles",
    "gc_pause_seconds",
    "cpu_seconds",
    "declared_bytes",
    "returned_bytes",
];

/// The index of `heap_bytes`.
pub(super) const HEAP: usize = 0;

/// The indices of the series of which a longer interval has the highest value.
pub(super) const HIGHEST: [usize; 2] = [HEAP, 6];

/// The metrics of the series; the sum of several, and none for series from elsewhere.
const METRICS: [&[&str]; SERIES.len()] = [
    &["/memory/classes/heap/objects:bytes"],
    &["/gc/heap/objects:objects"],
    &["/gc/heap/allocs:bytes"],
    &["/gc/heap/frees:bytes"],
    &["/gc/heap/allocs:objects"],
    &["/gc/heap/frees:objects"],
    &[],
    &[],
    &[],
    &["/plimsoll/threads:threads"],
    &["/plimsoll/tasks/running:tasks"],
    &[
        "/plimsoll/tasks/runnable:tasks",
        "/plimsoll/tasks/new:tasks",
    ],
    &["/plimsoll/tasks/waiting:tasks"],
    &["/plimsoll/sync/lock-waits:waits"],
    &["/sync/mutex/wait/total:seconds"],
    &["/gc/cycles/total:gc-cycles"],
    &["/plimsoll/gc/pauses:seconds"],
    &[],
    &[],
    &["/plimsoll/memory/returned:bytes"],
];

const RESIDENT: usize = 6;
const LIMIT: usize = 7;
const PLIMSOLL: usize = 8;
const TASKS: std::ops::Range<usize> = 10..13;
const CPU: usize = 17;
const DECLARED: usize = 18;

/// The states of tasks are read if the last reading of them took at most this part of the time since
/// then.
const TASKS_SHARE: u64 = 1000;

/// Reads the series.
#[derive(Debug)]
pub(super) struct Meter {
    samples: Samples,
    tasks: Samples,
    /// The time at which the states of tasks may be read again.
    tasks_at: u64,
}

/// Metrics, with the series to which each belongs.
#[derive(Debug)]
struct Samples {
    series: Vec<usize>,
    samples: Vec<Sample>,
}

impl Meter {
    pub(super) fn new() -> Self {
        let samples = |wanted: &dyn Fn(usize) -> bool| -> Samples {
            let series = (0..SERIES.len()).filter(|&series| wanted(series));
            let (series, samples) = series
                .flat_map(|series| {
                    let names = METRICS[series].iter();
                    names.map(move |&name| (series, Sample::new(name)))
                })
                .unzip();
            Samples { series, samples }
        };
        Self {
            samples: samples(&|series| !TASKS.contains(&series)),
            tasks: samples(&|series| TASKS.contains(&series)),
            tasks_at: 0,
        }
    }

    /// Reads all series: those of each group at one instant, and the groups some microseconds apart.
    pub(super) fn read(&mut self) -> Point {
        let at = clock::since_boot();
        let mut values = [f64::NAN; SERIES.len()];
        read_into(&mut values, &mut self.samples);
        if at >= self.tasks_at {
            let began = clock::since_boot();
            read_into(&mut values, &mut self.tasks);
            let took = clock::since_boot().saturating_sub(began);
            self.tasks_at = at + took * TASKS_SHARE;
        }
        let resident = residency::total();
        values[RESIDENT] = resident.map_or(f64::NAN, |bytes| bytes as f64);
        values[PLIMSOLL] = own_resident().map_or(f64::NAN, |bytes| bytes as f64);
        values[LIMIT] = memory_limit::bytes().map_or(f64::NAN, |bytes| bytes as f64);
        values[DECLARED] = stats::declared_bytes().map_or(f64::NAN, |bytes| bytes as f64);
        values[CPU] = clock::process_cpu() as f64 / 1e9;
        Point { at, values }
    }
}

fn read_into(values: &mut [f64; SERIES.len()], read: &mut Samples) {
    // In one call, so that each group of figures is gathered once.
    metrics::read(&mut read.samples);
    for (series, sample) in read.series.iter().zip(&read.samples) {
        let value = match sample.value {
            Value::Uint64(value) => value as f64,
            Value::Float64(value) => value,
            _ => continue,
        };
        let sum = &mut values[*series];
        *sum = if sum.is_nan() { value } else { *sum + value };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_has_a_value() {
        let point = Meter::new().read();
        for (name, value) in SERIES.iter().zip(point.values) {
            let is_optional =
                ["limit_bytes", "declared_bytes"].contains(name) || cfg!(not(target_os = "linux"));
            assert!(is_optional || value.is_finite(), "{name}");
        }
    }

    #[test]
    fn no_part_exceeds_the_resident_memory() {
        let point = Meter::new().read();
        let own = point.values[PLIMSOLL];
        assert!(
            own.is_nan() || own > 0.0 && own < point.values[RESIDENT],
            "{own}"
        );
        let row = plimsoll_stats::stats::reconcile();
        let row = row.rows.iter().find(|row| row.name == "plimsoll").unwrap();
        // Other tests record events meanwhile.
        let more = own - row.resident as f64;
        assert!(
            own.is_nan() || more.abs() < f64::from(4 << 20),
            "{own}, {row:?}"
        );
    }

    #[test]
    fn the_documentation_lists_every_series() {
        let source = include_str!("series.rs");
        for name in SERIES {
            let entry = format!("`{name}`");
            let documented = source.lines().filter(|line| line.starts_with("/// |"));
            assert!(
                documented.into_iter().any(|line| line.contains(&entry)),
                "{name}"
            );
        }
    }
}
