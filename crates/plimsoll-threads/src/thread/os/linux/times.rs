//! The time since each thread last ran.
//!
//! The scheduler records when each thread last ran, by the clock of the processor that it ran on.
//! These clocks omit time that a processor spent on interrupts, or that the hypervisor withheld,
//! and so drift apart, by minutes a day. Each clock is therefore read on its own processor, by a
//! thread that moves from one to the next.
//!
//! The scheduler may move a thread to another processor after it went to sleep, and forgets then when
//! the thread last ran (Linux 6.12 and later). Such a thread has waited at least since the first
//! reading that found it so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use plimsoll_process::task_file::TaskDirectory;
use plimsoll_sys::os::fork::ForkLock;
use plimsoll_sys::os::syscall::call3;
use plimsoll_sys::os::{self, clock};

use crate::thread::{State, Thread};
use plimsoll_core::fork::Order;
use plimsoll_core::{internal_scope, internal_thread};

/// Limit of the time for visiting all processors. On busy processors, the visiting thread has to
/// wait until it is scheduled on each.
const PATIENCE: Duration = Duration::from_millis(100);

/// Fills in the waiting times of threads that wait. A waiting time stays unknown if the clock of
/// the thread's processor could not be read.
pub(crate) fn add(threads: &mut [Thread]) {
    let Ok(tasks) = TaskDirectory::open() else {
        return;
    };
    let waiting = |thread: &&Thread| thread.state != State::Running;
    let last: BTreeMap<i32, Run> = threads
        .iter()
        .filter(waiting)
        .filter_map(|thread| Some((thread.id, Run::last(&tasks, thread.id)?)))
        .collect();
    let known = last.values().filter(|run| !run.end.is_zero());
    let clocks = clocks(known.map(|run| run.processor).collect());
    let moved = since_first_reading(&last);
    for thread in threads {
        let run = last.get(&thread.id);
        thread.waited = run.and_then(|run| match run.end.is_zero() {
            true => moved.get(&thread.id).copied(),
            false => {
                let now = clocks.get(&run.processor)?.now();
                Some(now.saturating_sub(run.end))
            }
        });
    }
}

/// A sleeping thread whose last run the scheduler has forgotten.
struct Moved {
    switches: u64,
    /// The time of the first reading that found it so, by [`clock::now`].
    at: u64,
}

/// The threads of the last reading whose last run was unknown.
static MOVED: ForkLock<BTreeMap<i32, Moved>> =
    ForkLock::new(Order::ThreadTimes.rank(), BTreeMap::new());

/// Returns the times since the first readings that found the threads in the same sleep, for threads
/// whose last run is unknown.
fn since_first_reading(last: &BTreeMap<i32, Run>) -> BTreeMap<i32, Duration> {
    let _own = internal_scope::scope();
    let mut moved = MOVED.lock();
    let unknown = last.iter().filter(|(_, run)| run.end.is_zero());
    let unknown: BTreeMap<i32, u64> = unknown.map(|(id, run)| (*id, run.switches)).collect();
    moved.retain(|id, moved| unknown.get(id) == Some(&moved.switches));
    let now = clock::now();
    let since = unknown.into_iter().map(|(id, switches)| {
        let first = moved.entry(id).or_insert(Moved { switches, at: now });
        (id, Duration::from_nanos(now.saturating_sub(first.at)))
    });
    since.collect()
}

/// The end of a thread's last run, and its processor.
struct Run {
    processor: usize,
    /// The time of the end, by that processor's clock; zero if the scheduler has forgotten it.
    end: Duration,
    /// How often the thread has stopped to run.
    switches: u64,
}

impl Run {
    /// Returns the last run; `None` if the system does not report it.
    fn last(tasks: &TaskDirectory, thread: i32) -> Option<Self> {
        let (end, switches) = last_run(tasks, thread)?;
        let processor = processor(tasks, thread)?;
        Some(Self {
            processor,
            end,
            switches,
        })
    }
}

/// A past reading of a processor's clock.
struct Clock {
    showed: Duration,
    /// The time of the reading, by [`clock::now`].
    at: u64,
}

impl Clock {
    /// Reads the clock of the calling thread's processor.
    fn here(tasks: &TaskDirectory) -> Option<Self> {
        // Makes the scheduler record that the thread runs now.
        cpu_time();
        let (showed, _) = last_run(tasks, os::thread_id())?;
        let at = clock::now();
        Some(Self { showed, at })
    }

