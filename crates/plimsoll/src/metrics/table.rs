//! The metrics, sorted by name: what each is, and where its value is taken from. A new one is a
//! line here, and in the documentation that `docs/metrics.md` is.

use super::gather::Gathered;
use super::{Description, Histogram, Kind};
use crate::alloc::size_class::go;
use crate::contention::own;
use crate::gc::{self, Counter};
use crate::stats::{ClassCounts, LargeCounts, TimeCounts};
use crate::thread::births;
use crate::{own_time, sampler, task, thread};

/// A row of the table.
pub(super) struct Metric {
    pub(super) description: Description,
    pub(super) read: Read,
}

/// How a value is read.
pub(super) enum Read {
    Uint64(fn(&Gathered) -> u64),
    Float64(fn(&Gathered) -> f64),
    Float64Histogram(fn(&Gathered, &mut Histogram)),
}

/// A number of something that never falls.
const fn count(name: &'static str, text: &'static str, read: fn(&Gathered) -> u64) -> Metric {
    metric(name, text, Kind::Uint64, true, Read::Uint64(read))
}

/// How much there is of something now.
const fn value(name: &'static str, text: &'static str, read: fn(&Gathered) -> u64) -> Metric {
    metric(name, text, Kind::Uint64, false, Read::Uint64(read))
}

/// A time that never falls.
const fn seconds(name: &'static str, text: &'static str, read: fn(&Gathered) -> f64) -> Metric {
    metric(name, text, Kind::Float64, true, Read::Float64(read))
}

const fn histogram(
    name: &'static str,
    text: &'static str,
    read: fn(&Gathered, &mut Histogram),
) -> Metric {
    let read = Read::Float64Histogram(read);
    metric(name, text, Kind::Float64Histogram, true, read)
}

const fn metric(
    name: &'static str,
    description: &'static str,
    kind: Kind,
    cumulative: bool,
    read: Read,
) -> Metric {
    Metric {
        description: Description {
            name,
            description,
            kind,
            cumulative,
        },
        read,
    }
}

