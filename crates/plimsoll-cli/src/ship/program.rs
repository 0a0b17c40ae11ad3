//! A running program whose heap profiles are shipped as its memory grows.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::destination::Content;
use super::name::{self, PROFILE};
use super::queue::program_of;
use plimsoll_command::failure::Failure;
use plimsoll_command::http::{self, Server};
use plimsoll_command::profile::{HEAP, Limits, parse};
use plimsoll_launch::run::name_of;

/// The time for pages of figures, and for the profile, which names functions.
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);
const PROFILE_TIMEOUT: Duration = Duration::from_secs(60);

/// The amount by which memory must have grown since the last profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Bytes(f64),
    /// A share of the memory at the last profile.
    Share(f64),
}

impl Step {
    /// Parses a size or a share. The error is the end of a sentence about the value.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let share = text.strip_suffix('%').and_then(|share| share.parse().ok());
        match share {
            Some(share) if (1.0..=1000.0).contains(&share) => Ok(Self::Share(share / 100.0)),
            _ => match plimsoll_settings::bytes(text) {
                Ok(bytes @ 1..) => Ok(Self::Bytes(bytes as f64)),
                _ => Err("is not a size such as 100m or a share from 1% to 1000%".to_owned()),
            },
        }
    }
}

/// The profiles that are requested as the memory grows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// The least resident memory in bytes.
    pub(super) above: f64,
    pub(super) step: Step,
}

impl Rule {
    /// Returns whether a profile is due at this much memory, after a profile at `last`.
    fn is_due(&self, resident: f64, last: Option<f64>) -> bool {
        let next = last.map_or(0.0, |last| match self.step {
            Step::Bytes(bytes) => last + bytes,
            Step::Share(share) => last * (1.0 + share),
        });
        resident >= self.above.max(next)
    }

    /// Returns whether the memory has fallen so far that passing the limit again counts anew.
    fn is_below(&self, resident: f64) -> bool {
        resident < 0.9 * self.above
    }
}

/// A running program.
pub(super) struct Program {
    /// The URL without a path.
    pub(super) url: String,
    host: String,
    /// The start of the process in seconds since 1970; `None` if it is unknown.
    started: Option<f64>,
    /// The resident memory at the last profile.
    last: Option<f64>,
    /// The profile that waits for the destination, with its name. While the destination is away, a later
    /// profile replaces it: it shows more memory.
    pub(super) waiting: Option<(String, Content)>,
}

impl Program {
    pub(super) fn new(url: &str, host: &str) -> Self {
        Self {
            url: url.trim_end_matches('/').to_owned(),
            host: host.to_owned(),
            started: None,
            last: None,
            waiting: None,
        }
    }

    /// Reads the resident memory, and requests the heap profile if one is due.
    ///
    /// # Errors
    /// The program does not answer, or its pages are not those of Plimsoll.
    pub(super) fn read(&mut self, rule: &Rule) -> Result<(), Failure> {
        let url = format!("{}/debug/plimsoll/memory?format=json", self.url);
        let memory = http::get(Server::Named, &url, PAGE_TIMEOUT)?;
        let memory: Value = serde_json::from_slice(&memory).unwrap_or_default();
        let resident = memory["kernel"]["resident"]
            .as_f64()
            .ok_or_else(|| Failure::new(&url, "the page has no resident memory"))?;
        let process = self.process()?;
        let started = process["started"].as_f64();
        if started != self.started || rule.is_below(resident) {
            self.started = started;
            self.last = None;
        }
        if !rule.is_due(resident, self.last) {
            return Ok(());
        }
        let url = format!("{}/debug/pprof/{HEAP}", self.url);
        let bytes = http::get(Server::Named, &url, PROFILE_TIMEOUT)?;
        let profile = parse(&bytes, Limits::default());
        let profile = profile.map_err(|error| Failure::new(&url, error))?;
        let (_, address) = self.url.split_once("://").unwrap_or_default();
        let program = process["program"].as_str().map(name_of);
        let number = process["pid"].as_u64().map(|number| number.to_string());
        let name = name::joined(&[
            &self.host,
            program.unwrap_or(&program_of(&profile)),
            number.as_deref().unwrap_or(address),
            &name::moment(name::since_1970(SystemTime::now())),
            HEAP,
        ]);
        let bytes = match bytes.starts_with(&[0x1f, 0x8b]) {
            true => bytes,
            false => profile.to_bytes(|_| true),
        };
        self.waiting = Some((format!("{name}{PROFILE}"), Content::Bytes(bytes)));
        self.last = Some(resident);
        Ok(())
    }

    /// Returns the head of the page of the history: the start, the number and the program of the process.
    /// Null if the program does not serve it.
    fn process(&self) -> Result<Value, Failure> {
        // No reading is of the future.
        let url = format!("{}/debug/plimsoll/history?from={}", self.url, u32::MAX);
        let answer = http::request(Server::Named, &url, PAGE_TIMEOUT, |_| {})?;
        let page = (answer.status == 200).then(|| serde_json::from_slice(&answer.body));
        Ok(page.and_then(Result::ok).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_due_at_the_limit_and_at_each_step() {
        let rule = Rule {
            above: 500.0,
            step: Step::parse("10%").unwrap(),
        };
        let due = |resident, last| rule.is_due(resident, last);
        assert!(!due(499.0, None));
        assert!(due(500.0, None));
        assert!(!due(549.0, Some(500.0)));
        assert!(due(551.0, Some(500.0)));
        assert!(!rule.is_below(450.0) && rule.is_below(449.0));
        let rule = Rule {
            above: 0.0,
            step: Step::parse("1k").unwrap(),
        };
        assert!(rule.is_due(1.0, None));
        assert!(!rule.is_due(1024.0, Some(1.0)));
        assert!(rule.is_due(1025.0, Some(1.0)));
    }

    #[test]
    fn steps_that_never_end_are_refused() {
        for text in [
            "0", "0%", "0.5%", "-1%", "inf%", "NaN%", "x", "", "%", "1e9%",
        ] {
            assert!(Step::parse(text).is_err(), "{text}");
        }
    }
}
