//! No metrics: every name is unknown.

use std::borrow::Cow;
use std::iter;

pub use crate::stats::Histogram;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    Uint64,
    Float64,
    Float64Histogram,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    pub name: &'static str,
    pub description: &'static str,
    pub kind: Kind,
    pub cumulative: bool,
}

#[inline]
pub fn all() -> impl ExactSizeIterator<Item = &'static Description> + Clone {
    iter::empty()
}

#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Value {
    #[default]
    Bad,
    Uint64(u64),
    Float64(f64),
    Float64Histogram(Histogram),
}

impl Value {
    #[inline]
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::Bad => None,
            Self::Uint64(_) => Some(Kind::Uint64),
            Self::Float64(_) => Some(Kind::Float64),
            Self::Float64Histogram(_) => Some(Kind::Float64Histogram),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    name: Cow<'static, str>,
    pub value: Value,
}

impl Sample {
    #[inline]
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self {
            name: name.into(),
            value: Value::Bad,
        }
    }

    #[inline]
    pub fn name(&self) -> &str {
        &self.name
    }
}

pub fn read(samples: &mut [Sample]) {
    for sample in samples {
        sample.value = Value::Bad;
    }
}
