//! All words of the settings, for complaints and for `PLIMSOLL=help`.

use super::VARIABLE;
use plimsoll_core::warning;

/// The word that prints all words. It has no value.
pub(super) const HELP: &str = "help";

/// A word of the settings. The table in the documentation of [`Config`](super::Config) has the same
/// contents, which a test checks.
pub(super) struct Word {
    pub(super) name: &'static str,
    /// The setting's effect and its possible values.
    meaning: &'static str,
    default: &'static str,
}

const fn word(name: &'static str, meaning: &'static str, default: &'static str) -> Word {
    Word {
        name,
        meaning,
        default,
    }
}

/// All words, in the order of their names.
pub(super) const WORDS: [Word; 23] = [
    word(
        "block_rate",
        "waiting time between samples of the block profile: 1ms, 1ns for all, 0 for none",
        "0",
    ),
    word(
        "cpu_rate",
        "samples of the CPU profile for each second of CPU time, all the time: 19, at most 1000, 0 for none",
        "0",
    ),
    word(
        "dump_on",
        "when to write the stacks of all threads to standard error: sigquit, panic, sigquit+panic or off",
        "off",
    ),
    word(
        "go_names",
        "whether /metrics also contains the names of Go's client (go_memstats_alloc_bytes) and process_*: on or off",
        "off",
    ),
    word(
        "growth",
        "time between two readings of allocation sites for the report of growth: 10s, or off",
        "10s",
    ),
    word(
        "heap_rate",
        "mean bytes between samples of the heap profile: 512k, 1 for all, 0 for none",
        "512k",
    ),
    word(
        "history",
        "memory for the history of statistics and heap profiles: 4m, or off",
        "4m",
    ),
    word(
        "http",
        "the address of the server for /debug/pprof/, /debug/vars and /metrics: host:port, a port \
         of 127.0.0.1, unix:PATH, or off",
        "off",
    ),
    word(
        "http_hosts",
        "host names other than localhost by which clients may reach the pages, separated by +; an IP address is always allowed: app+debug.example.com",
        "none",
    ),
    word(
        "http_token",
        "a token that clients of the pages must send, as bearer token or password; file:PATH for the first line of a file",
        "none",
    ),
    word(
        "leak_age",
        "waiting time after which a thread or task is probably leaked, if the number at its place \
         rises: 600s",
        "600s",
    ),
    word(
        "ledger",
        "how operations are counted: auto, per-cpu, per-thread or fenced; only from the environment",
        "auto",
    ),
    word(
        "long_poll",
        "shortest poll of a tracked task in the profile longpoll: 10ms, 0 for none",
        "0",
    ),
    word(
        "memory_limit",
        "memory that the program should stay below: 512m, 80% of the available memory, cgroup or off",
        "off",
    ),
    word(
        "mutex_fraction",
        "one of this many releases of contended locks is recorded: 100, 1 for all, 0 for none",
        "0",
    ),
    word(
        "out",
        "a directory for all profiles, written when the Plimsoll is dropped or the process exits; created at the start",
        "none",
    ),
    word(
        "out_on",
        "signals that also write the profiles of out, before they end the process: sigterm, sigint, sigterm+sigint or off",
        "off",
    ),
    word(
        "postmortem",
        "a file that keeps counts and heap profile if the process is killed, for plimsoll report; %p is the process, %n its namespace; only from the environment",
        "none",
    ),
    word(
        "stack_depth",
        "maximum number of frames of a stack, 0 to 1024; a deeper stack keeps both ends, or with less than 32 frames the leaf end",
        "128",
    ),
    word(
        "table",
        "the maximum size of the table of stacks, in bytes; only from the environment",
        "64m",
    ),
    word(
        "task_times",
        "whether the times for which tasks wait for polls and run are recorded: on or off",
        "off",
    ),
    word(
        "thread_signal",
        "the number of the real-time signal that interrupts running threads, or auto for an unused one",
        "auto",
    ),
    word(
        "unwinder",
        "how stacks are walked: auto, frame-pointers or tables",
        "auto",
    ),
];

/// Returns whether there is such a word.
pub(super) fn has(name: &str) -> bool {
    WORDS.iter().any(|word| word.name == name)
}

/// Returns the names of all words, for a complaint.
pub(super) fn names() -> String {
    let names: Vec<&str> = WORDS.iter().map(|word| word.name).collect();
    names.join(", ")
}

/// Writes all words to standard error, one a line.
pub(super) fn print() {
    warning::warn(format_args!(
        "settings: {VARIABLE}=word=value,word=value with these words:"
    ));
    for Word {
        name,
        meaning,
        default,
    } in &WORDS
    {
        warning::warn(format_args!("  {name:<14} {meaning} (default: {default})"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_of_config_has_the_same_words() {
        let source = include_str!("../config.rs");
        let rows = source.lines().filter_map(|line| {
            let row = line.strip_prefix("/// | `")?;
            let mut cells = row.strip_suffix(" |")?.split(" | ");
            let plain = |text: &str| text.replace(['`', '[', ']'], "");
            let mut next = || cells.next().map(plain);
            Some([next()?, next()?, next()?])
        });
        let documented: Vec<[String; 3]> = rows.collect();
        let words = WORDS.map(|word| [word.name, word.meaning, word.default].map(str::to_owned));
        assert_eq!(documented, words);
    }
}
