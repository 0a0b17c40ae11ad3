//! The interface to an interpreter whose functions are shown.

use std::ops::Range;

use plimsoll_process::deep_stacks::{Limit, root_frames};

use crate::names::{MAX_FILE, MAX_NAME, Names};

/// The maximum number of native frames of a merged stack, and of functions.
pub const MAX_FRAMES: usize = 1040;

/// An interpreter whose frames can be read in memory.
pub trait FrameSource: Sync {
    /// Returns whether the process contains the interpreter, in a version that is known. Called again when
    /// libraries were loaded. Allocates and takes the loader's lock: not for hooks.
    fn find(&self) -> bool;

    /// Reads the functions of the calling thread within `limit`, innermost first; `None` if it executes
    /// none. For hooks: the thread may be anywhere, also in the middle of a change of its frames.
    fn read(&self, names: &mut dyn Names, functions: &mut Functions, limit: Limit)
    -> Option<Found>;

    /// Returns a reader of other threads. Allocates: not for hooks.
    fn other_threads(&self) -> Box<dyn OtherThreads>;
}

/// A reader of the functions of blocked threads, one after the other.
pub trait OtherThreads: Send {
    /// Reads the functions of the thread with the system's number `thread`, as [`FrameSource::read`] does.
    /// `is_unmoved` reports whether the thread has been blocked since its native stack was read: no name
    /// may be kept that was read after it moved. Not for hooks.
    fn read(
        &mut self,
        thread: i32,
        names: &mut dyn Names,
        functions: &mut Functions,
        limit: Limit,
        is_unmoved: &mut dyn FnMut() -> bool,
    ) -> Option<Found>;
}

/// The memory for the functions of one stack. Too much for the stack of a signal handler.
pub struct Functions {
    /// The addresses that stand for functions (see [`Names`]), innermost first.
    pub frames: Box<[usize]>,
    /// The outermost of more functions than are kept.
    pub ring: Box<[usize]>,
    /// The executions, innermost first.
    pub executions: Box<[Execution]>,
    /// For a name and a file while they are read.
    pub text: Box<[u8; MAX_NAME + MAX_FILE]>,
}

impl Default for Functions {
    /// Allocates: not for hooks.
    fn default() -> Self {
        Self {
            frames: vec![0; MAX_FRAMES].into_boxed_slice(),
            ring: vec![0; root_frames(MAX_FRAMES)].into_boxed_slice(),
            executions: vec![Execution::default(); MAX_FRAMES].into_boxed_slice(),
            text: Box::new([0; MAX_NAME + MAX_FILE]),
        }
    }
}

/// Functions that ran in one execution of the interpreter's loop.
#[derive(Clone, Copy, Debug, Default)]
pub struct Execution {
    /// An address in the native frame of the loop; 0 if the interpreter keeps none.
    pub position: usize,
    /// The number of functions up to the outermost of this execution.
    pub functions: usize,
}

/// The contents of [`Functions`] after a reading.
#[derive(Debug)]
pub struct Found {
    /// The number of functions.
    pub functions: usize,
    /// The number of executions.
    pub executions: usize,
    /// Whether the functions include the outermost one.
    pub is_complete: bool,
    /// The loop's code, if executions have no position.
    pub loop_code: Option<Range<usize>>,
    /// Code that is left out between functions.
    pub hidden_code: Range<usize>,
}
