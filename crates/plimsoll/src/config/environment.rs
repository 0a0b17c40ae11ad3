//! Parses the words of the environment variable, which override the settings from code.

use std::time::Duration;

use plimsoll_server::access::Names;

use super::{Config, VARIABLE, words};
use crate::cpu;
use plimsoll_core::alloc::postmortem::SETTING;
use plimsoll_core::settings::{Early, MemoryLimit};
use plimsoll_core::{postmortem_file, settings, thread};

/// The end of a complaint about a word that may have been meant to protect the pages.
pub(super) const NOT_SERVED: &str =
    "; no pages are served, since this may have been meant to protect them";

impl Config {
    /// Overlays the settings in the environment. Also returns a complaint for each mistake in them. No
    /// pages are served with a word that is none: it may be a misspelt `http_token`.
    pub(super) fn with_environment(mut self, text: &str) -> (Self, Vec<String>) {
        let mut complaints = Vec::new();
        // The complaints about words that may have been meant to protect the pages.
        let mut unprotected = Vec::new();
        let mut is_behind_token = false;
        let mut early = Early::DEFAULT;
        for (word, value) in plimsoll_settings::words(text) {
            if is_help((word, value)) {
                continue;
            }
            let is_known = words::has(word);
            // A token with a comma: the rest of it is not shown.
            let shown = match is_behind_token && !is_known {
                true => "(the text behind the comma in http_token)",
                false => word,
            };
            is_behind_token = word == "http_token" || (is_behind_token && !is_known);
            let Some(value) = value else {
                if !is_known || word == "http_token" {
                    unprotected.push(complaints.len());
                }
                complaints.push(format!(
                    "{VARIABLE}: `{shown}` has no value; settings are written word=value"
                ));
                continue;
            };
            let understood = match word {
                "http" => self.set_http(value),
                "http_hosts" => self.set_http_hosts(value),
                // Checked when the pages are served: a complaint here would contain it.
                "http_token" => {
                    self.http_token = Some(value.into());
                    Ok(true)
                }
                "out" if value.is_empty() => Err("is empty; give a directory"),
                "out" => {
                    self.out = Some(value.into());
                    Ok(true)
                }
                "block_rate" => plimsoll_settings::nanoseconds(value).map(|rate| {
                    self.block_rate = Some(Duration::from_nanos(rate));
                    true
                }),
                "mutex_fraction" => match value.parse() {
                    Ok(fraction) => {
                        self.mutex_fraction = Some(fraction);
                        Ok(true)
                    }
                    Err(_) => Err("is not a whole number up to 4294967295"),
                },
                "cpu_rate" => match value.parse() {
                    Ok(rate) if rate <= cpu::MAX_RATE => {
                        self.cpu_rate = Some(rate);
                        Ok(true)
                    }
                    _ => Err("is not a whole number up to 1000"),
                },
                "growth" => interval_or_off(value).map(|interval| {
                    self.growth = Some(interval);
                    true
                }),
                "history" => settings::history_bytes(value).map(|bytes| {
                    self.history = Some(bytes);
                    true
                }),
                "leak_age" => plimsoll_settings::nanoseconds(value).map(|age| {
                    self.leak_age = Some(Duration::from_nanos(age));
                    true
                }),
                "long_poll" => plimsoll_settings::nanoseconds(value).map(|threshold| {
                    self.long_poll = Some(Duration::from_nanos(threshold));
                    true
                }),
                "task_times" => on_or_off(value).map(|wanted| {
                    self.task_times = Some(wanted);
                    true
                }),
                "go_names" => on_or_off(value).map(|wanted| {
                    self.go_names = Some(wanted);
                    true
                }),
                "memory_limit" => MemoryLimit::parse(value).map(|limit| {
                    self.memory_limit = Some(limit);
                    true
                }),
                "dump_on" => self.set_dump_on(value),
                "out_on" => self.set_out_on(value),
                SETTING if value.is_empty() => Err("is empty; give a file"),
                SETTING if postmortem_file::was_asked_for() => Ok(true),
                SETTING => Err("has no effect any more: set it before the process starts"),
                "thread_signal" if value == "auto" => {
                    self.thread_signal = None;
                    Ok(true)
                }
                "thread_signal" => match value.parse() {
                    Ok(number) if thread::signals().contains(&number) => {
                        self.thread_signal = Some(number);
                        Ok(true)
                    }
                    _ => Err("is not the number of a real-time signal"),
                },
                _ => early.set(word, value),
            };
            match (understood, word) {
                (Ok(true), "heap_rate") => self.heap_rate = Some(early.heap_rate),
                (Ok(true), "stack_depth") => self.stack_depth = Some(early.stack_depth),
                (Ok(true), "unwinder") => self.unwinder = early.unwinder,
                (Ok(true), _) => {}
                (Ok(false), _) => {
                    unprotected.push(complaints.len());
                    complaints.push(format!(
                        "{VARIABLE}: no setting `{shown}`; available: {}",
                        words::names()
                    ));
                }
                (Err(why), _) => {
                    complaints.push(format!("{VARIABLE}: `{word}={value}`: the value {why}"))
                }
            }
        }
        if self.http.is_some() && !unprotected.is_empty() {
            self.http = None;
            for at in unprotected {
                complaints[at].push_str(NOT_SERVED);
            }
        }
        (self, complaints)
    }

    fn set_http(&mut self, value: &str) -> Result<bool, &'static str> {
        self.http = match value {
            "" => return Err("is empty; give host:port, a port, or off"),
            "off" => None,
            address => Some(address.into()),
        };
        Ok(true)
    }

    fn set_http_hosts(&mut self, value: &str) -> Result<bool, &'static str> {
        if value.is_empty() {
            return Err("contains no host");
        }
        let hosts: Vec<&str> = value.split('+').collect();
        for host in &hosts {
            Names::default().add(host)?;
        }
        self.http_hosts = hosts.into_iter().map(String::from).collect();
        Ok(true)
    }

    fn set_out_on(&mut self, value: &str) -> Result<bool, &'static str> {
        (self.out_on_sigterm, self.out_on_sigint) = match value {
            "sigterm" => (true, false),
            "sigint" => (false, true),
            "sigterm+sigint" | "sigint+sigterm" => (true, true),
            "off" => (false, false),
            _ => return Err("is not one of sigterm, sigint, sigterm+sigint, off"),
        };
        Ok(true)
    }

    fn set_dump_on(&mut self, value: &str) -> Result<bool, &'static str> {
        let (mut sigquit, mut panic) = (false, false);
        for word in value.split('+') {
            match word {
                "sigquit" => sigquit = true,
                "panic" => panic = true,
                "off" if value == "off" => {}
                _ => return Err("is not one of sigquit, panic, sigquit+panic, off"),
            }
        }
        (self.dump_on_sigquit, self.dump_on_panic) = (sigquit, panic);
        Ok(true)
    }
}

/// Reports whether a word of the settings requests the list of all words.
pub(super) fn is_help((word, value): (&str, Option<&str>)) -> bool {
    word == words::HELP && value.is_none()
}

fn on_or_off(value: &str) -> Result<bool, &'static str> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("is neither on nor off"),
    }
}

/// Parses a length of time, or `off` for zero.
fn interval_or_off(value: &str) -> Result<Duration, &'static str> {
    match value {
        "off" => Ok(Duration::ZERO),
        length => plimsoll_settings::nanoseconds(length).map(Duration::from_nanos),
    }
}
