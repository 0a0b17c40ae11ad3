//! The memory of a program, and the memory that each of many threads adds.

use crate::crew::Crew;
use crate::process_memory::Status;

/// Figures in KiB, except for the number of threads.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// `RssAnon` of the program before any work.
    pub at_start: u64,
    /// The number of threads, at most as many as the system permits.
    pub threads: u64,
    /// The growth of `RssAnon` from before the threads started to after all have allocated.
    pub anonymous: u64,
    /// The same for `VmRSS`.
    pub resident: u64,
}

/// Starts `threads` threads and makes each allocate and free twice. Calls `between` after each
/// time.
pub fn measure(threads: usize, between: impl Fn()) -> Figures {
    let status = Status::open();
    let read = || (status.kib("RssAnon"), status.kib("VmRSS"));
    let (anonymous, resident) = read();
    let crew = Crew::start(threads, || drop(std::hint::black_box(Box::new([1u8; 64]))));
    crew.turn();
    between();
    crew.turn();
    between();
    let (anonymous_then, resident_then) = read();
    Figures {
        at_start: anonymous,
        threads: crew.size() as u64,
        anonymous: anonymous_then.saturating_sub(anonymous),
        resident: resident_then.saturating_sub(resident),
    }
}

impl Figures {
    /// Prints the line that [`Figures::parse`] reads.
    pub fn print(self) {
        println!(
            "{} {} {} {}",
            self.at_start, self.threads, self.anonymous, self.resident
        );
    }

    /// Parses the first line of a text. Panics if it does not contain the figures.
    pub fn parse(text: &str) -> Self {
        let line = text.lines().next().unwrap_or_default();
        let numbers: Vec<u64> = line
            .split(' ')
            .filter_map(|number| number.parse().ok())
            .collect();
        let [at_start, threads, anonymous, resident] = numbers[..] else {
            panic!("no figures in {text}");
        };
        Self {
            at_start,
            threads,
            anonymous,
            resident,
        }
    }
}
