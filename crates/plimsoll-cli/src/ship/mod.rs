//! `plimsoll ship`: moves post-mortem files and profiles to a destination, from directories and from
//! running programs.

mod destination;
mod name;
mod program;
mod queue;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::summary;
use destination::{Content, Destination, Unconfirmed};
use name::{POST_MORTEM, PROFILE};
use plimsoll_args::args::ShipArguments;
use plimsoll_command::failure::Failure;
use plimsoll_command::http;
use plimsoll_command::input::Input;
use plimsoll_command::plain_text::PlainText;
use plimsoll_command::profile::HEAP;
use program::{Program, Rule, Step};
use queue::{Kind, Queue};

/// The time until a destination that is away is tried again: at first, and at most. It doubles.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(300);

/// The number of attempts with `--once`.
const ATTEMPTS: u32 = 4;

/// Moves files until a signal ends it; with `--once`, those that are finished now.
///
/// # Errors
/// An argument is invalid, or a directory cannot be used.
pub(crate) fn ship(arguments: &ShipArguments) -> Result<ExitCode, Failure> {
    let mut shipper = Shipper::new(arguments)?;
    let signals = Stop::new()?;
    let done = match arguments.once {
        true => shipper.once(&signals),
        false => shipper.run(&signals, arguments.drain),
    };
    Ok(ExitCode::from(u8::from(!done)))
}

/// The signals that end the command.
struct Stop {
    /// The handler sets it, so that a signal counts from its arrival on.
    has_arrived: Arc<AtomicBool>,
    /// Ends the wait for the next reading.
    wakes: Receiver<()>,
}

impl Stop {
    fn new() -> Result<Self, Failure> {
        const SIGNALS: [i32; 3] = [SIGTERM, SIGINT, SIGHUP];
        let fail = |error: io::Error| Failure::new("signals", error);
        let has_arrived = Arc::new(AtomicBool::new(false));
        for signal in SIGNALS {
            signal_hook::flag::register(signal, Arc::clone(&has_arrived)).map_err(fail)?;
        }
        let (send, wakes) = channel();
        let mut signals = Signals::new(SIGNALS).map_err(fail)?;
        let wake = move || {
            for _ in signals.forever() {
                // The receiver lives as long as the command.
                let _ = send.send(());
            }
        };
        thread::Builder::new()
            .name("plimsoll-signal".to_owned())
            .spawn(wake)
            .map_err(fail)?;
        Ok(Self { has_arrived, wakes })
    }

    /// Returns whether a signal has arrived since the last call that returned true, or arrives within
    /// this time.
    fn within(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        loop {
            if self.has_arrived.swap(false, Ordering::SeqCst) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.wakes.recv_timeout(left).is_err() {
                return self.has_arrived.swap(false, Ordering::SeqCst);
            }
        }
    }
}

/// Prints each message once, until it changes.
#[derive(Default)]
struct Messages {
    last: HashMap<String, String>,
}

impl Messages {
    /// Reports the state of a source or of the destination.
    fn report(&mut self, subject: &str, state: Result<(), String>) {
        match state {
            Ok(()) => {
                if self.last.remove(subject).is_some() {
                    say(&format!("plimsoll: {subject}: works again"));
                }
            }
            Err(message) => {
                if self.last.get(subject) != Some(&message) {
                    say(&format!("plimsoll: {message}; it is tried again"));
                    self.last.insert(subject.to_owned(), message);
                }
            }
        }
    }
}

/// Prints a line on standard error. If that is closed, the line is lost.
fn say(text: &str) {
    let _ = writeln!(PlainText(io::stderr()), "{text}");
}

/// The result of shipping the waiting files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shipped {
    /// None is left.
    All,
    /// The destination refuses some files.
    Some,
    /// The destination is away, or a signal ended the attempt.
    Away,
}

struct Shipper {
    destination: Destination,
    queues: Vec<Queue>,
    programs: Vec<Program>,
    rule: Rule,
    every: Duration,
    keep: Option<usize>,
    messages: Messages,
    /// The names of files that the destination has refused. They are tried again every [`LAST_RETRY`].
    refused: HashSet<String>,
    /// The time of the last claim.
    claimed: Instant,
}

