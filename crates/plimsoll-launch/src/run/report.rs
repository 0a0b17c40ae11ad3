//! What is printed and written when the program has ended.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use serde_json::Value;

use plimsoll_sys::os::filter;

use super::child::Ended;
use super::compare::{Comparison, FILES, Record, files};
use super::directory::Directory;
use super::found_reports::{ReportFiles, namespace_of_this_process};
use super::groups::{self, Group};
use super::killed::{self, Killed};
use super::memory_sites;
use super::numbers::{EXECUTED, Id, Numbers};
use super::profiles::{self, Names};
use super::ran::Ran;
use super::roll::{Roll, TOO_LARGE};
use super::summary::{self, Process};
use super::units::counted;
use super::{Unseen, going_on, resident, say};
use plimsoll_args::args::RunArguments;
use plimsoll_command::plain_text::{plain, plain_json};
use plimsoll_command::profile::Profile;

/// The maximum number of programs that have a section and profiles.
const MAX_PROGRAMS: usize = 200;

/// The number of programs that are named where none is shown.
const MAX_NAMED: usize = 5;

/// The maximum number of processes that have a summary each, unless all are requested.
const MAX_APART: usize = 3;

/// Prints the reports of all processes and the differences from an earlier run, and writes their
/// profiles to the output directory.
pub fn report(
    arguments: &RunArguments,
    out: Option<&Directory>,
    before: Option<&Record>,
    reports: &Path,
    ran: &Ran,
) {
    let now = report_ended(arguments, out, reports, ran);
    if let Some(before) = before {
        let comparison = Comparison::of_runs(before, &now);
        match arguments.json {
            true => drop(writeln!(
                io::stderr(),
                "{}",
                plain_json(&comparison.json(&[]).to_string())
            )),
            false => say(comparison.text(arguments.sites, &[]).trim_end()),
        }
    }
    if !(arguments.quiet || arguments.json) {
        let left = going_on::after(ran.process, reports);
        if let Some(line) = going_on::line(&left) {
            say(&line);
        }
    }
}

