//! Findings about a program's file.

use std::path::{Path, PathBuf};

use super::findings::{Finding, Section};
use plimsoll_command::program::allocator::Own;
use plimsoll_command::program::{
    CLibrary, Compression, DebugInformation, Details, Evidence, Executable, Language, Linking,
    Machine, Program, Verdict, frame_pointers_of_library, verdict_on_its_machine,
};

/// Returns findings about a program that is not running.
pub(super) fn section(program: &Program) -> Section {
    let mut findings = vec![file(program)];
    if program.is_shell_of_script() {
        let says = "the findings are about the shell, not about programs that the script starts";
        findings.push(
            Finding::note("script", says)
                .so("plimsoll doctor PROGRAM for each, and plimsoll run --children for all"),
        );
    }
    findings.extend(all(program));
    Section {
        title: format!("program {}", program.file.display()),
        findings,
    }
}

/// Returns findings about a program that a wrapper script executes in its place.
pub(super) fn wrapped(script: &Program, program: &Program) -> Section {
    let scripts: Vec<String> = (script.scripts.iter())
        .map(|script| script.display().to_string())
        .collect();
    let says = format!(
        "{}, which {} executes through {}",
        program.file.display(),
        scripts.join(", "),
        script.file.display()
    );
    let mut findings = vec![Finding::ok("file", says)];
    findings.extend(all(program));
    Section {
        title: format!("program {}", program.file.display()),
        findings,
    }
}

fn all(program: &Program) -> Vec<Finding> {
    let mut findings = vec![preloading(&verdict_on_its_machine(program))];
    if let Some(executable) = program.executable() {
        findings.extend(machine(executable));
        findings.extend(findings_about(executable, &program.file));
    }
    findings
}

fn file(program: &Program) -> Finding {
    let scripts: Vec<String> = program
        .scripts
        .iter()
        .map(|script| script.display().to_string())
        .collect();
    let file = program.file.display();
    match scripts.is_empty() {
        true => Finding::ok("file", file.to_string()),
        false => Finding::ok(
            "file",
            format!("{file}, the interpreter of {}", scripts.join(", ")),
        ),
    }
}

/// Returns a finding about a program for another machine.
fn machine(executable: &Executable) -> Option<Finding> {
    let (its, this) = (executable.machine, Machine::of_this_process());
    if this == Some(its) {
        return None;
    }
    let says = format!(
        "{}, and this one is {}: the other findings hold where the program runs",
        its.name(),
        this.map_or(std::env::consts::ARCH, Machine::name)
    );
    Some(Finding::note("machine", says))
}

fn preloading(verdict: &Verdict) -> Finding {
    const SUBJECT: &str = "plimsoll run";
    match verdict {
        Verdict::Covered => Finding::ok(SUBJECT, "observes its heap, locks and threads"),
        Verdict::Inside => Finding::ok(
            SUBJECT,
            "is not needed: the program contains the crate plimsoll",
        )
        .so("PLIMSOLL=http=127.0.0.1:6060 in its environment, if it calls plimsoll::start"),
        Verdict::HeapNotSeen {
            allocator,
            what_to_do,
        } => Finding::bad(
            SUBJECT,
            format!(
                "does not observe its heap, which is in {allocator}; it observes threads and locks"
            ),
        )
        .so(what_to_do),
        Verdict::HeapRedirected {
            allocator,
            what_to_do,
        } => Finding::note(
            SUBJECT,
            format!(
                "observes threads and locks, and the heap if the functions of {allocator} can be \
                 redirected; its summary names the obstacle otherwise"
            ),
        )
        .so(what_to_do),
        Verdict::Refused { reason, what_to_do } => {
            Finding::bad(SUBJECT, format!("does not work: {reason}")).so(what_to_do)
        }
        Verdict::Unknown { reason } => {
            Finding::note(SUBJECT, format!("may or may not work: {reason}"))
        }
    }
}

/// Returns findings about an executable file, whether it runs or not.
pub(super) fn findings_about(executable: &Executable, file: &Path) -> Vec<Finding> {
    let mut findings = vec![linking(executable)];
    let Some(details) = Details::of_file(file) else {
        findings.push(Finding::note("file", "cannot be read any more"));
        return findings;
    };
    findings.push(language(executable, &details));
    // The other checks do not apply to Go programs, whose runtime has its own allocator and
    // unwinder.
    if details.language == Language::Go {
        return findings;
    }
    findings.extend(sanitizer(executable));
    findings.push(allocator(executable));
    findings.push(frame_pointers(&details));
    findings.extend(frame_pointers_of_c_library(executable));
    findings.push(unwind_tables(&details));
    findings.push(names(&details));
    findings.push(lines(&details));
    findings.push(build_id(&details));
    findings
}

