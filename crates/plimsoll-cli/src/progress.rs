//! Says on a terminal how far something is that takes longer than a second.

use std::io::{self, IsTerminal, Read, Write};
use std::time::{Duration, Instant};

/// How far something is. What it has written is gone when this is dropped.
#[derive(Debug)]
pub struct Progress {
    what: String,
    /// In bytes; 0 if nobody knows.
    total: u64,
    /// When to say something; `None` for never.
    next: Option<Instant>,
    is_shown: bool,
}

/// After which time there is a line, and how often it changes.
const FIRST: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(200);

impl Progress {
    /// Of something that takes so many bytes; 0 if nobody knows. Says nothing if the standard error
    /// is no terminal.
    pub fn new(what: String, total: u64) -> Self {
        Self {
            what,
            total,
            next: io::stderr().is_terminal().then(|| Instant::now() + FIRST),
            is_shown: false,
        }
    }

    /// So many bytes are done. To be called often.
    pub fn at(&mut self, bytes: u64) {
        if let Some(next) = self.next
            && let now = Instant::now()
            && now >= next
        {
            self.next = Some(now + EVERY);
            self.is_shown = true;
            let _ = write!(io::stderr(), "\r{}\x1b[K", self.line(bytes));
        }
    }

    fn line(&self, bytes: u64) -> String {
        let what = &self.what;
        match bytes.saturating_mul(100).checked_div(self.total) {
            Some(percent) => format!("{what}: {percent} %"),
            None if bytes < 1 << 20 => format!("{what} ..."),
            None => format!("{what}: {} MiB", bytes >> 20),
        }
    }

    /// Counts what is read from there.
    pub fn counting<R: Read>(self, from: R) -> Counting<R> {
        Counting {
            from,
            read: 0,
            progress: self,
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Shows how much of something was read.
#[derive(Debug)]
pub struct Counting<R> {
    from: R,
    read: u64,
    progress: Progress,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(to)?;
        self.read += read as u64;
        self.progress.at(self.read);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::Progress;

    #[test]
    fn a_line_has_a_share_if_the_whole_is_known() {
        let known = Progress::new("reading heap".to_owned(), 3 << 20);
        assert_eq!(known.line(1 << 20), "reading heap: 33 %");
        let unknown = Progress::new("reading heap".to_owned(), 0);
        assert_eq!(unknown.line(10), "reading heap ...");
        assert_eq!(unknown.line(5 << 20), "reading heap: 5 MiB");
    }
}