/// Returns the record of this run.
fn report_ended(
    arguments: &RunArguments,
    out: Option<&Directory>,
    reports: &Path,
    ran: &Ran,
) -> Record {
    let record = &mut Record::new("this run");
    let (files, mut all, refused) = ReportFiles::find(reports, ran.users.clone());
    let roll = Roll::read(reports, namespace_of_this_process());
    let postmortem = ran.postmortem.as_ref();
    let mut killed = postmortem.map_or_else(Vec::new, |postmortem| {
        postmortem.read_all(reports, &all, &ran.users)
    });
    if refused > 0 {
        let count = counted(refused as u64, "report");
        say(&format!(
            "plimsoll: {count} left out: of other processes than the writer's, with impossible numbers, or too many"
        ));
    }
    all.retain(|report| {
        let mut killed = killed.iter().map(|killed| killed.numbers.process);
        !killed.any(|process| process == report.process)
    });
    for numbers in (all.iter_mut()).chain(killed.iter_mut().map(|killed| &mut killed.numbers)) {
        // The clock of the readings: the process itself counts from where its loader has loaded the library.
        if numbers.id() == ran.id() && numbers.ending != EXECUTED {
            numbers.seconds = numbers.seconds.max(ran.course.seconds);
        }
    }
    let numbers = killed.iter().map(|killed| &killed.numbers).chain(&all);
    let is_missing = !numbers.clone().any(|numbers| numbers.id() == ran.id());
    if is_missing {
        say(&format!(
            "plimsoll: the program {} without a report: {}",
            ran.ended.how(),
            why_none(&ran.ended, &roll, ran.id()),
        ));
    }
    let count = all.len() + killed.len();
    let are_apart = arguments.each || count <= MAX_APART;
    // A summary states that its process has executed a program without a report.
    let states_executed = are_apart && !arguments.json && !arguments.quiet;
    let named: HashSet<Id> = numbers
        .filter(|numbers| states_executed || numbers.ending != EXECUTED)
        .map(Numbers::id)
        .chain(is_missing.then(|| ran.id()))
        .collect();
    // A process that goes on is named elsewhere.
    let lines = roll.lines(|id| !named.contains(&id) && !going_on::is_going_on(id, reports));
    if !arguments.quiet {
        lines.iter().for_each(|line| say(line));
    }
    let is_wanted = |numbers: &Numbers| is_wanted(arguments, numbers, ran);
    let each = all.iter().chain(killed.iter().map(|of| &of.numbers));
    let excluded = excluded(each, arguments);
    killed.retain(|killed| is_wanted(&killed.numbers));
    all.retain(is_wanted);
    if count > 0 && all.is_empty() && killed.is_empty() && !arguments.quiet {
        say(&excluded);
    }
    let mut verdicts = Verdicts {
        ran,
        known: HashMap::new(),
    };
    let output = Output {
        arguments,
        out,
        reports: &files,
        roll: &roll,
        ran,
        has_sites: Cell::new(false),
    };
    for killed in &killed {
        output.keep_file(killed);
    }
    if arguments.each || all.len() + killed.len() <= MAX_APART {
        for numbers in all {
            let profiles = output.profiles(&[numbers.id()]);
            output.put(
                &Process {
                    is_whole: numbers.is_whole(),
                    numbers,
                    is_sum: false,
                    profiles,
                },
                &mut verdicts,
                record,
            );
        }
        for killed in killed {
            let profiles = output.if_wanted(|| killed.profiles());
            let numbers = killed.numbers;
            output.put(
                &Process {
                    is_whole: numbers.is_whole(),
                    numbers,
                    is_sum: false,
                    profiles,
                },
                &mut verdicts,
                record,
            );
        }
        output.say_trees();
        return output.keep_numbers(record);
    }
    let numbers: Vec<&Numbers> = all
        .iter()
        .chain(killed.iter().map(|of| &of.numbers))
        .collect();
    if arguments.json {
        for numbers in &numbers {
            output.put_json(numbers, &mut verdicts);
        }
    } else if !arguments.quiet {
        say(groups::table(&numbers, ran).trim_end());
    }
    let groups = Group::all(&numbers);
    let more = groups.len().saturating_sub(MAX_PROGRAMS);
    for group in groups.into_iter().take(MAX_PROGRAMS) {
        let profiles = if group.was_killed() {
            let members = killed.iter().filter(|of| group.has(of.numbers.id()));
            output.if_wanted(|| profiles::sum(members.map(Killed::profiles)))
        } else {
            output.profiles(&group.processes())
        };
        let files = output.put_group(&group, profiles, &mut verdicts, record);
        if output.is_kept() {
            let members = numbers.iter().filter(|of| group.has(of.id()));
            record
                .processes
                .extend(members.map(|numbers| line(numbers, &files)));
        }
    }
    if more > 0 {
        let more = counted(more as u64, "program");
        say(&format!(
            "plimsoll: no section for {more} more; --json has the numbers of each process"
        ));
    }
    output.say_trees();
    output.keep_numbers(record)
}

/// Returns whether the options select a process.
fn is_wanted(arguments: &RunArguments, numbers: &Numbers, ran: &Ran) -> bool {
    let peak = match numbers.id() == ran.id() {
        true => ran.peak(numbers),
        false => numbers.peak_resident,
    };
    // The peak of a killed process may be unknown.
    let is_large = peak >= ran.min_peak || (peak == 0 && numbers.was_killed());
    let is_named = |name: &String| {
        numbers.name().contains(&**name) || numbers.arguments.join(" ").contains(&**name)
    };
    is_large && arguments.only.as_ref().is_none_or(is_named)
}

/// The reasons why the heaps of programs are not observed, by file.
struct Verdicts<'a> {
    ran: &'a Ran,
    known: HashMap<String, Option<Unseen>>,
}

impl Verdicts<'_> {
    fn verdict(&mut self, numbers: &Numbers) -> Option<&Unseen> {
        let (file, executed) = (Path::new(&numbers.program), &self.ran.program);
        // The program may have removed its file.
        let is_program = numbers.id() == self.ran.id();
        let is_executed = file == executed.path || (is_program && !file.exists());
        let known = self.known.entry(numbers.program.clone());
        let unseen = known.or_insert_with(|| match is_executed {
            true => Unseen::new(&executed.readable()),
            false => Unseen::new(file),
        });
        unseen.as_ref()
    }
}

/// Where the reports go.
struct Output<'a> {
    arguments: &'a RunArguments,
    out: Option<&'a Directory>,
    reports: &'a ReportFiles,
    roll: &'a Roll,
    ran: &'a Ran,
    /// Whether sites of memory were printed.
    has_sites: Cell<bool>,
}

type Profiles = HashMap<&'static str, Profile>;

