//! The protocol between the machine's init script and this program, on the machine's console.
//!
//! The script prints a marker line when it starts, before and after each binary, and before it
//! powers the machine off. All other lines are output of the binaries or of the kernel:
//!
//! ```text
//! @plimsoll ready
//! @plimsoll begin NAME
//! @plimsoll end NAME STATUS SECONDS
//! @plimsoll file NAME
//! @plimsoll end-of-file
//! @plimsoll finished
//! ```
//!
//! After a binary, each file that it left in the folder for exports follows between the markers
//! `file` and `end-of-file`, compressed by gzip and in base64.
//!
//! `NAME` has no spaces. `STATUS` is the binary's exit status as a shell reports it: 128 more than
//! the signal, if one ended it. `SECONDS` is the time it ran. A missing marker is a failure: the
//! machine hung, or its kernel panicked.

/// The first word of a marker line.
pub const MARKER: &str = "@plimsoll";

/// The status of a binary that SIGKILL ended, which the script sends at the time limit.
const KILLED: u32 = 128 + 9;

/// The kernel's last message.
const PANIC: &str = "Kernel panic - not syncing";

/// One line of the console.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// The script runs.
    Ready,
    /// A binary starts.
    Begin(&'a str),
    /// A binary has ended.
    End {
        /// The binary.
        name: &'a str,
        /// Its exit status.
        status: u32,
        /// How long it ran.
        seconds: u32,
    },
    /// The contents of a file follow.
    File(&'a str),
    /// The file is complete.
    EndOfFile,
    /// All binaries have ended, and the machine is about to power off.
    Finished,
    /// The kernel panicked, with this message.
    Panic(&'a str),
    /// A marker that is not of the protocol.
    Malformed(&'a str),
    /// Output of a binary or of the kernel.
    Text(&'a str),
}

impl<'a> Line<'a> {
    /// Parses a line. A binary's last line may lack its line feed: a marker may follow text.
    pub fn parse(line: &'a str) -> Self {
        let line = line.trim_end();
        if let Some(at) = line.find(PANIC) {
            return Self::Panic(&line[at..]);
        }
        let Some(at) = line.find(MARKER) else {
            return Self::Text(line);
        };
        let words: Vec<&str> = line[at + MARKER.len()..].split_whitespace().collect();
        match words[..] {
            ["ready"] => Self::Ready,
            ["begin", name] => Self::Begin(name),
            ["end", name, status, seconds] => match (status.parse(), seconds.parse()) {
                (Ok(status), Ok(seconds)) => Self::End {
                    name,
                    status,
                    seconds,
                },
                _ => Self::Malformed(line),
            },
            ["file", name] => Self::File(name),
            ["end-of-file"] => Self::EndOfFile,
            ["finished"] => Self::Finished,
            _ => Self::Malformed(line),
        }
    }
}

/// Numbers of tests, added up over the summaries of a binary and its child processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that were not run, but for those that a filter excludes.
    pub ignored: u64,
}

impl Summary {
    /// Adds a line such as `test result: ok. 4 passed; 0 failed; 1 ignored; ...`.
    fn add(&mut self, line: &str) {
        let Some((_, counts)) = line.split_once("test result: ") else {
            return;
        };
        let words: Vec<&str> = counts.split([' ', ';']).collect();
        for pair in words.windows(2) {
            let Ok(number) = pair[0].parse::<u64>() else {
                continue;
            };
            match pair[1] {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

/// The end of one binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Exit status 0.
    Passed,
    /// Another exit status.
    Failed(u32),
    /// Killed at its time limit.
    TimedOut,
    /// Has a marker for its start and none for its end.
    Unfinished,
    /// Has no marker.
    NotStarted,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Passed => write!(formatter, "ok"),
            Self::Failed(status) => write!(formatter, "failed with status {status}"),
            Self::TimedOut => write!(formatter, "killed at its time limit"),
            Self::Unfinished => write!(formatter, "began, but the machine reported no end"),
            Self::NotStarted => write!(formatter, "not started"),
        }
    }
}

/// The result of one binary.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The binary.
    pub name: String,
    /// How it ended.
    pub verdict: Verdict,
    /// How long it ran, if it ended.
    pub seconds: u32,
    /// Its tests.
    pub summary: Summary,
}

/// A binary that the machine is to run.
#[derive(Debug)]
pub struct Expected {
    /// Its name in markers.
    pub name: String,
    /// The machine kills it after this time.
    pub limit_seconds: u32,
}

/// The state of the protocol, from the lines so far.
#[derive(Debug)]
pub struct Transcript {
    outcomes: Vec<Outcome>,
    limits: Vec<u32>,
    /// The index of the binary that runs.
    running: Option<usize>,
    /// Names and encoded contents.
    files: Vec<(String, String)>,
    /// Whether lines are contents of the last file.
    is_in_file: bool,
    is_ready: bool,
    is_finished: bool,
    violations: Vec<String>,
}

impl Transcript {
    /// The state before the first line.
    pub fn new(expected: &[Expected]) -> Self {
        let outcomes = expected.iter().map(|binary| Outcome {
            name: binary.name.clone(),
            verdict: Verdict::NotStarted,
            seconds: 0,
            summary: Summary::default(),
        });
        Self {
            outcomes: outcomes.collect(),
            limits: expected.iter().map(|binary| binary.limit_seconds).collect(),
            running: None,
            files: Vec::new(),
            is_in_file: false,
            is_ready: false,
            is_finished: false,
            violations: Vec::new(),
        }
    }

    /// Takes the next line.
    pub fn add(&mut self, line: &Line<'_>) {
        match *line {
            Line::Ready => self.is_ready = true,
            Line::Begin(name) => self.begin(name),
            Line::End {
                name,
                status,
                seconds,
            } => self.end(name, status, seconds),
            Line::Finished => self.is_finished = true,
            Line::Panic(message) => self.violations.push(message.to_owned()),
            Line::Malformed(line) => self.violations.push(format!("malformed marker: {line}")),
            Line::File(name) => {
                self.files.push((name.to_owned(), String::new()));
                self.is_in_file = true;
            }
            Line::EndOfFile => self.is_in_file = false,
            Line::Text(text) if self.is_in_file => {
                if let Some((_, contents)) = self.files.last_mut() {
                    contents.push_str(text);
                    contents.push('\n');
                }
            }
            Line::Text(text) => {
                if let Some(running) = self.running {
                    self.outcomes[running].summary.add(text);
                }
            }
        }
    }

    fn begin(&mut self, name: &str) {
        let next = self
            .outcomes
            .iter()
            .position(|outcome| outcome.name == name && outcome.verdict == Verdict::NotStarted);
        match next {
            Some(next) if self.running.is_none() => {
                self.outcomes[next].verdict = Verdict::Unfinished;
                self.running = Some(next);
            }
            _ => self.violations.push(format!("unexpected start of {name}")),
        }
    }

    fn end(&mut self, name: &str, status: u32, seconds: u32) {
        match self.running.take() {
            Some(running) if self.outcomes[running].name == name => {
                let is_late = seconds >= self.limits[running];
                let outcome = &mut self.outcomes[running];
                outcome.seconds = seconds;
                outcome.verdict = match status {
                    0 => Verdict::Passed,
                    KILLED if is_late => Verdict::TimedOut,
                    status => Verdict::Failed(status),
                };
            }
            _ => self.violations.push(format!("unexpected end of {name}")),
        }
    }

    /// Whether the script has started.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// The time limit of the binary that runs.
    pub fn running_limit(&self) -> Option<u32> {
        self.running.map(|running| self.limits[running])
    }

    /// Whether lines are contents of a file.
    pub fn is_in_file(&self) -> bool {
        self.is_in_file
    }

    /// The names of the files, and their contents in base64.
    pub fn files(&self) -> &[(String, String)] {
        &self.files
    }

    /// The results, in the order in which the binaries were given.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// The faults of the machine: panics, missing and unexpected markers. Empty after a clean end.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.violations.clone();
        if !self.is_ready {
            faults.push("the init script did not start: no marker `ready`".into());
        } else if !self.is_finished {
            faults.push("the machine ended early: no marker `finished`".into());
        }
        faults
    }
}
