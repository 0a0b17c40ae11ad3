//! What a program is, told from its file before anybody executes it: how it is linked, which
//! allocator it brings, what its stacks are walked by, where its names are. `doctor` says it, and
//! `run` asks whether a preloaded library would be loaded, and what it would see.
//!
//! | module | what it finds out |
//! |---|---|
//! | `find` | which file is executed for a command, scripts followed to their interpreters |
//! | `elf` | reads the file, in parts, believing nothing |
//! | `privileges` | whether the loader would ignore what is preloaded |
//! | [`allocator`] | an allocator that is linked in |
//! | `frame_pointers` | whether functions keep them |
//! | `symbols` | names, debug information, and files that they were split off to |
//! | `verdict` | what follows for preloading |
//! | `wrapper` | which program a shell script executes in its place |

pub mod allocator;
mod elf;
mod find;
mod frame_pointers;
mod privileges;
mod symbols;
mod verdict;
mod wrapper;

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use self::allocator::Allocator;
use self::elf::{Cache, Dynamic, Elf, NotRead};
use self::privileges::{Identity, Rights};
use crate::Failure;

pub use self::elf::Compression;
pub use self::find::FindError;
pub use self::frame_pointers::{FramePointers, ToldBy};
pub use self::symbols::{DebugInformation, Symbols};
pub use self::verdict::{Verdict, preload_verdict};

/// A program, by its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The file whose code runs: of a script, that of its interpreter.
    pub file: PathBuf,
    /// The scripts that led there, the one that was asked for first; usually none.
    pub scripts: Vec<PathBuf>,
    /// Why the loader would ignore `LD_PRELOAD`, because the program has rights that whoever
    /// started this process has not. `None` if it would not.
    pub gains: Option<String>,
    /// What the file is.
    pub contents: Contents,
}

/// What a program's file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// A program for this machine.
    Executable(Box<Executable>),
    /// It can be executed, perhaps, but not be looked into; and why.
    Unreadable(String),
    /// A program for another kind of machine; which.
    OtherMachine(&'static str),
    /// No program; what it is.
    NotAProgram(&'static str),
}

/// What is known of a program for this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// How it comes to its libraries.
    pub linking: Linking,
    /// The libraries that it is linked to itself, by their file names.
    pub needed: Vec<String>,
    /// What it is written in.
    pub language: Language,
    /// Its allocator.
    pub allocator: Allocator,
    /// Whether the crate `plimsoll` is in it.
    pub has_plimsoll: bool,
    /// A sanitizer that it was compiled with.
    pub sanitizer: Option<&'static str>,
    /// Whether its functions keep frame pointers.
    pub frame_pointers: FramePointers,
    /// What stacks are unwound by where they do not.
    pub unwind_tables: UnwindTables,
    /// Its names and lines.
    pub symbols: Symbols,
    /// Whether its file has section headers. Without, nearly nothing is known of it.
    pub has_sections: bool,
}

/// How a program comes to its libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Linking {
    /// They are in it.
    Static {
        /// Whether it is loaded at a random address.
        is_pie: bool,
    },
    /// A loader loads them, and what is preloaded.
    Dynamic {
        /// The loader's path.
        loader: PathBuf,
        /// The C library that it belongs to.
        c_library: CLibrary,
    },
}

/// A C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CLibrary {
    /// The GNU C library.
    Glibc,
    /// musl.
    Musl,
    /// Another one.
    Other,
}

/// What a program is written in, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Language {
    /// Rust.
    Rust {
        /// The version of the compiler, such as `1.88.0`, if the file has it.
        version: Option<String>,
    },
    /// Go, which has a runtime of its own.
    Go,
    /// C, C++ or anything else.
    Other,
}

/// Unwind tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwindTables {
    /// Whether there are any (`.eh_frame`).
    pub are_there: bool,
    /// Whether there is the sorted index, without which they are not found in a running program
    /// (`.eh_frame_hdr`).
    pub have_index: bool,
}

impl UnwindTables {
    /// Whether Plimsoll can unwind stacks by them.
    pub fn work(&self) -> bool {
        self.are_there && self.have_index
    }
}

impl Program {
    /// Finds and looks into what is executed for a command `name`, as `execvp(3)` does with the
    /// value of `PATH` in `path`: a name with a slash is a file's, scripts are followed to their
    /// interpreters, and what has no format is for the shell.
    ///
    /// Examining does not execute anything, and does not wait for anybody.
    ///
    /// # Errors
    /// There is no such program, or it cannot be executed; with the exit code that a shell has for
    /// that.
    pub fn find(name: &OsStr, path: Option<&OsStr>) -> Result<Self, FindError> {
        let found = find::find(name, path)?;
        Ok(Self {
            scripts: found.scripts,
            ..Self::of_file(&found.file)
        })
    }

    /// Looks into a file, whether it can be executed or not.
    pub fn of_file(file: &Path) -> Self {
        let rights = Rights::of(file);
        Self {
            file: file.to_owned(),
            scripts: Vec::new(),
            gains: rights.and_then(|rights| rights.gained_by(Identity::of_this_process())),
            contents: Contents::of_file(file),
        }
    }

