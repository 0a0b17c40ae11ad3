//! Functions that a process generated in memory, by the list that it wrote for perf: node with
//! `--perf-basic-prof`, Python from 3.12 on with `-X perf`, and the runtimes of other languages.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use plimsoll_command::files;

/// The maximum length of a list that is read, in bytes.
const MAX_BYTES: u64 = 256 << 20;

/// A generated function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// The name for people, with the source file if it is known.
    pub name: String,
    /// The name in the list.
    pub listed: String,
    /// The source file; empty if unknown.
    pub file: String,
    /// The line at which the function begins; 0 if unknown.
    pub line: u64,
}

/// The generated functions of a process by address.
#[derive(Debug, Default)]
pub struct PerfMap {
    /// The end of the code, and the function, by the start of the code. Without overlaps.
    functions: BTreeMap<u64, (u64, Generated)>,
}

impl Generated {
    /// Creates a function from its name in a list.
    pub fn named(listed: &str) -> Self {
        named(listed)
    }

    /// Returns the function with its source, unless the name states that already.
    pub fn with_source(mut self, file: &str, line: u64) -> Self {
        if self.file.is_empty() && !file.is_empty() {
            let short = file.rsplit('/').next().unwrap_or(file);
            self.name = format!("{} ({short}:{line})", self.name);
            (self.file, self.line) = (file.to_owned(), line);
        }
        self
    }
}

impl PerfMap {
    /// Reads the list of a process; `None` if there is none, or if it belongs to another user.
    pub fn of_process(process: u32) -> Option<Self> {
        let path = format!("/tmp/perf-{process}.map");
        files::open_trusted(Path::new(&path)).ok().map(Self::read)
    }

    /// Reads a list. Lines of another form are left out.
    pub fn read(list: impl Read) -> Self {
        let mut map = Self::default();
        let mut lines = BufReader::new(list.take(MAX_BYTES));
        let mut line = Vec::new();
        while lines
            .read_until(b'\n', &mut line)
            .is_ok_and(|read| read > 0)
        {
            map.add(String::from_utf8_lossy(&line).trim_end());
            line.clear();
        }
        map
    }

    /// Adds a function: start and length in hexadecimal digits, and the name.
    fn add(&mut self, line: &str) -> Option<()> {
        let (start, rest) = line.split_once(' ')?;
        let (length, listed) = rest.split_once(' ')?;
        let number = |digits: &str| u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok();
        self.put(number(start)?, number(length)?, named(listed));
        Some(())
    }

    /// Adds the function whose code is `length` bytes from `start`, in place of those whose memory it
    /// has taken. Code beyond the end of the address space is left out.
    pub fn put(&mut self, start: u64, length: u64, function: Generated) {
        let Some(end) = start.checked_add(length) else {
            return;
        };
        let before = self.functions.range(..end).rev();
        let replaced: Vec<u64> = before
            .take_while(|(_, (until, _))| *until > start)
            .map(|(&at, _)| at)
            .collect();
        for at in replaced {
            self.functions.remove(&at);
        }
        self.functions.insert(start, (end, function));
    }

    /// Returns the function whose code has an address.
    pub fn find(&self, address: u64) -> Option<&Generated> {
        let (_, (end, function)) = self.functions.range(..=address).next_back()?;
        (address < *end).then_some(function)
    }
}

/// Returns the parts of a listed name: `py::NAME:FILE` of Python, and `KIND:*NAME FILE:LINE:COLUMN` of V8.
/// Another name stays as it is.
fn named(listed: &str) -> Generated {
    let (name, file, line) = match python(listed).or_else(|| v8(listed)) {
        Some((name, file, line)) => (name, file, line),
        None => (listed, "", 0),
    };
    let name = if name.is_empty() { "(anonymous)" } else { name };
    let short = file.rsplit('/').next().unwrap_or(file);
    Generated {
        name: match (short, line) {
            ("", _) => name.to_owned(),
            (short, 0) => format!("{name} ({short})"),
            (short, line) => format!("{name} ({short}:{line})"),
        },
        listed: listed.to_owned(),
        file: file.to_owned(),
        line,
    }
}

fn python(listed: &str) -> Option<(&str, &str, u64)> {
    let (name, file) = listed.strip_prefix("py::")?.split_once(':')?;
    Some((name, file, 0))
}

fn v8(listed: &str) -> Option<(&str, &str, u64)> {
    const KINDS: [&str; 5] = ["JS", "LazyCompile", "Function", "Script", "Eval"];
    let (kind, rest) = listed.split_once(':')?;
    let (name, place) = rest.split_once(' ')?;
    let mut place = place.rsplitn(3, ':');
    let _column: u64 = place.next()?.parse().ok()?;
    let line = place.next()?.parse().ok()?;
    let file = place.next()?;
    // The tier of the code: interpreted, baseline, optimized.
    let name = name.trim_start_matches(['~', '^', '+', '*']);
    KINDS.contains(&kind).then_some((name, file, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_files_and_lines() {
        for (listed, name, file, line) in [
            ("py::hoard:/tmp/a.py", "hoard (a.py)", "/tmp/a.py", 0),
            ("JS:~work /tmp/b.js:2:14", "work (b.js:2)", "/tmp/b.js", 2),
            (
                "Eval:~ /tmp/b.js:1:1",
                "(anonymous) (b.js:1)",
                "/tmp/b.js",
                1,
            ),
            ("JS:*get node:fs:10:3", "get (node:fs:10)", "node:fs", 10),
            (
                "Builtin:Call_ReceiverIsAny",
                "Builtin:Call_ReceiverIsAny",
                "",
                0,
            ),
            ("Interpreter", "Interpreter", "", 0),
            (
                "Ljava/lang/String;::hash",
                "Ljava/lang/String;::hash",
                "",
                0,
            ),
        ] {
            let found = named(listed);
            assert_eq!((&*found.name, &*found.file, found.line), (name, file, line));
            assert_eq!(found.listed, listed);
        }
    }

    #[test]
    fn the_last_function_at_an_address_counts() {
        let list = "1000 100 first\n1100 80 second\nnonsense\n\n0x1200 10 third\n1080 100 over both\n\
                    fffffffffffffff0 100 beyond\n";
        let map = PerfMap::read(list.as_bytes());
        let find = |address| map.find(address).map(|function| &*function.name);
        assert_eq!(find(0x1000), None, "a part of it was overwritten");
        assert_eq!(
            [find(0x1080), find(0x117f), find(0x1180)],
            [Some("over both"), Some("over both"), None]
        );
        assert_eq!(
            [find(0x1200), find(0x120f), find(0x1210)],
            [Some("third"), Some("third"), None]
        );
        assert_eq!(find(0xffff_ffff_ffff_fff0), None);
        assert_eq!(find(0), None);
    }
}
