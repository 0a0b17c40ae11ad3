//! The threads of a process and their states, as the kernel reports them.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};

use crate::calls::{self, FutexWait};
use crate::refusal::{field, split_stat};
use crate::sockets::Sockets;

/// A thread.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    /// The thread's number in this command's PID namespace.
    pub(crate) tid: i32,
    /// The thread's number in its own PID namespace.
    pub(crate) own_tid: i32,
    pub(crate) name: String,
    /// The kernel's letter for the state: R, S, D, T, t, Z, X, I.
    pub(crate) state: char,
    /// CPU time used, in nanoseconds.
    pub(crate) cpu_ns: u64,
    /// The kernel's function in which it waits; empty if unknown or running.
    pub(crate) kernel_function: String,
    pub(crate) position: Position,
}

/// What a thread does, as `/proc/PID/task/TID/syscall` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// It runs, or waits for a processor.
    Running,
    /// It waits in the kernel.
    Blocked(Blocked),
    /// It has no stack any more.
    Ended,
}

/// The position of a thread that waits in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocked {
    /// The system call with its arguments; `None` outside of a call: for a page, or stopped by a signal.
    pub(crate) call: Option<(i64, [u64; 6])>,
    /// The stack pointer.
    pub(crate) stack: usize,
    /// The address of the next instruction.
    pub(crate) instruction: usize,
}

impl Position {
    /// Reads the position of a thread.
    ///
    /// # Errors
    /// The system's error: the thread has ended, or must not be read.
    pub(crate) fn read(pid: i32, tid: i32) -> io::Result<Self> {
        let text = read(pid, tid, "syscall")?;
        // A kernel without this file's support, and a thread without a stack, have other texts.
        Ok(Self::parse(&text).unwrap_or(Self::Ended))
    }

    fn parse(text: &str) -> Option<Self> {
        if text.trim_end() == "running" {
            return Some(Self::Running);
        }
        let mut words = text.split_ascii_whitespace();
        let number: i64 = words.next()?.parse().ok()?;
        let word = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        let values: Vec<u64> = words.map(word).collect::<Option<_>>()?;
        let (call, stack, instruction) = match values[..] {
            [stack, instruction] => (None, stack, instruction),
            [a, b, c, d, e, f, stack, instruction] => {
                (Some((number, [a, b, c, d, e, f])), stack, instruction)
            }
            _ => return None,
        };
        if stack == 0 {
            return Some(Self::Ended);
        }
        Some(Self::Blocked(Blocked {
            call,
            stack: stack as usize,
            instruction: instruction as usize,
        }))
    }
}

impl Thread {
    /// Returns the futex for which the thread waits.
    pub(crate) fn futex(&self) -> Option<FutexWait> {
        match self.position {
            Position::Blocked(Blocked {
                call: Some((number, arguments)),
                ..
            }) => calls::futex(number, arguments),
            _ => None,
        }
    }

    /// Returns the state in words.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.state {
            'R' => "running",
            'S' => "sleeping",
            'D' => "waiting, not interruptible",
            'T' => "stopped by a signal",
            't' => "stopped by a debugger",
            'Z' | 'X' => "ended",
            'I' => "idle",
            _ => "in an unknown state",
        }
    }

    /// Reads a thread without its position; `None` if it has ended. `has_own_numbers` states whether its PID namespace is another one.
    pub(crate) fn read(pid: i32, tid: i32, has_own_numbers: bool) -> Option<Self> {
        let stat = read(pid, tid, "stat").ok()?;
        let (name, fields) = split_stat(&stat)?;
        let own_tid = has_own_numbers.then(|| {
            let status = read(pid, tid, "status").ok()?;
            let numbers = field(&status, "NSpid")?.split_ascii_whitespace();
            numbers.last()?.parse().ok()
        });
        let function = read(pid, tid, "wchan").unwrap_or_default();
        Some(Self {
            tid,
            own_tid: own_tid.flatten().unwrap_or(tid),
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            cpu_ns: turns(pid, tid).map_or(0, |turns| turns.cpu_ns),
            kernel_function: match &*function {
                "0" => String::new(),
                function => function.to_owned(),
            },
            position: Position::Ended,
        })
    }
}

