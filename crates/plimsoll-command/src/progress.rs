//! Shows the progress of operations that take longer than a second, on a terminal.

use std::io::{self, IsTerminal, Read, Write};
use std::time::{Duration, Instant};

/// The progress of one operation. Dropping it erases its line.
#[derive(Debug)]
pub struct Progress {
    what: String,
    /// The total in bytes; 0 if unknown.
    total: u64,
    /// The time of the next output; `None` if nothing is ever printed.
    next: Option<Instant>,
    is_shown: bool,
}

/// The time before the first line, and the interval between its updates.
const FIRST: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(200);

impl Progress {
    /// Creates the progress of a transfer of `total` bytes; 0 if unknown. Prints nothing if
    /// standard error is not a terminal.
    pub fn new(what: String, total: u64) -> Self {
        Self {
            what,
            total,
            next: io::stderr().is_terminal().then(|| Instant::now() + FIRST),
            is_shown: false,
        }
    }

    /// Records that `bytes` bytes are done. Must be called often.
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

    /// Returns a reader that reports the bytes it reads from `from`.
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

/// A reader that shows how much of its input was read.
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
