//! Tasks as text, of at most 60 lines unless all are requested.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use plimsoll_awaits::{Activity, Await, Detail, Kind, Runtime, State, Task};

use crate::process::Process;
use crate::runtimes::Reading;
use crate::text::{MAX_LINES, fit};
use crate::threads::Descriptors;

/// The most threads of a runtime that are named.
const MAX_NAMED: usize = 4;

/// The longest names that are shown with their arguments, without `--all`.
const MAX_TYPE: usize = 80;

/// The most futures that are awaited at once, without `--all`.
const MAX_BRANCHES: usize = 4;

/// Writes the tasks: those that do the same together, or each with `is_all`.
pub(crate) fn write(
    to: &mut dyn Write,
    process: &Process,
    reading: &Reading,
    descriptors: &mut Descriptors,
    is_all: bool,
) -> io::Result<()> {
    let target = &process.target;
    let runtimes = &reading.runtimes.runtimes;
    let sets = runtimes.iter().filter(|set| set.kind == Kind::LocalSet);
    let sets = sets.count();
    let with_sets = match sets {
        0 => String::new(),
        number => format!(" and {}", counted(number, "LocalSet")),
    };
    let mut lines = vec![format!(
        "Process {}: {}, {} in {:.2} s",
        target.pid,
        target.name,
        match runtimes.len() - sets {
            1 => format!("one runtime of tokio{with_sets}, read"),
            number => format!("{number} runtimes of tokio{with_sets}, read"),
        },
        reading.took.as_secs_f64()
    )];
    if runtimes.is_empty() {
        lines.push("No thread is in the context of a runtime.".into());
    }
    let mut shown = Shown {
        pid: target.pid,
        now: reading.at_ns,
        descriptors,
        is_all,
    };
    let has_set = |thread: &i32| {
        let mut sets = runtimes.iter().filter(|set| set.kind == Kind::LocalSet);
        sets.any(|set| set.threads.contains(thread))
    };
    let may_have_sets = runtimes.iter().any(|runtime| {
        let is_bare = runtime.kind == Kind::CurrentThread && runtime.tasks.is_empty();
        is_bare && !runtime.threads.iter().any(has_set)
    });
    if may_have_sets {
        lines.push(
            "Tasks of a LocalSet are listed only while its thread waits, and not if it lies in a large future."
                .into(),
        );
    }
    let mut parts = Vec::new();
    // Each thread of actix has a runtime without tasks beside its LocalSet.
    let (busy, idle): (Vec<&Runtime>, Vec<&Runtime>) = (runtimes.iter())
        .filter(|runtime| runtime.kind != Kind::LocalSet || !runtime.tasks.is_empty())
        .partition(|runtime| !runtime.tasks.is_empty() || !runtime.is_complete);
    let listed = match busy.is_empty() {
        true => idle,
        false => {
            if !idle.is_empty() {
                lines.push(format!("{} without a task", counted(idle.len(), "runtime")));
            }
            busy
        }
    };
    for runtime in listed {
        let mut head = vec![String::new(), heading(runtime)];
        if !runtime.is_complete {
            head.push(
                "Not all is read: its lists changed meanwhile, or could not be followed.".into(),
            );
        }
        parts.push((head, 0));
        parts.extend(shown.parts(runtime));
    }
    let budget = match is_all {
        true => usize::MAX,
        // One line remains for what is left out.
        false => MAX_LINES - lines.len() - 1,
    };
    if let Some((_, tasks)) = fit(parts.into_iter(), budget, &mut lines) {
        lines.push(format!("{tasks} more tasks: --all shows all"));
    }
    for line in lines {
        writeln!(to, "{line}")?;
    }
    Ok(())
}

fn heading(runtime: &Runtime) -> String {
    let kind = match runtime.kind {
        Kind::CurrentThread => "Runtime of the current thread",
        Kind::MultiThread => "Runtime of several threads",
        Kind::LocalSet => "LocalSet",
    };
    let named = runtime.threads.iter().take(MAX_NAMED);
    let named: Vec<String> = named.map(i32::to_string).collect();
    let more = if runtime.threads.len() > MAX_NAMED {
        ", ..."
    } else {
        ""
    };
    let of_activity = |wanted| {
        let tasks = runtime.tasks.iter();
        tasks.filter(|task| task.activity == wanted).count()
    };
    let threads = match runtime.kind {
        Kind::LocalSet => format!("thread {}", named.join(", ")),
        _ => format!(
            "{} in its context ({}{more})",
            counted(runtime.threads.len(), "thread"),
            named.join(", ")
        ),
    };
    format!(
        "{kind}: {threads}; {}: {} waiting, {} scheduled, {} running",
        counted(runtime.tasks.len(), "task"),
        of_activity(Activity::Idle),
        of_activity(Activity::Scheduled),
        of_activity(Activity::Running),
    )
}

