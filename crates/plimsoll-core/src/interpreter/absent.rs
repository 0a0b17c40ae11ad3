//! Replaces the module where no interpreter is known: no frame is ever found.

#![allow(missing_docs, reason = "documented in the counterpart")]

use plimsoll_sys::deep_stacks::Limit;
use plimsoll_unwind::walk::End;

/// See the module of Linux.
pub struct Buffers;

/// See the module of Linux.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "the fields have readers on Linux with glibc only")]
pub struct Native<'a> {
    pub frames: &'a [usize],
    pub end: End,
}

/// See the module of Linux.
pub struct Described<'a> {
    pub name: &'a str,
    pub file: &'a str,
    pub start_line: u32,
    pub line: u32,
}

/// See the module of Linux.
pub struct OtherThreads;

/// See the module of Linux.
#[allow(dead_code, reason = "the fields have readers on Linux with glibc only")]
pub struct Blocked<'a> {
    pub thread: i32,
    pub threads: &'a mut OtherThreads,
    pub is_unmoved: &'a mut dyn FnMut() -> bool,
}

impl OtherThreads {
    pub fn new() -> Self {
        Self
    }
}

impl Buffers {
    pub fn new() -> Self {
        Self
    }

    pub fn positions(&mut self) -> &mut [usize] {
        &mut []
    }
}

pub fn is_observed() -> bool {
    false
}

pub fn find(_: impl FnOnce()) {}

pub fn merge<'a>(_: Native<'_>, _: &'a mut Buffers, _: Limit) -> Option<(&'a [usize], End)> {
    None
}

pub fn merge_blocked<'a>(
    _: Native<'_>,
    _: &'a mut Buffers,
    _: Limit,
    _: Blocked<'_>,
) -> Option<(&'a [usize], End)> {
    None
}

pub fn describe<R>(_: usize, _: impl FnOnce(Described<'_>) -> R) -> Option<R> {
    None
}
