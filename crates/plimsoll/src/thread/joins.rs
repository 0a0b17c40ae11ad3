//! Threads that wait for the end of others, read from outside.
//!
//! glibc's `pthread_join` waits, in a futex call, at the word of the other thread's descriptor that
//! has its number, which the kernel clears and wakes when the thread has ended. That word is as far
//! from the thread pointer in each thread. Nobody else waits there, and for nothing else; so
//! whoever is in such a call, without a time limit, stays in it until that thread has ended.
//! Elsewhere, where threads are waited for in another way, none is found.

use crate::os;
use crate::os::copied_memory::{self, PAGE_WORDS};
use crate::os::syscall::call3;
use crate::os::task_file::TaskDirectory;

/// A thread that waits for another's end, for as long as it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Join {
    /// The system's number of who waits.
    pub(crate) id: i32,
    /// That of the other thread, and its thread pointer.
    pub(crate) joined: i32,
    pub(crate) joined_thread: usize,
}

/// Where a thread's number is, seen from its thread pointer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    distance: usize,
}

impl Descriptors {
    /// `None` if the system does not say.
    pub(crate) fn of_system() -> Option<Self> {
        let mut address = 0usize;
        // SAFETY: the kernel writes an address there.
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
        // What there is of threads that are waited for in another way is no number.
        let own = || this.number(os::thread_pointer(), &mut vec![0; PAGE_WORDS]);
        (known && own() == Some(os::thread_id())).then_some(this)
    }

    /// The system's number of the thread with that thread pointer; `None` if there is no such
    /// thread any more. `memory` is a page.
    pub(crate) fn number(self, thread: usize, memory: &mut [usize]) -> Option<i32> {
        let address = thread.wrapping_add(self.distance);
        // A thread pointer points to itself.
        if address % 4 != 0 || copied_memory::word(thread, memory) != thread {
            return None;
        }
        let word = copied_memory::word(address & !7, memory).to_ne_bytes();
        let half = address & 4;
        let number = i32::from_ne_bytes(word[half..half + 4].try_into().ok()?);
        (number > 0).then_some(number)
    }

    /// All threads that wait for the end of another one, each as it is at some moment of the call.
    pub(crate) fn joins(self) -> Vec<Join> {
        let (Some(ids), Ok(tasks)) = (super::list(), TaskDirectory::open()) else {
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

/// What is expected to be at which address, by a thread that waits there without a limit: by what
/// the system says of its call.
fn wait_for_end(text: &[u8]) -> Option<(i32, usize)> {
    let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    if words.next()?.parse() != Ok(libc::SYS_futex) {
        return None;
    }
    let mut next = || usize::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (address, operation, expected, limit) = (next()?, next()?, next()?, next()?);
    let operation = operation as i32 & !libc::FUTEX_CLOCK_REALTIME;
    // Shared, as the kernel's wake is.
    let waits = matches!(operation, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET) && limit == 0;
    waits.then_some((i32::try_from(expected).ok()?, address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn only_waits_without_a_limit_are_for_an_end() {
        let parse = |text: &str| wait_for_end(text.as_bytes());
        let end = "202 0x7f5990 0x109 0x674d 0x0 0x0 0xffffffff 0x7f597a0 0x7f5916\n";
        assert_eq!(parse(end), Some((0x674d, 0x7f_5990)));
        assert_eq!(
            parse(&end.replace("0x109", "0x0")),
            Some((0x674d, 0x7f_5990))
        );
        for text in [
            end.replace("0x674d 0x0", "0x674d 0x7ffc0010"),
            end.replace("0x109", "0x189"),
            end.replace("0x109", "0x1"),
            end.replace("202 ", "1 "),
            "running\n".into(),
            "-1 0x7ffc0010 0x5555\n".into(),
            String::new(),
        ] {
            assert_eq!(parse(&text), None, "{text:?}");
        }
    }

    #[cfg(all(target_env = "gnu", target_arch = "x86_64"))]
    #[test]
    fn who_waits_for_whose_end_is_found() {
        let Some(descriptors) = Descriptors::of_system() else {
            return eprintln!("not done: the system does not say where numbers of threads are");
        };
        let mut memory = vec![0; PAGE_WORDS];
        let (says, said) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let also_says = says.clone();
        let joined = thread::spawn(move || {
            says.send((os::thread_id(), os::thread_pointer())).unwrap();
            ended.recv().unwrap_err();
        });
        let (id, thread) = said.recv().unwrap();
        assert_eq!(descriptors.number(thread, &mut memory), Some(id));
        assert_eq!(descriptors.number(thread + 64, &mut memory), None);
        assert_eq!(descriptors.number(0, &mut memory), None);
        let joins = thread::spawn(move || {
            also_says.send((os::thread_id(), 0)).unwrap();
            joined.join().unwrap();
        });
        let (waits, _) = said.recv().unwrap();
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
