//! Says on a terminal how far something is that takes longer than a second.

use std::io::{self, IsTerminal, Read, Write};
use std::time::{Duration, Instant};

/// How far something is. The line is removed when this is dropped.
#[derive(Debug)]
pub struct Progress {
    what: String,
    /// 0 if nobody knows.
    total: u64,
}

/// After which time there is a line, and how often it changes.
const FIRST: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(200);

impl Progress {
    /// Of something that takes so many bytes; 0 if nobody knows.
    pub fn of_bytes(what: String, total: u64) -> Self {
        Self { what, total }
    }

    /// Counts what is read from there.
    pub fn counting<R: Read>(self, from: R) -> Counting<R> {
        Counting {
            from,
            read: 0,
            next: io::stderr().is_terminal().then(|| Instant::now() + FIRST),
            shown: false,
            progress: self,
        }
    }
}

/// Shows how much of something was read.
#[derive(Debug)]
pub struct Counting<R> {
    from: R,
    progress: Progress,
    read: u64,
    /// When to say something; `None` for never.
    next: Option<Instant>,
    shown: bool,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(to)?;
        self.read += read as u64;
        if let Some(next) = self.next
            && let now = Instant::now()
            && now >= next
        {
            self.next = Some(now + EVERY);
            self.shown = true;
            let (what, mib) = (&self.progress.what, self.read >> 20);
            let _ = match self.progress.total {
                0 => write!(io::stderr(), "\r{what}: {mib} MiB"),
                total => write!(io::stderr(), "\r{what}: {} %", self.read * 100 / total),
            };
        }
        Ok(read)
    }
}

impl<R> Drop for Counting<R> {
    fn drop(&mut self) {
        if self.shown {
            // Back, and the line is gone.
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