    fn now(&self) -> Duration {
        self.showed + Duration::from_nanos(clock::now().saturating_sub(self.at))
    }
}

/// Returns the clocks of these processors, as far as they can be read in time.
fn clocks(processors: BTreeSet<usize>) -> BTreeMap<usize, Clock> {
    if processors.is_empty() {
        return BTreeMap::new();
    }
    // The wait for the walker is Plimsoll's, even if the program reads threads.
    let _own = internal_scope::scope();
    let (sender, receiver) = mpsc::channel();
    // A separate thread, because it moves between processors. It is not joined: where a thread of
    // higher priority never pauses, it may never be scheduled.
    let walker = internal_thread::spawn(c"plimsoll-clocks", move || {
        let Ok(tasks) = TaskDirectory::open() else {
            return;
        };
        for processor in processors {
            let clock = go_to(processor).then(|| Clock::here(&tasks)).flatten();
            let sent = clock.map(|clock| sender.send((processor, clock)));
            if matches!(sent, Some(Err(_))) {
                // The receiver has given up.
                return;
            }
        }
    });
    match walker {
        Ok(_) => all_in_time(&receiver, PATIENCE),
        Err(_) => BTreeMap::new(),
    }
}

/// Returns everything that arrives until no sender is left or the time is up.
fn all_in_time<K: Ord, V>(receiver: &Receiver<(K, V)>, patience: Duration) -> BTreeMap<K, V> {
    let deadline = Instant::now() + patience;
    let next = || {
        let left = deadline.saturating_duration_since(Instant::now());
        receiver.recv_timeout(left).ok()
    };
    std::iter::from_fn(next).collect()
}

/// Restricts the calling thread to that processor. Returns whether that succeeded.
fn go_to(processor: usize) -> bool {
    if processor >= libc::CPU_SETSIZE as usize {
        return false;
    }
    // SAFETY: zeros are an empty set, and the check above keeps `processor` within it.
    let status = unsafe {
        let mut only: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut only);
        let set = &raw const only as usize;
        call3(libc::SYS_sched_setaffinity, 0, size_of_val(&only), set)
    };
    status == 0
}

/// Returns the CPU time of the calling thread.
fn cpu_time() -> Duration {
    Duration::from_nanos(clock::thread_cpu())
}

/// Returns the time at which a thread last ran, or zero, and how often it has stopped to run.
fn last_run(tasks: &TaskDirectory, thread: i32) -> Option<(Duration, u64)> {
    let mut buffer = [0; 1024];
    let text = tasks.file(thread, "sched").ok()?;
    let text = std::str::from_utf8(text.read(&mut buffer).ok()?).ok()?;
    let value = |name: &str| {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(name))?;
        Some(line.split_once(':')?.1.trim())
    };
    let milliseconds: f64 = value("se.exec_start")?.parse().ok()?;
    let end = Duration::try_from_secs_f64(milliseconds / 1000.0).ok()?;
    let switches = value("nr_switches").and_then(|count| count.parse().ok());
    Some((end, switches.unwrap_or(0)))
}

