//! Program files for x86-64 and for aarch64: each property is read on either machine. The file for
//! the other machine comes from a cross compiler; without one, its half is skipped with a message.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::plimsoll;
use crate::programs::{PLAIN, compile_with, directory};
use plimsoll_command::program::allocator::Own;
use plimsoll_command::program::{
    CLibrary, DebugInformation, Details, Evidence, Executable, Language, Linking, Machine, Program,
    Verdict, preload_verdict, verdict_on_its_machine,
};

/// The machines, each with its compiler and the file name of its loader.
const MACHINES: [(Machine, &str, &str); 2] = [
    (
        Machine::X86_64,
        "x86_64-linux-gnu-gcc",
        "ld-linux-x86-64.so.2",
    ),
    (
        Machine::Aarch64,
        "aarch64-linux-gnu-gcc",
        "ld-linux-aarch64.so.1",
    ),
];

/// Compilers for this machine and, if one is installed, for the other. The first is this machine's.
fn compilers() -> Vec<(Machine, &'static str, &'static str)> {
    let this = Machine::of_this_process().unwrap();
    let mut found = Vec::new();
    for (machine, cross, loader) in MACHINES {
        if machine == this {
            found.insert(0, (machine, "cc", loader));
        } else if Command::new(cross).arg("--version").output().is_ok() {
            found.push((machine, cross, loader));
        } else {
            plimsoll_testkit::skip!("{cross} is not installed: no file for {machine:?}");
        }
    }
    found
}

fn look(path: &Path) -> Executable {
    let program = Program::of_file(path);
    let executable = program.executable();
    executable.unwrap_or_else(|| panic!("{program:?}")).clone()
}

fn details(path: &Path) -> Details {
    Details::of_file(path).expect("a program")
}

/// Builds a program for each machine in a directory of its own.
fn for_each_machine(
    name: &str,
    source: &str,
    flags: impl Fn(Machine) -> Vec<&'static str>,
) -> Vec<(Machine, &'static str, PathBuf)> {
    let built = compilers().into_iter().map(|(machine, compiler, loader)| {
        let place = directory(&format!("{name}-{}", machine.name()));
        let program = compile_with(compiler, &place, name, source, &flags(machine));
        (machine, loader, program.expect("the compiler works"))
    });
    built.collect()
}

#[test]
fn linking_libraries_tables_and_symbols_are_read() {
    for (machine, its_loader, program) in
        for_each_machine("machines-plain", PLAIN, |_| vec!["-g", "-O1"])
    {
        let executable = look(&program);
        assert_eq!(executable.machine, machine);
        let Linking::Dynamic { loader, c_library } = &executable.linking else {
            panic!("{executable:?}");
        };
        assert_eq!(loader.file_name().unwrap(), its_loader);
        assert_eq!(*c_library, CLibrary::Glibc);
        assert_eq!(executable.needed, ["libc.so.6"], "{machine:?}");
        assert_eq!(executable.language, Language::Other);
        assert_eq!(executable.allocator.own, Own::No);
        assert!(!executable.has_plimsoll && executable.has_sections);
        let details = details(&program);
        assert!(details.unwind_tables.work());
        assert!(details.symbols.has_table);
        assert_eq!(details.symbols.debug, DebugInformation::Full);
        let verdict = verdict_on_its_machine(&Program::of_file(&program));
        assert_eq!(verdict, Verdict::Covered, "{machine:?}");
    }
}

#[test]
fn an_exported_malloc_and_a_static_program_are_recognised() {
    let source = format!(
        "{PLAIN}\nstatic char room[4096]; static size_t used;\n\
         void *malloc(size_t n) {{ void *p = room + used; used += (n + 15) & ~15ul; return p; }}\n\
         void free(void *p) {{}}\n"
    );
    let flags = |_| vec!["-rdynamic", "-fno-builtin"];
    for (machine, _, program) in for_each_machine("machines-malloc", &source, flags) {
        assert_eq!(look(&program).allocator.own, Own::Exported, "{machine:?}");
        let verdict = verdict_on_its_machine(&Program::of_file(&program));
        let may_be_redirected = matches!(verdict, Verdict::HeapRedirected { .. });
        let is_hidden = matches!(verdict, Verdict::HeapNotSeen { .. });
        assert_eq!(may_be_redirected, machine == Machine::X86_64, "{verdict:?}");
        assert_eq!(is_hidden, machine != Machine::X86_64, "{verdict:?}");
    }
    for (machine, _, program) in for_each_machine("machines-static", PLAIN, |_| vec!["-static"]) {
        let executable = look(&program);
        assert_eq!(executable.machine, machine);
        assert_eq!(executable.linking, Linking::Static { is_pie: false });
        let verdict = verdict_on_its_machine(&Program::of_file(&program));
        assert!(matches!(verdict, Verdict::Refused { .. }), "{verdict:?}");
    }
}

