//! Reads the file `status` of a thread.

use std::ffi::c_int;

use plimsoll_process::task_file::TaskDirectory;

use crate::thread::State;

/// The state of a thread, as the system reports it.
pub(super) struct Status {
    /// The letter of its state.
    letter: char,
    /// A bit for each signal that the thread blocks.
    blocked: u64,
}

impl Status {
    /// Returns `None` if the system does not report the state.
    pub(super) fn new(tasks: &TaskDirectory, thread: i32) -> Option<Self> {
        Self::read(tasks, thread).ok().flatten()
    }

    /// Returns `None` if the file has no state.
    ///
    /// # Errors
    /// The error number of reading the file: `ENOENT` or `ESRCH` if the thread does not exist.
    pub(super) fn read(tasks: &TaskDirectory, thread: i32) -> Result<Option<Self>, i32> {
        let mut buffer = [0; 4096];
        let file = tasks.file(thread, "status")?;
        let text = String::from_utf8_lossy(file.read(&mut buffer)?);
        Ok(Self::parsed(&text))
    }

    fn parsed(text: &str) -> Option<Self> {
        let field = |name| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::trim)
        };
        Some(Self {
            letter: field("State:")?.chars().next()?,
            blocked: u64::from_str_radix(field("SigBlk:")?, 16).ok()?,
        })
    }

    pub(super) fn blocks(&self, signal: c_int) -> bool {
        self.blocked >> (signal - 1) & 1 != 0
    }

    /// Reports whether the thread has ended but is still listed, as the first thread is.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.letter, 'Z' | 'X')
    }

    pub(super) fn state(&self) -> State {
        match self.letter {
            'R' => State::Running,
            'S' | 'D' => State::Asleep,
            _ => State::Unknown,
        }
    }
}
