//! The arguments of the process, as it left them: some programs replace them by a title.
//!
//! Forked children read them where the system does. For each process whose directory in `/proc` is
//! used, the system creates and removes it, which takes longer than the rest of a small report.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::sync::OnceLock;

use plimsoll_sys::os::copied_memory;

/// The maximum length of the arguments in bytes.
const MAX_LENGTH: usize = 4096;

/// Where the system keeps the arguments of this process and of its forked children.
struct Place {
    arguments: Range<usize>,
    /// The end of the environment, if it follows the arguments: a title may extend into it.
    end: usize,
}

/// `None` if the system does not say it.
static PLACE: OnceLock<Option<Place>> = OnceLock::new();

/// Finds out where the system keeps the arguments, for children.
pub(super) fn find() {
    PLACE.get_or_init(|| Place::parse(&std::fs::read_to_string("/proc/self/stat").ok()?));
}

/// Returns the arguments, each of which ends with a zero, up to a length of 4096 bytes.
pub(super) fn read() -> Vec<u8> {
    let place = PLACE.get().and_then(Option::as_ref);
    place.and_then(Place::read).unwrap_or_else(|| {
        let mut line = Vec::new();
        if let Ok(file) = File::open("/proc/self/cmdline") {
            // What was read before an error is better than nothing.
            let _ = file.take(MAX_LENGTH as u64).read_to_end(&mut line);
        }
        line
    })
}

impl Place {
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
        let read = |end: usize| {
            let start = self.arguments.start;
            let mut line = vec![0; (end - start).min(MAX_LENGTH)];
            copied_memory::fill(start, &mut line).then_some(line)
        };
        let mut line = read(self.arguments.end)?;
        let mut last = [line[line.len() - 1]];
        if self.arguments.len() > line.len() {
            copied_memory::fill(self.arguments.end - 1, &mut last);
        }
        // A title that does not end with the arguments continues in the environment.
        let is_title = last != [0];
        if is_title {
            line = read(self.end)?;
            let length = line.iter().position(|&byte| byte == 0);
            line.truncate(length.unwrap_or(line.len()));
        }
        Some(line)
    }
}
