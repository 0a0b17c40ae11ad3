//! Memory in an allocator's pages that no block occupies: no allocator reports it.

use std::fmt;

use crate::notice::NOT_COMPILED_IN;

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fragmentation {
    pub backend: &'static str,
    pub classes: Vec<ClassSpace>,
    pub large: Live,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassSpace {
    pub above: usize,
    pub largest: usize,
    pub room: u64,
    pub in_use: u64,
    pub in_use_bytes: u64,
    pub active: u64,
    pub live: Option<Live>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Live {
    pub blocks: u64,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unavailable {
    NoBackend,
    ByBackend(&'static str),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::NoBackend => "",
            Self::ByBackend(name) => name,
        };
        let comma = if name.is_empty() { "" } else { ", " };
        write!(
            f,
            "the program's allocator{comma}{name} reports nothing about its pages: {NOT_COMPILED_IN}"
        )
    }
}

impl std::error::Error for Unavailable {}

// No program can make a value of these two types.
impl ClassSpace {
    pub fn sparse(&self) -> u64 {
        0
    }

    pub fn kept(&self) -> Option<i64> {
        None
    }
}

impl Fragmentation {
    pub fn active(&self) -> u64 {
        0
    }

    pub fn sparse(&self) -> u64 {
        0
    }

    pub fn json(&self) -> String {
        "{}\n".to_owned()
    }
}

impl fmt::Display for Fragmentation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{NOT_COMPILED_IN}")
    }
}

#[inline]
pub fn fragmentation() -> Result<Fragmentation, Unavailable> {
    Err(Unavailable::NoBackend)
}
