//! A process at one time: its memory, threads, stacks and waits.
//!
//! The parts are read one after the other while the process runs, so they are not of one instant. Each stack is of one
//! instant.

use std::time::{Duration, Instant};

use plimsoll_command::failure::Failure;
use plimsoll_watch::watch::find;

use crate::calls;
use crate::owners::Memory;
use crate::process::Process;
use crate::refusal::Target;
use crate::stacks::{Stack, StackReader};
use crate::threads::{self, Blocked, Descriptors, Position, Thread};
use crate::waits::{Kind, Waits};

/// The names of Plimsoll's threads: the one that serves pages, and the one of each program that contains Plimsoll.
const SERVER: &str = "plimsoll-http";
const MAINTENANCE: &str = "plimsoll-maint";

/// All that was read of a process.
pub(crate) struct View {
    pub(crate) threads: Vec<Thread>,
    /// The stack of each thread.
    pub(crate) stacks: Vec<Stack>,
    pub(crate) waits: Waits,
    /// What each thread does, in words.
    pub(crate) activities: Vec<Activity>,
    pub(crate) memory: Memory,
    /// A line about the pages of a program that contains Plimsoll.
    pub(crate) pages: Option<String>,
    /// The number of threads that were stopped, and the longest time.
    pub(crate) stops: u64,
    pub(crate) longest_stop: Duration,
    /// The time that the reading took.
    pub(crate) took: Duration,
}

/// What a thread does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Activity {
    /// Without addresses and descriptors, so that threads that do the same have the same text.
    pub(crate) common: String,
    /// The object of the activity; empty if there is none.
    pub(crate) object: String,
}

impl View {
    /// Reads a process.
    ///
    /// # Errors
    /// The process ended meanwhile.
    pub(crate) fn read(process: &Process) -> Result<Self, Failure> {
        let began = Instant::now();
        let Target {
            pid,
            has_own_numbers,
            ..
        } = process.target;
        let mut threads = threads::all(pid, has_own_numbers);
        let mut reader = StackReader::new(process);
        let stacks: Vec<Stack> = threads
            .iter_mut()
            .map(|thread| reader.read(thread))
            .collect();
        let (stops, longest_stop) = (reader.stops, reader.longest_stop);
        let waits = Waits::read(&threads, &process.memory);
        let mut descriptors = Descriptors::default();
        let activities = threads
            .iter()
            .map(|thread| Activity::of(pid, thread, &threads, &waits, &mut descriptors))
            .collect();
        let pointers: Vec<usize> = stacks.iter().map(|stack| stack.pointer).collect();
        let memory = Memory::read(pid, &pointers, &process.memory);
        if threads.is_empty() || !process.target.exists() {
            return Err(process.target.ended());
        }
        let memory = memory.map_err(|error| Failure::new(format!("process {pid}"), error))?;
        let took = began.elapsed();
        Ok(Self {
            pages: pages(pid, &threads),
            threads,
            stacks,
            waits,
            activities,
            memory,
            stops,
            longest_stop,
            took,
        })
    }

    /// Returns the number and the name of a thread.
    pub(crate) fn thread(&self, index: usize) -> String {
        let thread = &self.threads[index];
        format!("{} {}", thread.tid, thread.name)
    }
}

impl Activity {
    fn of(
        pid: i32,
        thread: &Thread,
        threads: &[Thread],
        waits: &Waits,
        descriptors: &mut Descriptors,
    ) -> Self {
        let plain = |common: &str| Self {
            common: common.to_owned(),
            object: String::new(),
        };
        let stopped = matches!(thread.state, 'T' | 't').then(|| thread.state_name());
        let call = match thread.position {
            Position::Ended => return plain("ended"),
            Position::Running => return plain(stopped.unwrap_or("running")),
            Position::Blocked(Blocked { call, .. }) => call,
        };
        let Some((number, arguments)) = call else {
            return plain(stopped.unwrap_or(match &*thread.kernel_function {
                "" => "waiting in the kernel, outside of a system call",
                _ => "waiting for memory or a device",
            }));
        };
        let name = calls::name(number).map_or(format!("system call {number}"), str::to_owned);
        let common = match stopped {
            Some(stopped) => format!("{stopped} in {name}"),
            None => format!("waiting in {name}"),
        };
        let object = match waits.of(thread) {
            Some((address, futex)) => {
                let owner = futex.owner.map(|owner| {
                    let owner = &threads[owner];
                    let kind = match futex.kind {
                        Kind::Mutex => "mutex of",
                        Kind::Owned | Kind::Other => "owned by",
                    };
                    format!(", {kind} thread {} {}", owner.tid, owner.name)
                });
                format!("futex {address:#x}{}", owner.unwrap_or_default())
            }
            None if calls::takes_descriptor(number) => {
                match descriptors.leads_to(pid, arguments[0]) {
                    "" => format!("descriptor {}", arguments[0]),
                    leads_to => format!("descriptor {}, {leads_to}", arguments[0]),
                }
            }
            None => String::new(),
        };
        Self { common, object }
    }
}

/// Returns a line about the pages of a program that contains Plimsoll, by the names of its threads. Other programs are
/// not contacted.
fn pages(pid: i32, threads: &[Thread]) -> Option<String> {
    let has = |name: &str| threads.iter().any(|thread| thread.name == name);
    if !has(SERVER) {
        let contains = "it contains Plimsoll, and serves no pages; start it with PLIMSOLL=http=127.0.0.1:6060 for more";
        return has(MAINTENANCE).then(|| contains.to_owned());
    }
    Some(match find::Target::find(&pid.to_string()) {
        Ok(found) => {
            let base = found.pages.base();
            format!(
                "it contains Plimsoll, with pages at {base}; `plimsoll top {pid}` and `plimsoll report {base}` show more"
            )
        }
        Err(failure) => format!("it contains Plimsoll; {}", failure.cause()),
    })
}