impl Shipper {
    fn new(arguments: &ShipArguments) -> Result<Self, Failure> {
        let wrong = |option: &str, value: &str, why: &str| {
            Failure::new(format!("{option} {value}"), format!("the value {why}")).with_code(2)
        };
        let above = plimsoll_settings::bytes(&arguments.above)
            .map_err(|why| wrong("--above", &arguments.above, why))?;
        let step =
            Step::parse(&arguments.step).map_err(|why| wrong("--step", &arguments.step, &why))?;
        let every = plimsoll_settings::nanoseconds(&arguments.every)
            .map_err(|why| wrong("--every", &arguments.every, why))?;
        let every = Duration::from_nanos(every);
        if every < Duration::from_millis(10) {
            return Err(wrong("--every", &arguments.every, "is less than 10ms"));
        }
        let destination = Destination::new(&arguments.to)?;
        let host = name::host();
        let (mut queues, mut programs) = (Vec::new(), Vec::new());
        for source in &arguments.sources {
            match http::base_url(source) {
                Some(url) => programs.push(Program::new(&url, &host)),
                None => queues.push(Queue::open(source, &host)?),
            }
        }
        if let Some(to) = destination.directory()
            && queues.iter().any(|queue| queue.is_at(to))
        {
            let cause = "the destination is one of the directories";
            return Err(Failure::new(format!("--to {}", arguments.to), cause).with_code(2));
        }
        Ok(Self {
            destination,
            queues,
            programs,
            rule: Rule {
                above: above as f64,
                step,
            },
            every,
            keep: arguments.keep.and_then(|keep| usize::try_from(keep).ok()),
            messages: Messages::default(),
            refused: HashSet::new(),
            claimed: Instant::now(),
        })
    }

    /// Ships until a signal arrives. Returns whether no file is left that had to be shipped.
    fn run(&mut self, stop: &Stop, drains: bool) -> bool {
        let mut retry = FIRST_RETRY;
        let mut next_look = Instant::now();
        let mut next_try = next_look;
        let mut next_of_refused = next_look + LAST_RETRY;
        loop {
            let now = Instant::now();
            if now >= next_look {
                self.look();
                next_look = now + self.every;
            }
            if now >= next_of_refused {
                self.refused.clear();
                next_of_refused = now + LAST_RETRY;
            }
            let mut is_away = next_try > now;
            if !is_away {
                match self.ship(stop) {
                    None => break,
                    Some(Shipped::All | Shipped::Some) => retry = FIRST_RETRY,
                    Some(Shipped::Away) => {
                        is_away = true;
                        next_try = Instant::now() + retry;
                        retry = (2 * retry).min(LAST_RETRY);
                    }
                }
            }
            // While the destination is reached, shipping follows each look.
            let next = if is_away {
                next_look.min(next_try)
            } else {
                next_look
            };
            if stop.within(next.saturating_duration_since(Instant::now())) {
                break;
            }
        }
        if !drains {
            return true;
        }
        self.refused.clear();
        self.look();
        self.ship(stop) == Some(Shipped::All)
    }

    /// Ships what is finished now. Returns whether no file is left.
    fn once(&mut self, stop: &Stop) -> bool {
        let mut retry = FIRST_RETRY;
        let is_read = self.look();
        for attempt in 1..=ATTEMPTS {
            match self.ship(stop) {
                Some(Shipped::All) => return is_read,
                Some(Shipped::Away) if attempt < ATTEMPTS && !stop.within(retry) => retry *= 2,
                _ => break,
            }
        }
        false
    }

    /// Claims finished files, and requests the profiles that are due. Returns whether each source was
    /// read.
    fn look(&mut self) -> bool {
        let mut is_read = self.claim();
        for program in &mut self.programs {
            let state = program.read(&self.rule);
            is_read &= state.is_ok();
            let state = state.map_err(|failure| failure.to_string());
            self.messages.report(&program.url.clone(), state);
        }
        is_read
    }

    /// Claims finished files. Returns whether each directory was read.
    fn claim(&mut self) -> bool {
        self.claimed = Instant::now();
        let mut is_read = true;
        for queue in &self.queues {
            let name = &queue.name;
            let state = if queue.lock() {
                let claimed = queue.claim();
                discard(queue, self.keep);
                claimed.map_err(|error| format!("{name}: {error}"))
            } else {
                Err(format!("{name}: another plimsoll ship works on it"))
            };
            is_read &= state.is_ok();
            self.messages.report(name, state);
        }
        is_read
    }

