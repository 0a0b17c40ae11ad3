//! Labels of threads and tasks, and their numbers in the table of stacks.
//!
//! Each set of labels is stored once, under a number, and never freed. The table of stacks separates
//! allocations under different labels: each place needs a bucket there for each set of labels.

#[cfg(feature = "tracing")]
mod spans;
mod table;
mod threads;
#[cfg(feature = "tracing")]
mod tracing;

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use crate::escape::put_quoted;

#[cfg(feature = "tracing")]
pub use spans::within_spans;
pub use table::OTHER_LABELS;
pub use threads::{all as of_threads, prepare};
#[cfg(feature = "tracing")]
pub use tracing::TracingLayer;

/// Maximum number of different sets of labels in a process, with the empty one and the one for further sets.
pub const MAX_SETS: usize = table::MAX_SETS;

thread_local! {
    static CURRENT: Cell<Labels> = const { Cell::new(Labels::NONE) };
}

/// A set of labels, sorted by key.
///
/// Comparing and copying costs as much as for a number.
///
/// ```
/// use plimsoll::label::Labels;
///
/// let labels = Labels::of([("tenant", "acme"), ("route", "/search")]);
/// assert_eq!(labels.get("tenant"), Some("acme"));
/// assert_eq!(labels.to_string(), r#"{"route":"/search", "tenant":"acme"}"#);
///
/// let labels = labels.and([("route", "/index")]);
/// assert_eq!((labels.len(), labels.get("route")), (2, Some("/index")));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Labels(u32);

impl Labels {
    /// The set without labels.
    pub const NONE: Self = Self(0);

    /// Returns the set of these labels. The last of several labels with the same key wins.
    pub fn of<K: AsRef<str>, V: AsRef<str>>(labels: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::NONE.and(labels)
    }

    /// Returns this set with these labels added, which replace those with the same keys.
    #[must_use]
    pub fn and<K: AsRef<str>, V: AsRef<str>>(
        self,
        labels: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let labels: Vec<(K, V)> = labels.into_iter().collect();
        if labels.is_empty() {
            return self;
        }
        let mut all: Vec<(&str, &str)> = Vec::with_capacity(self.len() + labels.len());
        for (key, value) in self.iter() {
            all.push((key, value));
        }
        let added = labels.iter();
        all.extend(added.map(|(key, value)| (key.as_ref(), value.as_ref())));
        Self(table::number_of(&all))
    }

    /// Returns the value of a label.
    pub fn get(self, key: &str) -> Option<&'static str> {
        let set = table::set(self.0);
        let at = set.binary_search_by_key(&key, |&(key, _)| key).ok()?;
        Some(set[at].1)
    }

    /// Returns keys and values, in the order of the keys.
    pub fn iter(self) -> impl ExactSizeIterator<Item = (&'static str, &'static str)> + Clone {
        table::set(self.0).iter().copied()
    }

    /// Returns the number of labels.
    pub fn len(self) -> usize {
        table::set(self.0).len()
    }

    /// Reports whether the set has no labels.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Returns the number of the set, for compact storage.
    pub fn number(self) -> u32 {
        self.0
    }

    /// Returns the set with a [`Labels::number`].
    pub fn of_number(number: u32) -> Self {
        Self(number)
    }
}

/// Formats the set as Go does: `{"key":"value", "other":"value"}`.
impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (at, (key, value)) in self.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { ", " })?;
            put_quoted(f, key)?;
            f.write_str(":")?;
            put_quoted(f, value)?;
        }
        f.write_str("}")
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Default for Labels {
    fn default() -> Self {
        Self::NONE
    }
}

/// Returns how often labels were lost, because of the limits on sets and on threads.
pub fn lost() -> u64 {
    table::lost() + threads::lost()
}

/// Returns the current labels: those of the task that is being polled, or of the thread.
///
/// Takes one load, and may be called at any time, in hooks and signal handlers: it needs no
/// initialization and no destructor.
#[inline]
pub fn current() -> Labels {
    CURRENT.get()
}

/// Sets the labels of the calling thread, or of the task being polled until its poll ends. Returns
/// the previous labels.
pub fn set(labels: Labels) -> Labels {
    let before = CURRENT.replace(labels);
    if before != labels {
        threads::publish(labels);
    }
    before
}

/// Returns these labels: without the feature `tracing`, a thread is in no spans.
#[cfg(not(feature = "tracing"))]
pub fn within_spans(labels: Labels) -> Labels {
    labels
}

/// Adds labels to the current ones until the guard is dropped, also by a panic.
///
/// The guard labels the thread. In an `async` function, a guard that lives across an `await` would
/// label all other work of the thread meanwhile. The guard is not `Send`, so executors that move
/// tasks between threads cannot spawn a task that holds one. To label tasks, use
/// `Tracked::label`.
#[must_use = "the labels go with the guard"]
pub fn with<K: AsRef<str>, V: AsRef<str>>(labels: impl IntoIterator<Item = (K, V)>) -> Guard {
    Guard {
        before: set(current().and(labels)),
        not_send: PhantomData,
    }
}

/// Restores the previous labels when it is dropped.
///
/// ```
/// use plimsoll::label::{self, Guard};
///
/// fn serve(tenant: &str) -> Guard {
///     label::with([("tenant", tenant)])
/// }
/// let guard = serve("acme");
/// assert_eq!(label::current().get("tenant"), Some("acme"));
/// drop(guard);
/// assert_eq!(label::current().get("tenant"), None);
/// ```
#[derive(Debug)]
pub struct Guard {
    before: Labels,
    not_send: PhantomData<*const ()>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_sorted_and_the_last_of_a_key_wins() {
        let labels = Labels::of([("b", "1"), ("a", "2"), ("b", "3")]);
        let both: Vec<_> = labels.iter().collect();
        assert_eq!(both, [("a", "2"), ("b", "3")]);
        assert_eq!(labels.get("a"), Some("2"));
        assert_eq!(labels.get("c"), None);
        assert_eq!(labels.len(), 2);
        let more = labels.and([("c", "4"), ("a", "5")]);
        assert_eq!(
            more.iter().collect::<Vec<_>>(),
            [("a", "5"), ("b", "3"), ("c", "4")]
        );
        // The first set is unchanged; equal sets are the same.
        assert_eq!(labels.get("a"), Some("2"));
        assert_eq!(labels, Labels::of([("a", "2"), ("b", "3")]));
        assert_ne!(labels, more);
        assert_eq!(labels.and::<&str, &str>([]), labels);
        assert!(Labels::NONE.is_empty() && !labels.is_empty());
    }

    #[test]
    fn they_are_printed_as_go_prints_them() {
        assert_eq!(Labels::NONE.to_string(), "{}");
        let labels = Labels::of([("key1", "value1"), ("foo", "a\n\"b\"")]);
        assert_eq!(labels.to_string(), r#"{"foo":"a\n\"b\"", "key1":"value1"}"#);
    }

    #[test]
    fn guards_nest_and_go_with_their_scopes() {
        assert_eq!(current(), Labels::NONE);
        let outer = with([("tenant", "a")]);
        {
            let _inner = with([("route", "/x"), ("tenant", "b")]);
            assert_eq!(current(), Labels::of([("route", "/x"), ("tenant", "b")]));
        }
        assert_eq!(current(), Labels::of([("tenant", "a")]));
        let panics = std::panic::catch_unwind(|| {
            let _inner = with([("tenant", "c")]);
            panic!("a panic requested by the test");
        });
        assert!(panics.is_err());
        assert_eq!(current().get("tenant"), Some("a"));
        drop(outer);
        assert_eq!(current(), Labels::NONE);
    }
}