fn counted(number: usize, unit: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {unit}{plural}")
}

/// How tasks are shown.
struct Shown<'a> {
    pid: i32,
    /// The time of the reading, in nanoseconds, if it is known.
    now: Option<u64>,
    descriptors: &'a mut Descriptors,
    is_all: bool,
}

impl Shown<'_> {
    /// Returns the lines of tasks, each part with the number of its tasks.
    fn parts(&mut self, runtime: &Runtime) -> Vec<(Vec<String>, i64)> {
        if self.is_all {
            let tasks = runtime.tasks.iter();
            let each = tasks.map(|task| {
                let mut lines = vec![format!("{}{}", name(task), self.activity(task))];
                lines.extend(self.awaits(task, true));
                (lines, 1)
            });
            return each.collect();
        }
        let mut groups: BTreeMap<(Vec<String>, &str), Vec<&Task>> = BTreeMap::new();
        for task in &runtime.tasks {
            let activity = match task.activity {
                Activity::Idle => "",
                Activity::Scheduled => ", scheduled",
                Activity::Running => ", running",
                Activity::Complete => ", ended",
            };
            let key = (self.awaits(task, false), activity);
            groups.entry(key).or_default().push(task);
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(_, tasks)| std::cmp::Reverse(tasks.len()));
        let parts = groups.into_iter().map(|((lines, activity), tasks)| {
            let (head, lines) = match &*tasks {
                [task] => (
                    format!("{}{}", name(task), self.activity(task)),
                    self.awaits(task, true),
                ),
                tasks => (format!("{} tasks{activity}", tasks.len()), lines),
            };
            let part = [vec![head], lines].concat();
            (part, tasks.len() as i64)
        });
        parts.collect()
    }

    fn activity(&self, task: &Task) -> String {
        match (task.activity, task.thread) {
            (Activity::Idle, _) => String::new(),
            (Activity::Scheduled, _) => ", scheduled".into(),
            (Activity::Running, Some(thread)) => format!(", running on thread {thread}"),
            (Activity::Running, None) => ", running".into(),
            (Activity::Complete, _) => ", ended".into(),
        }
    }

    /// Returns a line for each await of a task, from its own function to what it waits for.
    fn awaits(&mut self, task: &Task, has_details: bool) -> Vec<String> {
        let mut lines = Vec::new();
        match &task.awaits {
            Some(awaits) => self.lines(awaits, "  ", has_details, false, &mut lines),
            None => {
                let known = !task.future.is_empty();
                let future = if known { &task.future } else { "a future" };
                let is_read = matches!(task.activity, Activity::Idle | Activity::Scheduled);
                let note = if is_read { " (not decoded)" } else { "" };
                lines.push(format!("  {future}{note}"));
            }
        }
        lines
    }

    /// Adds the lines of a future and of those that it awaits. Without `is_all`, of the functions of a library that await each
    /// other only the first one is shown, which the program has called. Several futures that are awaited at once begin with
    /// `- `.
    fn lines(
        &mut self,
        awaits: &Await,
        margin: &str,
        has_details: bool,
        is_in_library: bool,
        lines: &mut Vec<String>,
    ) {
        let is_of_library = is_of_library(awaits);
        let detail = match has_details {
            true => self.detail(awaits),
            false => String::new(),
        };
        let is_hidden = is_in_library && is_of_library && !self.is_all;
        if !is_hidden {
            let place = awaits.place.as_ref();
            let place = place.map_or(String::new(), |(file, line)| {
                format!("  {}:{line}", short(file))
            });
            let state = match awaits.state {
                State::Suspended | State::Other => "",
                State::NotStarted => " (not started)",
                State::Returned => " (has returned)",
                State::Panicked => " (has panicked)",
                State::NotDecoded => " (not decoded)",
            };
            let function = without_closures(&awaits.function);
            let function = match self.is_all {
                true => function.into(),
                false => without_arguments(function),
            };
            lines.push(format!("{margin}{function}{place}{state}{detail}"));
        } else if let (false, Some(last)) = (detail.is_empty(), lines.last_mut()) {
            last.push_str(&detail);
        }
        let margin = margin.replace("- ", "  ");
        match &*awaits.awaits {
            [next] => self.lines(next, &margin, has_details, is_of_library, lines),
            several => {
                let shown = match self.is_all || several.len() <= MAX_BRANCHES {
                    true => several.len(),
                    false => MAX_BRANCHES - 1,
                };
                let branch = format!("{margin}- ");
                for next in &several[..shown] {
                    self.lines(next, &branch, has_details, false, lines);
                }
                if shown < several.len() {
                    lines.push(format!("{branch}{} more", several.len() - shown));
                }
            }
        }
    }

    /// Returns what a future waits for.
    fn detail(&mut self, awaits: &Await) -> String {
        match awaits.detail {
            Some(Detail::Deadline(at)) => {
                let Some(now) = self.now else {
                    return String::new();
                };
                let remaining = (i128::from(at) - i128::from(now)) as f64 / 1e9;
                match remaining > 0.0 {
                    true => format!(", for {remaining:.1} s"),
                    false => ", due".into(),
                }
            }
            Some(Detail::Task(id)) => format!(", task {id}"),
            Some(Detail::Descriptor(number)) => {
                let leads_to = u64::try_from(number)
                    .map(|number| self.descriptors.leads_to(self.pid, number))
                    .unwrap_or_default();
                format!(", descriptor {number} {leads_to}")
            }
            None => String::new(),
        }
    }
}

