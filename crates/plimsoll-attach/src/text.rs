//! The view as text, of at most 60 lines unless all is requested.

use std::collections::HashMap;
use std::io::{self, Write};

use plimsoll_command::report::measure::{alone, share};

use crate::names::{Frame, Names};
use crate::owners::Memory;
use crate::process::Process;
use crate::view::{Activity, View};

/// The most lines without `--all`.
pub(crate) const MAX_LINES: usize = 60;

/// The most rows of memory without `--all`.
const MAX_OWNERS: usize = 10;

/// The most circles of threads without `--all`, and the most threads of one.
const MAX_CYCLES: usize = 4;
const MAX_CYCLE: usize = 8;

/// The fewest and the most frames of a stack without `--all`.
const FRAMES: std::ops::RangeInclusive<usize> = 4..=12;

/// The functions by which a C library starts programs and threads. They are shown with `--all` only.
const STARTS: [&str; 8] = [
    "_start",
    "_start_c",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "start_thread",
    "__clone",
    "__clone3",
];

/// The number of threads of a group that are named without `--all`.
const MAX_NAMED: usize = 3;

/// How much is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) is_all: bool,
    pub(crate) is_verbose: bool,
}

/// Threads that do the same with the same stack.
struct Group<'a> {
    threads: Vec<usize>,
    activity: &'a Activity,
    /// Whether all threads have the same object.
    is_same_object: bool,
}

/// Writes the view.
pub(crate) fn write(
    to: &mut dyn Write,
    process: &Process,
    view: &View,
    names: &Names<'_>,
    extent: Extent,
) -> io::Result<()> {
    let mut lines = head(process, view, extent);
    memory(&mut lines, &view.memory, extent);
    deadlocks(&mut lines, view, extent);
    let groups = groups(view);
    lines.push(String::new());
    lines.push(format!(
        "Threads: {}, with {} different stacks",
        view.threads.len(),
        groups.len()
    ));
    let budget = match extent.is_all {
        true => usize::MAX,
        // One line remains for what is left out.
        false => MAX_LINES.saturating_sub(lines.len() + 1),
    };
    let frames = match extent.is_all {
        true => usize::MAX,
        false => frames_of_each(groups.len(), budget + 1),
    };
    let parts = groups.iter().map(|group| {
        let lines = group_lines(group, view, names, frames, extent);
        (lines, group.threads.len() as i64)
    });
    if let Some((groups, threads)) = fit(parts, budget, &mut lines) {
        lines.push(format!(
            "{groups} more stacks, of {threads} threads: --all shows all"
        ));
    }
    for line in lines {
        writeln!(to, "{line}")?;
    }
    Ok(())
}

/// Adds parts to `lines`, up to the first one that does not fit into `budget` lines, so that the order is that of the
/// values. Returns the number and the value of the others, if there are any.
pub(crate) fn fit(
    parts: impl Iterator<Item = (Vec<String>, i64)>,
    budget: usize,
    lines: &mut Vec<String>,
) -> Option<(usize, i64)> {
    let most = lines.len().saturating_add(budget);
    let mut others = (0, 0);
    for (part, value) in parts {
        if others.0 > 0 || lines.len() + part.len() > most {
            others.0 += 1;
            others.1 += value;
        } else {
            lines.extend(part);
        }
    }
    (others.0 > 0).then_some(others)
}

/// Returns a stack without the functions that started its thread, unless it has no others.
fn without_starts(frames: &[Frame]) -> &[Frame] {
    match frames {
        [rest @ .., last] if !rest.is_empty() && STARTS.contains(&&*last.name) => {
            without_starts(rest)
        }
        // The main function that the compiler of Rust adds.
        [rest @ .., start, last]
            if last.name == "main" && start.name.starts_with("std::rt::lang_start") =>
        {
            without_starts(rest)
        }
        frames => frames,
    }
}