impl Output<'_> {
    /// Returns the profiles if they are shown or kept: resolving names may read large files.
    fn if_wanted(&self, profiles: impl FnOnce() -> Profiles) -> Profiles {
        let are_shown = !(self.arguments.quiet || self.arguments.json);
        match self.is_kept() || are_shown {
            true => profiles(),
            false => HashMap::new(),
        }
    }

    /// Returns whether the profiles are kept or compared. Kept ones have the names of inlined calls, so
    /// those compared with them must have these, too.
    fn is_kept(&self) -> bool {
        self.out.is_some() || self.arguments.diff.is_some()
    }

    fn profiles(&self, processes: &[Id]) -> Profiles {
        let names = match self.is_kept() {
            true => Names::WithLines,
            false => Names::Only,
        };
        self.if_wanted(|| profiles::read(self.reports, processes, names))
    }

    /// Returns the program's end, for a report of the program itself.
    fn ran(&self, process: Id) -> Option<&Ran> {
        (process == self.ran.id()).then_some(self.ran)
    }

    /// Keeps the post-mortem file of a killed process.
    fn keep_file(&self, killed: &Killed) {
        let Some(out) = self.out else {
            return;
        };
        let process = killed.numbers.id();
        let stem = match self.ran(process) {
            Some(_) => "program".to_owned(),
            None => process.file_name(),
        };
        let name = format!("{stem}.{}", killed::EXTENSION);
        keep(out, &name, &|file| killed.copy_file(file));
    }

    /// Writes the numbers of all processes, those of the program first. Returns them with their sites.
    fn keep_numbers(&self, record: &mut Record) -> Record {
        let is_other = |line: &Value| line["process"] != self.ran.process || line["namespace"] != 0;
        record.processes.sort_by_key(is_other);
        if let Some(out) = self.out {
            keep(out, groups::FILE, &|file| {
                let mut lines = record.processes.iter();
                lines.try_for_each(|line| writeln!(file, "{line}"))
            });
        }
        std::mem::replace(record, Record::new(""))
    }

    /// Prints the report of one process, and keeps its profiles. File names of processes other than
    /// the program begin with the process id.
    fn put(&self, process: &Process, verdicts: &mut Verdicts<'_>, record: &mut Record) {
        let numbers = &process.numbers;
        let ran = self.ran(numbers.id());
        let prefix = match ran {
            Some(_) => String::new(),
            None => format!("{}.", numbers.id().file_name()),
        };
        self.record(record, &process.profiles);
        let files = files(&prefix, &process.profiles);
        record.processes.push(line(numbers, &files));
        if let Some(out) = self.out {
            keep_profiles(out, &prefix, &process.profiles);
            keep(out, &format!("{prefix}numbers.json"), &|file| {
                writeln!(file, "{}", json(numbers))
            });
        }
        if self.arguments.json {
            return self.put_json(numbers, verdicts);
        }
        if self.arguments.quiet {
            return;
        }
        let unseen = verdicts.verdict(numbers);
        let mut text = summary::text(process, ran, unseen, self.roll, self.arguments.sites);
        if let Some(ran) = ran.filter(|_| self.arguments.timeline) {
            text.push_str(&resident::timeline(&ran.course));
        }
        self.say_sites(&text);
    }

    /// Prints the report of the processes of one program, and keeps the sums of their profiles. File
    /// names of other programs than the first begin with their names.
    /// Returns the names of the files.
    fn put_group(
        &self,
        group: &Group,
        profiles: Profiles,
        verdicts: &mut Verdicts<'_>,
        record: &mut Record,
    ) -> Vec<String> {
        let ran = self.ran(self.ran.id()).filter(|ran| group.has(ran.id()));
        let prefix = match ran {
            Some(_) => String::new(),
            None => format!("{}.", group.file_name()),
        };
        self.record(record, &profiles);
        let files = files(&prefix, &profiles);
        if let Some(out) = self.out {
            keep_profiles(out, &prefix, &profiles);
        }
        if self.arguments.json || self.arguments.quiet {
            return files;
        }
        let unseen = verdicts.verdict(&group.total);
        let process = Process {
            numbers: group.total.clone(),
            is_sum: true,
            is_whole: group.is_whole(),
            profiles,
        };
        let text = groups::text(group, &process, ran, unseen, self.arguments);
        self.say_sites(&text);
        files
    }

    /// Adds the sites of profiles to the record of this run, if it is compared.
    fn record(&self, record: &mut Record, profiles: &Profiles) {
        if self.arguments.diff.is_some() {
            record.add_profiles(profiles);
        }
    }

    /// Prints text with the sites of profiles.
    fn say_sites(&self, text: &str) {
        let has_sites = text.contains(memory_sites::TITLE);
        self.has_sites.set(self.has_sites.get() || has_sites);
        say(text.trim_end());
    }

    /// Prints the command that shows more than the sites.
    fn say_trees(&self) {
        if !self.has_sites.get() {
            return;
        }
        match self.out {
            Some(out) => say(&format!(
                "plimsoll: trees of calls: plimsoll report --tree {}/heap.pb.gz",
                out.path().display()
            )),
            None => say(
                "plimsoll: trees of calls: run with --out DIR, then plimsoll report --tree DIR/heap.pb.gz",
            ),
        }
    }

    /// Prints the numbers of a process as one line of JSON.
    fn put_json(&self, numbers: &Numbers, verdicts: &mut Verdicts<'_>) {
        let mut line = json(numbers);
        if let Some(ran) = self.ran(numbers.id()) {
            line["how"] = ran.ended.how().into();
            line["user_seconds"] = ran.ended.user.as_secs_f64().into();
            line["system_seconds"] = ran.ended.system.as_secs_f64().into();
            line["resident_bytes"] = ran.peak(numbers).into();
            let was_read = ran.course.peak != 0;
            line["peak"] = serde_json::json!(was_read.then_some(ran.course.highest));
            if self.arguments.timeline {
                line["timeline"] = serde_json::json!(ran.course.points);
            }
            let unseen = verdicts.verdict(numbers);
            line["note"] = unseen.and_then(|unseen| unseen.note(numbers)).into();
        }
        let _ = writeln!(io::stderr(), "{}", plain_json(&line.to_string()));
    }
}

