//! Processors without redirection.

use crate::redirect::Obstacle;

pub(crate) const JUMP: usize = 4;
pub(crate) const THUNK: usize = 16;

/// The instructions that a trampoline repeats.
pub(crate) struct Moved {
    pub(crate) start: usize,
}

impl Moved {
    pub(crate) const NONE: Self = Self { start: 0 };
}

pub(crate) fn displace(_: &[u8]) -> Result<Moved, Obstacle> {
    Err(Obstacle::Processor)
}

pub(crate) fn jump(_: usize, _: usize) -> Option<[u8; JUMP]> {
    None
}

pub(crate) fn thunk(_: usize, _: usize, _: &mut [u8]) -> Option<()> {
    None
}

pub(crate) fn trampoline(_: &Moved, _: usize, _: usize, _: &mut [u8]) -> Option<()> {
    None
}

pub(crate) fn calls_one_of(_: &[u8], _: usize, _: &[usize]) -> bool {
    false
}