fn linking(executable: &Executable) -> Finding {
    let says = match &executable.linking {
        Linking::Static { is_pie: true } => "static, at any address".into(),
        Linking::Static { is_pie: false } => "static, at a fixed address".into(),
        Linking::Dynamic { loader, c_library } => {
            let library = match c_library {
                CLibrary::Glibc => "glibc",
                CLibrary::Musl => "musl",
                CLibrary::Other => "an unknown C library",
            };
            format!("dynamic, to {library}, loader {}", loader.display())
        }
    };
    Finding::ok("linking", says)
}

fn language(executable: &Executable, details: &Details) -> Finding {
    let says = match &details.language {
        Language::Rust {
            version: Some(version),
        } => format!("Rust, compiled by rustc {version}"),
        Language::Rust { version: None } => "Rust".into(),
        Language::Go => "Go".into(),
        Language::Other if !executable.has_sections => {
            let says = "not known: its file has no section headers";
            return Finding::note("language", says);
        }
        Language::Other if !details.symbols.has_table => {
            "neither Rust nor Go is detected; its symbols are stripped".into()
        }
        Language::Other => "neither Rust nor Go".into(),
    };
    Finding::ok("language", says)
}

fn sanitizer(executable: &Executable) -> Option<Finding> {
    let name = executable.sanitizer?;
    let says = format!("{name} is enabled: times and sizes include the sanitizer's");
    Some(Finding::note("sanitizer", says))
}

fn allocator(executable: &Executable) -> Finding {
    let found = &executable.allocator;
    let name = found.name().unwrap_or("the C library's");
    let says = match found.own {
        Own::No if found.library.is_some() => {
            format!("{name}, a library: preloaded libraries come before it")
        }
        Own::No => name.to_owned(),
        Own::Exported => format!("{name}, for its libraries as well"),
        Own::Linked => format!("{name}, linked in"),
        Own::Texts => format!("{name}, identified by its strings: symbols are stripped"),
        Own::NotTheSystems => format!("{name}: it does not call the C library's"),
    };
    Finding::ok("allocator", says)
}

fn frame_pointers(details: &Details) -> Finding {
    const SUBJECT: &str = "frame pointers";
    let found = &details.frame_pointers;
    let how = match found.evidence {
        Evidence::Nothing => return Finding::note(SUBJECT, "not detectable"),
        Evidence::UnwindTables => "unwind tables",
        Evidence::Prologues => "their first instructions",
    };
    let (with, all) = (found.with, found.with + found.without);
    let says = format!("{with} of {all} functions checked keep one, by {how}");
    if found.are_used() {
        return Finding::ok(SUBJECT, format!("{says}: stacks are walked by them"));
    }
    let flag = match details.language {
        Language::Rust { .. } => "-C force-frame-pointers=yes",
        _ => "-fno-omit-frame-pointer",
    };
    if details.unwind_tables.work() {
        return Finding::ok(
            SUBJECT,
            format!("{says}: stacks are unwound by tables, which is slower"),
        )
        .so(format!("compile with {flag} to make samples cheaper"));
    }
    Finding::bad(
        SUBJECT,
        format!("{says}, and there are no unwind tables: stacks end early"),
    )
    .so(format!("compile with {flag}, or with unwind tables"))
}

fn frame_pointers_of_c_library(executable: &Executable) -> Option<Finding> {
    let Linking::Dynamic {
        c_library: CLibrary::Glibc,
        ..
    } = executable.linking
    else {
        return None;
    };
    if Machine::of_this_process() != Some(executable.machine) {
        return None;
    }
    let library = c_library_of_this_process()?;
    let found = frame_pointers_of_library(&library);
    let per_cent = found.per_cent()?;
    let says = match found.are_used() {
        true => "callbacks from it appear in stacks that are walked by frame pointers",
        false => {
            "callers of functions with callbacks, such as qsort, may be missing in stacks that \
             are walked by frame pointers"
        }
    };
    let says = format!("{per_cent} % of its functions keep frame pointers: {says}");
    Some(Finding::ok("C library", says))
}

