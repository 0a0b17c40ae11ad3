//! Judges whether preloading a library into a program works.

use super::allocator::Own;
use super::{CLibrary, Contents, Executable, Language, Linking, Machine, Program};

/// The result of preloading Plimsoll's library into a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Heap, locks and threads are observed.
    Covered,
    /// Threads and locks are observed, but not the heap: allocations do not call `malloc` through
    /// the dynamic linker.
    HeapNotSeen {
        /// The allocator that is called instead.
        allocator: String,
        /// The action that makes the heap visible, as a sentence without a full stop.
        what_to_do: String,
    },
    /// Threads and locks are observed. The heap is, too, if the functions of the allocator inside the
    /// program can be redirected, which its start shows.
    HeapRedirected {
        /// The allocator.
        allocator: String,
        /// The action that makes the heap visible otherwise, as a sentence without a full stop.
        what_to_do: String,
    },
    /// The program contains the crate. Preloading is unnecessary; the variable `PLIMSOLL` suffices.
    Inside,
    /// The library would not be loaded, or the program would not work with it.
    Refused {
        /// The reason, as a sentence without a full stop.
        reason: String,
        /// The alternative; empty if none exists.
        what_to_do: String,
    },
    /// The program may be executable, but its properties are unknown.
    Unknown {
        /// The reason why they are unknown.
        reason: String,
    },
}

const USE_THE_CRATE: &str =
    "if it is written in Rust, make plimsoll::Alloc its #[global_allocator]";

/// Judges the result of preloading Plimsoll's library into `program` on this machine.
pub fn preload_verdict(program: &Program) -> Verdict {
    match (program.executable(), Machine::of_this_process()) {
        (Some(executable), Some(this)) if executable.machine != this => {
            let its = executable.machine.name();
            Verdict::Refused {
                reason: format!(
                    "it is a program for {its}, and this command is for {}",
                    this.name()
                ),
                what_to_do: format!("build it for {}, or run it on {its}", this.name()),
            }
        }
        _ => verdict_on_its_machine(program),
    }
}

/// Judges the result of preloading Plimsoll's library into `program` on a machine of its kind.
pub fn verdict_on_its_machine(program: &Program) -> Verdict {
    let refused = |reason: String, what_to_do: &str| Verdict::Refused {
        reason,
        what_to_do: what_to_do.into(),
    };
    match &program.contents {
        Contents::OtherMachine(which) => {
            return refused(
                format!("it is a program for {which}"),
                "build it for x86-64 or aarch64",
            );
        }
        Contents::NotAProgram(what) => return refused(format!("it is not a program: {what}"), ""),
        Contents::Executable(executable) => {
            if let Some(verdict) = linked_otherwise(executable) {
                return verdict;
            }
        }
        Contents::Unreadable(_) => {}
    }
    if let Some(gains) = &program.gains {
        return refused(
            format!("{gains}, so the loader ignores preloaded libraries"),
            "run it as a user that gains no privileges, or run a copy without them",
        );
    }
    match &program.contents {
        Contents::Executable(executable) => of_dynamic(executable),
        Contents::Unreadable(why) => Verdict::Unknown {
            reason: format!("its file cannot be read: {why}"),
        },
        Contents::OtherMachine(_) | Contents::NotAProgram(_) => unreachable!("returned above"),
    }
}

