//! `/cpu/`, `/gc/` and `/memory/`: processor time, the heap, memory by class.

use super::{Metric, by_size, count, histogram, seconds, value};
use plimsoll_stats::gc::{self, Counter};

pub(super) const METRICS: [Metric; 49] = [
    seconds(
        "/cpu/classes/gc/mark/assist:cpu-seconds",
        "CPU time that threads of the program spent on marking for collectors. Comparable only \
         with the other /cpu/classes. Reported by collectors.",
        |gathered| gathered.cpu().gc_mark_assist.as_secs_f64(),
    ),
    seconds(
        "/cpu/classes/gc/mark/dedicated:cpu-seconds",
        "CPU time that threads of collectors spent on marking. Comparable only with the other \
         /cpu/classes. Reported by collectors.",
        |gathered| gathered.cpu().gc_mark_dedicated.as_secs_f64(),
    ),
    seconds(
        "/cpu/classes/gc/mark/idle:cpu-seconds",
        "CPU time spent on marking by otherwise idle processors. Comparable only with the other \
         /cpu/classes. Reported by collectors.",
        |gathered| gathered.cpu().gc_mark_idle.as_secs_f64(),
    ),
    seconds(
        "/cpu/classes/gc/pause:cpu-seconds",
        "Duration of pauses for collections, multiplied by the number of stopped processors. \
         Comparable only with the other /cpu/classes.",
        |gathered| gathered.cpu().gc_pause.as_secs_f64(),
    ),
    seconds(
        "/cpu/classes/gc/total:cpu-seconds",
        "CPU time of collections: the sum of the other /cpu/classes/gc. Comparable only with the \
         other /cpu/classes.",
        |gathered| gathered.cpu().gc_total.as_secs_f64(),
    ),
    seconds(
        "/cpu/classes/idle:cpu-seconds",
        "Time of the available processors that the process did not use. Comparable only with the \
         other /cpu/classes.",
        |gathered| gathered.cpu().idle.as_secs_f64(),
    ),
    seconds(
        "/cpu/classes/scavenge/assist:cpu-seconds",
        "CPU time that threads of the program spent on returning memory to the system. Comparable \
         only with the other /cpu/classes. Reported by collectors.",
        |gathered| gathered.cpu().scavenge_assist.as_secs_f64(),
    ),
    seconds(
        "/cpu/classes/scavenge/background:cpu-seconds",
        "CPU time that threads of collectors spent on returning memory to the system. Comparable \
         only with the other /cpu/classes. Reported by collectors.",
        |gathered| gathered.cpu().scavenge_background.as_secs_f64(),
    ),
    seconds(
        "/cpu/classes/scavenge/total:cpu-seconds",
        "CPU time spent on returning memory to the system: the sum of the other \
         /cpu/classes/scavenge. Comparable only with the other /cpu/classes.",
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
        "CPU time of the process outside the other /cpu/classes. Comparable only with those.",
        |gathered| gathered.cpu().user.as_secs_f64(),
    ),
    count(
        "/gc/cleanups/executed:cleanups",
        "Cleanups that have run. Reported by collectors.",
        |gathered| gathered.gc().deferred[Counter::CleanupsExecuted as usize],
    ),
    count(
        "/gc/cleanups/queued:cleanups",
        "Cleanups whose objects were found dead. Reported by collectors.",
        |gathered| gathered.gc().deferred[Counter::CleanupsQueued as usize],
    ),
    count(
        "/gc/cycles/automatic:gc-cycles",
        "Completed collections that collectors started automatically.",
        |gathered| {
            let gc = gathered.gc();
            gc.cycles.saturating_sub(gc.forced)
        },
    ),
    count(
        "/gc/cycles/forced:gc-cycles",
        "Completed collections that the program requested.",
        |gathered| gathered.gc().forced,
    ),
    count(
        "/gc/cycles/total:gc-cycles",
        "Completed collections, of all collectors.",
        |gathered| gathered.gc().cycles,
    ),
    count(
        "/gc/finalizers/executed:finalizers",
        "Finalizers that have run. Reported by collectors.",
        |gathered| gathered.gc().deferred[Counter::FinalizersExecuted as usize],
    ),
    count(
        "/gc/finalizers/queued:finalizers",
        "Finalizers whose objects were found dead. Reported by collectors.",
        |gathered| gathered.gc().deferred[Counter::FinalizersQueued as usize],
    ),
    value(
        "/gc/gogc:percent",
        "Percentage by which a collected heap may grow above its live size before the next \
         collection, as set by the program; 100 by default, and the largest number if automatic \
         collections are off.",
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
        "Frees by the size of the block, in Go's size classes; the last is for those above 32 KiB.",
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
        "The heap size at which the next collection is to end: the sum of the sizes that \
         collectors reported at their last mark terminations.",
        |gathered| gathered.mem().next_gc,
    ),
    value(
        "/gc/heap/live:bytes",
        "Heap in use at the last mark terminations: the sum of the sizes that collectors reported.",
        |gathered| gathered.gc().live,
    ),
    value(
        "/gc/heap/objects:objects",
        "Blocks in use. Exact.",
        |gathered| gathered.mem().heap_objects,
    ),
    count(
        "/gc/heap/tiny/allocs:objects",
        "Allocations that share a block with others: always 0.",
        |_| 0,
    ),
    histogram(
        "/gc/pauses:seconds",
        "The same as /sched/pauses/total/gc:seconds.",
        |gathered, histogram| gathered.pause_times().fill(histogram),
    ),
    value(
        "/gc/scan/globals:bytes",
        "Size of the global variables that the last collections scanned for pointers. Reported by \
         collectors.",
        |gathered| gathered.gc().scanned_globals,
    ),
    value(
        "/gc/scan/heap:bytes",
        "Size of the heap memory that the last collections scanned for pointers. Reported by \
         collectors.",
        |gathered| gathered.gc().scanned_heap,
    ),
    value(
        "/gc/scan/stack:bytes",
        "Size of the stacks that the last collections scanned for pointers. Reported by \
         collectors.",
        |gathered| gathered.gc().scanned_stack,
    ),
    value(
        "/gc/scan/total:bytes",
        "Size of the memory that the last collections scanned for pointers: the sum of the other \
         /gc/scan.",
        |gathered| {
            let gc = gathered.gc();
            gc.scanned_globals
                .saturating_add(gc.scanned_heap)
                .saturating_add(gc.scanned_stack)
        },
    ),
    value(
        "/memory/classes/heap/free:bytes",
        "Bytes of free memory that the allocator holds and has not returned to the system. \
         Reported by the allocator's backend, or 0.",
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
        "Bytes of address space that the allocator holds without physical memory. Reported by the \
         allocator's backend, or 0.",
        |gathered| gathered.mem().heap_released,
    ),
    value(
        "/memory/classes/heap/stacks:bytes",
        "Bytes of address space of the stacks of threads.",
        |gathered| gathered.mem().stack_inuse,
    ),
    value(
        "/memory/classes/heap/unused:bytes",
        "Bytes of memory that contains blocks, but which no block uses. Reported by the \
         allocator's backend, or 0.",
        |gathered| {
            let mem = gathered.mem();
            mem.heap_inuse - mem.heap_alloc
        },
    ),
    value(
        "/memory/classes/metadata/mcache/free:bytes",
        "Bytes mapped for the ledger's shards that are not in use.",
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
        "Bytes of the allocator's own bookkeeping in use. Reported by its backend, or 0.",
        |gathered| gathered.mem().mspan_inuse,
    ),
    value(
        "/memory/classes/metadata/other:bytes",
        "Bytes that collectors use for themselves. Reported by collectors.",
        |gathered| gathered.mem().gc_sys,
    ),
    value(
        "/memory/classes/os-stacks:bytes",
        "Bytes of stacks that no thread uses: 0, because the C library caches these stacks.",
        |gathered| {
            let mem = gathered.mem();
            mem.stack_sys - mem.stack_inuse
        },
    ),
    value(
        "/memory/classes/other:bytes",
        "Bytes of all other memory that Plimsoll uses itself.",
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
];