/// Sorted by name.
pub(super) static METRICS: [Metric; 95] = [
    seconds(
        "/cpu/classes/gc/mark/assist:cpu-seconds",
        "Processor time that threads of the program spent on marking for collectors. To \
         be compared with the other /cpu/classes only. Said by collectors.",
        |gathered| gathered.cpu().gc_mark_assist.as_secs_f64(),
    ),
    seconds(
        "/cpu/classes/gc/mark/dedicated:cpu-seconds",
        "Processor time that threads of collectors spent on marking. To be compared with \
         the other /cpu/classes only. Said by collectors.",
        |gathered| gathered.cpu().gc_mark_dedicated.as_secs_f64(),
    ),
    seconds(
        "/cpu/classes/gc/mark/idle:cpu-seconds",
        "Processor time spent on marking by processors that had nothing else to do. To be \
         compared with the other /cpu/classes only. Said by collectors.",
        |gathered| gathered.cpu().gc_mark_idle.as_secs_f64(),
    ),
    seconds(
        "/cpu/classes/gc/pause:cpu-seconds",
        "Time of pauses for collections, times the processors that stood still. To be \
         compared with the other /cpu/classes only.",
        |gathered| gathered.cpu().gc_pause.as_secs_f64(),
    ),
    seconds(
        "/cpu/classes/gc/total:cpu-seconds",
        "Processor time of collections: the sum of the other /cpu/classes/gc. To be \
         compared with the other /cpu/classes only.",
        |gathered| gathered.cpu().gc_total.as_secs_f64(),
    ),
    seconds(
        "/cpu/classes/idle:cpu-seconds",
        "Time of the available processors that the process did not use. To be compared \
         with the other /cpu/classes only.",
        |gathered| gathered.cpu().idle.as_secs_f64(),
    ),
    seconds(
        "/cpu/classes/scavenge/assist:cpu-seconds",
        "Processor time that threads of the program spent on giving memory back to the \
         system. To be compared with the other /cpu/classes only. Said by collectors.",
        |gathered| gathered.cpu().scavenge_assist.as_secs_f64(),
    ),
    seconds(
        "/cpu/classes/scavenge/background:cpu-seconds",
        "Processor time that threads of collectors spent on giving memory back to the \
         system. To be compared with the other /cpu/classes only. Said by collectors.",
        |gathered| gathered.cpu().scavenge_background.as_secs_f64(),
    ),
    seconds(
        "/cpu/classes/scavenge/total:cpu-seconds",
        "Processor time spent on giving memory back to the system: the sum of the other \
         /cpu/classes/scavenge. To be compared with the other /cpu/classes only.",
        |gathered| gathered.cpu().scavenge_total.as_secs_f64(),
    ),
    seconds(
        "/cpu/classes/total:cpu-seconds",
        "Time of the available processors since the process began: the sum of \
         /cpu/classes/gc/total, /cpu/classes/scavenge/total, /cpu/classes/user and \
         /cpu/classes/idle.",
        |gathered| gathered.cpu().total.as_secs_f64(),
    ),
    seconds(
        "/cpu/classes/user:cpu-seconds",
        "Processor time of the process that was spent on nothing of the other \
         /cpu/classes. To be compared with those only.",
        |gathered| gathered.cpu().user.as_secs_f64(),
    ),
    count(
        "/gc/cleanups/executed:cleanups",
        "Cleanups that have run. Said by collectors.",
        |gathered| gathered.gc().deferred[Counter::CleanupsExecuted as usize],
    ),
    count(
        "/gc/cleanups/queued:cleanups",
        "Cleanups whose objects were found dead. Said by collectors.",
        |gathered| gathered.gc().deferred[Counter::CleanupsQueued as usize],
    ),
    count(
        "/gc/cycles/automatic:gc-cycles",
        "Completed collections that collectors began by themselves.",
        |gathered| {
            let gc = gathered.gc();
            gc.cycles.saturating_sub(gc.forced)
        },
    ),
    count(
        "/gc/cycles/forced:gc-cycles",
        "Completed collections that the program asked for.",
        |gathered| gathered.gc().forced,
    ),
    count(
        "/gc/cycles/total:gc-cycles",
        "Completed collections, of all collectors.",
        |gathered| gathered.gc().cycles,
    ),
    count(
        "/gc/finalizers/executed:finalizers",
        "Finalizers that have run. Said by collectors.",
        |gathered| gathered.gc().deferred[Counter::FinalizersExecuted as usize],
    ),
    count(
        "/gc/finalizers/queued:finalizers",
        "Finalizers whose objects were found dead. Said by collectors.",
        |gathered| gathered.gc().deferred[Counter::FinalizersQueued as usize],
    ),
    value(
        "/gc/gogc:percent",
        "How much more than what is live a collected heap may become before the next \
         collection, as the program has set it; 100 unless it has, and the largest number \
         if collections are not to begin by themselves.",
        |_| u64::try_from(gc::percent()).unwrap_or(u64::MAX),
    ),
    value(
        "/gc/gomemlimit:bytes",
        "The memory limit that the program has set for collectors; 9223372036854775807 \
         for none.",
        |_| gc::memory_limit(),
    ),
    histogram(
        "/gc/heap/allocs-by-size:bytes",
        "Allocations by their size, in Go's size classes; the last is for those above 32 \
         KiB.",
        |gathered, histogram| {
            by_size(
                gathered,
                histogram,
                |counts| counts.mallocs,
                |large| large.mallocs,
            )
        },
    ),
    count(
        "/gc/heap/allocs:bytes",
        "Bytes ever allocated, in class sizes. Exact.",
        |gathered| gathered.mem().total_alloc,
    ),
    count(
        "/gc/heap/allocs:objects",
        "Blocks ever allocated. Exact.",
        |gathered| gathered.mem().mallocs,
    ),
    histogram(
        "/gc/heap/frees-by-size:bytes",
        "Frees by the size of what was freed, in Go's size classes; the last is for those \
         above 32 KiB.",
        |gathered, histogram| {
            by_size(
                gathered,
                histogram,
                |counts| counts.frees,
                |large| large.frees,
            )
        },
    ),
    count(
        "/gc/heap/frees:bytes",
        "Bytes ever freed, in class sizes. Exact.",
        |gathered| {
            let mem = gathered.mem();
            mem.total_alloc - mem.heap_alloc
        },
    ),
    count(
        "/gc/heap/frees:objects",
        "Blocks ever freed. Exact.",
        |gathered| gathered.mem().frees,
    ),
    value(
        "/gc/heap/goal:bytes",
        "The heap size at which the next collection is to be over: the sum of what the \
         collectors said at their last mark terminations.",
        |gathered| gathered.mem().next_gc,
    ),
    value(
        "/gc/heap/live:bytes",
        "What the last mark terminations found in use: the sum of what the collectors \
         said.",
        |gathered| gathered.gc().live,
    ),
    value(
        "/gc/heap/objects:objects",
        "Blocks in use. Exact.",
        |gathered| gathered.mem().heap_objects,
    ),
    count(
        "/gc/heap/tiny/allocs:objects",
        "Allocations that share a block with others: there are none.",
        |_| 0,
    ),
    histogram(
        "/gc/pauses:seconds",
        "The same as /sched/pauses/total/gc:seconds.",
        |gathered, histogram| gathered.pause_times().fill(histogram),
    ),
    value(
        "/gc/scan/globals:bytes",
        "How much of global variables was looked at for pointers by the last collections. \
         Said by collectors.",
        |gathered| gathered.gc().scanned_globals,
    ),
    value(
        "/gc/scan/heap:bytes",
        "How much of the heap was looked at for pointers by the last collections. Said by \
         collectors.",
        |gathered| gathered.gc().scanned_heap,
    ),
    value(
        "/gc/scan/stack:bytes",
        "How much of stacks was looked at for pointers by the last collections. Said by \
         collectors.",
        |gathered| gathered.gc().scanned_stack,
    ),
    value(
        "/gc/scan/total:bytes",
        "How much was looked at for pointers by the last collections: the sum of the \
         other /gc/scan.",
        |gathered| {
            let gc = gathered.gc();
            gc.scanned_globals
                .saturating_add(gc.scanned_heap)
                .saturating_add(gc.scanned_stack)
        },
    ),
    value(
        "/memory/classes/heap/free:bytes",
        "Bytes that the allocator holds without a block in them, and has not given back. \
         Told by the allocator's backend, or 0.",
        |gathered| {
            let mem = gathered.mem();
            mem.heap_idle - mem.heap_released
        },
    ),
    value(
        "/memory/classes/heap/objects:bytes",
        "Bytes of blocks in use, in class sizes. Exact.",
        |gathered| gathered.mem().heap_alloc,
    ),
    value(
        "/memory/classes/heap/released:bytes",
        "Bytes that the allocator holds without memory behind them. Told by the allocator's backend, \
         or 0.",
        |gathered| gathered.mem().heap_released,
    ),
    value(
        "/memory/classes/heap/stacks:bytes",
        "Bytes of address space of the stacks of threads.",
        |gathered| gathered.mem().stack_inuse,
    ),
    value(
        "/memory/classes/heap/unused:bytes",
        "Bytes of memory with blocks in it that none of them uses. Told by the allocator's \
         backend, or 0.",
        |gathered| {
            let mem = gathered.mem();
            mem.heap_inuse - mem.heap_alloc
        },
    ),
    value(
        "/memory/classes/metadata/mcache/free:bytes",
        "Bytes mapped for the ledger's shards, and not in use.",
        |gathered| {
            let mem = gathered.mem();
            mem.mcache_sys - mem.mcache_inuse
        },
    ),
    value(
        "/memory/classes/metadata/mcache/inuse:bytes",
        "Bytes of the ledger's shards that threads or processors write to.",
        |gathered| gathered.mem().mcache_inuse,
    ),
    value(
        "/memory/classes/metadata/mspan/free:bytes",
        "Bytes of the allocator's own bookkeeping that are not in use: 0.",
        |gathered| {
            let mem = gathered.mem();
            mem.mspan_sys - mem.mspan_inuse
        },
    ),
    value(
        "/memory/classes/metadata/mspan/inuse:bytes",
        "Bytes of the allocator's own bookkeeping in use. Told by its backend, or 0.",
        |gathered| gathered.mem().mspan_inuse,
    ),
    value(
        "/memory/classes/metadata/other:bytes",
        "Bytes that collectors have for themselves. Said by them.",
        |gathered| gathered.mem().gc_sys,
    ),
    value(
        "/memory/classes/os-stacks:bytes",
        "Bytes of stacks that no thread has. The C library keeps those for itself: 0.",
        |gathered| {
            let mem = gathered.mem();
            mem.stack_sys - mem.stack_inuse
        },
    ),
    value(
        "/memory/classes/other:bytes",
        "Bytes of everything else that Plimsoll uses itself.",
        |gathered| gathered.mem().other_sys,
    ),
    value(
        "/memory/classes/profiling/buckets:bytes",
        "Bytes of the profiler's tables of stacks and buckets.",
        |gathered| gathered.mem().buck_hash_sys,
    ),
    value(
        "/memory/classes/total:bytes",
        "The sum of all other /memory/classes.",
        |gathered| gathered.mem().sys,
    ),
    count(
        "/plimsoll/gc/abandoned:gc-cycles",
        "Collections that ended without a mark termination.",
        |gathered| gathered.gc().abandoned,
    ),
    count(
        "/plimsoll/gc/lost:events",
        "Pauses and collections that are in none of the figures, because a thread was stopped in \
         the middle of noting one.",
        |gathered| gathered.gc().lost,
    ),
    count(
        "/plimsoll/gc/misuses:events",
        "Guards of collectors that were used where they have no meaning.",
        |gathered| gathered.gc().misuses,
    ),
    seconds(
        "/plimsoll/gc/pauses:seconds",
        "How long the pauses of completed collections have taken.",
        |gathered| nanoseconds(gathered.gc().pause_ns),
    ),
    value(
        "/plimsoll/heap/sample-rate:bytes",
        "The mean number of bytes between samples of the heap profile; 0 if none are \
         taken.",
        |_| sampler::rate() as u64,
    ),
    value(
        "/plimsoll/heap/slack:bytes",
        "Bytes by which the heap's /memory/classes had to be above what the allocator's backend \
         told, so that they fit the blocks in use.",
        |gathered| gathered.mem().heap_slack,
    ),
    count(
        "/plimsoll/lost/cut-stacks:events",
        "Events whose stack lacks its outer frames, because it leads through code that cannot \
         be unwound.",
        |gathered| gathered.lost().cut_stacks,
    ),
    count(
        "/plimsoll/lost/labels:events",
        "How often labels were not added, because there was no room for more sets of \
         them.",
        |gathered| gathered.lost().labels,
    ),
    count(
        "/plimsoll/lost/mappings:events",
        "Mappings of the program's own that are counted as gone although they may be there, \
         because there were too many at once.",
        |gathered| gathered.lost().mappings,
    ),
    count(
        "/plimsoll/lost/table-full:events",
        "Events that were recorded without a stack, because the table of stacks was full.",
        |gathered| gathered.lost().table_full,
    ),
    count(
        "/plimsoll/lost/tasks:events",
        "Tasks that are in no profile, because there was no memory to note them.",
        |gathered| gathered.lost().tasks,
    ),
    count(
        "/plimsoll/lost/untracked:events",
        "Sampled blocks that are left out of what is in use, because there was no memory \
         to note them.",
        |gathered| gathered.lost().untracked,
    ),
    count(
        "/plimsoll/lost/waits:events",
        "Waits that could not be noted, because more threads waited at once than there is \
         room for.",
        |gathered| gathered.lost().waits,
    ),
    count(
        "/plimsoll/lost/without-stack:events",
        "Events that were recorded without a stack, because all memory for capturing \
         stacks was in use.",
        |gathered| gathered.lost().without_stack,
    ),
    seconds(
        "/plimsoll/self/waited:seconds",
        "How long Plimsoll's own code has waited for its locks and threads, while there \
         was a block rate or a mutex fraction. Not in /plimsoll/sync. Exact.",
        |_| nanoseconds(own::sums().waited_ns),
    ),
    count(
        "/plimsoll/self/waits:waits",
        "Waits of Plimsoll's own code for its locks and threads that are over, while \
         there was a block rate or a mutex fraction. Not in /plimsoll/sync. Exact.",
        |_| own::sums().waits,
    ),
    seconds(
        "/plimsoll/self:cpu-seconds",
        "Processor time that Plimsoll took itself: its own threads, and whoever read \
         statistics, wrote profiles or answered requests. Without what its hooks take.",
        |_| nanoseconds(own_time::nanoseconds()),
    ),
    seconds(
        "/plimsoll/sync/blamed:seconds",
        "How long others had waited when locks were released, while there was a block \
         rate or a mutex fraction. Exact.",
        |gathered| nanoseconds(gathered.locks().blamed_ns),
    ),
    count(
        "/plimsoll/sync/lock-waits:waits",
        "Waits for locks that are over, while there was a block rate or a mutex fraction. \
         Exact.",
        |gathered| gathered.locks().lock_waits,
    ),
    count(
        "/plimsoll/sync/releases:events",
        "Releases of locks that others waited for, while there was a block rate or a \
         mutex fraction. Exact.",
        |gathered| gathered.locks().releases,
    ),
    seconds(
        "/plimsoll/sync/waited:seconds",
        "How long waits of any kind have taken that are over, while there was a block \
         rate or a mutex fraction. Exact.",
        |gathered| nanoseconds(gathered.locks().waited_ns),
    ),
    count(
        "/plimsoll/sync/waits:waits",
        "Waits of any kind that are over, while there was a block rate or a mutex \
         fraction. Exact.",
        |gathered| gathered.locks().waits,
    ),
    seconds(
        "/plimsoll/sync/wakeup-latency:seconds",
        "From when threads were woken to when they ran again, while there was a block \
         rate or a mutex fraction. Exact.",
        |gathered| nanoseconds(gathered.locks().wakeup_ns),
    ),
    count(
        "/plimsoll/tasks/created:tasks",
        "Tasks that were ever tracked. Exact.",
        |gathered| gathered.tasks().created,
    ),
    value(
        "/plimsoll/tasks/dropping:tasks",
        "Tracked tasks whose futures are being dropped.",
        |gathered| gathered.tasks().states.dropping,
    ),
    value(
        "/plimsoll/tasks/new:tasks",
        "Tracked tasks that were not polled yet.",
        |gathered| gathered.tasks().states.new,
    ),
    histogram(
        "/plimsoll/tasks/polls:seconds",
        "How long polls of tracked tasks have taken, while the setting task_times is on.",
        |_, histogram| task::POLL_DURATION.read_into(histogram),
    ),
    value(
        "/plimsoll/tasks/runnable:tasks",
        "Tracked tasks that were woken, and not polled since.",
        |gathered| gathered.tasks().states.runnable,
    ),
    value(
        "/plimsoll/tasks/running:tasks",
        "Tracked tasks that are being polled.",
        |gathered| gathered.tasks().states.running,
    ),
    value(
        "/plimsoll/tasks/waiting:tasks",
        "Tracked tasks that wait to be woken, also those that nobody will wake.",
        |gathered| gathered.tasks().states.waiting,
    ),
    value(
        "/plimsoll/tasks:tasks",
        "Tracked tasks that there are.",
        |gathered| gathered.tasks().states.alive(),
    ),
    value(
        "/plimsoll/threads:threads",
        "Threads of the program, without Plimsoll's own.",
        |gathered| gathered.program_threads(),
    ),
    value(
        "/sched/gomaxprocs:threads",
        "The processors that the process may use at once, by its affinity and its control \
         group.",
        |gathered| gathered.processors(),
    ),
    count(
        "/sched/goroutines-created:goroutines",
        "Tasks that were ever tracked, and threads that the program has created, where \
         that is seen (feature interpose).",
        |gathered| gathered.tasks().created + births::created(),
    ),
    value(
        "/sched/goroutines/not-in-go:goroutines",
        "Threads of the program: they run and wait as the system says, which no executor \
         knows.",
        |gathered| gathered.program_threads(),
    ),
    value(
        "/sched/goroutines/runnable:goroutines",
        "Tracked tasks that were woken and not polled since, or not polled at all so far.",
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
        "Tracked tasks that wait to be woken.",
        |gathered| gathered.tasks().states.waiting,
    ),
    value(
        "/sched/goroutines:goroutines",
        "Threads of the program, and tracked tasks: the sum of the four states.",
        |gathered| gathered.program_threads() + gathered.tasks().states.alive(),
    ),
    histogram(
        "/sched/latencies:seconds",
        "How long tracked tasks have waited from being woken to being polled, while the \
         setting task_times is on.",
        |_, histogram| task::WAKE_TO_POLL.read_into(histogram),
    ),
    histogram(
        "/sched/pauses/stopping/gc:seconds",
        "Of each pause for a collection, how long it took until everybody had stopped.",
        |_, histogram| gc::STOPPING_TIMES.read_into(histogram),
    ),
    histogram(
        "/sched/pauses/stopping/other:seconds",
        "Of each other pause, how long it took until everybody had stopped. Plimsoll \
         never stops the program: nothing is in it.",
        |_, histogram| NO_TIMES.read_into(histogram),
    ),
    histogram(
        "/sched/pauses/total/gc:seconds",
        "Pauses for collections, from when stopping began to when the program ran again.",
        |gathered, histogram| gathered.pause_times().fill(histogram),
    ),
    histogram(
        "/sched/pauses/total/other:seconds",
        "Interruptions of single threads that ran while somebody asked for all stacks. \
         Plimsoll never stops the program.",
        |_, histogram| thread::INTERRUPTIONS.read_into(histogram),
    ),
    value(
        "/sched/threads/total:threads",
        "Threads of the process, with Plimsoll's own.",
        |gathered| gathered.threads(),
    ),
    seconds(
        "/sync/mutex/wait/total:seconds",
        "How long threads have waited for locks. Exact while there is a block rate or a \
         mutex fraction; an estimate from one in eight waits in the rest of the time.",
        |gathered| {
            nanoseconds({
                let locks = gathered.locks();
                locks.lock_waited_ns + locks.lock_waited_estimate_ns
            })
        },
    ),
];

/// What there is nothing of.
static NO_TIMES: TimeCounts<1> = TimeCounts::new();

fn nanoseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Where Go's size classes begin and end.
static SIZES: [f64; go::CLASSES + 1] = {
    let mut boundaries = [f64::INFINITY; go::CLASSES + 1];
    let mut class = 0;
    while class < go::CLASSES {
        boundaries[class] = (go::SIZES[class] + 1) as f64;
        class += 1;
    }
    boundaries
};

/// Blocks in Go's size classes, and then the large ones.
fn by_size(
    gathered: &Gathered,
    histogram: &mut Histogram,
    small: fn(&ClassCounts) -> u64,
    large: fn(&LargeCounts) -> u64,
) {
    let heap = gathered.heap();
    histogram.buckets = &SIZES;
    histogram.counts.clear();
    histogram.counts.resize(go::CLASSES, 0);
    for (counts, go_class) in heap.by_class.iter().zip(go::OF_CLASS) {
        // Go's class 0 is for nothing.
        histogram.counts[usize::from(go_class) - 1] += small(counts);
    }
    histogram.counts[go::CLASSES - 1] = large(&heap.large);
}