/// Returns the numbers of a process as JSON, with null for unknown ones.
fn json(numbers: &Numbers) -> Value {
    match numbers.was_killed() {
        true => killed::json(numbers),
        false => serde_json::json!(numbers),
    }
}

/// Returns the line of a process in the file with all numbers.
fn line(numbers: &Numbers, files: &[String]) -> Value {
    let mut line = json(numbers);
    line[FILES] = files.into();
    line
}

fn keep_profiles(out: &Directory, prefix: &str, profiles: &Profiles) {
    for (kind, profile) in profiles {
        keep(out, &format!("{prefix}{kind}.pb.gz"), &|file| {
            let mut file = BufWriter::new(file);
            profile.write(&mut file)?;
            file.flush()
        });
    }
}

/// Writes a file of the output directory. A failure is printed.
fn keep(out: &Directory, name: &str, write: &dyn Fn(&mut File) -> io::Result<()>) {
    if let Err(error) = out.replace(name, write) {
        let path = out.path().join(name);
        say(&format!("plimsoll: {}: {error}", path.display()));
    }
}

/// Returns why no process of those that reported is shown.
fn excluded<'a>(all: impl Iterator<Item = &'a Numbers>, arguments: &RunArguments) -> String {
    let mut names: Vec<String> = all.map(|of| plain(of.name()).into_owned()).collect();
    let count = groups::processes(names.len());
    names.sort_unstable();
    names.dedup();
    let more = match names.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names.truncate(MAX_NAMED);
    let only = arguments
        .only
        .iter()
        .map(|only| format!("--only {}", plain(only)));
    let min_peak =
        (arguments.min_peak != "0").then(|| format!("--min-peak {}", plain(&arguments.min_peak)));
    let options: Vec<String> = only.chain(min_peak).collect();
    format!(
        "plimsoll: {} selects none of {count}: {}{more}",
        options.join(" with "),
        names.join(", ")
    )
}

/// Returns why the program has no report.
fn why_none(ended: &Ended, roll: &Roll, program: Id) -> String {
    let why = match ended.signal() {
        Some(libc::SIGKILL) => {
            "no program can handle that signal; --postmortem keeps the counts up to it"
        }
        Some(_) => "the signal arrived where no report could be written",
        None if filter::ends_processes() => {
            "a system call filter (seccomp) that plimsoll was started with forbids calls that it makes"
        }
        None => {
            // With such a limit, the command cannot create the roll.
            let is_limited = getrlimit(Resource::Fsize).current.is_some();
            let unknown = if is_limited { TOO_LARGE } else { NOT_LOADED };
            return roll.reason(program).unwrap_or_else(|| unknown.to_owned());
        }
    };
    why.to_owned()
}

/// Why a program that has not entered the roll has no report.
const NOT_LOADED: &str = "the library was not loaded, or could not write the report";
