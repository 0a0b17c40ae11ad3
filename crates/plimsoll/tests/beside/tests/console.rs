//! tokio-console's subscriber: a program records its tasks with both, and a client reads the console's stream of
//! updates while the program works. tokio's tasks contain tracked ones, so the console observes each poll and each
//! wake that Plimsoll passes on.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use console_api::instrument::instrument_client::InstrumentClient;
use console_api::instrument::{InstrumentRequest, Update};
use console_api::tasks::{Stats, Task};
use plimsoll::task::{JoinSet, TrackExt};
use plimsoll_beside::{NAME, POLLS, TASKS, allocates_in_each_poll, does_the_work, in_child};
use tokio::runtime::{Builder, Runtime};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

/// The file of the tasks of [`does_the_work`] that allocate.
const HERE: &str = "tests/console.rs";

/// The file of the tasks that use CPU time.
const CPU: &str = "src/cpu.rs";

/// The time limit of the work and of the reports, which detects hangs.
const HANG: Duration = Duration::from_secs(300);

/// The number of tasks that each of three functions spawns.
const SPAWNED: usize = 10;

/// The tasks that the console has reported.
#[derive(Default)]
struct Console {
    tasks: HashMap<u64, (Task, Stats)>,
    dropped_events: u64,
}

impl Console {
    fn add(&mut self, update: Update) {
        let Some(update) = update.task_update else {
            return;
        };
        self.dropped_events += update.dropped_events;
        for task in update.new_tasks {
            let id = task.id.expect("each task has a number").id;
            self.tasks.entry(id).or_default().0 = task;
        }
        for (id, stats) in update.stats_update {
            self.tasks.entry(id).or_default().1 = stats;
        }
    }

    /// Returns the statistics of the tasks that were spawned in this file and line. All lines match 0.
    fn spawned_at(&self, file: &str, line: u32) -> Vec<&Stats> {
        let is_there = |task: &Task| {
            task.location.as_ref().is_some_and(|location| {
                let is_file = location
                    .file
                    .as_ref()
                    .is_some_and(|name| name.ends_with(file));
                is_file && (line == 0 || location.line == Some(line))
            })
        };
        let tasks = self.tasks.values();
        tasks
            .filter(|(task, _)| is_there(task))
            .map(|(_, stats)| stats)
            .collect()
    }

    fn has_ended(&self, file: &str, line: u32, number: usize) -> bool {
        let tasks = self.spawned_at(file, line);
        tasks.len() == number && tasks.iter().all(|stats| stats.dropped_at.is_some())
    }
}

/// Returns the number of polls of an ended task. The console counts the drop of its future as one more, also of a task
/// that Plimsoll does not track.
fn polls(stats: &Stats) -> u64 {
    let polls = stats.poll_stats.as_ref().expect("each task has polls");
    polls.polls - 1
}

