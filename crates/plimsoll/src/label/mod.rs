//! Labels: what the work that a thread or a task does is for.
//!
//! ```
//! use plimsoll::label;
//!
//! let _tenant = label::with([("tenant", "acme"), ("request", "search")]);
//! // What happens here, on this thread, is labelled so.
//! assert_eq!(label::current().get("tenant"), Some("acme"));
//! ```
//!
//! They are on the samples of all profiles: on what is allocated (and stays so in whatever thread
//! it is freed), on waits, on releases that others waited for, on threads and tasks. So one filter,
//! `go tool pprof -tagfocus=tenant=acme`, answers what a tenant is to do with in any of them.
//!
//! A set of labels never changes and is sorted by key. [Tasks](crate::task) begin with the labels
//! of whoever makes them, and later changes of one do not reach the other. So do threads that are
//! made by [`crate::thread::spawn`]; all others begin without, since those of a pool are started
//! within somebody's work and then do everybody's.
//!
//! With the feature `tracing`, `TracingLayer` labels with the spans that a thread or a task is in.
//!
//! Sets are kept for good, each once, so that a label costs an event nothing: use them for what
//! there are some hundreds of, tenants and routes, not for numbers of requests. The bound is
//! [`MOST_SETS`]; what would be one set more is left as it was, and counted in
//! [`LostEvents::labels`](crate::profile::LostEvents::labels).
//!
//! What is allocated under different labels is kept apart in the table of stacks, so labels take
//! room there: as many buckets for each place as sets are seen there.

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
pub(crate) use spans::within_spans;
pub(crate) use table::{Known, lock};
pub(crate) use threads::{after_fork_in_child, all as of_threads, prepare};
#[cfg(feature = "tracing")]
pub use tracing::TracingLayer;

/// How many different sets of labels there can be in a process.
pub const MOST_SETS: usize = table::MOST;

thread_local! {
    static CURRENT: Cell<Labels> = const { Cell::new(Labels::NONE) };
}

/// A set of labels, sorted by key.
///
/// Comparing and copying is that of a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Labels(u32);

impl Labels {
    /// The set without labels.
    pub const NONE: Self = Self(0);

    /// A set of these labels. Of labels with the same key, the last one wins.
    pub fn of<K: AsRef<str>, V: AsRef<str>>(labels: impl IntoIterator<Item = (K, V)>) -> Self {
        Self::NONE.and(labels)
    }

    /// This set with these labels added, in place of those with the same keys.
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
        table::number_of(&all).map_or(self, Self)
    }

    /// The value of a label.
    pub fn get(self, key: &str) -> Option<&'static str> {
        let set = table::set(self.0);
        let at = set.binary_search_by_key(&key, |&(key, _)| key).ok()?;
        Some(set[at].1)
    }

    /// Keys and values, in the order of the keys.
    pub fn iter(self) -> impl ExactSizeIterator<Item = (&'static str, &'static str)> + Clone {
        table::set(self.0).iter().copied()
    }

    /// How many labels there are.
    pub fn len(self) -> usize {
        table::set(self.0).len()
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// A number for the set, to be kept where there is room for no more.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// The set of a [`Labels::number`].
    pub(crate) fn of_number(number: u32) -> Self {
        Self(number)
    }
}

/// As Go prints it: `{"key":"value", "other":"value"}`.
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

/// How often labels were lost, by sets or by threads that there was no room for.
pub(crate) fn lost() -> u64 {
    table::lost() + threads::lost()
}

/// The labels of what is done here: of the task that is being polled, or of the thread.
///
/// One load, at any time, in hooks and signal handlers: there is nothing to be made before, and
/// nothing that goes away before the thread does.
#[inline]
pub fn current() -> Labels {
    CURRENT.get()
}

/// Sets the labels of the calling thread, or of the task that is being polled until its poll ends,
/// and returns those before.
pub fn set(labels: Labels) -> Labels {
    let before = CURRENT.replace(labels);
    if before != labels {
        threads::publish(labels);
    }
    before
}

/// These labels, for what is polled within the spans that the thread is in: it is in none.
#[cfg(not(feature = "tracing"))]
pub(crate) fn within_spans(labels: Labels) -> Labels {
    labels
}

/// Adds labels to the current ones until the guard is dropped, also in a panic.
///
/// It is the thread that is labelled. In an `async` function, a guard that lives across an `await`
/// would label whatever the thread does meanwhile: it cannot be sent, so a task that holds one
/// cannot be spawned where that would happen. Tasks have labels of their own:
/// [`Tracked::label`](crate::task::Tracked::label).
#[must_use = "the labels go with the guard"]
pub fn with<K: AsRef<str>, V: AsRef<str>>(labels: impl IntoIterator<Item = (K, V)>) -> Guard {
    Guard {
        before: set(current().and(labels)),
        not_send: PhantomData,
    }
}

/// Puts the labels back as they were when it is dropped.
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
        // The first is as it was; equal sets are the same.
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
            panic!("as the test wants it");
        });
        assert!(panics.is_err());
        assert_eq!(current().get("tenant"), Some("a"));
        drop(outer);
        assert_eq!(current(), Labels::NONE);
    }

    #[test]
    fn threads_begin_with_the_labels_of_who_makes_them_and_have_their_own() {
        let here = with([("tenant", "a")]);
        let there = crate::thread::spawn(|| {
            let inherited = current();
            set(Labels::of([("tenant", "b")]));
            inherited
        });
        assert_eq!(there.join().unwrap(), current());
        drop(here);
        let nobody = crate::thread::spawn(current);
        assert_eq!(nobody.join().unwrap(), Labels::NONE);
    }
}
