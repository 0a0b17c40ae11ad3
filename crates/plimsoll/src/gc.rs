//! Garbage collectors inside the program: of a scripting language, a virtual machine, or a tracing
//! arena. They report their collections by guards, and so become part of the statistics, as Go's
//! collector is of Go's: [`gc_stats()`](crate::stats::gc_stats()), [`mem_stats()`](crate::stats::mem_stats()), and
//! the heap profile.
//!
//! ```
//! use plimsoll::gc::{Cause, Collector};
//!
//! # fn main() -> Result<(), plimsoll::gc::Error> {
//! let collector = Collector::register("toy")?;
//!
//! let cycle = collector.begin(Cause::Automatic);
//! let pause = cycle.pause();
//! // Stop the threads, find the roots.
//! pause.end();
//! // Mark.
//! let termination = cycle.mark_termination();
//! // Stop the threads, mark the rest.
//! termination.finish(4 << 20, 8 << 20);
//! let sweep = cycle.sweep();
//! // Free what is dead.
//! drop(sweep);
//! cycle.end();
//!
//! let stats = plimsoll::gc_stats();
//! assert_eq!((stats.num_gc, stats.pause.len()), (1, 1));
//! assert_eq!(plimsoll::mem_stats().next_gc, 8 << 20);
//! # Ok(())
//! # }
//! ```
//!
//! A guard costs some hundred nanoseconds and allocates nothing. It never waits for another thread
//! without limit, so it may be used while the program's threads are stopped, wherever they are. At
//! worst its event is lost, and counted as lost. Only three operations require that no thread is
//! stopped: registering a [`Collector`], dropping one, and reading statistics. They take locks,
//! which a stopped thread may hold. The wrong uses of each guard are defined: they are counted in
//! [`CollectorStats::misuses`], and corrupt no statistics.
//!
//! # The heap profile
//! From the first mark termination on, the profiles `heap` and `allocs` refer to mark terminations,
//! as in Go. They show allocations up to the last mark termination but one, less the memory that
//! the sweep after it freed. Garbage that no cycle has found yet is not shown as memory in use; in
//! return, the profile is a cycle or two behind. The end of a [forced](Cause::Forced) cycle
//! advances it to that cycle. [`heap_stats()`](crate::stats::heap_stats()) and similar functions always
//! report current values.
//!
//! With several collectors, each one that ends marking while no other sweeps advances the profile.
//! A sweep during another collector's sweep counts as frees by the program.

pub use plimsoll_stats::gc::{
    Cause, Collector, CollectorStats, Counter, CpuClass, Cycle, DEFAULT_PERCENT, Error, MAX_NAMES,
    MarkTermination, Pause, Sweep, Work, collect, collectors, memory_limit, percent,
    set_memory_limit, set_percent,
};