/// Reads the console's updates into `console` until `is_complete`. Sends a message after the first update.
async fn watch(
    address: SocketAddr,
    connected: Sender<()>,
    is_complete: impl Fn(&Console) -> bool,
) -> Console {
    let address = format!("http://{address}");
    let mut client = loop {
        // The server may not listen yet.
        match InstrumentClient::connect(address.clone()).await {
            Ok(client) => break client,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let updates = client.watch_updates(InstrumentRequest {}).await;
    let mut updates = updates.expect("the console accepts clients").into_inner();
    let mut console = Console::default();
    let mut deadline = None;
    while !is_complete(&console) {
        let update = updates.message().await.expect("an update");
        console.add(update.expect("the console sends updates until the process ends"));
        let _ = connected.send(());
        let deadline = deadline.get_or_insert_with(|| Instant::now() + HANG);
        let spawned = |file| console.spawned_at(file, 0).len();
        assert!(
            Instant::now() < *deadline,
            "the console does not report the end of all tasks, but {} and {}",
            spawned(HERE),
            spawned(CPU)
        );
    }
    console
}

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    runtime.expect("a runtime")
}

/// Spawns tasks that end in their first poll, by two functions of Plimsoll and, untracked, by tokio's. Returns the lines
/// of the three calls.
fn spawns_with_three_functions(runtime: &Runtime) -> [u32; 3] {
    runtime.block_on(async {
        let mut lines = [0; 3];
        let mut set = JoinSet::new();
        for _ in 0..SPAWNED {
            let tracked = plimsoll::task::spawn(async {});
            lines[0] = line!() - 1;
            set.spawn(async {});
            lines[1] = line!() - 1;
            let untracked = tokio::spawn(async {});
            lines[2] = line!() - 1;
            tracked.await.expect("the task does not panic");
            untracked.await.expect("the task does not panic");
        }
        set.join_all().await;
        lines
    })
}

fn a_console_watches() {
    let plimsoll = plimsoll::start();
    let pages = plimsoll.http_address().expect("the settings request pages");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.expect("a free port");
    let console = console_subscriber::ConsoleLayer::builder()
        .server_addr(address)
        .publish_interval(Duration::from_millis(100))
        .spawn();
    tracing_subscriber::registry().with(console).init();

    let (connected, is_connected) = mpsc::channel();
    let (finished, is_finished) = mpsc::channel();
    let watcher = std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build();
        let watch = watch(address, connected, |console| {
            // The program sends the lines when it has done all work.
            static EXPECTED: std::sync::OnceLock<(u32, [u32; 3], usize)> =
                std::sync::OnceLock::new();
            if let Ok(expected) = is_finished.try_recv() {
                let _ = EXPECTED.set(expected);
            }
            EXPECTED.get().is_some_and(|(line, lines, burns)| {
                console.has_ended(HERE, *line, TASKS)
                    && lines
                        .iter()
                        .all(|&line| console.has_ended(HERE, line, SPAWNED))
                    && console.has_ended(CPU, 0, *burns)
            })
        });
        runtime.expect("a runtime").block_on(watch)
    });
    is_connected.recv().expect("the console sends updates");

    let runtime = runtime();
    let line = line!() + 2;
    let done = does_the_work(&runtime, pages, |gate| {
        tokio::spawn(allocates_in_each_poll(gate).tracked_as(NAME))
    });
    let lines = spawns_with_three_functions(&runtime);
    let expected = (line, lines, done.burns as usize);
    finished.send(expected).expect("the watcher runs");
    let console = watcher.join().expect("all tasks are reported");

    assert_eq!(console.dropped_events, 0);
    for stats in console.spawned_at(HERE, line) {
        // Plimsoll passes each wake on once. The last one is the gate's, for which the future clones its waker once.
        assert_eq!(polls(stats), POLLS as u64, "{stats:?}");
        let wakes = [stats.wakes, stats.self_wakes];
        assert_eq!(wakes, [POLLS as u64 - 1, POLLS as u64 - 2], "{stats:?}");
        // The console does not count a drop after the end of the task.
        assert_eq!(stats.waker_clones, 1, "{stats:?}");
        assert!(stats.waker_drops <= 1, "{stats:?}");
    }
    for line in lines {
        for stats in console.spawned_at(HERE, line) {
            assert_eq!((polls(stats), stats.wakes), (1, 0), "{stats:?}");
        }
    }
    // Elapsed time, which is at least the CPU time.
    let busy: Duration = console
        .spawned_at(CPU, 0)
        .iter()
        .map(|stats| busy(stats))
        .sum();
    assert!(busy >= Duration::from_nanos(done.cpu), "{busy:?} {done:?}");
}

fn busy(stats: &Stats) -> Duration {
    let polls = stats.poll_stats.as_ref().expect("each task has polls");
    let time = polls.busy_time.expect("an ended task has been polled");
    Duration::new(time.seconds as u64, time.nanos as u32)
}

#[test]
fn the_console_and_plimsoll_count_the_same_polls_and_wakes() {
    in_child(
        "the_console_and_plimsoll_count_the_same_polls_and_wakes",
        &[],
        a_console_watches,
    );
}