/// Returns the processor on which a thread last ran.
fn processor(tasks: &TaskDirectory, thread: i32) -> Option<usize> {
    let mut buffer = [0; 1024];
    let text = tasks.file(thread, "stat").ok()?;
    let text = String::from_utf8_lossy(text.read(&mut buffer).ok()?);
    // Field 39. The name, which is field 2, may contain any characters.
    let (_, from_third) = text.rsplit_once(')')?;
    from_third.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::{CaptureDetail, read_all};

    /// Returns the processors on which this process may run.
    fn allowed() -> Vec<usize> {
        // SAFETY: the call fills the set, whose size is passed.
        let set = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            let status = libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
            assert_eq!(status, 0);
            set
        };
        // SAFETY: `processor` is within the set.
        let is_allowed = |&processor: &usize| unsafe { libc::CPU_ISSET(processor, &set) };
        (0..libc::CPU_SETSIZE as usize).filter(is_allowed).collect()
    }

    #[test]
    fn threads_of_every_processor_have_waited_as_long_as_they_have() {
        let processors = allowed();
        let (sender, ids) = mpsc::channel();
        std::thread::scope(|scope| {
            let waiting = processors.iter().map(|&processor| {
                let sender = sender.clone();
                scope.spawn(move || {
                    assert!(go_to(processor));
                    sender.send((os::thread_id(), clock::now())).unwrap();
                    std::thread::park();
                })
            });
            let waiting: Vec<_> = waiting.collect();
            let begun: BTreeMap<i32, u64> = ids.iter().take(waiting.len()).collect();
            let wait = |thread: &Thread| {
                begun.contains_key(&thread.id) && matches!(thread.state, State::Waiting(_))
            };
            let all = || read_all(CaptureDetail::ToCount).threads;
            while all().iter().filter(|thread| wait(thread)).count() < begun.len() {
                std::thread::yield_now();
            }
            // A processor's clock omits time that the processor did not get. The clock of a busy
            // one may not be read in time at the first attempt.
            let (enough, slack) = (Duration::from_millis(200), Duration::from_millis(50));
            let deadline = Instant::now() + Duration::from_secs(60);
            let waited = loop {
                let found = read_all(CaptureDetail::InFull).threads;
                let of_begun = found.iter().filter_map(|thread| {
                    let since = clock::now() - begun.get(&thread.id)?;
                    Some((thread.waited, Duration::from_nanos(since)))
                });
                let waited: Vec<_> = of_begun.collect();
                let is_enough = |waited: Option<Duration>| waited.is_some_and(|it| it >= enough);
                if waited.iter().all(|&(waited, _)| is_enough(waited)) || Instant::now() > deadline
                {
                    break waited;
                }
                std::thread::sleep(Duration::from_millis(10));
            };
            for thread in waiting {
                thread.thread().unpark();
            }
            assert_eq!(waited.len(), processors.len());
            for (waited, since) in waited {
                let waited = waited.expect("its processor's clock was read");
                assert!(waited <= since + slack, "{waited:?}, not {since:?}");
                assert!(waited >= enough, "{waited:?} of {since:?}");
            }
        });
    }

    #[test]
    fn no_clock_is_read_beyond_the_valid_processors() {
        assert!(clocks(BTreeSet::from([libc::CPU_SETSIZE as usize])).is_empty());
        assert!(clocks(BTreeSet::from([libc::CPU_SETSIZE as usize - 1])).is_empty());
    }

    #[test]
    fn a_forgotten_run_counts_from_the_first_reading_of_the_same_sleep() {
        let run = |end, switches| Run {
            processor: 0,
            end: Duration::from_millis(end),
            switches,
        };
        let ids = [-1, -2, -3];
        let reading = |switches: u64| -> BTreeMap<i32, Run> {
            let runs = [run(0, 7), run(0, switches), run(5, 7)];
            ids.into_iter().zip(runs).collect()
        };
        // Other tests read threads at the same time, and forget these.
        loop {
            let first = since_first_reading(&reading(1));
            std::thread::sleep(Duration::from_millis(2));
            let second = since_first_reading(&reading(2));
            let [Some(began), Some(stays)] = [first.get(&-1), second.get(&-1)] else {
                continue;
            };
            if stays.is_zero() {
                continue;
            }
            assert!(began.is_zero() && *stays >= Duration::from_millis(2));
            assert_eq!(second.get(&-2), Some(&Duration::ZERO), "it ran in between");
            assert_eq!(second.get(&-3), None, "its last run is known");
            break;
        }
    }

    #[test]
    fn a_silent_sender_is_not_waited_for() {
        let (sender, receiver) = mpsc::channel();
        sender.send((1, "in time")).unwrap();
        let in_time = BTreeMap::from([(1, "in time")]);
        // A sender still exists.
        assert_eq!(all_in_time(&receiver, Duration::from_millis(20)), in_time);
        sender.send((1, "in time")).unwrap();
        drop(sender);
        assert_eq!(all_in_time(&receiver, Duration::from_secs(3600)), in_time);
    }

    #[test]
    fn a_threads_name_does_not_hide_its_processor() {
        let name = std::thread::Builder::new().name(") R 1 2 3 (".into());
        let thread = name.spawn(|| {
            assert!(go_to(allowed()[0]));
            let tasks = TaskDirectory::open().unwrap();
            processor(&tasks, os::thread_id())
        });
        assert_eq!(thread.unwrap().join().unwrap(), Some(allowed()[0]));
    }
}
