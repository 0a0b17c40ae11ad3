//! The summary of a run: a directory of `plimsoll run --out`, or lines of `--json`.

use std::fmt::Display;
use std::path::Path;

use serde_json::Value;

use super::limited::{Limited, begin};
use super::sites;
use plimsoll_command::failure::Failure;
use plimsoll_command::files::open_regular;
use plimsoll_command::profile::{Limits, read};
use plimsoll_launch::run::compare::{self, Record, counted_peak};
use plimsoll_launch::run::name_of;
use plimsoll_launch::run::units::{bytes, count, nanoseconds, seconds};

/// The maximum size of a program's name in bytes.
const MAX_NAME: usize = 60;

/// The maximum size of the line of losses.
const MAX_LOSSES: usize = 240;

/// The numbers of events that are not recorded in full, with their meanings.
const LOSSES: [(&str, &str); 7] = [
    ("without_stack", "events without a stack"),
    ("table_full", "events because the table of stacks was full"),
    ("untracked", "sampled blocks untracked"),
    ("lost_waits", "waits that no release is charged for"),
    ("lost_mappings", "mappings"),
    ("cut_stacks", "stacks cut at code that cannot be unwound"),
    ("shortened_stacks", "stacks shortened to the maximum depth"),
];

/// Writes the figures of a run. `directory` is the one that `--out` wrote, if the run has one.
pub(super) fn write(
    to: &mut Limited,
    name: &str,
    record: &Record,
    directory: Option<&Path>,
) -> Result<(), Failure> {
    let Some(program) = record.processes.first() else {
        return Ok(());
    };
    write_program(to, program, record.processes.len());
    write_heap(to, record);
    write_resident(to, program, highest(record, "peak_resident"));
    let all = || record.processes.iter();
    if let (Some(threads), Some(waits)) = (sum(all(), "threads"), sum(all(), "lock_waits")) {
        let time = match sum(all(), "lock_waited_ns") {
            Some(time) if waits > 0 => format!(" of {} in total", nanoseconds(time)),
            _ => String::new(),
        };
        let (waits, threads) = (count(waits), count(threads));
        to.line(&format!("threads: {threads}; lock waits: {waits}{time}"));
    }
    let losses = LOSSES.iter().filter_map(|(field, meaning)| {
        let lost = sum(all(), field).filter(|&lost| lost > 0)?;
        Some(format!("{} {meaning}", count(lost)))
    });
    let losses: Vec<String> = losses.collect();
    let is_known = LOSSES.iter().all(|(field, _)| sum(all(), field).is_some());
    let losses = match (losses.is_empty(), is_known) {
        (true, true) => "nothing".to_owned(),
        (true, false) => "nothing, as far as it is known".to_owned(),
        (false, _) => losses.join(", "),
    };
    to.long_line(&format!("lost: {losses}"), MAX_LOSSES);
    match directory {
        Some(directory) => write_sites(to, name, directory),
        None => {
            to.line("sites: only a directory of --out has them");
            Ok(())
        }
    }
}

fn write_program(to: &mut Limited, program: &Value, processes: usize) {
    let text = |field: &str| program[field].as_str().unwrap_or("unknown").to_owned();
    let (file, ending) = (text("program"), text("ending"));
    let (file, ending) = (begin(name_of(&file), MAX_NAME), begin(&ending, MAX_NAME));
    let time = program["seconds"]
        .as_f64()
        .map(|time| format!(" after {}", seconds(time)));
    let process = number(program, "process").unwrap_or(0);
    let sums = match processes {
        1 => String::new(),
        all => format!(
            "; sums of {} processes, the highest peak",
            count(all as u64)
        ),
    };
    let time = time.unwrap_or_default();
    to.line(&format!(
        "run of {file} (process {process}{sums}), ending: {ending}{time}"
    ));
}

/// Writes the highest resident memory of all processes, and the accounts of the program.
fn write_resident(to: &mut Limited, program: &Value, peak: Option<u64>) {
    let (highest, at_exit) = (&program["maximum"]["memory"], &program["memory"]);
    let at_peak = match highest == at_exit {
        true => String::new(),
        false => resident("read at", highest),
    };
    let peak = match peak {
        // Of a killed process, only the launcher knew it.
        None | Some(0) if at_peak.is_empty() => return,
        None | Some(0) => "unknown".to_owned(),
        Some(peak) => bytes(peak),
    };
    let at_exit = resident("at exit:", at_exit);
    to.line(&format!("resident at the peak: {peak}{at_peak}{at_exit}"));
}