/// Reads a file about a thread. All are shorter than a page.
fn read(pid: i32, tid: i32, name: &str) -> io::Result<String> {
    let mut text = [0; 4096];
    let length = File::open(format!("/proc/{pid}/task/{tid}/{name}"))?.read(&mut text)?;
    Ok(String::from_utf8_lossy(&text[..length]).into_owned())
}

/// Returns the numbers of all threads; empty if the process has ended.
pub(crate) fn numbers(pid: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    names.collect()
}

/// Reads all threads, one after the other. Threads that end meanwhile are left out.
pub(crate) fn all(pid: i32, has_own_numbers: bool) -> Vec<Thread> {
    let numbers = numbers(pid).into_iter();
    numbers
        .filter_map(|tid| Thread::read(pid, tid, has_own_numbers))
        .collect()
}

/// The CPU time of a thread, and how often it ran. Each time that the thread stops running, both are those of the present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turns {
    /// CPU time, in nanoseconds; from the kernel's ticks if it does not measure more finely.
    pub(crate) cpu_ns: u64,
    count: u64,
}

/// Reads the turns of a thread; `None` if it has ended.
pub(crate) fn turns(pid: i32, tid: i32) -> Option<Turns> {
    if let Ok(text) = read(pid, tid, "schedstat") {
        let mut words = text.split_ascii_whitespace();
        return Some(Turns {
            cpu_ns: words.next()?.parse().ok()?,
            count: words.nth(1)?.parse().ok()?,
        });
    }
    let status = read(pid, tid, "status").ok()?;
    let switches = |key| field(&status, key)?.parse::<u64>().ok();
    let stat = read(pid, tid, "stat").ok()?;
    let (_, fields) = split_stat(&stat)?;
    // SAFETY: the call has no effects.
    let rate = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Turns {
        cpu_ns: ticks * (1_000_000_000 / rate),
        count: switches("voluntary_ctxt_switches")? + switches("nonvoluntary_ctxt_switches")?,
    })
}

/// The descriptors of a process by which threads wait, each with what it leads to.
#[derive(Default)]
pub(crate) struct Descriptors {
    known: HashMap<u64, String>,
    /// Read when the first socket is met.
    sockets: Option<Sockets>,
}

impl Descriptors {
    /// Returns what a descriptor leads to: a path, or `socket:[123]` with its addresses if they are known.
    pub(crate) fn leads_to(&mut self, pid: i32, descriptor: u64) -> &str {
        let Self { known, sockets } = self;
        known.entry(descriptor).or_insert_with(|| {
            let link = fs::read_link(format!("/proc/{pid}/fd/{descriptor}"));
            let link = link.map_or(String::new(), |link| link.to_string_lossy().into_owned());
            if !link.starts_with("socket:") {
                return link;
            }
            let sockets = sockets.get_or_insert_with(|| Sockets::read(pid));
            match sockets.addresses(&link) {
                Some(addresses) => format!("{link} ({addresses})"),
                None => link,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_as_the_kernel_writes_them() {
        assert_eq!(Position::parse("running\n"), Some(Position::Running));
        let blocked = Position::parse("202 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffc0010 0x5555\n");
        let expected = Blocked {
            call: Some((202, [1, 2, 3, 4, 5, 6])),
            stack: 0x7ffc_0010,
            instruction: 0x5555,
        };
        assert_eq!(blocked, Some(Position::Blocked(expected)));
        let outside = Position::parse("-1 0x7ffc0010 0x5555\n");
        let expected = Blocked {
            call: None,
            ..expected
        };
        assert_eq!(outside, Some(Position::Blocked(expected)));
        assert_eq!(Position::parse("0 0x0 0x0\n"), Some(Position::Ended));
        for text in ["", "x", "1 0x1", "1 2 3"] {
            assert_eq!(Position::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_threads_of_this_process_are_listed() {
        let own = std::process::id() as i32;
        let threads = all(own, false);
        assert!(threads.iter().any(|thread| thread.state == 'R'));
        assert!(turns(own, own).is_some());
        assert_eq!(all(i32::MAX, false).len(), 0);
    }
}
