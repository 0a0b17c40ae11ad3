//! `/plimsoll/`: metrics without a counterpart in Go.

use super::super::growth;
use super::{Metric, count, histogram, nanoseconds, rate, seconds, value};
use crate::cpu;
use plimsoll_core::{overhead, sampler};
use plimsoll_stats::stats;
use plimsoll_tasks::task;
use plimsoll_waits::contention::internal;

pub(super) const METRICS: [Metric; 59] = [
    value(
        "/plimsoll/cgroup/anonymous:bytes",
        "Memory of the process's control group that is in no file and not shared. 0 if no group counts its memory.",
        |gathered| gathered.limits().of_group(|group| group.anonymous),
    ),
    value(
        "/plimsoll/cgroup/files:bytes",
        "Cached pages of files of the control group, which the kernel takes back before it kills.",
        |gathered| gathered.limits().of_group(|group| group.files),
    ),
    value(
        "/plimsoll/cgroup/kernel:bytes",
        "Memory of the kernel itself that counts for the control group.",
        |gathered| gathered.limits().of_group(|group| group.kernel),
    ),
    count(
        "/plimsoll/cgroup/kills:processes",
        "Processes of the control group that the kernel has killed for lack of memory.",
        |gathered| gathered.limits().of_group(|group| group.kills.unwrap_or(0)),
    ),
    value(
        "/plimsoll/cgroup/limit:bytes",
        "The lowest memory limit of the control group and of those that contain it; 0 without one.",
        |gathered| gathered.limits().least(),
    ),
    value(
        "/plimsoll/cgroup/reclaimable:bytes",
        "Memory of the control group that the kernel takes back before it kills: cached files, and caches of the kernel.",
        |gathered| gathered.limits().of_group(|group| group.reclaimable),
    ),
    value(
        "/plimsoll/cgroup/shared:bytes",
        "Memory of the control group that is in tmpfs or shared between processes.",
        |gathered| gathered.limits().of_group(|group| group.shared),
    ),
    count(
        "/plimsoll/cgroup/slowdowns:events",
        "Number of times that the control group reached memory.high, where the kernel slows it down. 0 in version 1.",
        |gathered| {
            gathered
                .limits()
                .of_group(|group| group.slowdowns.unwrap_or(0))
        },
    ),
    value(
        "/plimsoll/cgroup/sockets:bytes",
        "Buffers of sockets of the control group. 0 in version 1.",
        |gathered| gathered.limits().of_group(|group| group.sockets),
    ),
    seconds(
        "/plimsoll/cgroup/stalled-full:seconds",
        "Time for which all processes of the control group waited for memory at once. 0 in version 1.",
        |gathered| gathered.limits().stalled(|stalled| stalled.full),
    ),
    seconds(
        "/plimsoll/cgroup/stalled-some:seconds",
        "Time for which at least one process of the control group waited for memory. 0 in version 1.",
        |gathered| gathered.limits().stalled(|stalled| stalled.some),
    ),
    value(
        "/plimsoll/cgroup/swapped:bytes",
        "Memory of the control group that is swapped out.",
        |gathered| {
            gathered
                .limits()
                .of_group(|group| group.swapped.unwrap_or(0))
        },
    ),
    value(
        "/plimsoll/cgroup/used:bytes",
        "Memory of the control group: memory.current. Includes cached files, so that the limit may be reached without harm.",
        |gathered| gathered.limits().of_group(|group| group.current),
    ),
    histogram(
        "/plimsoll/cpu/handler:seconds",
        "Durations for which CPU samples interrupted the sampled threads.",
        |_, histogram| cpu::HANDLER_TIMES.read_into(histogram),
    ),
    count(
        "/plimsoll/gc/abandoned:gc-cycles",
        "Collections that ended without a mark termination.",
        |gathered| gathered.gc().abandoned,
    ),
    count(
        "/plimsoll/gc/lost:events",
        "Pauses and collections that are missing from all figures, because a thread was stopped \
         while it recorded one.",
        |gathered| gathered.gc().lost,
    ),
    count(
        "/plimsoll/gc/misuses:events",
        "Invalid uses of collectors' guards.",
        |gathered| gathered.gc().misuses,
    ),
    seconds(
        "/plimsoll/gc/pauses:seconds",
        "Duration of the pauses of completed collections.",
        |gathered| nanoseconds(gathered.gc().pause_ns),
    ),
    rate(
        "/plimsoll/growth:bytes-per-second",
        "Growth of the memory in use of all allocation sites that are reported as leaking; 0 without \
         one, and until verdicts are possible. Estimated.",
        |_| growth(),
    ),
    value(
        "/plimsoll/heap/sample-rate:bytes",
        "The mean number of bytes between samples of the heap profile; 0 if none are \
         taken.",
        |_| sampler::rate() as u64,
    ),
    value(
        "/plimsoll/heap/slack:bytes",
        "Bytes by which the heap's /memory/classes exceed the figures of the allocator's backend, \
         so that they cover the blocks in use.",
        |gathered| gathered.mem().heap_slack,
    ),
    count(
        "/plimsoll/lost/cut-stacks:events",
        "Events whose stack lacks its outer frames, because it passes through code that cannot be \
         unwound.",
        |gathered| gathered.lost().cut_stacks,
    ),
    count(
        "/plimsoll/lost/labels:events",
        "Number of sets of labels that count as [other labels], because the table of label sets was full.",
        |gathered| gathered.lost().labels,
    ),
    count(
        "/plimsoll/lost/mappings:events",
        "Mappings of the program that are counted as unmapped although they may exist, because \
         there were too many at once.",
        |gathered| gathered.lost().mappings,
    ),
    count(
        "/plimsoll/lost/table-full:events",
        "Events that were recorded without a stack, because the table of stacks was full.",
        |gathered| gathered.lost().table_full,
    ),
    count(
        "/plimsoll/lost/tasks:events",
        "Tasks that are missing from all profiles, because no memory was available to record them.",
        |gathered| gathered.lost().tasks,
    ),
    count(
        "/plimsoll/lost/untracked:events",
        "Sampled blocks that are missing from the memory in use, because no memory was available to \
         record them.",
        |gathered| gathered.lost().untracked,
    ),
    count(
        "/plimsoll/lost/waits:events",
        "Waits that were not recorded, because too many threads waited at once.",
        |gathered| gathered.lost().waits,
    ),
    count(
        "/plimsoll/lost/without-stack:events",
        "Events that were recorded without a stack, because all memory for capturing \
         stacks was in use.",
        |gathered| gathered.lost().without_stack,
    ),
    value(
        "/plimsoll/memory/declared-peak:bytes",
        "The maximum of the bytes that the program has declared in its accounts. Exact.",
        |gathered| gathered.footprint().peak_declared,
    ),
    value(
        "/plimsoll/memory/declared:bytes",
        "Bytes that the program declares in its accounts. Exact; less than /memory/classes/heap/objects where memory \
         is not declared.",
        |gathered| gathered.footprint().declared,
    ),
    rate(
        "/plimsoll/memory/nearest-limit/growth:bytes-per-second",
        "Growth of the memory in use at the limit that is reached first, over the last 8 to 60 seconds; 0 if \
         there is none, or if it is not steady.",
        |gathered| {
            let nearest = gathered.limits().nearest.as_ref();
            nearest
                .and_then(|nearest| nearest.bytes_per_second)
                .unwrap_or(0.0)
        },
    ),
    value(
        "/plimsoll/memory/nearest-limit/left:bytes",
        "Memory that is left up to the limit of a control group or of the machine that is reached first. \
         Memory that the kernel takes back counts as left.",
        |gathered| {
            gathered
                .limits()
                .nearest
                .as_ref()
                .map_or(0, |nearest| nearest.left)
        },
    ),
    value(
        "/plimsoll/memory/resident-anonymous:bytes",
        "Resident memory of the process that belongs to no file, as the kernel reports it. Linux only, \
         otherwise 0.",
        |gathered| gathered.resident().anonymous,
    ),
    value(
        "/plimsoll/memory/resident:bytes",
        "Resident memory of the process, as the kernel reports it. Linux only, otherwise 0.",
        |gathered| gathered.resident().total,
    ),
    count(
        "/plimsoll/memory/returned:bytes",
        "Resident memory that free_os_memory, the memory limit and give_back have returned to the system.",
        |_| stats::returned_bytes(),
    ),
    seconds(
        "/plimsoll/self/waited:seconds",
        "Time that Plimsoll's own code has waited for its locks and threads, while a block rate \
         or a mutex fraction was set. Not in /plimsoll/sync. Exact.",
        |_| nanoseconds(internal::sums().waited_ns),
    ),
    count(
        "/plimsoll/self/waits:waits",
        "Completed waits of Plimsoll's own code for its locks and threads, while a block rate or \
         a mutex fraction was set. Not in /plimsoll/sync. Exact.",
        |_| internal::sums().waits,
    ),
    seconds(
        "/plimsoll/self:cpu-seconds",
        "CPU time used by Plimsoll itself: its own threads, and threads that read \
         statistics, wrote profiles or answered requests. Without the time of its hooks.",
        |_| nanoseconds(overhead::nanoseconds()),
    ),
    count(
        "/plimsoll/stacks/rules/found:frames",
        "Frames of walked stacks whose unwind rule was cached.",
        |gathered| gathered.caches().rules_found,
    ),
    count(
        "/plimsoll/stacks/rules/missing:frames",
        "Frames of walked stacks whose unwind rule was computed, since it was not cached.",
        |gathered| gathered.caches().rules_missing,
    ),
    count(
        "/plimsoll/stacks/walks/changed:walks",
        "Stacks from a start that was cached with other contents, so that they were walked.",
        |gathered| gathered.caches().walks_changed,
    ),
    count(
        "/plimsoll/stacks/walks/found:walks",
        "Stacks that were answered by the cache of walks, without a walk.",
        |gathered| gathered.caches().walks_found,
    ),
    count(
        "/plimsoll/stacks/walks/missing:walks",
        "Stacks from a start that was not cached, so that they were walked.",
        |gathered| gathered.caches().walks_missing,
    ),
    seconds(
        "/plimsoll/sync/blamed:seconds",
        "Time that others had waited when locks were released, while a block rate or a mutex \
         fraction was set. Exact.",
        |gathered| nanoseconds(gathered.locks().blamed_ns),
    ),
    count(
        "/plimsoll/sync/lock-waits:waits",
        "Completed waits for locks, while a block rate or a mutex fraction was set. Exact.",
        |gathered| gathered.locks().lock_waits,
    ),
    count(
        "/plimsoll/sync/releases:events",
        "Releases of locks that others waited for, while a block rate or a mutex fraction was \
         set. Exact.",
        |gathered| gathered.locks().releases,
    ),
    seconds(
        "/plimsoll/sync/waited:seconds",
        "Time of completed waits of any kind, while a block rate or a mutex fraction was set. \
         Exact.",
        |gathered| nanoseconds(gathered.locks().waited_ns),
    ),
    count(
        "/plimsoll/sync/waits:waits",
        "Completed waits of any kind, while a block rate or a mutex fraction was set. Exact.",
        |gathered| gathered.locks().waits,
    ),
    seconds(
        "/plimsoll/sync/wakeup-latency:seconds",
        "Time from the wake-up of threads until they ran again, while a block rate or a mutex \
         fraction was set. Exact.",
        |gathered| nanoseconds(gathered.locks().wakeup_ns),
    ),
    count(
        "/plimsoll/tasks/created:tasks",
        "Tasks tracked since the start. Exact.",
        |gathered| gathered.tasks().created,
    ),
    value(
        "/plimsoll/tasks/dropping:tasks",
        "Tracked tasks whose futures are being dropped.",
        |gathered| gathered.tasks().states.dropping,
    ),
    value(
        "/plimsoll/tasks/new:tasks",
        "Tracked tasks that have not been polled yet.",
        |gathered| gathered.tasks().states.new,
    ),
    histogram(
        "/plimsoll/tasks/polls:seconds",
        "Duration of polls of tracked tasks, while the setting task_times is on.",
        |_, histogram| task::POLL_DURATION.read_into(histogram),
    ),
    value(
        "/plimsoll/tasks/runnable:tasks",
        "Tracked tasks that were woken and have not been polled since.",
        |gathered| gathered.tasks().states.runnable,
    ),
    value(
        "/plimsoll/tasks/running:tasks",
        "Tracked tasks that are being polled.",
        |gathered| gathered.tasks().states.running,
    ),
    value(
        "/plimsoll/tasks/waiting:tasks",
        "Tracked tasks that wait for a wake-up, including those that nothing will wake.",
        |gathered| gathered.tasks().states.waiting,
    ),
    value("/plimsoll/tasks:tasks", "Live tracked tasks.", |gathered| {
        gathered.tasks().states.alive()
    }),
    value(
        "/plimsoll/threads:threads",
        "Threads of the program, without Plimsoll's own.",
        |gathered| gathered.program_threads(),
    ),
];
