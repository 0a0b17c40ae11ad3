//! Plimsoll beside another profiler in one program. This crate has the work whose figures are known, and compares
//! Plimsoll's figures with it. Each test runs another profiler at the same time, and compares that profiler's figures
//! with the same work.
//!
//! Without `--cfg tokio_unstable`, tokio does not report tasks to other profilers. dial9 walks frame pointers:
//!
//!     RUSTFLAGS="--cfg tokio_unstable -Cforce-frame-pointers=yes" cargo test

#[cfg(not(tokio_unstable))]
compile_error!("set RUSTFLAGS=\"--cfg tokio_unstable -Cforce-frame-pointers=yes\"");

mod contention;
mod cpu;
mod work;

use std::net::SocketAddr;

use plimsoll::profile::{self, LostEvents};
use plimsoll::task::{self, TaskRecord, TaskState};
use plimsoll_testkit::client::{get, wait_for};
use plimsoll_testkit::pprof::{Profile, Sample};
use plimsoll_testkit::relations::assert_relations;
use plimsoll_testkit::{child, counts};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

pub use contention::LOCK_WAITS;
pub use cpu::{BURN, burns_here, is_about, thread_cpu};
pub use work::{Gate, Kept, allocates_in_each_poll};

/// The number of tasks.
pub const TASKS: usize = 100;

/// The number of polls of each task before it waits for the [`Gate`]. Each of them allocates one block.
pub const POLLS_BEFORE_GATE: usize = 10;

/// The number of polls of each task. The last one comes after the gate has opened.
pub const POLLS: usize = POLLS_BEFORE_GATE + 1;

/// The number of blocks that the tasks allocate.
pub const BLOCKS: usize = TASKS * POLLS_BEFORE_GATE;

/// The size of these blocks, in a size class that nothing else here uses.
pub const SIZE: usize = 21_000;

/// The name of the tasks.
pub const NAME: &str = "allocates";

/// Five standard deviations of the number of blocks that a heap profile estimates: the profile holds each block with
/// the probability p = 1 - exp(-21,000 / 16,384) = 0.72, and estimates 1 / p blocks for it. The standard deviation is
/// the square root of 1,000 * 0.28 / 0.72, which is 19.6. The error probability is 6e-7.
pub const BLOCKS_BOUND: u64 = 98;

/// Everything that Plimsoll records.
pub const SETTINGS: &str = "heap_rate=16k,block_rate=1ns,mutex_fraction=1,cpu_rate=200,task_times=on,long_poll=100ms,\
                        history=1m,growth=1s,http=127.0.0.1:0";

/// Runs a test in a process in which Plimsoll records everything from the first allocation on. `name` is the name of
/// the test, and `variables` are those of the environment for the other profiler. All others of the other profilers
/// are removed.
pub fn in_child(name: &str, variables: &[(&str, &str)], test: fn()) {
    if child::is_child() {
        return test();
    }
    let mut command = child::command(name, SETTINGS);
    for (variable, _) in std::env::vars_os() {
        let variable = variable.to_string_lossy();
        if ["HOTPATH_", "DIAL9_", "TOKIO_CONSOLE_"]
            .iter()
            .any(|prefix| variable.starts_with(prefix))
        {
            command.env_remove(&*variable);
        }
    }
    command.envs(variables.iter().copied());
    let output = command.output().expect("the test can be run");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && printed.contains("1 passed"),
        "{}\n{printed}{errors}",
        output.status
    );
    assert!(!errors.contains("plimsoll:"), "a warning: {errors}");
}

/// The work that was done, in addition to the constants.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// The number of tasks that used CPU time.
    pub burns: u64,
    /// The CPU time that they used, in nanoseconds.
    pub cpu: u64,
}

