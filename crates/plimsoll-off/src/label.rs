//! Labels, of which none are kept: every set is the empty one.

use std::fmt;
use std::marker::PhantomData;

pub const MAX_SETS: usize = 1 << 16;

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Labels(());

impl Labels {
    pub const NONE: Self = Self(());

    #[inline]
    pub fn of<K: AsRef<str>, V: AsRef<str>>(labels: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::NONE.and(labels)
    }

    #[inline]
    #[must_use]
    pub fn and<K: AsRef<str>, V: AsRef<str>>(
        self,
        labels: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        // The iterator may have effects.
        labels.into_iter().for_each(drop);
        self
    }

    #[inline]
    pub fn get(self, _key: &str) -> Option<&'static str> {
        None
    }

    #[inline]
    pub fn iter(self) -> impl ExactSizeIterator<Item = (&'static str, &'static str)> + Clone {
        std::iter::empty()
    }

    #[inline]
    pub fn len(self) -> usize {
        0
    }

    #[inline]
    pub fn is_empty(self) -> bool {
        true
    }

    #[inline]
    pub fn number(self) -> u32 {
        0
    }

    #[inline]
    pub fn of_number(_number: u32) -> Self {
        Self::NONE
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{}")
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{}")
    }
}

#[inline]
pub fn current() -> Labels {
    Labels::NONE
}

#[inline]
pub fn set(_labels: Labels) -> Labels {
    Labels::NONE
}

#[inline]
#[must_use = "the labels go with the guard"]
pub fn with<K: AsRef<str>, V: AsRef<str>>(labels: impl IntoIterator<Item = (K, V)>) -> Guard {
    let _ = Labels::of(labels);
    Guard(PhantomData)
}

#[derive(Debug)]
pub struct Guard(PhantomData<*const ()>);

// So that `drop(guard)` is a drop, for lints of callers, too.
impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {}
}

#[cfg(feature = "tracing")]
#[derive(Clone, Debug, Default)]
pub struct TracingLayer(());

#[cfg(feature = "tracing")]
impl TracingLayer {
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    #[inline]
    #[must_use]
    pub fn fields<N: Into<String>>(self, _names: impl IntoIterator<Item = N>) -> Self {
        self
    }
}

// The defaults: they disable no span, on which other layers of the program may depend.
#[cfg(feature = "tracing")]
impl<S> tracing_subscriber::layer::Layer<S> for TracingLayer where
    S: tracing_core::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>
{
}
