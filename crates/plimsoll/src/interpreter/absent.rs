//! Replaces the module where no interpreter is known: no frame is ever found.

/// See the module of Linux.
pub(crate) struct Buffers;

/// See the module of Linux.
pub(crate) struct Described<'a> {
    pub(crate) name: &'a str,
    pub(crate) file: &'a str,
    pub(crate) start_line: u32,
    pub(crate) line: u32,
}

/// See the module of Linux.
pub(crate) struct OtherThreads;

/// See the module of Linux.
#[allow(dead_code, reason = "the fields have readers on Linux with glibc only")]
pub(crate) struct Blocked<'a> {
    pub(crate) thread: i32,
    pub(crate) threads: &'a mut OtherThreads,
    pub(crate) is_unmoved: &'a mut dyn FnMut() -> bool,
}

impl OtherThreads {
    pub(crate) fn new() -> Self {
        Self
    }
}

impl Buffers {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn positions(&mut self) -> &mut [usize] {
        &mut []
    }
}

pub(crate) fn is_observed() -> bool {
    false
}

pub(crate) fn find(_: impl FnOnce()) {}

pub(crate) fn merge<'a>(_: &[usize], _: &'a mut Buffers, _: bool, _: usize) -> Option<&'a [usize]> {
    None
}

pub(crate) fn merge_blocked<'a>(
    _: &[usize],
    _: &'a mut Buffers,
    _: bool,
    _: usize,
    _: Blocked<'_>,
) -> Option<&'a [usize]> {
    None
}

pub(crate) fn describe<R>(_: usize, _: impl FnOnce(Described<'_>) -> R) -> Option<R> {
    None
}