/// Returns the verdict if it follows from the crate's presence, the language or the linking.
/// Returns `None` for other programs, all of which glibc's loader loads.
fn linked_otherwise(executable: &Executable) -> Option<Verdict> {
    let (reason, what_to_do) = match &executable.linking {
        _ if executable.has_plimsoll => return Some(Verdict::Inside),
        _ if executable.language == Language::Go => (
            "it is a Go program; its runtime implements heap, locks and goroutines",
            "serve its own profiles with net/http/pprof; plimsoll report reads them",
        ),
        Linking::Static { .. } => (
            "it is statically linked, so nothing can be preloaded",
            "link it dynamically (Rust: -C target-feature=-crt-static, or a -gnu target), or add \
             the crate plimsoll to it",
        ),
        Linking::Dynamic {
            c_library: CLibrary::Musl,
            ..
        } => (
            "it is linked to musl, whose loader cannot load libraries for glibc",
            "build it for a -gnu target, or add the crate plimsoll to it",
        ),
        Linking::Dynamic {
            c_library: CLibrary::Other,
            ..
        } => (
            "it is linked to a C library that is not glibc",
            "build it for a -gnu target, or add the crate plimsoll to it",
        ),
        Linking::Dynamic {
            c_library: CLibrary::Glibc,
            ..
        } => return None,
    };
    Some(Verdict::Refused {
        reason: reason.into(),
        what_to_do: what_to_do.into(),
    })
}