    /// Ships the waiting files. Returns `None` if a signal arrived, which ends it after the current file.
    fn ship(&mut self, stop: &Stop) -> Option<Shipped> {
        let mut failed = None;
        let mut any = false;
        let mut shipped = Shipped::All;
        let mut has_ended = false;
        for item in self.waiting() {
            if self.refused.contains(&item.name) {
                shipped = Shipped::Some;
                continue;
            }
            match self.ship_item(&item) {
                Ok(()) => any = true,
                Err(Unconfirmed {
                    failure,
                    is_refused,
                }) => {
                    failed.get_or_insert(failure);
                    if is_refused {
                        shipped = Shipped::Some;
                        self.refused.insert(item.name);
                    } else {
                        shipped = Shipped::Away;
                    }
                }
            }
            if self.claimed.elapsed() >= self.every {
                // A process that restarts soon replaces a file that is not claimed.
                self.claim();
            }
            has_ended = stop.within(Duration::ZERO);
            if has_ended || shipped == Shipped::Away {
                break;
            }
        }
        let destination = &self.destination.name;
        match failed {
            Some(failure) => self.messages.report(destination, Err(failure.to_string())),
            None if any && self.refused.is_empty() => self.messages.report(destination, Ok(())),
            // Without a file to ship, the state of the destination is unknown.
            None => {}
        }
        (!has_ended).then_some(shipped)
    }

    /// Returns what waits for the destination.
    fn waiting(&self) -> Vec<Item> {
        let mut items = Vec::new();
        for (source, queue) in self.queues.iter().enumerate() {
            if queue.lock() {
                let names = queue.waiting().unwrap_or_default().into_iter();
                items.extend(names.map(|name| Item {
                    name,
                    source: Source::Queue(source),
                }));
            }
        }
        for (source, program) in self.programs.iter().enumerate() {
            items.extend(program.waiting.as_ref().map(|(name, _)| Item {
                name: name.clone(),
                source: Source::Program(source),
            }));
        }
        items
    }

    fn ship_item(&mut self, item: &Item) -> Result<(), Unconfirmed> {
        let destination = &self.destination;
        match item.source {
            Source::Queue(at) => {
                let queue = &self.queues[at];
                match queue.open_claimed(&item.name) {
                    Some((file, kind)) => ship_file(destination, queue, &item.name, file, kind),
                    None => Ok(()),
                }
            }
            Source::Program(at) => {
                let waiting = &mut self.programs[at].waiting;
                if let Some((name, content)) = waiting {
                    put(destination, name, content)?;
                }
                *waiting = None;
                Ok(())
            }
        }
    }
}

/// A file that waits.
struct Item {
    name: String,
    source: Source,
}

/// Where a file waits, by index.
enum Source {
    Queue(usize),
    Program(usize),
}

/// Deletes the oldest waiting files beyond `keep`.
fn discard(queue: &Queue, keep: Option<usize>) {
    let (Some(keep), Ok(waiting)) = (keep, queue.waiting()) else {
        return;
    };
    let excess = waiting.len().saturating_sub(keep);
    for name in &waiting[..excess] {
        if queue.open_claimed(name).is_some() && queue.delete(name).is_ok() {
            say(&format!(
                "plimsoll: {name}: deleted and not shipped, because more than {keep} files wait"
            ));
        }
    }
}

/// Ships a claimed file, with a summary and a heap profile beside a post-mortem file, and deletes it.
fn ship_file(
    destination: &Destination,
    queue: &Queue,
    name: &str,
    file: File,
    kind: Kind,
) -> Result<(), Unconfirmed> {
    let content = match kind {
        Kind::PostMortem => {
            for (name, content) in beside(name, &file) {
                destination.put(&name, &Content::Bytes(content))?;
            }
            Content::File(file)
        }
        Kind::Profile => Content::Bytes(bytes(&file).map_err(|error| Unconfirmed {
            failure: Failure::new(name, format!("cannot read the file: {error}")),
            is_refused: true,
        })?),
    };
    put(destination, name, &content)?;
    queue.delete(name).map_err(|error| Unconfirmed {
        failure: Failure::new(name, format!("shipped, but cannot be deleted: {error}")),
        is_refused: true,
    })
}

/// Ships a file, and prints its name.
fn put(destination: &Destination, name: &str, content: &Content) -> Result<(), Unconfirmed> {
    destination.put(name, content)?;
    // If standard output is closed, the line is lost.
    let _ = writeln!(PlainText(io::stdout()), "shipped {name}");
    Ok(())
}

fn bytes(mut file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut file, &mut bytes)?;
    Ok(bytes)
}

/// Returns the files beside a post-mortem file: its summary and its heap profile. A file of another
/// version, or a damaged one, has none.
fn beside(name: &str, file: &File) -> Vec<(String, Vec<u8>)> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let Ok(input) = Input::read(&path, None, false, HEAP) else {
        return Vec::new();
    };
    let stem = name.strip_suffix(POST_MORTEM).unwrap_or(name);
    let summary = summary::of_input(name, &input).map(String::into_bytes);
    let summary = summary.map(|summary| (format!("{stem}.summary.txt"), summary));
    let profile = input.profile.to_bytes(|_| true);
    let profile = (format!("{stem}.{HEAP}{PROFILE}"), profile);
    summary.into_iter().chain([profile]).collect()
}