    /// Whether it is a shell that executes a script.
    pub fn is_shell_of_script(&self) -> bool {
        !self.scripts.is_empty() && wrapper::is_shell(&self.file)
    }

    /// The command that its shell script executes in its place in the end, if it is a script with
    /// such a command written out.
    pub fn executed_by_script(&self) -> Option<OsString> {
        let script = self.scripts.last().filter(|_| self.is_shell_of_script())?;
        wrapper::executed_by(script)
    }

    /// What is known of it; `None` if it is no program for this machine, or cannot be read.
    pub fn executable(&self) -> Option<&Executable> {
        match &self.contents {
            Contents::Executable(executable) => Some(executable),
            _ => None,
        }
    }
}

impl Contents {
    fn of_file(path: &Path) -> Self {
        let unreadable = |error: std::io::Error| Self::Unreadable(error.to_string());
        let file = match find::open(path) {
            Ok(file) => file,
            Err(error) => return unreadable(error),
        };
        match file.metadata() {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => return Self::NotAProgram("not a regular file"),
            Err(error) => return unreadable(error),
        }
        let cache = Cache::new(file);
        match Elf::parse(&cache) {
            Ok(elf) => Executable::of(&elf, path)
                .map_or(Self::NotAProgram("a shared library"), |executable| {
                    Self::Executable(Box::new(executable))
                }),
            Err(NotRead::NotElf) => Self::NotAProgram("not ELF"),
            Err(NotRead::OtherMachine(which)) => Self::OtherMachine(which),
            Err(NotRead::NotAProgram(what) | NotRead::Damaged(what)) => Self::NotAProgram(what),
        }
    }
}

impl Executable {
    /// `None` if it is a shared library.
    fn of(elf: &Elf<'_>, path: &Path) -> Option<Self> {
        let dynamic = elf.dynamic();
        let linking = Linking::of(elf, &dynamic)?;
        let path = path.canonicalize();
        let symbols = Symbols::of(elf, path.as_deref().unwrap_or(Path::new("")));
        let language = Language::of(elf);
        let is_rust = matches!(language, Language::Rust { .. });
        Some(Self {
            allocator: Allocator::of(elf, &dynamic.needed, is_rust),
            language,
            has_plimsoll: has_plimsoll(elf),
            sanitizer: sanitizer(elf, &dynamic.needed),
            frame_pointers: FramePointers::of(elf),
            unwind_tables: UnwindTables {
                are_there: elf.has_section(".eh_frame"),
                have_index: elf.has_section(".eh_frame_hdr"),
            },
            symbols,
            has_sections: elf.has_sections(),
            linking,
            needed: dynamic.needed,
        })
    }
}

/// Whether the functions of a library's file keep frame pointers; nothing is known of what is none.
pub fn frame_pointers_of_library(path: &Path) -> FramePointers {
    let Ok(file) = find::open(path) else {
        return FramePointers::default();
    };
    let cache = Cache::new(file);
    Elf::parse(&cache).map_or_else(|_| FramePointers::default(), |elf| FramePointers::of(&elf))
}

impl Linking {
    fn of(elf: &Elf<'_>, dynamic: &Dynamic) -> Option<Self> {
        let Some(loader) = elf.loader() else {
            let is_pie = !elf.is_at_fixed_address();
            return (!is_pie || dynamic.is_pie).then_some(Self::Static { is_pie });
        };
        let file = loader.file_name().unwrap_or_default().to_string_lossy();
        let needs = |start: &str| dynamic.needed.iter().any(|name| name.starts_with(start));
        let c_library = if file.starts_with("ld-musl") || needs("libc.musl") {
            CLibrary::Musl
        } else if file.starts_with("ld-linux") || needs("libc.so.6") {
            CLibrary::Glibc
        } else {
            CLibrary::Other
        };
        Some(Self::Dynamic { loader, c_library })
    }
}

impl Language {
    fn of(elf: &Elf<'_>) -> Self {
        if elf.has_section(".go.buildinfo") || elf.has_section(".note.go.buildid") {
            return Self::Go;
        }
        let comment = elf.contents_of(".comment").unwrap_or_default();
        let version = comment
            .split(|&byte| byte == 0)
            .find_map(|line| line.strip_prefix(b"rustc version "))
            .map(|rest| rest.split(|&byte| byte == b' ').next().unwrap_or(rest))
            .map(|version| String::from_utf8_lossy(version).into_owned());
        // Places and messages of panics in the standard library. Builds may remap the places.
        const TEXTS: [&str; 5] = [
            "/rustc|/",
            "library/|core/src/",
            "library/|std/src/",
            "fatal runtime |error: ",
            "called `Option::|unwrap()` on a `None` value",
        ];
        let is_rust = version.is_some() || {
            let texts = elf.contents_of(".rodata").unwrap_or_default();
            TEXTS.iter().any(|text| allocator::contains(&texts, text))
        };
        match is_rust {
            true => Self::Rust { version },
            false => Self::Other,
        }
    }
}

