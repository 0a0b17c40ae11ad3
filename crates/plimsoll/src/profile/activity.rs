//! What somebody is doing, thread or task: what the `goroutine` profile is made of.
//!
//! A *record* is one of them. Those with the same stack and the same *activity* are one sample; so
//! what tells individuals apart (the number, how long it has waited) is no part of the activity.

use std::sync::Arc;
use std::time::Duration;

use super::reading::Stack;
use super::waiting;
use crate::thread::calls::{self, Doing};
use crate::thread::{Extent, State, Thread};

/// One thread or task.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Its number among its like.
    pub(crate) id: u64,
    /// Where it is, in the first; further places where it waits as well behind that.
    pub(crate) stacks: Vec<Stack>,
    /// Whether that is all of its stack.
    pub(crate) is_whole: bool,
    pub(crate) activity: Arc<Activity>,
    /// For how long it has been doing nothing, if that is known.
    pub(crate) waited: Option<Duration>,
    /// Who created it, and where: a number, and return addresses, leaf first.
    pub(crate) creator: Option<(u64, &'static [usize])>,
}

/// What is shown of a record besides its stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Activity {
    pub(crate) state: Now,
    /// The name of the thread or task; empty if it has none.
    pub(crate) name: String,
    /// Keys and values, sorted by key.
    pub(crate) labels: Vec<(String, String)>,
}

/// What it is doing at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Now {
    Thread(State),
    /// No matter what: it was created.
    Created,
}

impl Record {
    pub(crate) fn of_thread(thread: Thread) -> Self {
        let stack = match thread.extent {
            Extent::None(reason) => Stack::Unknown(reason),
            _ if thread.frames.is_empty() => Stack::Unknown("[no stack]"),
            _ => Stack::owned(thread.frames),
        };
        Self {
            id: thread.id as u64,
            stacks: vec![stack],
            is_whole: thread.extent == Extent::Whole,
            activity: Arc::new(Activity {
                state: Now::Thread(thread.state),
                name: thread.name,
                labels: Vec::new(),
            }),
            waited: thread.waited,
            creator: thread
                .creator
                .map(|creator| (creator.id as u64, creator.frames)),
        }
    }

    /// Where it is.
    pub(crate) fn stack(&self) -> Stack {
        self.stacks
            .first()
            .cloned()
            .unwrap_or(Stack::Unknown("[no stack]"))
    }
}

impl Activity {
    /// The state, empty if there is none, and what is waited for, of somebody whose stack has these
    /// names.
    pub(crate) fn state<'a, N: Iterator<Item = &'a str>>(
        &self,
        names: impl Fn() -> N,
    ) -> (&'static str, Option<&'static str>) {
        match self.state {
            Now::Created => ("", None),
            Now::Thread(State::Running) => ("running", None),
            Now::Thread(State::Unknown) => ("unknown", None),
            Now::Thread(State::Asleep) => ("waiting", None),
            Now::Thread(State::Faulting) => ("waiting", Some("memory")),
            Now::Thread(State::Waiting(call)) => {
                let reason = match calls::doing(call) {
                    Doing::Plainly(word) => word,
                    Doing::Futex => waiting::for_whom(names),
                };
                ("waiting", Some(reason))
            }
        }
    }

    /// Its labels as they are shown: keys and values, sorted by key.
    pub(crate) fn labels<'a, N: Iterator<Item = &'a str>>(
        &self,
        names: impl Fn() -> N,
    ) -> Vec<(&str, &str)> {
        let own = self.labels.iter();
        let mut labels: Vec<(&str, &str)> = own
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        let (state, reason) = self.state(names);
        if !state.is_empty() {
            labels.push(("state", state));
        }
        labels.extend(reason.map(|reason| ("wait", reason)));
        if !self.name.is_empty() {
            labels.push(("thread", &self.name));
        }
        labels.sort_by_key(|label| label.0);
        labels
    }
}
