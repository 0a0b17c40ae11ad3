//! Reads a blocked thread without disturbing it.
//!
//! `/proc/self/task/T/syscall` contains the thread's current call, stack pointer and instruction
//! pointer, or reports that it is running. From there, a copy of its stack is unwound. `schedstat`
//! counts how often the thread was given a processor. If the count before the thread was seen
//! blocked equals the count after its stack was read, it did not move in between. All values then
//! belong to one moment.

use plimsoll_process::task_file::{TaskDirectory, TaskFile};
use plimsoll_sys::os;
use plimsoll_sys::os::process_id;

use crate::thread::{Extent, State, Thread};
use plimsoll_core::label::Labels;
use plimsoll_core::stack;
use plimsoll_core::stack::{BlockedAt, End, StackReader};

/// The number of attempts before a thread that keeps moving is taken to be running.
const TRIES: usize = 4;

/// The result of reading a thread.
pub(super) enum Found {
    /// The thread, without its name.
    Blocked(Thread),
    Running,
    /// The thread has ended, or is about to.
    Ended,
    /// The system does not report the state.
    Refused,
}

/// Reads a thread's state, and its stack if it is blocked. `frames` is the buffer for the stack.
pub(super) fn read(
    tasks: &TaskDirectory,
    id: i32,
    reader: &mut StackReader,
    frames: &mut [usize],
) -> Found {
    let (Ok(position), times) = (tasks.file(id, "syscall"), tasks.file(id, "schedstat")) else {
        return gone_or_refused(id);
    };
    let runs = || times.as_ref().ok().and_then(runs);
    let mut buffer = [0; 256];
    let mut refreshed = false;
    for _ in 0..TRIES {
        let before = runs();
        let seen = match position.read(&mut buffer) {
            Ok(text) => Position::parse(text),
            Err(_) => return gone_or_refused(id),
        };
        let (call, stack, instruction) = match seen {
            Some(Position::Blocked {
                call,
                stack,
                instruction,
            }) => (call, stack, instruction),
            Some(Position::Running) => return Found::Running,
            // The kernel has already released the thread's memory.
            Some(Position::Ending) => return Found::Ended,
            None => return Found::Refused,
        };
        let mut is_unmoved = || match (before, runs()) {
            (Some(before), Some(after)) => before == after,
            // The system does not count. At worst, the thread has returned to the same place.
            _ => {
                let mut again = [0; 256];
                let text = position.read(&mut again);
                text.is_ok_and(|text| Position::parse(text) == seen)
            }
        };
        let at = BlockedAt {
            thread: id,
            instruction,
            stack,
            // In a system call, the instruction pointer is behind the call, like a return address.
            // Otherwise it is at the current instruction.
            first: instruction + usize::from(call < 0),
        };
        let walk = reader.read(at, frames, &mut is_unmoved);
        if !is_unmoved() {
            continue;
        }
        if walk.end == End::Stale && !refreshed {
            refreshed = true;
            stack::refresh_modules();
            continue;
        }
        let state = if call < 0 {
            State::Faulting
        } else {
            State::Waiting(call)
        };
        return Found::Blocked(Thread {
            id,
            name: String::new(),
            state,
            frames: frames[..walk.frames].into(),
            extent: Extent::from_end(walk.end),
            waited: None,
            creator: None,
            labels: Labels::NONE,
        });
    }
    Found::Running
}

/// Returns how often a thread was given a processor.
fn runs(times: &TaskFile) -> Option<u64> {
    let mut buffer = [0; 128];
    let text = std::str::from_utf8(times.read(&mut buffer).ok()?).ok()?;
    text.split_ascii_whitespace().nth(2)?.parse().ok()
}

/// Returns the reason why a thread cannot be read.
fn gone_or_refused(id: i32) -> Found {
    // SAFETY: signal 0 only checks whether the thread exists.
    let asked =
        unsafe { os::syscall::call3(libc::SYS_tgkill, process_id() as usize, id as usize, 0) };
    if asked == 0 {
        Found::Refused
    } else {
        Found::Ended
    }
}

/// The content of the file `syscall`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Running,
    Blocked {
        /// Negative outside a system call.
        call: i64,
        stack: usize,
        instruction: usize,
    },
    Ending,
}

impl Position {
    fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim_end();
        if text == "running" {
            return Some(Self::Running);
        }
        let (call, rest) = text.split_once(' ')?;
        let mut last = rest.rsplitn(3, ' ').map(|word| {
            let digits = word.strip_prefix("0x")?;
            usize::from_str_radix(digits, 16).ok()
        });
        let (instruction, stack) = (last.next()??, last.next()??);
        Some(match (call.parse().ok()?, stack) {
            (_, 0) => Self::Ending,
            (call, stack) => Self::Blocked {
                call,
                stack,
                instruction,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_words_are_understood() {
        let parse = |text: &str| Position::parse(text.as_bytes());
        assert_eq!(parse("running\n"), Some(Position::Running));
        let blocked = "202 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffc0010 0x7fd2e7516\n";
        assert_eq!(
            parse(blocked),
            Some(Position::Blocked {
                call: 202,
                stack: 0x7ffc_0010,
                instruction: 0x7_fd2e_7516
            })
        );
        assert_eq!(
            parse("-1 0x7ffc0010 0x5555\n"),
            Some(Position::Blocked {
                call: -1,
                stack: 0x7ffc_0010,
                instruction: 0x5555
            })
        );
        assert_eq!(parse("-1 0x0 0x0\n"), Some(Position::Ending));
        for text in ["", "x", "1", "1 2", "1 0x2 y", "1 0x 0x", "\u{0}"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
