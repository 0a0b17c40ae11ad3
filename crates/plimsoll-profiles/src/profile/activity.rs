//! The activity of a thread or task: the records of the `goroutine` profile.
//!
//! A *record* is one thread or task. Records with the same stack and the same *activity* make one
//! sample. The properties of individuals (number, length of the wait) are therefore not part of the
//! activity.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use super::reading::Stack;
use super::waiting;
use plimsoll_core::label::Labels;
use plimsoll_tasks::task::{self, TaskRecord};
use plimsoll_threads::thread::calls::{self, Doing};
use plimsoll_threads::thread::{Extent, State, Thread};
use plimsoll_waits::leak::deadlock::Stuck;
use plimsoll_waits::leak::{self, Leak};

/// A thread or task.
#[derive(Clone, Debug)]
pub struct Record {
    /// The number of the thread, or of the task.
    pub id: u64,
    /// The current stack first, then those of other places where the task waits as well.
    pub stacks: Vec<Stack>,
    /// Whether the first stack is complete.
    pub is_whole: bool,
    /// What it does.
    pub activity: Arc<Activity>,
    /// The time since it last ran; `None` if unknown.
    pub waited: Option<Duration>,
    /// Where it was created; `None` if unknown.
    pub creator: Option<Creator>,
    /// The number of threads or tasks that this record stands for, itself included.
    pub(crate) count: usize,
    /// The number of these that have waited for the [leak age](leak::age) or longer.
    pub(crate) old: usize,
}

/// The place where a thread or task was created, and its creator.
#[derive(Clone, Copy, Debug)]
pub enum Creator {
    /// A thread: its number, and the return addresses of the creation, leaf first.
    Thread(u64, &'static [usize]),
    /// The place where a task was created.
    Task(Spawned),
}

/// The place where a task was created.
#[derive(Clone, Copy, Debug)]
pub struct Spawned {
    /// The task that was being polled, if any.
    pub parent: Option<u64>,
    /// The type of the new task's future.
    pub type_name: &'static str,
    /// The place in the source.
    pub location: &'static Location<'static>,
    /// The stack at which the first task of this place was created; empty if it is unknown.
    pub stack: &'static [usize],
}

/// The properties of a record that profiles show besides its stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Activity {
    /// The current state.
    pub state: Now,
    /// The name of the thread or task, or else the type of the task's future; otherwise empty.
    pub name: String,
    /// Keys and values, sorted by key.
    pub labels: Vec<(String, String)>,
    /// The reason why it will never continue; `None` if it may.
    pub leak: Option<Leak>,
}

/// The current state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Now {
    /// The state of a thread.
    Thread(State),
    /// The state of a task.
    Task(task::State),
    /// No state: the record describes a creation.
    Created,
}

impl Creator {
    /// Returns the stack of the creation, if known.
    pub fn stack(self) -> Option<&'static [usize]> {
        match self {
            Self::Thread(_, stack) => Some(stack),
            Self::Task(spawned) => Some(spawned.stack).filter(|stack| !stack.is_empty()),
        }
    }
}

impl Record {
    /// Returns the record of a thread. `leak` is the reason why it will never continue, if
    /// known.
    pub(crate) fn of_thread(thread: Thread, leak: Option<Leak>) -> Self {
        let labels = owned(thread.labels);
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
                labels,
                leak,
            }),
            waited: thread.waited,
            creator: thread
                .creator
                .map(|creator| Creator::Thread(creator.id as u64, creator.frames)),
            count: 1,
            old: thread
                .waited
                .is_some_and(|waited| waited >= leak::age())
                .into(),
        }
    }

    /// Returns the record of a task. `running` is the stack of the thread that polls it, if any.
    pub(crate) fn of_task(task: &TaskRecord, running: Option<Stack>, stuck: Option<Stuck>) -> Self {
        let mut stacks: Vec<Stack> = task.stacks().map(Stack::kept).collect();
        stacks.extend(running);
        if stacks.is_empty() {
            stacks.push(Stack::Unknown(match task.now() {
                task::State::New => "[not polled yet]",
                task::State::Running => "[running]",
                task::State::Dropping => "[being dropped]",
                task::State::Runnable | task::State::Waiting | task::State::NoWaker => {
                    "[it registered no waker]"
                }
            }));
        }
        Self {
            id: task.id().0,
            stacks,
            is_whole: true,
            activity: Arc::new(Activity {
                state: Now::Task(task.now()),
                name: task.name().unwrap_or(task.type_name()).to_owned(),
                labels: owned(task.labels()),
                leak: match stuck {
                    _ if task.is_forgotten() => Some(Leak::Forgotten),
                    stuck => stuck.map(Leak::Deadlock),
                },
            }),
            waited: task.waited(),
            creator: Some(Creator::Task(Spawned {
                parent: task.parent().map(|parent| parent.0),
                type_name: task.type_name(),
                location: task.location(),
                stack: task.spawner(),
            })),
            count: 1,
            old: 0,
        }
    }

    /// Returns the current stack.
    pub fn stack(&self) -> Stack {
        self.stacks
            .first()
            .cloned()
            .unwrap_or(Stack::Unknown("[no stack]"))
    }
}

