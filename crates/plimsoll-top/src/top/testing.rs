//! A watched program for tests.

use std::time::Duration;

use super::app::App;
use plimsoll_watch::watch::metrics::Metrics;
use plimsoll_watch::watch::model::{Model, Update};
use plimsoll_watch::watch::sites::{Frame, Kind, Sample, Sites};

/// Returns a model with readings one and two seconds after watching began, and with all profiles.
/// The heap falls from 16 MiB to 12 MiB, and 2 MiB are allocated per second.
pub(super) fn model() -> Model {
    let mut model = Model::default();
    for update in updates() {
        model.learn(update);
    }
    model
}

fn updates() -> Vec<Update> {
    let figures = [1, 2].map(|at| Update::Figures(Duration::from_secs(at), Ok(figures(at))));
    let profiles = [
        (Kind::Heap, 1),
        (Kind::Heap, 2),
        (Kind::Mutex, 2),
        (Kind::Block, 2),
        (Kind::Goroutine, 2),
        (Kind::Cpu, 2),
        (Kind::Growth, 2),
    ];
    let profiles = profiles.map(|(kind, at)| Update::Profile(kind, Ok(profile(kind, at))));
    let line = Update::CommandLine(["/usr/bin/search", "--load", "2", ""].join("\0"));
    figures.into_iter().chain(profiles).chain([line]).collect()
}

/// Returns the figures at a time in seconds.
pub(super) fn figures(moment: u64) -> Metrics {
    Metrics::parse(&page(moment)).expect("it is a page")
}

fn page(moment: u64) -> String {
    const MIB: u64 = 1 << 20;
    let heap = if moment == 1 { 16 * MIB } else { 12 * MIB };
    let allocs = 1_000_000 + 1000 * moment;
    let frees = allocs - 114_712 - 500 * moment + 1000;
    format!(
        "plimsoll_memory_classes_heap_objects_bytes {heap}\n\
         plimsoll_gc_heap_allocs_bytes_total {}\n\
         plimsoll_gc_heap_allocs_objects_total {allocs}\n\
         plimsoll_gc_heap_frees_bytes_total {}\n\
         plimsoll_gc_heap_frees_objects_total {frees}\n\
         plimsoll_gc_heap_objects 114712\n\
         plimsoll_gc_heap_allocs_by_size_bytes_bucket{{le=\"8.0\"}} 1000\n\
         plimsoll_gc_heap_allocs_by_size_bytes_bucket{{le=\"16.0\"}} {}\n\
         plimsoll_gc_heap_allocs_by_size_bytes_bucket{{le=\"+Inf\"}} {}\n\
         plimsoll_gc_heap_frees_by_size_bytes_bucket{{le=\"8.0\"}} 700\n\
         plimsoll_gc_heap_frees_by_size_bytes_bucket{{le=\"16.0\"}} 1100\n\
         plimsoll_gc_heap_frees_by_size_bytes_bucket{{le=\"+Inf\"}} {}\n\
         plimsoll_heap_sample_rate_bytes 524288\n\
         plimsoll_threads 4\n\
         plimsoll_sched_threads_total_threads 7\n\
         plimsoll_tasks 9\n\
         plimsoll_tasks_running_tasks 1\n\
         plimsoll_tasks_runnable_tasks 3\n\
         plimsoll_tasks_waiting_tasks 5\n\
         plimsoll_tasks_new_tasks 0\n\
         plimsoll_sync_mutex_wait_seconds_total {}\n\
         plimsoll_sync_lock_waits_total {}\n\
         plimsoll_sync_waited_seconds_total {}\n\
         plimsoll_gc_cycles_total {}\n\
         plimsoll_gc_cycles_forced_gc_cycles_total 1\n\
         plimsoll_gc_heap_goal_bytes {}\n\
         plimsoll_gc_pauses_seconds_bucket{{le=\"0.001\"}} 6\n\
         plimsoll_gc_pauses_seconds_bucket{{le=\"+Inf\"}} 7\n\
         plimsoll_gc_collector_cycles_gc_cycles_total{{collector=\"old\"}} 2\n\
         plimsoll_gc_collector_cycles_gc_cycles_total{{collector=\"young\"}} 5\n\
         plimsoll_lost_waits_events_total 3\n\
         plimsoll_growth_bytes_per_second 104857.6\n\
         plimsoll_self_cpu_seconds_total 0.5\n\
         plimsoll_memory_classes_other_bytes 1048576\n",
        100 * MIB + 2 * MIB * moment,
        84 * MIB + MIB * moment,
        2000 + 100 * moment,
        3000 + 200 * moment,
        2000 + 100 * moment,
        2.0 + 0.25 * moment as f64,
        100 + 12 * moment,
        5 * moment,
        6.0 + 0.5 * moment as f64,
        24 * MIB,
    )
}

fn profile(kind: Kind, at: u64) -> Sites {
    let frame = |function, file, line| Frame {
        function,
        file,
        line,
    };
    let add = frame("search::index::Index::add", "/x/index.rs", 120);
    let get = frame("search::store::Cache::get", "/x/store.rs", 45);
    let main = frame("search::main", "/x/main.rs", 7);
    let accept = frame("search::service::accept", "/x/service.rs", 9);
    const MIB: i64 = 1 << 20;
    let risen = MIB * (at as i64 - 2);
    let sample = |stack: &[&Frame<'static>], values: &[i64], state| Sample {
        stack: stack.iter().map(|frame| (*frame).clone()).collect(),
        labels: vec![("state", state), ("verdict", state)],
        values: values.to_vec(),
    };
    let samples = match kind {
        Kind::Heap => vec![
            sample(&[&add, &main], &[8 * MIB, 80, 80 * MIB + risen, 800], ""),
            sample(&[&get, &main], &[3 * MIB, 900, 9 * MIB, 9000], ""),
            sample(&[&main], &[MIB, 1, MIB, 1], ""),
        ],
        Kind::Mutex => vec![sample(&[&get, &main], &[2_000_000_000, 20], "")],
        Kind::Block => vec![sample(&[&get, &main], &[3_000_000_000, 30], "")],
        Kind::Goroutine => vec![
            sample(&[&accept, &main], &[6], "waiting"),
            sample(&[&add, &main], &[1], "running"),
        ],
        Kind::Cpu => vec![
            sample(&[&add, &main], &[1_200_000_000, 120], ""),
            sample(&[&get, &main], &[300_000_000, 30], ""),
        ],
        Kind::Growth => vec![
            sample(&[&add, &main], &[6 * MIB, MIB / 16, 48 * MIB], "leaking"),
            sample(&[&get, &main], &[-1024, 2048, MIB], "not significant"),
        ],
    };
    let mut sites = Sites::new(kind, samples.into_iter());
    sites.at = Duration::from_secs(at);
    sites.took = Duration::from_millis(120);
    sites.covered = match kind {
        Kind::Cpu => Duration::from_secs(2),
        Kind::Growth => Duration::from_secs(1280),
        _ => Duration::ZERO,
    };
    sites
}

/// Returns a view of the same program.
pub(super) fn app() -> App {
    let mut app = App::new(
        "http://127.0.0.1:6060".into(),
        Duration::from_secs(1),
        String::new(),
    );
    for update in updates() {
        app.learn(update);
    }
    app
}