fn name(task: &Task) -> String {
    match task.id {
        Some(id) => format!("Task {id}"),
        None => "Task".into(),
    }
}

/// Returns whether a function belongs to a library. The macros of a library also state its files for functions of the
/// program.
fn is_of_library(awaits: &Await) -> bool {
    let function = awaits.function.trim_start_matches(['<', '&']);
    let is_of = |library: &str| {
        let rest = function.strip_prefix(library);
        rest.is_some_and(|rest| rest.starts_with("::"))
    };
    let of_rust = || ["alloc", "core", "std"].into_iter().any(is_of);
    match &awaits.place {
        Some((file, _)) if file.contains("/registry/src/") => {
            let package = short(file).split('/').next().unwrap_or_default();
            let name = package.rsplit_once('-').map_or(package, |(name, _)| name);
            is_of(&name.replace('-', "_"))
        }
        Some(_) => of_rust(),
        None => of_rust() || ["futures_util", "tokio"].into_iter().any(is_of),
    }
}

/// Returns the path of a file without the directory of the packages that Cargo has downloaded.
fn short(file: &str) -> &str {
    let rest = file.split_once("/registry/src/").map(|(_, rest)| rest);
    rest.and_then(|rest| rest.split_once('/'))
        .map_or(file, |(_, rest)| rest)
}

/// Returns a function's name without the closures that the compiler makes of `async` functions.
fn without_closures(function: &str) -> &str {
    let mut function = function;
    while let Some(rest) = function
        .strip_suffix("::{{closure}}")
        .or_else(|| function.strip_suffix("::{closure#0}"))
    {
        function = rest;
    }
    function
}

/// Returns the name of a type, without its arguments if it is long.
fn without_arguments(name: &str) -> Cow<'_, str> {
    match name.split_once('<') {
        Some((start, _)) if name.len() > MAX_TYPE && !start.is_empty() => {
            format!("{start}<...>").into()
        }
        _ => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_are_short() {
        let file =
            "/home/a/.cargo/registry/src/index.crates.io-1949/tokio-1.54.1/src/macros/join.rs";
        assert_eq!(short(file), "tokio-1.54.1/src/macros/join.rs");
        assert_eq!(short("src/main.rs"), "src/main.rs");
        assert_eq!(without_closures("a::b::{{closure}}::{{closure}}"), "a::b");
        assert_eq!(without_closures("a::b::{closure#0}"), "a::b");
        assert_eq!(without_closures("a::b::{closure#1}"), "a::b::{closure#1}");
        let long = format!("a::B<{}>", "c".repeat(MAX_TYPE));
        assert_eq!(without_arguments(&long), "a::B<...>");
        assert_eq!(without_arguments("a::B<c>"), "a::B<c>");
    }

    #[test]
    fn a_function_of_the_program_may_have_the_file_of_a_librarys_macro() {
        let awaits = |function: &str, file: Option<&str>| Await {
            function: function.into(),
            place: file.map(|file| (file.into(), 1)),
            state: State::Suspended,
            detail: None,
            awaits: Vec::new(),
        };
        let file = Some("/a/registry/src/index-1/tokio-util-0.7.1/src/macros.rs");
        assert!(!is_of_library(&awaits("app::serve::{{closure}}", file)));
        assert!(is_of_library(&awaits("tokio_util::sync::cancelled", file)));
        assert!(is_of_library(&awaits(
            "<tokio_util::Framed<T>>::next",
            file
        )));
        assert!(is_of_library(&awaits("tokio::time::sleep::Sleep", None)));
        assert!(!is_of_library(&awaits("tokio_app::Sleep", None)));
    }
}
