//! Damaged debug information and memory that changes at will do no harm.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plimsoll_awaits::{Index, Memory, Runtimes, Sections, Thread};

use crate::command::Directory;
use crate::program::{HELPERS, Running, plain};

/// The memory of a process, of which some bytes are wrong, others at each reading.
struct Damaged {
    file: File,
    state: Cell<u64>,
    /// One of so many reads is damaged; 0 for none.
    one_of: u64,
}

fn next(state: &Cell<u64>) -> u64 {
    let mut bits = state.get();
    bits ^= bits << 13;
    bits ^= bits >> 7;
    bits ^= bits << 17;
    state.set(bits);
    bits
}

impl Memory for Damaged {
    fn fill(&self, address: u64, to: &mut [u8]) -> bool {
        if self.file.read_exact_at(to, address).is_err() {
            return false;
        }
        if self.one_of > 0 && next(&self.state).is_multiple_of(self.one_of) {
            for _ in 0..20 {
                let at = next(&self.state) as usize % to.len();
                to[at] = next(&self.state) as u8;
            }
        }
        true
    }
}

/// The thread pointer of the first thread: the last word before the C library's structure of the thread that names itself.
fn thread_pointer(memory: &Damaged, pid: u32) -> u64 {
    let (mut list, mut length) = (0_u64, 0_u64);
    // SAFETY: the kernel writes to the variables.
    let refused = unsafe {
        libc::syscall(
            libc::SYS_get_robust_list,
            pid,
            &raw mut list,
            &raw mut length,
        )
    };
    assert_eq!(refused, 0);
    let names_itself = |at: &u64| {
        let mut word = [0; 8];
        memory.fill(*at, &mut word) && u64::from_le_bytes(word) == *at
    };
    let words = (1..512).map(|distance| list - 8 * distance);
    words.into_iter().find(names_itself).unwrap()
}

fn base(pid: u32) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    u64::from_str_radix(maps.split('-').next().unwrap(), 16).unwrap()
}

fn stack_pointer(pid: u32) -> u64 {
    let position = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap();
    let words: Vec<&str> = position.split_whitespace().collect();
    let pointer = words[words.len().saturating_sub(2)].trim_start_matches("0x");
    // Without one, while the thread runs, no word can be read.
    u64::from_str_radix(pointer, 16).unwrap_or(u64::MAX - 8)
}

fn read(program: &Path, running: &Running, memory: &Damaged, pointer: u64) -> Option<usize> {
    let sections = Sections::read(program, &[], &|path| File::open(path)).ok()?;
    let index = Index::read(&sections).ok()?;
    let pid = running.child.id();
    let tls = sections.tls?;
    let thread = Thread {
        id: pid as i32,
        pointer,
        stack: stack_pointer(pid)..u64::MAX,
    };
    let runtimes = Runtimes::read(&index, memory, &tls, base(pid), &[thread]);
    Some(
        runtimes
            .runtimes
            .iter()
            .map(|runtime| runtime.tasks.len())
            .sum(),
    )
}

#[test]
fn damage_does_no_harm() {
    let changing = CHANGING.to_string();
    for scheduler in ["multi", "local"] {
        damage_of(&Running::start_with(plain(), &[&changing, scheduler]));
    }
}

/// The number of tasks that change what they await.
const CHANGING: usize = 20;

fn damage_of(running: &Running) {
    let mut memory = Damaged {
        file: File::open(format!("/proc/{}/mem", running.child.id())).unwrap(),
        state: Cell::new(0x9e37_79b9_7f4a_7c15),
        one_of: 0,
    };
    let pointer = thread_pointer(&memory, running.child.id());
    // Once the thread waits, tasks of a set are found as well.
    let expected = running.tasks.len() + HELPERS + CHANGING;
    let end = Instant::now() + Duration::from_secs(60);
    while read(plain(), running, &memory, pointer).is_none_or(|tasks| tasks < expected) {
        assert!(Instant::now() < end, "there are {expected} tasks");
    }
    // Memory.
    for one_of in [1, 2, 5, 20, 100] {
        memory.one_of = one_of;
        for _ in 0..4 {
            let began = Instant::now();
            read(plain(), running, &memory, pointer);
            assert!(began.elapsed() < Duration::from_secs(60), "one of {one_of}");
        }
    }
    memory.one_of = 0;
    // Debug information.
    let directory = Directory::new("damaged-tasks");
    let program = PathBuf::from(directory.path("program"));
    let original = std::fs::read(plain()).unwrap();
    let state = Cell::new(0x2545_f491_4f6c_dd1d);
    for bytes in [1, 10, 100, 1000, 10_000, 100_000] {
        for _ in 0..2 {
            let mut damaged = original.clone();
            for _ in 0..bytes {
                let at = next(&state) as usize % damaged.len();
                damaged[at] = next(&state) as u8;
            }
            std::fs::write(&program, &damaged).unwrap();
            let began = Instant::now();
            read(&program, running, &memory, pointer);
            assert!(began.elapsed() < Duration::from_secs(60), "{bytes} bytes");
        }
    }
}
