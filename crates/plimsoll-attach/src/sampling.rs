//! Samples the threads of a process from outside, by elapsed time or by CPU time.
//!
//! Each round reads all threads. A thread that did not run since the last round has the same stack: its count of turns
//! shows that, and nothing else of it is read. The pause between rounds is such that they take at most a few percent of
//! one processor, so that the rate falls with the number of threads.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::process::Process;
use crate::profile::{Profile, Values};
use crate::stacks::StackReader;
use crate::threads::{self, Position, Thread, Turns};

/// The share of one processor that the rounds may take.
const MAX_SHARE: f64 = 0.03;

/// What is known of a thread.
struct Known {
    name: String,
    /// The turns at the time of the stack; `None` unless the thread was blocked.
    turns: Option<Turns>,
    frames: Vec<usize>,
    cpu_ns: u64,
    /// The round in which it was last seen.
    round: u64,
}

/// Samples for `duration`, or until the process ends. `rate` is the number of rounds per second, if they do not take too
/// much of a processor.
pub(crate) fn sample(process: &Process, values: Values, duration: Duration, rate: u32) -> Profile {
    let period = Duration::from_secs(1) / rate.max(1);
    let pid = process.target.pid;
    let mut reader = StackReader::new(process);
    let mut profile = Profile::new(values);
    let mut known: HashMap<i32, Known> = HashMap::new();
    let (mut began, mut last, mut rounds) = (Instant::now(), Instant::now(), 0_u64);
    let mut has_ended = false;
    loop {
        let (at, cpu) = (Instant::now(), cpu_time());
        if rounds == 0 {
            // The first round only begins the first interval.
            (began, last) = (at, at);
        }
        let elapsed = at - last;
        last = at;
        let numbers = threads::numbers(pid);
        if numbers.is_empty() {
            has_ended = true;
            break;
        }
        for tid in numbers {
            let Some(turns) = threads::turns(pid, tid) else {
                continue;
            };
            let entry = known.get(&tid);
            let is_new = entry.is_none();
            let has_run = entry.is_none_or(|known| known.turns != Some(turns));
            // The CPU time of a new thread is that before the first round, if it existed then.
            let before = match entry {
                Some(known) => known.cpu_ns,
                None if rounds > 0 => 0,
                None => turns.cpu_ns,
            };
            let used = turns.cpu_ns.saturating_sub(before);
            let value = match values {
                Values::Cpu => used,
                Values::Wall | Values::Threads => u64::try_from(elapsed.as_nanos()).unwrap_or(0),
            };
            let needs_stack = has_run && (values != Values::Cpu || value > 0);
            if needs_stack || is_new {
                let thread = Thread::read(pid, tid, false);
                let Some(mut thread) = thread else { continue };
                let frames = match needs_stack {
                    true => reader.read(&mut thread).frames,
                    false => Vec::new(),
                };
                let is_blocked = needs_stack
                    && matches!(thread.position, Position::Blocked(_))
                    && threads::turns(pid, tid) == Some(turns);
                let entry = Known {
                    name: thread.name,
                    // The count of a running thread is not always of the present.
                    turns: is_blocked.then_some(turns),
                    frames,
                    cpu_ns: turns.cpu_ns,
                    round: rounds,
                };
                known.insert(tid, entry);
            }
            let Some(entry) = known.get_mut(&tid) else {
                continue;
            };
            entry.round = rounds;
            entry.cpu_ns = turns.cpu_ns;
            if rounds > 0 && value > 0 {
                let value = i64::try_from(value).unwrap_or(i64::MAX);
                profile.add(entry.frames.clone(), &entry.name, value);
            }
        }
        known.retain(|_, known| known.round == rounds);
        rounds += 1;
        let cost = cpu_time().saturating_sub(cpu);
        // The first round reads all stacks, later ones few.
        let pause = match rounds {
            1 => period,
            _ => period.max(cost.div_f64(MAX_SHARE)),
        };
        let end = began + duration;
        // The last round is at the end.
        let next = (at + pause).min(end);
        if at >= end {
            break;
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    profile.duration = last - began;
    let intervals = rounds.saturating_sub(1).max(1);
    profile.period = profile
        .duration
        .div_f64(intervals as f64)
        .max(Duration::from_nanos(1));
    profile.comments = comments(&profile, rate, intervals, has_ended);
    if reader.stops > 0 {
        profile.comments.push(format!(
            "plimsoll attach: running threads were stopped {} times, for {} us at most",
            reader.stops,
            reader.longest_stop.as_micros()
        ));
    }
    profile
}

fn comments(profile: &Profile, rate: u32, intervals: u64, has_ended: bool) -> Vec<String> {
    let seconds = profile.duration.as_secs_f64().max(1e-9);
    let taken = intervals as f64 / seconds;
    let mut comments = vec![match profile.values {
        Values::Cpu => format!(
            "plimsoll attach: CPU time by the stack at the end of each of {intervals} intervals, {taken:.1} per second"
        ),
        Values::Wall | Values::Threads => format!(
            "plimsoll attach: elapsed time of all threads in {intervals} intervals, {taken:.1} per second"
        ),
    }];
    if taken < 0.9 * f64::from(rate) {
        comments.push(format!(
            "plimsoll attach: {rate} per second were requested; fewer take less of a processor"
        ));
    }
    if has_ended {
        comments.push(format!(
            "plimsoll attach: the process ended after {seconds:.2} s"
        ));
    }
    comments
}

/// Returns the CPU time that this command has used.
fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes the time.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    match done {
        0 => Duration::new(time.tv_sec as u64, time.tv_nsec as u32),
        _ => Duration::ZERO,
    }
}
