//! Threads that wait for the end of others, read from outside.
//!
//! glibc's `pthread_join` waits, in a futex call, at the word of the other thread's descriptor that
//! contains its number. When that thread has ended, the kernel clears the word and wakes the
//! waiter. The word has the same distance from the thread pointer in each thread, and threads wait
//! there for nothing else. A thread in such a call, without a time limit, therefore stays in it
//! until the other thread has ended. On systems that join threads in another way, no join is found.

use plimsoll_process::copied_memory::{self, PAGE_WORDS};
use plimsoll_process::task_file::TaskDirectory;
use plimsoll_sys::arch::{CONTROL_BLOCK, ControlBlock};
use plimsoll_sys::os;
use plimsoll_sys::os::syscall::call3;

use super::list;

/// A thread that waits without limit for the end of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// The system's number of the waiting thread.
    pub id: i32,
    /// The number of the other thread.
    pub joined: i32,
    /// The thread pointer of the other thread.
    pub joined_thread: usize,
}

/// The location of a thread's number, relative to its thread pointer.
#[derive(Clone, Copy, Debug)]
pub struct Descriptors {
    distance: usize,
}

impl Descriptors {
    /// Returns the distance; `None` if the system does not report it.
    pub fn of_system() -> Option<Self> {
        let mut address = 0usize;
        // SAFETY: the kernel writes an address to `address`, which is large enough.
        let asked = unsafe {
            call3(
                libc::SYS_prctl,
                libc::PR_GET_TID_ADDRESS as usize,
                (&raw mut address).addr(),
                0,
            )
        };
        let this = Self {
            distance: address.wrapping_sub(os::thread_pointer()),
        };
        let known = asked == 0 && address != 0;
        // On systems that join threads in another way, the word holds no thread number.
        let own = || this.number(os::thread_pointer(), &mut vec![0; PAGE_WORDS]);
        (known && own() == Some(os::thread_id())).then_some(this)
    }

    /// Returns the system's number of the thread with that thread pointer; `None` if the thread no
    /// longer exists. `memory` is a buffer of one page.
    pub fn number(self, thread: usize, memory: &mut [usize]) -> Option<i32> {
        let address = thread.wrapping_add(self.distance);
        let mut is_thread = || match CONTROL_BLOCK {
            ControlBlock::AtPointer => copied_memory::word(thread, memory) == thread,
            ControlBlock::BelowPointer => thread % 16 == 0,
        };
        if address % 4 != 0 || !is_thread() {
            return None;
        }
        let word = copied_memory::word(address & !7, memory).to_ne_bytes();
        let half = address & 4;
        let number = i32::from_ne_bytes(word[half..half + 4].try_into().ok()?);
        (number > 0).then_some(number)
    }

    /// Returns all threads that wait for the end of another one, each as seen at some moment of the
    /// call.
    pub fn joins(self) -> Vec<Join> {
        let (Some(ids), Ok(tasks)) = (list(), TaskDirectory::open()) else {
            return Vec::new();
        };
        let join = |id| {
            let mut buffer = [0; 256];
            let call = tasks.file(id, "syscall").ok()?;
            let (joined, address) = wait_for_end(call.read(&mut buffer).ok()?)?;
            let joined_thread = address.wrapping_sub(self.distance);
            Some(Join {
                id,
                joined,
                joined_thread,
            })
        };
        ids.into_iter().filter_map(join).collect()
    }
}

/// Parses the system's report of a thread's call. If the thread waits at an address without a
/// limit, returns the expected value and the address.
fn wait_for_end(text: &[u8]) -> Option<(i32, usize)> {
    let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    if words.next()?.parse() != Ok(libc::SYS_futex) {
        return None;
    }
    let mut next = || usize::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (address, operation, expected, limit) = (next()?, next()?, next()?, next()?);
    let operation = operation as i32 & !libc::FUTEX_CLOCK_REALTIME;
    // Shared, like the kernel's wake.
    let waits = matches!(operation, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET) && limit == 0;
    waits.then_some((i32::try_from(expected).ok()?, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_waits_without_a_limit_are_for_an_end() {
        let parse = |text: &str| wait_for_end(text.as_bytes());
        let call = libc::SYS_futex;
        let end = format!("{call} 0x7f5990 0x109 0x674d 0x0 0x0 0xffffffff 0x7f597a0 0x7f5916\n");
        assert_eq!(parse(&end), Some((0x674d, 0x7f_5990)));
        assert_eq!(
            parse(&end.replace("0x109", "0x0")),
            Some((0x674d, 0x7f_5990))
        );
        for text in [
            end.replace("0x674d 0x0", "0x674d 0x7ffc0010"),
            end.replace("0x109", "0x189"),
            end.replace("0x109", "0x1"),
            end.replacen(&call.to_string(), "1", 1),
            "running\n".into(),
            "-1 0x7ffc0010 0x5555\n".into(),
            String::new(),
        ] {
            assert_eq!(parse(&text), None, "{text:?}");
        }
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn joins_are_found() {
        use std::sync::mpsc;
        use std::thread;

        let Some(descriptors) = Descriptors::of_system() else {
            return plimsoll_testkit::skip!(
                "the system does not report the location of thread ids"
            );
        };
        let mut memory = vec![0; PAGE_WORDS];
        let (sender, receiver) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let second_sender = sender.clone();
        let joined = thread::spawn(move || {
            sender
                .send((os::thread_id(), os::thread_pointer()))
                .unwrap();
            ended.recv().unwrap_err();
        });
        let (id, thread) = receiver.recv().unwrap();
        assert_eq!(descriptors.number(thread, &mut memory), Some(id));
        assert_eq!(descriptors.number(thread + 64, &mut memory), None);
        assert_eq!(descriptors.number(0, &mut memory), None);
        let joins = thread::spawn(move || {
            second_sender.send((os::thread_id(), 0)).unwrap();
            joined.join().unwrap();
        });
        let (waits, _) = receiver.recv().unwrap();
        let expected = Join {
            id: waits,
            joined: id,
            joined_thread: thread,
        };
        let start = std::time::Instant::now();
        while !descriptors.joins().contains(&expected) {
            assert!(start.elapsed().as_secs() < 60, "{:?}", descriptors.joins());
            thread::yield_now();
        }
        drop(end);
        joins.join().unwrap();
        assert!(!descriptors.joins().contains(&expected));
    }
}