/// Returns the frames of a stack that are shown first: the leaf and the program's functions, with the function of a library
/// that each of them called. Returns all frames if none is of the program.
pub(crate) fn of_program(frames: &[Frame]) -> Vec<&Frame> {
    let frames = without_interpreter(without_starts(frames));
    let origins = origins(&frames);
    let shown = if origins.contains(&Origin::Program) {
        &[Origin::Program][..]
    } else if origins.contains(&Origin::Dependency) {
        // Of a program that was installed from a registry, all code is.
        &[Origin::Program, Origin::Dependency]
    } else {
        return frames;
    };
    let is_shown = |at: usize| origins.get(at).is_some_and(|origin| shown.contains(origin));
    (0..frames.len())
        .filter(|&at| at == 0 || is_shown(at) || is_shown(at + 1))
        .map(|at| frames[at])
        .collect()
}

/// Where the source of a function comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Rust's own libraries.
    Library,
    /// A registry of crates.
    Dependency,
    Program,
}

/// Returns where the functions of a stack come from. Functions of C at its leaf end that a library of Rust called are the
/// library's.
fn origins(frames: &[&Frame]) -> Vec<Origin> {
    let mut origins: Vec<_> = frames.iter().map(|frame| origin(frame)).collect();
    let library = origins.iter().position(|&origin| origin != Origin::Program);
    for at in 0..library.unwrap_or(0) {
        if frames[at].name.contains("::") || frames[at].is_interpreted {
            break;
        }
        origins[at] = Origin::Library;
    }
    origins
}

fn origin(frame: &Frame) -> Origin {
    let file = &*frame.file;
    let is_of_rust = match file {
        "" if frame.name == "__rust_try" => true,
        "" => {
            let name = frame.name.trim_start_matches(['<', '&', '*']);
            ["std::", "core::", "alloc::"]
                .iter()
                .any(|start| name.starts_with(start))
        }
        file => file.starts_with("library/") || file.starts_with("/rustc/"),
    };
    match is_of_rust || file.contains("/rustlib/src/rust/library/") {
        true => Origin::Library,
        false if file.contains("/registry/src/") => Origin::Dependency,
        false => Origin::Program,
    }
}

/// Returns a stack that contains functions of Python without the interpreter's functions that led from the innermost of
/// them to the leaf.
fn without_interpreter(frames: &[Frame]) -> Vec<&Frame> {
    let first = frames.iter().position(|frame| frame.is_interpreted);
    let hidden = 1..first.unwrap_or(0);
    let all = frames.iter().enumerate();
    all.filter(|(at, _)| !hidden.contains(at))
        .map(|(_, frame)| frame)
        .collect()
}

/// Returns the line that shows a function.
pub(crate) fn frame_line(frame: &Frame) -> String {
    let file = frame.file.rsplit('/').next().unwrap_or_default();
    let place = match (file, frame.line) {
        ("", _) => String::new(),
        (file, 0) => format!("  {file}"),
        (file, line) => format!("  {file}:{line}"),
    };
    let inlined = if frame.is_inlined { " (inline)" } else { "" };
    // The name of a function of Python ends with its file.
    let own_file = format!(" ({file})");
    let name = frame.name.strip_suffix(&own_file);
    let name = name.filter(|_| frame.is_interpreted).unwrap_or(&frame.name);
    format!("    {name}{inlined}{place}")
}

/// Returns the stack of a waiting thread without the functions of the C library by which it waits, but for the one that
/// the program called.
fn without_wait(frames: &[Frame]) -> &[Frame] {
    let is_internal = |frame: &Frame| {
        let starts = ["_", "futex_wait", "lll_"];
        starts.iter().any(|&start| frame.name.starts_with(start))
    };
    match frames {
        [first, rest @ ..] if is_internal(first) && rest.first().is_some_and(is_internal) => {
            without_wait(rest)
        }
        frames => frames,
    }
}

/// Returns how many frames of each of `stacks` stacks are shown in `budget` lines.
pub(crate) fn frames_of_each(stacks: usize, budget: usize) -> usize {
    (budget / stacks.max(1))
        .saturating_sub(2)
        .clamp(*FRAMES.start(), *FRAMES.end())
}

