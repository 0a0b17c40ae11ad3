//! All settings: words, meanings and defaults, once for the documentation, for the library and for the command.

/// Expands to a table of all settings in Markdown, as text for a documentation. Links in it are those of the crate
/// `plimsoll`.
#[macro_export]
macro_rules! table {
    () => {
        "\
| word | value | default |
|---|---|---|
| `block_rate` | waiting time between samples of the block profile: `1ms`, `1ns` for all, `0` for none | `0` |
| `cpu_rate` | samples of the CPU profile for each second of CPU time, all the time: `19`, at most `1000`, `0` for none | `0` |
| `dump_on` | when to write the stacks of all threads to standard error: `sigquit`, `panic`, `sigquit+panic` or `off` | `off` |
| `give_back` | time after which idle free memory is returned to the system: `30s`, or `off` | `off` |
| `go_names` | whether `/metrics` also contains the names of Go's client (`go_memstats_alloc_bytes`) and `process_*`: `on` or `off` | `off` |
| `growth` | time between two readings of allocation sites for the report of growth: `10s`, or `off` | `10s` |
| `heap_rate` | mean bytes between samples of the heap profile: `512k`, `1` for all, `0` for none | `512k` |
| `history` | memory for the history of statistics and heap profiles: `4m`, or `off` | `4m` |
| `http` | the address of the server for `/debug/pprof/`, `/debug/vars` and `/metrics`: `host:port`, a port of `127.0.0.1`, `unix:PATH`, or `off` | `off` |
| `http_hosts` | host names other than `localhost` by which clients may reach the pages, separated by `+`; an IP address is always allowed: `app+debug.example.com` | none |
| `http_token` | a token that clients of the pages must send, as bearer token or password; `file:PATH` for the first line of a file | none |
| `leak_age` | waiting time after which a thread or task is probably leaked, if the number at its place rises: `600s` | `600s` |
| `ledger` | how operations are counted: `auto`, `per-cpu`, `per-thread` or `fenced`; only from the environment | `auto` |
| `long_poll` | shortest poll of a tracked task in the profile `longpoll`: `10ms`, `0` for none | `0` |
| `memory_limit` | memory that the program should stay below: `512m`, `80%` of the available memory, `cgroup` or `off` | `off` |
| `mutex_fraction` | one of this many releases of contended locks is recorded: `100`, `1` for all, `0` for none | `0` |
| `out` | a directory for all profiles, written when the [`Plimsoll`] is dropped or the process exits; created at the start | none |
| `out_on` | signals that also write the profiles of `out`, before they end the process: `sigterm`, `sigint`, `sigterm+sigint` or `off` | `off` |
| `postmortem` | a file that keeps counts and heap profile if the process is killed, for `plimsoll report`; `%p` is the process, `%n` its namespace; only from the environment | none |
| `stack_depth` | maximum number of frames of a stack, 0 to 1024; a deeper stack keeps both ends, or with less than 32 frames the leaf end | `128` |
| `table` | the maximum size of the table of stacks, in bytes; only from the environment | `64m` |
| `task_times` | whether the times for which tasks wait for polls and run are recorded: `on` or `off` | `off` |
| `thread_signal` | the number of the real-time signal that interrupts running threads, or `auto` for an unused one | `auto` |
| `unwinder` | how stacks are walked: `auto`, `frame-pointers` or `tables` | `auto` |
"
    };
}

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its word.
    pub name: &'static str,
    /// The setting's effect and its possible values, in Markdown.
    pub meaning: &'static str,
    /// The value in effect without the word, in Markdown.
    pub default: &'static str,
}

/// Returns all settings in the order of their names.
pub fn all() -> impl Iterator<Item = Setting> {
    table!().lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        let (meaning, default) = rest.strip_suffix(" |")?.split_once(" | ")?;
        Some(Setting {
            name,
            meaning,
            default,
        })
    })
}

/// Returns whether there is a setting of that name.
pub fn has(name: &str) -> bool {
    all().any(|setting| setting.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_is_a_setting() {
        let names: Vec<&str> = all().map(|setting| setting.name).collect();
        assert_eq!(names.len(), table!().lines().count() - 2);
        assert!(names.is_sorted(), "{names:?}");
        assert!(has("heap_rate") && has("http_token") && !has("word") && !has(""));
        for Setting {
            meaning, default, ..
        } in all()
        {
            assert!(!meaning.contains('|') && !default.contains('|'));
        }
    }
}
