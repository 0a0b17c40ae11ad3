//! The names of the crate `dhat` 0.3: a program or test that uses it needs only the dependency `plimsoll`
//! in its place, and `use plimsoll::dhat;`.
//!
//! ```
//! use plimsoll::dhat;
//!
//! #[global_allocator]
//! static ALLOC: dhat::Alloc = dhat::Alloc;
//!
//! # fn main() {
//! let _profiler = dhat::Profiler::builder().testing().build();
//! let kept = vec![1, 2, 3, 4];
//! drop(vec![5, 6, 7, 8]);
//!
//! let stats = dhat::HeapStats::get();
//! dhat::assert_eq!(stats.total_blocks, 2);
//! dhat::assert_eq!(stats.max_bytes, 32);
//! dhat::assert_eq!(stats.curr_bytes, 16);
//! # drop(kept);
//! # }
//! ```
//!
//! These names exist: [`Alloc`], [`Profiler`] with `new_heap` and `builder`, [`ProfilerBuilder`] with
//! `testing`, `file_name`, `trim_backtraces` and `build`, [`HeapStats`], [`assert!`](assert),
//! [`assert_eq!`](assert_eq) and [`assert_ne!`](assert_ne). Ad hoc profiling does not:
//! `Profiler::new_ad_hoc`, `ProfilerBuilder::ad_hoc`, `ad_hoc_event` and `AdHocStats`. A
//! [profile of the program](crate::profile::Profile::new) counts events by stack.
//!
//! # Counts
//! As with that crate, all threads count together, from the creation of the profiler, in bytes as the
//! program requested them. A reallocation is another block in the total and the same block in use.
//! Blocks that are older than the profiler do not count, and count as new if they are reallocated.
//!
//! All fields are exact if no other thread allocates or frees at the moment of the reading. The totals
//! and the maximum of the bytes are exact with any number of threads. Plimsoll's own memory does not
//! count. [`HeapStats`] states the rest.
//!
//! # Differences
//! * The profile is a pprof file, `dhat-heap.pb.gz`, for `plimsoll report`, `plimsoll view` and
//!   `go tool pprof`. Its sizes are those of Plimsoll's [size classes](plimsoll_ledger::size_class): a site's bytes may
//!   exceed the requested bytes, by at most 7 bytes a block up to 1 KiB.
//! * A profiler sets the [rate of samples](crate::profile::set_heap_rate) to 1 until it ends, so the
//!   profile has every allocation. Threads that exist already follow within their next MiB. A
//!   `heap_rate` in the environment variable `PLIMSOLL` takes precedence; sites are estimates then.
//! * The memory at the maximum, by site (`peak_space`), is that of the profile
//!   [`peak`](crate::profile), which begins anew with each profiler. Its moment is that of the highest
//!   use with blocks that are older than the profiler; it is the moment of `max_bytes` if these are few.
//! * A profiler panics if [`Alloc`] is not the global allocator, instead of counting nothing.
//! * Allocations of a condition of [`assert!`](assert) count.
//! * Allocations do not wait for one another.
//!
//! `docs/guides/from-dhat.md` shows the change of a project. [`measure()`](crate::measure::measure()) counts one
//! thread, and so needs no process for each test.

mod alloc;
mod assertions;
mod blocks;
mod file;

use std::alloc::Layout;
use std::hint::black_box;
use std::path::{Path, PathBuf};

use plimsoll_sys::os::fork::{ForkGuard, ForkLock};

pub use alloc::Alloc;
pub use assertions::{assert, assert_eq, assert_ne, is_violated};

use file::Recording;

use plimsoll_core::fork::Order;

/// The allocations since the running [`Profiler`] was created, on all threads. Sizes are those that the
/// program requested.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapStats {
    /// The number of blocks allocated, reallocations included. Exact.
    pub total_blocks: u64,
    /// The bytes allocated; for a reallocation, all of its new size. Exact.
    pub total_bytes: u64,
    /// The number of blocks in use. Exact.
    pub curr_blocks: usize,
    /// The bytes in use. Exact.
    pub curr_bytes: usize,
    /// The number of blocks in use when `curr_bytes` was at its maximum, the latest time if there were
    /// several. Exact if one thread allocated and freed at that moment; otherwise it may include or lack
    /// the operations of other threads at that moment.
    pub max_blocks: usize,
    /// The maximum of `curr_bytes`. Exact.
    pub max_bytes: usize,
}

impl HeapStats {
    /// Reads the counts. They are not read at one instant: while other threads allocate, one may
    /// include an operation that another lacks.
    ///
    /// # Panics
    /// If no [`Profiler`] is running.
    pub fn get() -> Self {
        match &*phase() {
            Phase::Ready => panic!("dhat: getting heap stats when no profiler is running"),
            Phase::Asserted => panic!("dhat: getting heap stats after the profiler has asserted"),
            Phase::Running(_) => alloc::stats(),
        }
    }
}