fn head(process: &Process, view: &View, extent: Extent) -> Vec<String> {
    let target = &process.target;
    let mut lines = vec![format!("Process {}: {}", target.pid, target.name)];
    if !target.program.is_empty() {
        lines.push(format!("Program: {}", target.program));
    }
    lines.extend(view.pages.iter().map(|pages| format!("Plimsoll: {pages}")));
    if extent.is_verbose {
        lines.extend(target.passed.iter().map(|check| format!("Check: {check}")));
        let stops = match view.stops {
            0 => "no thread".to_owned(),
            stops => format!(
                "{stops} running threads, for {} us at most",
                view.longest_stop.as_micros()
            ),
        };
        lines.push(format!("Stopped: {stops}"));
        lines.push(format!("Reading took: {} ms", view.took.as_millis()));
    }
    lines
}

fn memory(lines: &mut Vec<String>, memory: &Memory, extent: Extent) {
    let bytes = |bytes: u64| alone(bytes.cast_signed(), "bytes", false);
    let kernel = match memory.kernel {
        _ if memory.is_exact() => "exactly the kernel's sum".to_owned(),
        Some((before, after)) => format!(
            "not exact: the kernel's sum was {} before and {} after",
            bytes(before),
            bytes(after)
        ),
        None => "the kernel has no sum to compare with".to_owned(),
    };
    lines.push(String::new());
    lines.push(format!(
        "Resident memory: {}, {kernel}",
        bytes(memory.resident)
    ));
    let resident: Vec<_> = memory
        .owners
        .iter()
        .filter(|(_, share)| share.resident > 0)
        .collect();
    let most = match extent.is_all || resident.len() <= MAX_OWNERS {
        true => resident.len(),
        false => MAX_OWNERS - 1,
    };
    let row = |resident: u64, description: &str| {
        let part = share(resident.cast_signed(), memory.resident.cast_signed(), false);
        format!("{:>10} {part} resident  {description}", bytes(resident))
    };
    let (first, rest) = resident.split_at(most);
    for (owner, share) in first {
        lines.push(row(share.resident, &owner.names().1));
    }
    if !rest.is_empty() {
        let sum = rest.iter().map(|(_, share)| share.resident).sum();
        lines.push(row(sum, &format!("{} smaller owners", rest.len())));
    }
}

fn deadlocks(lines: &mut Vec<String>, view: &View, extent: Extent) {
    let cycles = &view.waits.cycles;
    if cycles.is_empty() {
        return;
    }
    lines.push(String::new());
    let most = if extent.is_all {
        usize::MAX
    } else {
        MAX_CYCLES
    };
    for cycle in cycles.iter().take(most) {
        let longest = if extent.is_all { usize::MAX } else { MAX_CYCLE };
        let mut threads: Vec<String> = cycle
            .iter()
            .take(longest)
            .map(|&at| {
                let futex = view.waits.of(&view.threads[at]);
                let address = futex.map_or(0, |(address, _)| address);
                format!("{} waits for futex {address:#x}", view.thread(at))
            })
            .collect();
        if cycle.len() > longest {
            threads.push(format!("{} more threads", cycle.len() - longest));
        }
        lines.push(format!("Deadlock: {}, of the first", threads.join(", of ")));
    }
    if cycles.len() > most {
        lines.push(format!("{} more deadlocks", cycles.len() - most));
    }
}

/// Returns the groups, the largest first. Threads that run come before others of the same number.
fn groups(view: &View) -> Vec<Group<'_>> {
    let mut found: HashMap<(&str, &[usize], Option<&str>), usize> = HashMap::new();
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (at, activity) in view.activities.iter().enumerate() {
        let stack = &view.stacks[at];
        let key = (
            &*activity.common,
            &stack.frames[..],
            stack.missing.as_deref(),
        );
        let group = *found.entry(key).or_insert_with(|| {
            groups.push(Group {
                threads: Vec::new(),
                activity,
                is_same_object: true,
            });
            groups.len() - 1
        });
        let group = &mut groups[group];
        group.threads.push(at);
        group.is_same_object &= group.activity.object == activity.object;
    }
    groups.sort_by_key(|group| {
        let is_waiting = group.activity.common.starts_with("waiting");
        (std::cmp::Reverse(group.threads.len()), is_waiting)
    });
    groups
}

