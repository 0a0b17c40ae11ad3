//! The arguments of the process, as it left them: some programs replace them by a title.
//!
//! Forked children read them where the system does. For each process whose directory in `/proc` is
//! used, the system creates and removes it. That took 0.03 ms of a child that did nothing else in 0.22 ms.

use std::io::Read;
use std::ops::Range;
use std::sync::OnceLock;

use plimsoll_process::probe;
use plimsoll_sys::os::region::PAGE;
use plimsoll_sys::os::{files, filter};

/// The maximum length of the arguments in bytes.
const MAX_LENGTH: usize = 4096;

/// Where the system keeps the arguments of this process and of its forked children. A program that moves
/// them (`PR_SET_MM`) after its first fork is shown with its former arguments.
struct ArgumentArea {
    arguments: Range<usize>,
    /// The end of the environment, if it follows the arguments: a title may extend into it.
    end: usize,
}

/// `None` if the system does not say it.
static PLACE: OnceLock<Option<ArgumentArea>> = OnceLock::new();

/// Finds out where the system keeps the arguments, for children.
pub(super) fn find() {
    if PLACE.get().is_none() {
        let stat = files::read_to_string("/proc/self/stat").ok();
        // Another thread may have found the same.
        let _ = PLACE.set(stat.and_then(|stat| ArgumentArea::parse(&stat)));
    }
}

/// The arguments before a system call filter.
static KEPT: OnceLock<Vec<u8>> = OnceLock::new();

/// Keeps the arguments for a time when the system cannot be asked for them.
pub(super) fn keep() {
    if KEPT.get().is_none() {
        let _ = KEPT.set(read());
    }
}

/// Returns the arguments, each of which ends with a zero, up to a length of 4096 bytes.
pub(super) fn read() -> Vec<u8> {
    if let Some(kept) = KEPT.get().filter(|_| filter::is_restricted()) {
        return kept.clone();
    }
    let place = PLACE.get().and_then(Option::as_ref);
    place.and_then(ArgumentArea::read).unwrap_or_else(|| {
        let mut line = Vec::new();
        if let Ok(file) = files::open("/proc/self/cmdline") {
            // What was read before an error is better than nothing.
            let _ = file.take(MAX_LENGTH as u64).read_to_end(&mut line);
        }
        line
    })
}

impl ArgumentArea {
    /// Finds the fields in a line of `/proc/<process>/stat`.
    fn parse(line: &str) -> Option<Self> {
        // The name before the fields, in parentheses, may contain any characters.
        let (_, fields) = line.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace().skip(45);
        let mut next = || fields.next()?.parse().ok();
        let arguments = next()?..next()?;
        let environment: Range<usize> = next()?..next()?;
        // The system returns zeros to those who must not know.
        if arguments.is_empty() {
            return None;
        }
        let is_next = environment.start == arguments.end && !environment.is_empty();
        let end = if is_next {
            environment.end
        } else {
            arguments.end
        };
        Some(Self { arguments, end })
    }

    /// Reads what `/proc/<process>/cmdline` shows. Returns `None` if the memory is not readable.
    fn read(&self) -> Option<Vec<u8>> {
        let start = self.arguments.start;
        let read = |end: usize| bytes(start..end.min(start + MAX_LENGTH));
        // A title that does not end with the arguments continues in the environment.
        let last = bytes(self.arguments.end - 1..self.arguments.end).next()?;
        match last? {
            0 => read(self.arguments.end).collect(),
            _ => read(self.end).take_while(|&byte| byte != Some(0)).collect(),
        }
    }
}

/// Reads memory that is mapped as long as the process, unless the program unmaps its first stack.
/// Returns `None` for bytes that are not readable.
fn bytes(range: Range<usize>) -> impl Iterator<Item = Option<u8>> {
    let mut readable = 0..0;
    range.map(move |address| {
        if !readable.contains(&address) {
            let page = address - address % PAGE;
            readable = page..page + PAGE * usize::from(probe::readable(page));
        }
        // SAFETY: the page is readable. The program may change the byte, which is read once.
        let byte = || unsafe { (address as *const u8).read_volatile() };
        readable.contains(&address).then(byte)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_reads_its_arguments_as_the_system_shows_them() {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let arguments = ArgumentArea::parse(&stat).unwrap().read().unwrap();
        assert_eq!(arguments, std::fs::read("/proc/self/cmdline").unwrap());
        assert!(!arguments.is_empty());
    }

    /// Returns a line of `/proc/<process>/stat` with these last fields of interest.
    fn stat(places: [usize; 4]) -> String {
        let zeros = "0 ".repeat(44);
        let [start, end, environment, environment_end] = places;
        format!("1 (a) b) R {zeros}{start} {end} {environment} {environment_end} 0\n")
    }

    fn read(memory: &[u8], arguments: usize, environment: Range<usize>) -> Option<Vec<u8>> {
        let base = memory.as_ptr() as usize;
        let places = [0, arguments, environment.start, environment.end];
        let place = ArgumentArea::parse(&stat(places.map(|place| base + place)))?;
        place.read()
    }

    #[test]
    fn a_title_may_continue_in_the_environment_that_follows() {
        assert_eq!(read(b"a\0b\0E=1\0", 4, 4..8).unwrap(), b"a\0b\0");
        assert_eq!(read(b"a title\0\0\0", 4, 4..10).unwrap(), b"a title");
        assert_eq!(read(b"a title", 4, 4..7).unwrap(), b"a title", "no end");
        assert_eq!(read(b"a title\0", 4, 5..8).unwrap(), b"a ti", "elsewhere");
    }

    #[test]
    fn long_arguments_are_cut() {
        let mut memory = b"word\0".repeat(2000);
        let length = memory.len();
        let read_all = |memory: &[u8]| read(memory, length, length..length).unwrap();
        assert_eq!(read_all(&memory), memory[..MAX_LENGTH]);
        // The system shows a title if the last byte is not zero.
        memory[length - 1] = b'!';
        assert_eq!(read_all(&memory), b"word");
    }

    #[test]
    fn places_that_the_system_hides_or_that_are_not_readable_are_refused() {
        assert!(ArgumentArea::parse(&stat([0; 4])).is_none());
        assert!(ArgumentArea::parse("1 (a) R 0").is_none());
        assert!(ArgumentArea::parse("").is_none());
        let unreadable = ArgumentArea::parse(&stat([16, 32, 32, 48])).unwrap();
        assert!(unreadable.read().is_none());
    }
}