fn of_dynamic(executable: &Executable) -> Verdict {
    if let Some(sanitizer) = executable.sanitizer {
        return Verdict::Refused {
            reason: format!(
                "it was compiled with {sanitizer}, which replaces allocations and locks itself \
                 and must be loaded first"
            ),
            what_to_do: "build it without the sanitizer".into(),
        };
    }
    if !executable.has_sections {
        return Verdict::Unknown {
            reason: "its file has no section headers, so its allocator is unknown".into(),
        };
    }
    let allocator = &executable.allocator;
    if allocator.is_seen_from_outside() {
        return Verdict::Covered;
    }
    let name = allocator.name().unwrap_or("an allocator");
    let how = match allocator.own {
        Own::Exported => "exported",
        Own::Texts => "linked in, identified by its strings",
        Own::NotTheSystems => "it does not call the C library's",
        Own::Linked | Own::No => "linked in",
    };
    let wrapped = match name {
        "jemalloc" => "Alloc::new(tikv_jemallocator::Jemalloc)",
        "mimalloc" => "Alloc::new(mimalloc::MiMalloc)",
        _ => "Alloc::new(..)",
    };
    let name = format!("{name} ({how})");
    let what_to_do = match &executable.language {
        Language::Rust { .. } => format!(
            "make plimsoll::{wrapped} its #[global_allocator], or build it with the system \
             allocator"
        ),
        _ => format!("link the allocator as a shared library, or leave it out; {USE_THE_CRATE}"),
    };
    let is_reachable = allocator.own == Own::Exported || allocator.is_named;
    match executable.machine {
        Machine::X86_64 if is_reachable => Verdict::HeapRedirected {
            allocator: name,
            what_to_do,
        },
        _ => Verdict::HeapNotSeen {
            allocator: name,
            what_to_do,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::program::allocator::Allocator;

    fn dynamic(c_library: CLibrary) -> Linking {
        Linking::Dynamic {
            loader: PathBuf::from("/lib64/ld-linux-x86-64.so.2"),
            c_library,
        }
    }

    fn plain() -> Executable {
        Executable {
            machine: Machine::of_this_process().unwrap(),
            linking: dynamic(CLibrary::Glibc),
            needed: vec!["libc.so.6".into()],
            language: Language::Rust { version: None },
            allocator: Allocator::default(),
            has_plimsoll: false,
            sanitizer: None,
            has_sections: true,
        }
    }

    fn of(change: impl FnOnce(&mut Executable)) -> Verdict {
        let mut executable = plain();
        change(&mut executable);
        preload_verdict(&program(Contents::Executable(Box::new(executable))))
    }

    fn program(contents: Contents) -> Program {
        Program {
            file: PathBuf::from("/bin/program"),
            scripts: Vec::new(),
            gains: None,
            contents,
        }
    }

    fn reason(verdict: Verdict) -> String {
        match verdict {
            Verdict::Refused { reason, .. } | Verdict::Unknown { reason } => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn calls_of_malloc_through_the_dynamic_linker_are_covered() {
        assert_eq!(of(|_| {}), Verdict::Covered);
        // A preloaded library precedes it.
        let library = Some("libjemalloc.so.2".to_owned());
        assert_eq!(of(|it| it.allocator.library = library), Verdict::Covered);
    }

    #[test]
    fn an_allocator_that_is_linked_in_hides_the_heap() {
        for (own, is_named, how) in [
            (Own::Exported, false, "exported"),
            (Own::Linked, false, "linked in"),
            (Own::Linked, true, "linked in"),
            (Own::Texts, false, "by its strings"),
        ] {
            let verdict = of(|it| {
                it.allocator.linked = Some("mimalloc");
                it.allocator.own = own;
                it.allocator.is_named = is_named;
            });
            let is_redirected = matches!(verdict, Verdict::HeapRedirected { .. });
            let may_be = own == Own::Exported || is_named;
            assert_eq!(is_redirected, may_be && plain().machine == Machine::X86_64);
            let (Verdict::HeapNotSeen {
                allocator,
                what_to_do,
            }
            | Verdict::HeapRedirected {
                allocator,
                what_to_do,
            }) = verdict
            else {
                panic!("{verdict:?}")
            };
            assert!(allocator.contains("mimalloc") && allocator.contains(how));
            assert!(what_to_do.contains("mimalloc::MiMalloc"), "{what_to_do}");
        }
        let of_c = of(|it| {
            it.language = Language::Other;
            it.allocator.own = Own::Linked;
        });
        assert!(matches!(of_c, Verdict::HeapNotSeen { .. }));
    }

    #[test]
    fn a_program_without_preloading_is_refused_with_the_reason() {
        let is_static = Linking::Static { is_pie: true };
        assert!(reason(of(|it| it.linking = is_static.clone())).contains("statically"));
        let of_go = of(|it| {
            it.linking = is_static.clone();
            it.language = Language::Go;
        });
        assert!(reason(of_go).contains("a Go program"));
        let with_c = of(|it| it.language = Language::Go);
        assert!(reason(with_c).contains("a Go program"));
        assert!(reason(of(|it| it.linking = dynamic(CLibrary::Musl))).contains("musl"));
        assert!(reason(of(|it| it.linking = dynamic(CLibrary::Other))).contains("not glibc"));
        let sanitized = of(|it| it.sanitizer = Some("ThreadSanitizer"));
        assert!(reason(sanitized).contains("ThreadSanitizer"));
        let other = program(Contents::OtherMachine("RISC-V"));
        assert!(reason(preload_verdict(&other)).contains("RISC-V"));
        let library = program(Contents::NotAProgram("a shared library"));
        assert!(reason(preload_verdict(&library)).contains("a shared library"));
        let setuid = Program {
            gains: Some("it is setuid".into()),
            ..program(Contents::Unreadable("Permission denied".into()))
        };
        assert!(reason(preload_verdict(&setuid)).contains("setuid"));
    }

    #[test]
    fn a_program_for_the_other_machine_is_refused_here_and_judged_for_there() {
        let this = Machine::of_this_process().unwrap();
        let other = match this {
            Machine::X86_64 => Machine::Aarch64,
            Machine::Aarch64 => Machine::X86_64,
        };
        let refused = reason(of(|it| it.machine = other));
        assert!(refused.contains(other.name()) && refused.contains(this.name()));
        let executable = Executable {
            machine: other,
            ..plain()
        };
        let there = verdict_on_its_machine(&program(Contents::Executable(Box::new(executable))));
        assert_eq!(there, Verdict::Covered);
    }

    #[test]
    fn a_program_with_plimsoll_inside_needs_no_library() {
        assert_eq!(of(|it| it.has_plimsoll = true), Verdict::Inside);
        let is_static = of(|it| {
            it.has_plimsoll = true;
            it.linking = Linking::Static { is_pie: false };
        });
        assert_eq!(is_static, Verdict::Inside);
    }

    #[test]
    fn an_unreadable_program_is_unknown() {
        let unreadable = program(Contents::Unreadable("Permission denied".into()));
        assert!(reason(preload_verdict(&unreadable)).contains("Permission denied"));
        assert!(reason(of(|it| it.has_sections = false)).contains("section headers"));
    }
}
