//! The summary of many processes: a table of the largest ones, and one section for each program.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use super::Unseen;
use super::numbers::{Id, Numbers};
use super::ran::Ran;
use super::resident;
use super::summary::{self, Process};
use super::temporary;
use super::units::{bytes, count, counted, seconds};
use plimsoll_args::args::RunArguments;
use plimsoll_command::plain_text::plain;
use plimsoll_command::profile::Profile;

/// The file of the output directory with the numbers of each process, one line of JSON each.
pub const FILE: &str = "processes.jsonl";

/// The maximum number of rows of the table.
const ROWS: usize = 10;

/// The maximum length of a command in the table, in characters.
const MAX_COMMAND: usize = 60;

/// The processes of one program that ended in one way: killed, or with a report.
pub struct Group {
    processes: Vec<Id>,
    /// The sums of their numbers; peaks are the highest of one process.
    pub total: Numbers,
    /// The process with the highest resident memory.
    largest: Id,
    /// Whether processes inherited blocks at a fork. They may free these, so the sums of blocks in use
    /// mean nothing.
    has_forked: bool,
    /// Whether each process freed only blocks whose allocations it counted, so that the sum of what they have in use is exact.
    is_whole: bool,
}

impl Group {
    /// Returns the groups of all processes, the one with the most allocated bytes first.
    pub fn all(numbers: &[&Numbers]) -> Vec<Self> {
        let mut groups: BTreeMap<(&str, bool), Self> = BTreeMap::new();
        for &of in numbers {
            let group = groups.entry((&of.program, of.was_killed()));
            group.or_insert_with(|| Self::new(of)).add(of);
        }
        let mut all: Vec<Self> = groups.into_values().collect();
        all.sort_by_key(|group| std::cmp::Reverse(group.total.malloc_bytes));
        all
    }

    fn new(first: &Numbers) -> Self {
        Self {
            processes: Vec::new(),
            total: Numbers {
                program: first.program.clone(),
                ending: first.ending.clone(),
                allocator: first.allocator.clone(),
                obstacle: first.obstacle.clone(),
                heap_rate: first.heap_rate,
                block_rate: first.block_rate,
                mutex_fraction: first.mutex_fraction,
                exact: true,
                ..Numbers::default()
            },
            largest: first.id(),
            has_forked: false,
            is_whole: true,
        }
    }

    fn add(&mut self, of: &Numbers) {
        self.processes.push(of.id());
        if of.peak_resident > self.total.peak_resident {
            self.largest = of.id();
        }
        self.has_forked |= of.inherited.is_some();
        self.is_whole &= of.is_whole();
        self.total.add(of);
    }

    pub fn processes(&self) -> Vec<Id> {
        self.processes.clone()
    }

    pub fn has(&self, process: Id) -> bool {
        self.processes.contains(&process)
    }

    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    pub fn was_killed(&self) -> bool {
        self.total.was_killed()
    }

    /// Returns the beginning of the names of its files.
    pub fn file_name(&self) -> String {
        let name = self.total.name();
        let is_plain =
            |character: char| character.is_ascii_alphanumeric() || "._-+".contains(character);
        let plain = name.chars().map(|character| match is_plain(character) {
            true => character,
            false => '_',
        });
        let killed = if self.was_killed() { ".killed" } else { "" };
        plain.collect::<String>() + killed
    }
}

