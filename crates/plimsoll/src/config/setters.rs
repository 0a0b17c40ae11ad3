//! What each word of the environment variable sets.

use std::time::Duration;

use plimsoll_core::alloc::postmortem;
use plimsoll_core::settings::{self, Early, MemoryLimit};
use plimsoll_ledger::postmortem_file;
use plimsoll_profiles::cpu;
use plimsoll_server::access::Names;
use plimsoll_threads::thread;

use super::Config;

/// Sets a value, or says what is wrong with it: the predicate of a sentence.
type Setter = fn(&mut Config, &str) -> Result<(), &'static str>;

/// The settings, in the order of [`plimsoll_settings::all`].
const SETTERS: [(&str, Setter); 24] = [
    ("block_rate", |config, value| {
        config.block_rate = Some(duration(value)?);
        Ok(())
    }),
    ("cpu_rate", |config, value| {
        let rate = value.parse().ok().filter(|rate| *rate <= cpu::MAX_RATE);
        config.cpu_rate = Some(rate.ok_or("is not a whole number up to 1000")?);
        Ok(())
    }),
    ("dump_on", |config, value| {
        let (mut sigquit, mut panic) = (false, false);
        for word in value.split('+') {
            match word {
                "sigquit" => sigquit = true,
                "panic" => panic = true,
                "off" if value == "off" => {}
                _ => return Err("is not one of sigquit, panic, sigquit+panic, off"),
            }
        }
        (config.dump_on_sigquit, config.dump_on_panic) = (sigquit, panic);
        Ok(())
    }),
    ("give_back", |config, value| {
        config.give_back = Some(match value {
            "off" => Duration::ZERO,
            after => duration(after)?,
        });
        Ok(())
    }),
    ("go_names", |config, value| {
        config.go_names = Some(on_or_off(value)?);
        Ok(())
    }),
    ("growth", |config, value| {
        config.growth = Some(match value {
            "off" => Duration::ZERO,
            length => duration(length)?,
        });
        Ok(())
    }),
    ("heap_rate", |config, value| {
        config.heap_rate = Some(early("heap_rate", value)?.heap_rate);
        Ok(())
    }),
    ("history", |config, value| {
        config.history = Some(settings::history_bytes(value)?);
        Ok(())
    }),
    ("http", |config, value| {
        config.http = match value {
            "" => return Err("is empty; give host:port, a port, or off"),
            "off" => None,
            address => Some(address.into()),
        };
        Ok(())
    }),
    ("http_hosts", |config, value| {
        if value.is_empty() {
            return Err("contains no host");
        }
        let hosts = value.split('+');
        for host in hosts.clone() {
            Names::default().add(host)?;
        }
        config.http_hosts = hosts.map(String::from).collect();
        Ok(())
    }),
    // Checked when the pages are served: a complaint here would contain it.
    ("http_token", |config, value| {
        config.http_token = Some(value.into());
        Ok(())
    }),
    ("leak_age", |config, value| {
        config.leak_age = Some(duration(value)?);
        Ok(())
    }),
    ("ledger", |_, value| early("ledger", value).map(drop)),
    ("long_poll", |config, value| {
        config.long_poll = Some(duration(value)?);
        Ok(())
    }),
    ("memory_limit", |config, value| {
        config.memory_limit = Some(MemoryLimit::parse(value)?);
        Ok(())
    }),
    ("mutex_fraction", |config, value| {
        let fraction = value.parse().ok();
        config.mutex_fraction = Some(fraction.ok_or("is not a whole number up to 4294967295")?);
        Ok(())
    }),
    ("out", |config, value| match value {
        "" => Err("is empty; give a directory"),
        directory => {
            config.out = Some(directory.into());
            Ok(())
        }
    }),
    ("out_on", |config, value| {
        (config.out_on_sigterm, config.out_on_sigint) = match value {
            "sigterm" => (true, false),
            "sigint" => (false, true),
            "sigterm+sigint" | "sigint+sigterm" => (true, true),
            "off" => (false, false),
            _ => return Err("is not one of sigterm, sigint, sigterm+sigint, off"),
        };
        Ok(())
    }),
    (postmortem::SETTING, |_, value| match value {
        "" => Err("is empty; give a file"),
        _ if postmortem_file::was_asked_for() => Ok(()),
        _ => Err("has no effect any more: set it before the process starts"),
    }),
    ("stack_depth", |config, value| {
        config.stack_depth = Some(early("stack_depth", value)?.stack_depth);
        Ok(())
    }),
    ("table", |_, value| early("table", value).map(drop)),
    ("task_times", |config, value| {
        config.task_times = Some(on_or_off(value)?);
        Ok(())
    }),
    ("thread_signal", |config, value| {
        let number = value.parse().ok();
        config.thread_signal = match number.filter(|number| thread::signals().contains(number)) {
            None if value == "auto" => None,
            None => return Err("is not the number of a real-time signal"),
            number => number,
        };
        Ok(())
    }),
    ("unwinder", |config, value| {
        config.unwinder = early("unwinder", value)?.unwinder;
        Ok(())
    }),
];

/// Returns the function that sets the value of a word; `None` if no setting has that name.
pub(super) fn for_word(word: &str) -> Option<Setter> {
    let found = SETTERS.iter().find(|(name, _)| *name == word);
    found.map(|(_, setter)| *setter)
}

/// Returns the settings that apply from the first allocation on with this one among them.
fn early(word: &str, value: &str) -> Result<Early, &'static str> {
    let mut early = Early::DEFAULT;
    early.set(word, value).map(|_| early)
}

fn duration(value: &str) -> Result<Duration, &'static str> {
    plimsoll_settings::nanoseconds(value).map(Duration::from_nanos)
}

fn on_or_off(value: &str) -> Result<bool, &'static str> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("is neither on nor off"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_set() {
        let names = SETTERS.map(|(name, _)| name);
        assert!(
            names
                .into_iter()
                .eq(plimsoll_settings::all().map(|setting| setting.name))
        );
    }
}