fn group_lines(
    group: &Group<'_>,
    view: &View,
    names: &Names<'_>,
    most: usize,
    extent: Extent,
) -> Vec<String> {
    let named = if extent.is_all { usize::MAX } else { MAX_NAMED };
    let mut threads: Vec<String> = group
        .threads
        .iter()
        .take(named)
        .map(|&thread| view.thread(thread))
        .collect();
    if group.threads.len() > named {
        threads.push(format!("{} more", group.threads.len() - named));
    }
    let object = match (group.is_same_object, &*group.activity.object) {
        (true, "") => String::new(),
        (true, object) => format!(": {object}"),
        (false, _) => ", for different objects".to_owned(),
    };
    let number = match group.threads.len() {
        1 => "1 thread".to_owned(),
        number => format!("{number} threads"),
    };
    let mut lines = vec![format!(
        "{number} {}{object} ({})",
        group.activity.common,
        threads.join(", ")
    )];
    let stack = &view.stacks[group.threads[0]];
    if let Some(missing) = &stack.missing {
        lines.push(format!("    [no stack: {missing}]"));
        return lines;
    }
    let frames: Vec<_> = stack
        .frames
        .iter()
        .flat_map(|&frame| names.frames(frame))
        .collect();
    let frames = match extent.is_all {
        true => frames.iter().collect(),
        false => of_program(match group.activity.common.starts_with("waiting") {
            true => without_wait(&frames),
            false => &frames,
        }),
    };
    let shown = if frames.len() <= most { most } else { most - 1 };
    lines.extend(frames.iter().take(shown).map(|frame| frame_line(frame)));
    if frames.len() > shown {
        lines.push(format!("    ... {} more frames", frames.len() - shown));
    }
    if !stack.is_complete && frames.len() <= shown {
        lines.push("    [the callers are unknown]".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[(&str, &str)]) -> Vec<Frame> {
        let frame = |&(name, file): &(&str, &str)| Frame {
            name: name.into(),
            file: file.into(),
            line: 1,
            is_inlined: false,
            is_interpreted: file.ends_with(".py"),
        };
        frames.iter().map(frame).collect()
    }

    fn shown(frames: &[(&str, &str)]) -> Vec<String> {
        let frames = stack(frames);
        let shown = of_program(&frames).into_iter();
        shown.map(|frame| frame.name.clone()).collect()
    }

    #[test]
    fn functions_of_the_program_are_shown_with_those_that_they_called() {
        let library = "/rustc/1234/library/std/src/io/mod.rs";
        let mut frames = vec![
            ("write", "write.c"),
            ("<std::fs::File>::write", "library/std/src/fs.rs"),
            ("std::io::default_write_fmt", library),
            ("app::log", "src/log.rs"),
            ("app::handle", "src/main.rs"),
            ("core::ops::FnOnce::call_once", library),
            ("std::rt::lang_start_internal", library),
            ("main", ""),
            ("__libc_start_call_main", "libc_start_call_main.h"),
        ];
        let expected = [
            "write",
            "std::io::default_write_fmt",
            "app::log",
            "app::handle",
        ];
        assert_eq!(shown(&frames), expected);
        // A program that was installed from a registry.
        for (_, file) in &mut frames[3..5] {
            *file = "/build/registry/src/index/app-1.0.0/src/main.rs";
        }
        assert_eq!(shown(&frames), expected);
        // Nothing but libraries.
        assert_eq!(shown(&frames[..3]).len(), 3);
        let registry = "/build/registry/src/index/tokio-1.0.0/src/runtime.rs";
        let idle = [
            ("epoll_wait", "epoll_wait.c"),
            ("std::sys::cvt", library),
            ("mio::Poll::poll", registry),
            ("tokio::runtime::park", registry),
            ("core::ops::FnOnce::call_once", library),
        ];
        let expected = [
            "epoll_wait",
            "std::sys::cvt",
            "mio::Poll::poll",
            "tokio::runtime::park",
        ];
        assert_eq!(shown(&idle), expected);
        assert!(shown(&[]).is_empty());
    }

    #[test]
    fn functions_of_python_are_shown_without_those_of_its_interpreter() {
        let frames = [
            ("read", "read.c"),
            ("_io_read", "fileio.c"),
            ("inner", "app.py"),
            ("sorted", "sorted.c"),
            ("outer", "app.py"),
        ];
        assert_eq!(shown(&frames), ["read", "inner", "sorted", "outer"]);
    }
}