/// Returns the table of the processes with the highest resident memory.
pub fn table(numbers: &[&Numbers], ran: &Ran) -> String {
    let mut programs: Vec<&str> = numbers.iter().map(|of| &*of.program).collect();
    programs.sort_unstable();
    programs.dedup();
    let allocated = numbers.iter().map(|of| of.malloc_bytes);
    let cpu = numbers.iter().fold(0.0, |sum, of| sum + of.cpu_seconds);
    let mut to = format!(
        "plimsoll: {} of {}; the first {}\n",
        processes(numbers.len()),
        counted(programs.len() as u64, "program"),
        ran.ended.how(),
    );
    // Writing to a string does not fail.
    let _ = writeln!(
        to,
        "  CPU time   {} in all; {} user, {} kernel in the first one and the children for which it waited",
        seconds(cpu),
        seconds(ran.ended.user.as_secs_f64()),
        seconds(ran.ended.system.as_secs_f64()),
    );
    let _ = writeln!(
        to,
        "  allocated  {} in all",
        bytes(allocated.fold(0, u64::saturating_add)),
    );
    let first = numbers.iter().find(|of| of.id() == ran.id());
    if let Some(first) = first {
        let _ = resident::write_peak_of(&mut to, first, ran);
    }
    let _ = writeln!(
        to,
        "  {:>8} {:>8} {:>13} {:>10} {:>10} {:>10}  command",
        "process", "parent", "peak resident", "allocated", "CPU time", "lived"
    );
    let mut rows: Vec<&&Numbers> = numbers.iter().collect();
    rows.sort_by_key(|of| (std::cmp::Reverse(of.peak_resident), of.id()));
    for of in rows.iter().take(ROWS) {
        let if_known = |is_known: bool, text: String| match is_known {
            true => text,
            false => "-".to_owned(),
        };
        let unless_killed = |text: String| if_known(!of.was_killed(), text);
        let of_kernel = |is_zero: bool, text: String| if_known(!(is_zero || of.was_killed()), text);
        let _ = writeln!(
            to,
            "  {:>8} {:>8} {:>13} {:>10} {:>10} {:>10}  {}",
            of.process,
            unless_killed(of.parent.to_string()),
            of_kernel(of.peak_resident == 0, bytes(of.peak_resident)),
            if_known(summary::why_unseen(of).is_none(), bytes(of.malloc_bytes)),
            of_kernel(of.cpu_seconds == 0.0, seconds(of.cpu_seconds)),
            seconds(of.seconds),
            command(of),
        );
    }
    if let Some(more) = numbers.len().checked_sub(ROWS).filter(|&more| more > 0) {
        let _ = writeln!(to, "  and {} more; --each shows all", count(more as u64));
    }
    to
}

/// Formats a number of processes.
pub fn processes(number: usize) -> String {
    match number {
        1 => "1 process".to_owned(),
        number => format!("{} processes", count(number as u64)),
    }
}

/// Returns the arguments of a process, or its program if they are unknown.
fn command(of: &Numbers) -> String {
    let command = match &of.arguments[..] {
        [] => of.name().to_owned(),
        arguments => arguments.join(" "),
    };
    let command = plain(&command);
    let mut characters = command.trim_end().chars();
    let mut short: String = characters.by_ref().take(MAX_COMMAND).collect();
    if characters.next().is_some() {
        short.push_str("...");
    }
    short
}

/// Returns the section of a group. `process` has the sums of its processes.
pub fn text(
    group: &Group,
    process: &Process,
    ran: Option<&Ran>,
    unseen: Option<&Unseen>,
    arguments: &RunArguments,
) -> String {
    let mut to = String::new();
    // Writing to a string does not fail.
    let _ = head(&mut to, group, &process.profiles, unseen);
    summary::put_lists(&mut to, process, arguments.sites);
    if let Some(ran) = ran.filter(|_| arguments.timeline) {
        to.push_str(&resident::timeline(&ran.course));
    }
    to
}

