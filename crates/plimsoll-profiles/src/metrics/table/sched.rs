//! `/sched/` and `/sync/`: threads, tasks and waits.

use super::{Metric, NO_TIMES, count, histogram, nanoseconds, seconds, value};
use plimsoll_stats::gc;
use plimsoll_tasks::task;
use plimsoll_threads::thread;
use plimsoll_threads::thread::creation;

pub(super) const METRICS: [Metric; 14] = [
    value(
        "/sched/gomaxprocs:threads",
        "Number of processors that the process may use at once, by its affinity and its control \
         group.",
        |gathered| gathered.processors(),
    ),
    count(
        "/sched/goroutines-created:goroutines",
        "Tasks tracked since the start, and threads that the program has created, where thread \
         creation is observed (feature interpose).",
        |gathered| gathered.tasks().created + creation::created(),
    ),
    value(
        "/sched/goroutines/not-in-go:goroutines",
        "Threads of the program: the system schedules them, and no executor knows their states.",
        |gathered| gathered.program_threads(),
    ),
    value(
        "/sched/goroutines/runnable:goroutines",
        "Tracked tasks that were woken and have not been polled since, or have never been polled.",
        |gathered| {
            let states = gathered.tasks().states;
            states.new + states.runnable
        },
    ),
    value(
        "/sched/goroutines/running:goroutines",
        "Tracked tasks that are being polled or dropped.",
        |gathered| {
            let states = gathered.tasks().states;
            states.running + states.dropping
        },
    ),
    value(
        "/sched/goroutines/waiting:goroutines",
        "Tracked tasks that wait for a wake-up.",
        |gathered| gathered.tasks().states.waiting,
    ),
    value(
        "/sched/goroutines:goroutines",
        "Threads of the program, and tracked tasks: the sum of the four states.",
        |gathered| gathered.program_threads() + gathered.tasks().states.alive(),
    ),
    histogram(
        "/sched/latencies:seconds",
        "Time from the wake-up of tracked tasks to their poll, while the setting task_times is on.",
        |_, histogram| task::WAKE_TO_POLL.read_into(histogram),
    ),
    histogram(
        "/sched/pauses/stopping/gc:seconds",
        "For each pause for a collection, the time until all threads had stopped.",
        |_, histogram| gc::STOPPING_TIMES.read_into(histogram),
    ),
    histogram(
        "/sched/pauses/stopping/other:seconds",
        "For each other pause, the time until all threads had stopped. Always empty, because \
         Plimsoll never stops the program.",
        |_, histogram| NO_TIMES.read_into(histogram),
    ),
    histogram(
        "/sched/pauses/total/gc:seconds",
        "Durations of pauses for collections, from the stop request until the program ran again.",
        |gathered, histogram| gathered.pause_times().fill(histogram),
    ),
    histogram(
        "/sched/pauses/total/other:seconds",
        "Interruptions of single threads that ran during a reading of all stacks. \
         Plimsoll never stops the program.",
        |_, histogram| thread::INTERRUPTIONS.read_into(histogram),
    ),
    value(
        "/sched/threads/total:threads",
        "Threads of the process, including Plimsoll's own.",
        |gathered| gathered.threads(),
    ),
    seconds(
        "/sync/mutex/wait/total:seconds",
        "Time that threads have waited for locks. Exact while a block rate or a mutex fraction is \
         set; otherwise an estimate from one in eight waits.",
        |gathered| {
            nanoseconds({
                let locks = gathered.locks();
                locks.lock_waited_ns + locks.lock_waited_estimate_ns
            })
        },
    ),
];