#[test]
fn frame_pointers_are_detected_by_code() {
    let mut source = PLAIN.to_owned();
    for number in 0..40 {
        source += &format!(
            "__attribute__((noinline, used)) int number{number}(int n) {{ \
                return first(\"{number}\", n) + second(n + {number}); }}\n"
        );
    }
    for (flag, are_kept) in [
        ("-fno-omit-frame-pointer", true),
        ("-fomit-frame-pointer", false),
    ] {
        let flags = [
            "-O2",
            flag,
            "-fno-asynchronous-unwind-tables",
            "-fno-unwind-tables",
            // Without the start-up code, which has tables.
            "-nostartfiles",
            "-Wl,-e,main",
        ];
        // Without the tables of the linker's stubs, which only this linker makes.
        let of_stubs = "-Wl,--no-ld-generated-unwind-info";
        for (machine, _, program) in for_each_machine("machines-frames", &source, |machine| {
            let stubs = (machine == Machine::X86_64).then_some(of_stubs);
            flags.into_iter().chain(stubs).collect()
        }) {
            let found = details(&program).frame_pointers;
            assert_eq!(
                (found.evidence, found.are_used()),
                (Evidence::Prologues, are_kept),
                "{machine:?}: {found:?}"
            );
            assert!(found.with + found.without >= 43, "{machine:?}: {found:?}");
            assert_eq!(found.per_cent() <= Some(8), !are_kept, "{found:?}");
        }
    }
}

/// LLVM's tables name the frame pointer. GCC's for aarch64 do not: its functions keep one, and find
/// their frame by the stack pointer, so the library unwinds them by tables.
#[test]
fn frame_pointers_are_detected_by_tables_that_name_the_register() {
    // The function `framed` moves the stack pointer by an amount that the compiler does not know.
    let mut source = String::from(
        "#include <alloca.h>\n\
         __attribute__((noinline)) void use(void *p) { __asm__ volatile(\"\" :: \"r\"(p)); }\n",
    );
    for number in 0..50 {
        source += &format!(
            "__attribute__((noinline, used)) void framed{number}(int n) {{ use(alloca(n)); }}\n"
        );
    }
    source += "int main(int count, char **words) { framed1(count); return 0; }\n";
    let flags = |_| {
        vec![
            "-O1",
            "-fno-omit-frame-pointer",
            "-nostartfiles",
            "-Wl,-e,main",
        ]
    };
    for (machine, _, program) in for_each_machine("machines-tables", &source, flags) {
        let found = details(&program).frame_pointers;
        assert_eq!(found.evidence, Evidence::UnwindTables);
        assert!(found.with >= 50, "{machine:?}: {found:?}");
    }
}

#[test]
fn run_accepts_programs_for_this_machine_and_refuses_those_for_the_other() {
    let this = Machine::of_this_process().unwrap();
    for (machine, _, program) in for_each_machine("machines-run", PLAIN, |_| Vec::new()) {
        let file = program.to_str().unwrap();
        let doctor = plimsoll(&["doctor", file]);
        let findings = String::from_utf8_lossy(&doctor.stdout);
        let run = plimsoll(&["run", "--", file]);
        let errors = String::from_utf8_lossy(&run.stderr);
        let line = findings.lines().find(|line| line.contains("plimsoll run"));
        let line = line.unwrap_or_else(|| panic!("{findings}"));
        assert!(
            line.contains("observes its heap, locks and threads"),
            "{line}"
        );
        if machine == this {
            assert_eq!(
                preload_verdict(&Program::of_file(&program)),
                Verdict::Covered
            );
            assert_eq!(run.status.code(), Some(0), "{errors}");
            assert!(
                errors.contains("allocated  24 B in 1 block (2 B requested)"),
                "{errors}"
            );
            continue;
        }
        let (its, this) = (machine.name(), this.name());
        assert!(
            findings.contains(&format!("{its}, and this one is {this}")),
            "{findings}"
        );
        assert_eq!(run.status.code(), Some(125), "{errors}");
        let refusal = format!(
            "plimsoll: {file}: it is a program for {its}, and this command is for {this}; \
             build it for {this}, or run it on {its}\n"
        );
        assert_eq!(errors, refusal);
    }
}