/// Writes the counts of the heap, of the processes whose heap is observed.
fn write_heap(to: &mut Limited, record: &Record) {
    let observed = || compare::observed(record);
    let unobserved = record.processes.len() - observed().count();
    if unobserved > 0 {
        let unobserved = count(unobserved as u64);
        to.line(&format!(
            "heap: not observed in {unobserved} of the processes, which have another allocator"
        ));
    }
    let sum = |field: &str| sum(observed(), field);
    let difference = |all: &str, gone: &str| Some(sum(all)?.saturating_sub(sum(gone)?));
    let basis = match observed().all(|process| process["exact"] == true) {
        true => "exact",
        false => "without parts of the counts that were in flight at the end",
    };
    // A forked child may free what it inherited, so sums state nothing about blocks in use.
    let is_forked = observed().any(|process| process["inherited"].is_array());
    let live = (
        difference("malloc_bytes", "free_bytes"),
        difference("mallocs", "frees"),
    );
    if let (false, (Some(size), Some(blocks))) = (is_forked, live) {
        let (size, blocks) = (bytes(size), count(blocks));
        to.line(&format!("heap at exit: {size} in {blocks} blocks, {basis}"));
    }
    let is_estimated = observed().any(|process| process["peak_estimated"] == true);
    if let Some((peak, error)) = counted_peak(record) {
        let (peak, error) = (bytes(peak), bytes(error));
        to.line(&format!(
            "heap at the peak: {peak}, too small by at most {error} (95 %)"
        ));
    } else if let (true, Some(peak)) = (is_estimated, highest(record, "peak_bytes")) {
        to.line(&format!(
            "heap at the peak: {}, estimated from samples",
            bytes(peak)
        ));
    }
    let allocated = (
        sum("malloc_bytes"),
        sum("mallocs"),
        sum("free_bytes"),
        sum("frees"),
    );
    if let (Some(allocated), Some(blocks), Some(freed), Some(frees)) = allocated {
        let requested = sum("asked_bytes").map(|asked| format!(", {} requested", bytes(asked)));
        to.line(&format!(
            "allocated: {} in {} blocks{}; freed: {} in {} blocks; {basis}",
            bytes(allocated),
            count(blocks),
            requested.unwrap_or_default(),
            bytes(freed),
            count(frees),
        ));
    }
}

/// Writes the sites of the program at the peak of its heap; at its end, if the run has only these.
fn write_sites(to: &mut Limited, name: &str, directory: &Path) -> Result<(), Failure> {
    let files = ["peak", "heap"].map(|kind| directory.join(format!("{kind}.pb.gz")));
    let Some(file) = files.iter().find(|file| file.exists()) else {
        to.line("sites: the run has no profile of the heap");
        return Ok(());
    };
    let fail = |error: &dyn Display| Failure::new(file.display(), error);
    let opened = open_regular(file).map_err(|error| fail(&error))?;
    let profile = read(opened, Limits::default()).map_err(|error| fail(&error))?;
    sites::write(to, name, &profile, profile.default_sample_type())
}

fn number(process: &Value, field: &str) -> Option<u64> {
    process[field].as_u64()
}

/// Returns the sum over processes; `None` if the number of any is unknown, or without any.
fn sum<'a>(all: impl Iterator<Item = &'a Value>, field: &str) -> Option<u64> {
    let numbers: Option<Vec<u64>> = all.map(|process| number(process, field)).collect();
    let numbers = numbers.filter(|numbers| !numbers.is_empty())?;
    Some(numbers.into_iter().fold(0, u64::saturating_add))
}

/// Returns the highest known value.
fn highest(record: &Record, field: &str) -> Option<u64> {
    let known = record
        .processes
        .iter()
        .filter_map(|process| number(process, field));
    known.max()
}

/// Returns an account of the resident memory of the program, with the three largest owners.
fn resident(begin_with: &str, account: &Value) -> String {
    let memory = account.as_object();
    let whole = memory.and_then(|memory| memory.get("resident")?.as_u64());
    let (Some(memory), Some(whole)) = (memory, whole) else {
        return String::new();
    };
    let parts = memory.iter().filter(|(name, _)| *name != "resident");
    let mut parts: Vec<(u64, &str)> = parts
        .filter_map(|(name, part)| Some((part.as_u64()?, name.as_str())))
        .collect();
    parts.sort_by(|a, b| b.cmp(a));
    let parts = parts.iter().take(3);
    let parts: Vec<String> = parts
        .map(|(part, name)| format!("{} {}", bytes(*part), begin(name, 16)))
        .collect();
    let whole = bytes(whole);
    format!("; {begin_with} {whole}, of which {}", parts.join(", "))
}