/// Whether the crate is in it: by its functions, or if there is no table of them, by its texts and
/// by what it has in common with the C library.
fn has_plimsoll(elf: &Elf<'_>) -> bool {
    if let Some(mut symbols) = elf.symbols(".symtab") {
        return symbols.any(|symbol| symbol.is_defined && is_of_plimsoll(symbol.name));
    }
    let has = |name: &[u8], is_defined| {
        let mut symbols = elf.symbols(".dynsym").into_iter().flatten();
        symbols.any(|symbol| symbol.name == name && symbol.is_defined == is_defined)
    };
    if has(b"syscall", true) && has(b"__rseq_offset", false) {
        return true;
    }
    let texts = elf.contents_of(".rodata").unwrap_or_default();
    [
        "/plimsoll/heap/|sample-rate:bytes",
        "block_rate, |dump_on, go_names",
        "plimsoll: |lost: ",
    ]
    .into_iter()
    .any(|text| allocator::contains(&texts, text))
}

/// Whether a mangled name is of something in the crate `plimsoll`, and not in another whose name
/// begins or ends like that, or in a program of that name: parts of names have their lengths in
/// front.
fn is_of_plimsoll(name: &[u8]) -> bool {
    const CRATE: &[u8] = b"8plimsoll";
    const MODULES: [&[u8]; 6] = [
        b"5alloc",
        b"6config",
        b"6ledger",
        b"7sampler",
        b"7startup",
        b"5stack",
    ];
    const TYPE: &[u8] = b"$LT$plimsoll..alloc..";
    let is_its = |at: usize| {
        let ends_number = at > 0 && name[at - 1].is_ascii_digit();
        let module = &name[at + CRATE.len()..];
        !ends_number && MODULES.iter().any(|its| module.starts_with(its))
    };
    name.windows(CRATE.len())
        .enumerate()
        .any(|(at, part)| part == CRATE && is_its(at))
        || name.windows(TYPE.len()).any(|part| part == TYPE)
}

fn sanitizer(elf: &Elf<'_>, needed: &[String]) -> Option<&'static str> {
    const SANITIZERS: [(&str, &[u8], &str); 5] = [
        ("AddressSanitizer", b"__asan_init", "libasan."),
        ("HWAddressSanitizer", b"__hwasan_init", "libhwasan."),
        ("ThreadSanitizer", b"__tsan_init", "libtsan."),
        ("MemorySanitizer", b"__msan_init", "libmsan."),
        ("LeakSanitizer", b"__lsan_init", "liblsan."),
    ];
    let by_library =
        |(_, _, library): &&(_, _, &str)| needed.iter().any(|name| name.starts_with(library));
    let by_function = || {
        let symbols = [".dynsym", ".symtab"].map(|table| elf.symbols(table));
        symbols.into_iter().flatten().flatten().find_map(|symbol| {
            let is_its = |(_, function, _): &&(_, &[u8], _)| *function == symbol.name;
            SANITIZERS.iter().find(is_its)
        })
    };
    let found = SANITIZERS.iter().find(by_library).or_else(by_function);
    found.map(|&(name, _, _)| name)
}

impl From<FindError> for Failure {
    fn from(error: FindError) -> Self {
        Self::new(error.name.display(), error.cause).with_code(error.code)
    }
}

/// What is executed for a command in this process's environment.
///
/// # Errors
/// As those of [`Program::find`].
pub fn find_in_environment(name: &OsStr) -> Result<Program, FindError> {
    Program::find(name, env::var_os("PATH").as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_a_rust_program_with_names_and_with_plimsoll() {
        let program = Program::of_file(Path::new("/proc/self/exe"));
        let executable = program.executable().unwrap();
        assert!(matches!(&executable.language, Language::Rust { .. }));
        assert!(matches!(
            &executable.linking,
            Linking::Dynamic {
                c_library: CLibrary::Glibc,
                ..
            }
        ));
        assert!(executable.needed.iter().any(|name| name == "libc.so.6"));
        assert!(executable.has_plimsoll);
        assert_eq!(executable.sanitizer, None);
        assert!(executable.symbols.has_table);
        assert!(executable.unwind_tables.work());
        assert_eq!(executable.allocator, Allocator::default());
        assert_eq!(preload_verdict(&program), Verdict::Inside);
    }

    #[test]
    fn the_crate_is_told_from_others_with_its_name() {
        for yes in [
            "_ZN8plimsoll5alloc5Alloc3new17h0123456789abcdefE",
            "_RNvNtCs5oGfEjMZr7G_8plimsoll5alloc3new",
            "_ZN50_$LT$plimsoll..alloc..Alloc$u20$as$u20$core..X$GT$5alloc17hE",
        ] {
            assert!(is_of_plimsoll(yes.as_bytes()), "{yes}");
        }
        for no in [
            "_ZN12plimsoll_cli9carry_out17h0123456789abcdefE",
            "_RNvCs5oGfEjMZr7G_18plimsoll_interpose4hook",
            "_ZN50_$LT$plimsoll_cli..x$GT$",
            "_ZN8plimsoll4main17h0123456789abcdefE",
            "plimsoll",
            "",
        ] {
            assert!(!is_of_plimsoll(no.as_bytes()), "{no}");
        }
    }
}
