//! Threads: the standard library's, of which none are listed.

use std::convert::Infallible;
use std::time::Duration;

use crate::label::Labels;
use crate::notice::no_values;

pub use std::thread::{Builder, Scope, scope, spawn};

// Private, so that for callers the type is not visibly without values, of which lints would warn.
#[derive(Clone, Debug)]
pub struct ThreadRecord(Infallible);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ThreadState {
    Running,
    Waiting,
    Unknown,
}

#[inline]
pub fn threads() -> Vec<ThreadRecord> {
    Vec::new()
}

no_values! { ThreadRecord {
    id: u32,
    name: &str,
    state: ThreadState,
    waited: Option<Duration>,
    labels: Labels,
    stack: &[usize],
    is_stack_whole: bool,
    creator: Option<u32>,
    creation_stack: &'static [usize],
} }
