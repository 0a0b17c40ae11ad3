//! Functions of an interpreted language on the stack.
//!
//! A native stack shows the interpreter's loop, not the functions that it executes. The interpreter
//! links the frames of these functions in memory, which a [`FrameSource`] can read. [`merge()`] puts
//! them in place of the loop's frames.
//!
//! A function frame has an address like any other, at which no code can be: [`Names`] returns it. So
//! the event table and the formats of profiles need no second kind of frame.
//!
//! Programs use [`plimsoll`](https://docs.rs/plimsoll), which re-exports what is stable. All items of this crate may
//! change in any version: the crates of Plimsoll require each other in exactly one version.

mod frame_source;
mod merge;
mod names;

pub use frame_source::{Execution, Found, FrameSource, Functions, MAX_FRAMES, OtherThreads};
pub use merge::{Buffers, Native, merge, merge_if_on_stack};
pub use names::{Described, MAX_FILE, MAX_NAME, Names, Source};