fn head(
    to: &mut String,
    group: &Group,
    profiles: &HashMap<&'static str, Profile>,
    unseen: Option<&Unseen>,
) -> std::fmt::Result {
    let total = &group.total;
    let killed = if group.was_killed() { " killed" } else { "" };
    writeln!(
        to,
        "plimsoll: {}: {}{killed}",
        plain(total.name()),
        processes(group.processes.len()),
    )?;
    if let Some(unseen) = unseen {
        let redirected = unseen.redirected(total);
        if let Some(note) = redirected.or_else(|| unseen.note(total)) {
            writeln!(to, "  note       {note}")?;
        }
    }
    if total.peak_resident != 0 {
        writeln!(
            to,
            "  largest    {} resident in process {} at its peak",
            bytes(total.peak_resident),
            group.largest,
        )?;
    }
    match summary::why_unseen(total) {
        Some(why) if unseen.is_none() => writeln!(to, "  heap       not observed: {why}")?,
        Some(_) => {}
        None => write_heap(to, group, profiles)?,
    }
    if total.mapping_calls != 0 {
        writeln!(
            to,
            "  mapped     {} by {}; {} unmapped",
            bytes(total.mapped_bytes),
            counted(total.mapping_calls, "call"),
            bytes(total.unmapped_bytes),
        )?;
    }
    if !group.was_killed() {
        writeln!(
            to,
            "  threads    {} in all; lock waits: {}",
            count(total.threads),
            summary::lock_waits(total),
        )?;
        writeln!(to, "  CPU time   {}", seconds(total.cpu_seconds))?;
    }
    summary::put_lost(to, total)
}

/// Writes the heap of a group that is observed.
fn write_heap(
    to: &mut String,
    group: &Group,
    profiles: &HashMap<&'static str, Profile>,
) -> std::fmt::Result {
    let total = &group.total;
    let exact = if total.exact { "" } else { " (not exact)" };
    let in_use = match group.has_forked || total.unobserved() > 0 {
        true => String::new(),
        false => format!(
            "{} in {} blocks in use when each ended{exact}; ",
            bytes(total.live_bytes()),
            count(total.live_objects()),
        ),
    };
    let peak = bytes(total.peak_bytes);
    writeln!(to, "  heap       {in_use}highest peak of one {peak}")?;
    writeln!(
        to,
        "  allocated  {} in {} blocks; {}",
        bytes(total.malloc_bytes),
        count(total.mallocs),
        total.freed(group.has_forked),
    )?;
    temporary::write(to, profiles, total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(process: u32, program: &str, malloc_bytes: u64, classes: &[[u64; 3]]) -> Numbers {
        Numbers {
            process,
            program: program.to_owned(),
            malloc_bytes,
            peak_resident: malloc_bytes,
            classes: classes.to_vec(),
            exact: true,
            ..Numbers::default()
        }
    }

    #[test]
    fn processes_of_a_program_are_added_up() {
        let small = numbers(1, "/a", 10, &[[8, 1, 0], [16, 2, 1]]);
        let large = numbers(2, "/a", 30, &[[16, 1, 1], [32, 5, 5]]);
        let other = numbers(3, "/b/c d", 20, &[]);
        let groups = Group::all(&[&small, &other, &large]);
        let [a, b] = &groups[..] else {
            panic!("two programs")
        };
        assert_eq!(
            (a.processes(), a.total.malloc_bytes),
            ([1, 2].map(Id::here).to_vec(), 40)
        );
        assert_eq!((a.largest, a.total.peak_resident), (Id::here(2), 30));
        assert_eq!(a.total.classes, [[8, 1, 0], [16, 3, 2], [32, 5, 5]]);
        assert_eq!(
            (b.processes(), b.file_name()),
            (vec![Id::here(3)], "c_d".to_owned())
        );
        assert!(a.total.exact && a.has(Id::here(2)) && !a.has(Id::here(3)));
    }

    #[test]
    fn a_command_is_its_title_in_one_short_line() {
        let mut of = numbers(1, "/usr/bin/postgres", 0, &[]);
        assert_eq!(command(&of), "postgres");
        of.arguments = vec!["postgres: \u{1b}[2Jcheckpointer   ".to_owned()];
        assert!(!command(&of).contains('\u{1b}'));
        of.arguments = vec!["x".repeat(100)];
        assert_eq!(command(&of).chars().count(), MAX_COMMAND + 3);
    }
}