fn owned(labels: Labels) -> Vec<(String, String)> {
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    labels.iter().map(owned).collect()
}

/// Returns the class of a thread's wait for an object. Objects without a class are their own.
fn class_of_wait(reason: &'static str) -> &'static str {
    match reason {
        "mutex" | "rwlock read" | "rwlock write" | "once" | "semaphore" => "lock",
        "io" | "poll" | "epoll" | "io driver" => "I/O",
        other => other,
    }
}

impl Activity {
    /// Returns the state, empty if there is none, and the awaited object of a thread or task. Its
    /// stack has these names.
    pub fn state<'a, N: Iterator<Item = &'a str>>(
        &self,
        names: impl Fn() -> N,
    ) -> (&'static str, Option<&'static str>) {
        match self.state {
            Now::Created => ("", None),
            Now::Task(task::State::New) => ("new", None),
            Now::Task(task::State::Running) => ("running", None),
            Now::Task(task::State::Runnable) => ("runnable", None),
            Now::Task(task::State::Dropping) => ("dropping", None),
            Now::Task(task::State::NoWaker) => ("waiting", Some("no waker")),
            Now::Task(task::State::Waiting) => ("waiting", Some(waiting::for_what(names()))),
            Now::Thread(State::Running) => ("running", None),
            Now::Thread(State::Unknown) => ("unknown", None),
            Now::Thread(State::Asleep) => ("waiting", None),
            Now::Thread(State::Faulting) => ("waiting", Some("memory")),
            Now::Thread(State::Waiting(call)) => {
                let reason = match calls::doing(call) {
                    Doing::Plainly(word) => word,
                    Doing::Futex => waiting::awaited_object(names),
                };
                ("waiting", Some(reason))
            }
        }
    }

    /// Reports whether it waits for other threads or tasks of the program, rather than for time,
    /// external events, or work. Its stack has these names.
    pub(crate) fn waits_for_others<'a, N: Iterator<Item = &'a str>>(
        &self,
        names: impl Fn() -> N,
    ) -> bool {
        const ELSEWHERE: [&str; 7] = [
            "sleep",
            "yield",
            "io",
            "process",
            "signal",
            "runtime idle",
            "io driver",
        ];
        let may_wait = match self.state {
            Now::Thread(State::Waiting(call)) => matches!(calls::doing(call), Doing::Futex),
            Now::Task(task::State::Waiting | task::State::NoWaker) => true,
            Now::Thread(_) | Now::Task(_) | Now::Created => false,
        };
        let (_, reason) = self.state(names);
        may_wait && reason.is_some_and(|reason| !ELSEWHERE.contains(&reason))
    }

    /// Returns the key of the label with the name.
    pub fn name_label(&self) -> &'static str {
        match self.state {
            Now::Task(_) => "task",
            Now::Thread(_) | Now::Created => "thread",
        }
    }

    /// Returns the labels that the wall-clock profile shows: as [`Activity::labels`], but with the
    /// class of a wait as the state.
    pub fn wall_labels<'a, N: Iterator<Item = &'a str>>(
        &self,
        names: impl Fn() -> N,
    ) -> Vec<(&str, &str)> {
        let (state, reason) = self.state(&names);
        let state = match (self.state, reason) {
            (Now::Task(_), Some(_)) => "task waiting",
            (_, Some(reason)) => class_of_wait(reason),
            (_, None) => state,
        };
        let mut labels = self.labels(names);
        for (key, value) in &mut labels {
            if *key == "state" {
                *value = state;
            }
        }
        labels
    }

    /// Returns the labels that profiles show: keys and values, sorted by key.
    pub fn labels<'a, N: Iterator<Item = &'a str>>(
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
        if let Some(leak) = self.leak {
            labels.push(("leak", leak.word()));
            if let Leak::Deadlock(Stuck { lock, .. }) = leak {
                labels.extend((!lock.is_empty()).then_some(("lock", lock)));
            }
        }
        if !self.name.is_empty() {
            labels.push((self.name_label(), &self.name));
        }
        labels.sort_by_key(|label| label.0);
        labels
    }
}