/// Does the work, and compares Plimsoll's figures with it. `spawn` spawns [`allocates_in_each_poll`] on the runtime,
/// as a tracked task with the name [`NAME`].
///
/// The caller has started Plimsoll, whose pages are at `pages`.
pub fn does_the_work(
    runtime: &Runtime,
    pages: SocketAddr,
    spawn: impl Fn(Gate) -> JoinHandle<Kept>,
) -> Done {
    let polls_before = task::metrics().poll_duration.total();
    tasks_and_blocks(runtime, pages, spawn);
    let polls = task::metrics().poll_duration.total() - polls_before;
    assert_eq!(polls, (TASKS * POLLS) as u64);
    contention::waits_for_locks(pages);
    let done = cpu::uses_cpu_time(runtime, pages);
    assert_relations(&plimsoll::mem_stats());
    let lost = profile::lost_events();
    // Generated code may end a stack.
    let cut_stacks = lost.cut_stacks;
    let mut nothing = LostEvents::default();
    nothing.cut_stacks = cut_stacks;
    assert_eq!(lost, nothing);
    done
}

/// The tasks of [`does_the_work`].
fn tasks() -> Vec<TaskRecord> {
    let mut tasks = task::tasks();
    tasks.retain(|task| task.name() == Some(NAME));
    tasks
}

fn tasks_and_blocks(
    runtime: &Runtime,
    pages: SocketAddr,
    spawn: impl Fn(Gate) -> JoinHandle<Kept>,
) {
    let gate = Gate::default();
    let mut handles = Vec::with_capacity(TASKS);
    let made = counts::added(SIZE, || {
        let entered = runtime.enter();
        handles.extend((0..TASKS).map(|_| spawn(gate.clone())));
        drop(entered);
        wait_for("all tasks at the gate", || {
            let tasks = tasks();
            tasks.len() == TASKS
                && tasks.iter().all(|task| {
                    task.state() == TaskState::Waiting && task.polls() as usize >= POLLS_BEFORE_GATE
                })
        });
    });
    assert_eq!(made[..2], [BLOCKS as u64, 0]);
    assert!(
        tasks()
            .iter()
            .all(|task| task.polls() as usize == POLLS_BEFORE_GATE)
    );

    let heap = read(pages, "heap");
    let estimated = heap.sum(within(&heap, "keeps_here")).inuse_objects;
    assert!(
        estimated.abs_diff(BLOCKS as i64) <= BLOCKS_BOUND,
        "{estimated}"
    );
    // The stacks of the tasks, where they wait.
    let stacks = read(pages, "goroutine");
    let waiting = within(&stacks, "allocates_in_each_poll");
    let waiting: i64 = waiting.iter().map(|sample| sample.value[0]).sum();
    assert_eq!(waiting, TASKS as i64);

    let freed = counts::added(SIZE, || {
        gate.open();
        for handle in handles {
            assert_eq!(finish(runtime, handle).len(), POLLS_BEFORE_GATE);
        }
    });
    assert_eq!(freed[..2], [0, BLOCKS as u64]);
    wait_for("the end of all tasks", || tasks().is_empty());
}

/// Waits for the end of a task. The console shows this function's file as the one of another task.
fn finish<T>(runtime: &Runtime, task: JoinHandle<T>) -> T {
    runtime.block_on(task).expect("the task does not panic")
}

/// Reads a profile from Plimsoll's pages.
fn read(pages: SocketAddr, name: &str) -> Profile {
    let answer = get(pages, &format!("/debug/pprof/{name}"));
    assert_eq!(answer.status, 200, "{name}");
    Profile::read(&answer.body)
}

/// Returns the samples with a function of that name anywhere in the stack. The name is followed by nothing, or by
/// the names of closures.
fn within<'p>(profile: &'p Profile, function: &str) -> Vec<&'p Sample> {
    let is_it = |name: &str| {
        name.split("::")
            .any(|part| part.split('<').next() == Some(function))
    };
    let samples = profile.sample.iter();
    samples
        .filter(|sample| profile.names(sample).into_iter().any(is_it))
        .collect()
}