/// The state of the process' profiler.
enum Phase {
    /// No profiler exists.
    Ready,
    Running(Running),
    /// The profiler ended at a failed assertion, and is not dropped yet.
    Asserted,
}

/// What a running profiler needs when it ends.
struct Running {
    is_testing: bool,
    file_name: PathBuf,
    recording: Recording,
}

static PHASE: ForkLock<Phase> = ForkLock::new(Order::Dhat.rank(), Phase::Ready);

fn phase() -> ForkGuard<Phase> {
    PHASE.lock()
}

/// Counts and records allocations until it is dropped. It then prints the counts to standard error and
/// writes the profile, except in [testing mode](ProfilerBuilder::testing). A process has one at a time.
///
/// ```no_run
/// # use plimsoll::dhat;
/// # #[global_allocator]
/// # static ALLOC: dhat::Alloc = dhat::Alloc;
/// # fn main() {
/// let _profiler = dhat::Profiler::new_heap();
/// # }
/// ```
///
/// No other thread should allocate or free between the end of a profiler and the creation of the next
/// one: an operation in progress may be counted in part.
#[derive(Debug)]
pub struct Profiler(());

impl Profiler {
    /// Begins to profile, with the settings of [`ProfilerBuilder`]'s methods unset.
    ///
    /// # Panics
    /// As [`ProfilerBuilder::build`].
    pub fn new_heap() -> Self {
        Self::builder().build()
    }

    /// Returns a builder.
    pub fn builder() -> ProfilerBuilder {
        ProfilerBuilder {
            is_testing: false,
            file_name: None,
            depth: None,
        }
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        let before = std::mem::replace(&mut *phase(), Phase::Ready);
        if let Phase::Running(running) = before {
            let is_reported = !running.is_testing;
            running.finish(is_reported);
        }
    }
}

/// The settings of a [`Profiler`].
#[derive(Debug)]
pub struct ProfilerBuilder {
    is_testing: bool,
    file_name: Option<PathBuf>,
    depth: Option<usize>,
}

impl ProfilerBuilder {
    /// Permits [`assert!`](assert) and the like. The profiler then prints and writes nothing when it is
    /// dropped, but when an assertion fails.
    pub fn testing(mut self) -> Self {
        self.is_testing = true;
        self
    }

    /// Sets the name of the file that the profiler writes. The default is `dhat-heap.pb.gz`.
    pub fn file_name<P: AsRef<Path>>(mut self, file_name: P) -> Self {
        self.file_name = Some(file_name.as_ref().to_path_buf());
        self
    }

    /// Sets the number of frames of a stack that are recorded, from the allocation; at least 4. `None`
    /// stands for the maximum, 1024. Inlined calls and functions of the allocator do not count. The
    /// default is [`set_stack_depth`](crate::profile::set_stack_depth)'s, 128 frames, instead of 10.
    pub fn trim_backtraces(mut self, max_frames: Option<usize>) -> Self {
        self.depth = Some(max_frames.map_or(plimsoll_core::stack::DEEPEST, |frames| frames.max(4)));
        self
    }

    /// Begins to profile.
    ///
    /// # Panics
    /// If a profiler is running, if the global allocator is not [`Alloc`], or without memory for the
    /// record of blocks.
    #[track_caller]
    pub fn build(self) -> Profiler {
        let file_name = self.file_name.unwrap_or_else(|| "dhat-heap.pb.gz".into());
        let mut phase = phase();
        std::assert!(
            matches!(*phase, Phase::Ready),
            "dhat: creating a profiler while a profiler is already running"
        );
        std::assert!(alloc::start(), "dhat: no memory to record blocks");
        let is_counted = is_counted();
        alloc::stop();
        std::assert!(
            is_counted,
            "dhat: nothing can be profiled: the global allocator is not a plimsoll::dhat::Alloc; declare \
             `#[global_allocator] static ALLOC: dhat::Alloc = dhat::Alloc;`"
        );
        *phase = Phase::Running(Running {
            is_testing: self.is_testing,
            file_name,
            recording: Recording::start(self.depth),
        });
        drop(phase);
        alloc::start();
        Profiler(())
    }
}

/// Returns whether a block of the global allocator is counted.
fn is_counted() -> bool {
    let before = alloc::stats().total_blocks;
    let layout = Layout::new::<u64>();
    // SAFETY: the layout has a size, and the block is freed with the same one.
    unsafe {
        let block = black_box(std::alloc::alloc(layout));
        if block.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        std::alloc::dealloc(block, layout);
    }
    alloc::stats().total_blocks > before
}