/// Returns the file of the C library that this process uses. Programs with the same loader load the
/// same file.
fn c_library_of_this_process() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let paths = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]));
    let mut libraries = paths.filter(|path| path.ends_with("/libc.so.6"));
    libraries.next().map(|path| Path::new(path).to_owned())
}

fn unwind_tables(details: &Details) -> Finding {
    const SUBJECT: &str = "unwind tables";
    let tables = details.unwind_tables;
    if tables.work() {
        return Finding::ok(SUBJECT, "present, with their index");
    }
    let says = match tables.are_there {
        true => "their index (.eh_frame_hdr) is missing, so they are not found",
        false => "none",
    };
    if details.frame_pointers.are_used() {
        return Finding::note(SUBJECT, format!("{says}; frame pointers suffice"));
    }
    Finding::bad(
        SUBJECT,
        format!("{says}, and no frame pointers: stacks end early"),
    )
    .so("compile with -fasynchronous-unwind-tables, which is the default of most compilers")
}

fn names(details: &Details) -> Finding {
    const SUBJECT: &str = "names";
    let symbols = &details.symbols;
    if symbols.has_table {
        return Finding::ok(SUBJECT, "the file has a symbol table");
    }
    if let Some(file) = &symbols.split_off {
        return Finding::ok(SUBJECT, format!("in {}", file.display()));
    }
    let says = match &symbols.link {
        Some(link) => {
            format!("stripped, and the debug file is not found: {link}")
        }
        None => "stripped: profiles contain addresses instead of names".into(),
    };
    let finding = Finding::note(SUBJECT, says);
    match (&symbols.link, &details.language) {
        (Some(_), _) => finding.so("install its debug symbols"),
        (None, Language::Rust { .. }) => finding.so("strip = false in [profile.release]"),
        (None, _) => {
            finding.so("link without -s and do not strip it, or install its debug symbols")
        }
    }
}

/// The recommended build profile of Rust programs. The library recommends the same.
const LIMITED: &str = "debug = \"limited\" in [profile.release]; \"line-tables-only\" leaves \
                       inlined async functions without names";

fn lines(details: &Details) -> Finding {
    const SUBJECT: &str = "lines";
    let symbols = &details.symbols;
    let set = match details.language {
        Language::Rust { .. } => LIMITED,
        _ => "compile with -g1",
    };
    match symbols.compression {
        Compression::None | Compression::Zlib => {}
        Compression::Zstd | Compression::Unknown => {
            let says = "the compression of the debug information is not supported: no files, \
                        lines or inlined calls";
            return Finding::note(SUBJECT, says)
                .so("link with --compress-debug-sections=zlib, or none");
        }
    }
    if symbols.is_split {
        return Finding::note(
            SUBJECT,
            "debug information is in .dwo or .dwp files, which are not supported",
        )
        .so("split-debuginfo = \"off\", or compile without -gsplit-dwarf");
    }
    let finding = match symbols.debug {
        DebugInformation::Full => Finding::ok(SUBJECT, "full debug information"),
        DebugInformation::Lines => {
            let finding = Finding::ok(SUBJECT, "line tables, and inlined calls");
            match details.language {
                Language::Rust { .. } => finding.so(LIMITED),
                _ => finding,
            }
        }
        DebugInformation::Unknown => Finding::note(
            SUBJECT,
            "debug information exists, but is too large to check",
        )
        .so(set),
        DebugInformation::StandardLibrary | DebugInformation::None => match &symbols.split_off {
            Some(file) => Finding::ok(SUBJECT, format!("in {}", file.display())),
            None if symbols.debug == DebugInformation::StandardLibrary => {
                let says = "of the standard library only: no files, lines or inlined calls of the \
                            program's own code";
                Finding::note(SUBJECT, says).so(set)
            }
            None => {
                let says = "no debug information: no files, lines or inlined calls";
                Finding::note(SUBJECT, says).so(set)
            }
        },
    };
    match symbols.has_shared_part {
        true => Finding {
            says: format!(
                "{}; parts of it are in a file shared by several programs (dwz), which is not \
                 supported",
                finding.says
            ),
            ..finding
        },
        false => finding,
    }
}

fn build_id(details: &Details) -> Finding {
    const SUBJECT: &str = "build id";
    match &details.symbols.build_id {
        Some(id) => Finding::ok(SUBJECT, id),
        None => Finding::note(
            SUBJECT,
            "none: names that are resolved later or on another machine may belong to another build",
        )
        .so("link with --build-id"),
    }
}
