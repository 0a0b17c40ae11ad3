//! Properties of a program's file before it is executed: its linking, its allocator, its unwind
//! information, its symbols. `doctor` prints them. `run` uses them to decide whether a preloaded
//! library would be loaded, and how much it would observe.
//!
//! | module | purpose |
//! |---|---|
//! | `find` | finds the file that a command executes, and follows scripts to their interpreters |
//! | `elf` | reads parts of the file without trusting its contents |
//! | `in_parts` | reads a file in large parts |
//! | `named` | finds symbols by their names in large tables |
//! | `privileges` | decides whether the loader would ignore preloaded libraries |
//! | `arch` | the processors whose programs are examined |
//! | [`allocator`] | recognizes an allocator that is linked in |
//! | `frame_pointers` | detects whether functions keep frame pointers |
//! | `symbols` | finds symbols, debug information, and files with split debug information |
//! | `verdict` | judges whether preloading works |
//! | `wrapper` | finds the program that a shell script executes in its place |

pub mod allocator;
mod arch;
mod elf;
mod find;
mod frame_pointers;
mod in_parts;
mod named;
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
use crate::failure::Failure;

pub use self::arch::Machine;
pub use self::elf::Compression;
pub use self::find::FindError;
pub use self::frame_pointers::{Evidence, FramePointers};
pub use self::symbols::{DebugInformation, Symbols};
pub use self::verdict::{Verdict, preload_verdict, verdict_on_its_machine};

/// A program, identified by its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The file whose code runs. For a script, it is the interpreter's file.
    pub file: PathBuf,
    /// The scripts that led to the file, the requested one first; usually empty.
    pub scripts: Vec<PathBuf>,
    /// The reason why the loader would ignore `LD_PRELOAD`: the program has privileges that this
    /// process lacks. `None` if the loader would not ignore it.
    pub gains: Option<String>,
    /// The contents of the file.
    pub contents: Contents,
}

/// The contents of a program's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// A program.
    Executable(Box<Executable>),
    /// A file that cannot be read; with the reason. It may be executable.
    Unreadable(String),
    /// A program for a kind of machine whose programs are not examined; with its name.
    OtherMachine(&'static str),
    /// Not a program; with a description.
    NotAProgram(&'static str),
}

/// The properties of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// The machine that executes it, which need not be this one.
    pub machine: Machine,
    /// How the program gets its libraries.
    pub linking: Linking,
    /// The file names of its direct dependencies.
    pub needed: Vec<String>,
    /// The language in which it is written, as far as its sections tell. [`Details`] have it for
    /// certain.
    pub language: Language,
    /// Its allocator; the C library's if that was not examined.
    pub allocator: Allocator,
    /// Whether it contains the crate `plimsoll`.
    pub has_plimsoll: bool,
    /// The sanitizer that it was compiled with.
    pub sanitizer: Option<&'static str>,
    /// Whether its file has section headers. Without them, few properties are known.
    pub has_sections: bool,
}

/// How much of a program's file is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// What decides whether a preloaded library is loaded: a small part of the file.
    Loading,
    /// The allocator as well: all symbols, and the constants of a stripped program.
    Allocator,
}

/// Properties of a program that take long to find in a large file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Details {
    /// The language in which it is written.
    pub language: Language,
    /// Whether its functions keep frame pointers.
    pub frame_pointers: FramePointers,
    /// The unwind tables, by which stacks are unwound without frame pointers.
    pub unwind_tables: UnwindTables,
    /// Its symbols and line information.
    pub symbols: Symbols,
}

impl Details {
    /// Returns `None` if the file cannot be read, or is not a program for a known machine.
    pub fn of_file(path: &Path) -> Option<Self> {
        let cache = Cache::new(find::open(path).ok()?);
        let elf = Elf::parse(&cache).ok()?;
        let real = path.canonicalize();
        Some(Self {
            language: Language::of_sections(&elf).or_of_texts(&elf),
            frame_pointers: FramePointers::from_elf(&elf),
            unwind_tables: UnwindTables {
                are_there: elf.has_section(".eh_frame"),
                have_index: elf.has_section(".eh_frame_hdr"),
            },
            symbols: Symbols::from_elf(&elf, real.as_deref().unwrap_or(Path::new(""))),
        })
    }
}

/// How a program gets its libraries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Linking {
    /// The program contains its libraries.
    Static {
        /// Whether it is loaded at a random address.
        is_pie: bool,
    },
    /// The loader loads its libraries and preloaded ones.
    Dynamic {
        /// The loader's path.
        loader: PathBuf,
        /// The C library that the loader belongs to.
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
    /// Another C library.
    Other,
}

/// The language of a program, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// Rust.
    Rust {
        /// The version of the compiler, such as `1.88.0`, if the file contains it.
        version: Option<String>,
    },
    /// Go, whose runtime has its own allocator, locks and threads.
    Go,
    /// C, C++ or any other language.
    #[default]
    Other,
}

/// Unwind tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwindTables {
    /// Whether the file has unwind tables (`.eh_frame`).
    pub are_there: bool,
    /// Whether the file has the sorted index of the unwind tables (`.eh_frame_hdr`), without which
    /// a running program cannot find them.
    pub have_index: bool,
}

impl UnwindTables {
    /// Returns whether Plimsoll can unwind stacks by them.
    pub fn work(&self) -> bool {
        self.are_there && self.have_index
    }
}

impl Program {
    /// Finds and examines the program that the command `name` executes. Follows `execvp(3)` with
    /// `path` as the value of `PATH`. A name with a slash is a path, scripts lead to their
    /// interpreters, and the shell executes files without a format.
    ///
    /// Executes nothing, and does not block on pipes.
    ///
    /// # Errors
    /// The program does not exist, or cannot be executed; with the exit code that shells use.
    pub fn find(name: &OsStr, path: Option<&OsStr>) -> Result<Self, FindError> {
        Self::found(name, path, Extent::Allocator)
    }

    /// The same without the allocator, which takes long to find in a large file.
    ///
    /// # Errors
    /// The errors of [`find`](Self::find).
    pub fn find_to_load(name: &OsStr, path: Option<&OsStr>) -> Result<Self, FindError> {
        Self::found(name, path, Extent::Loading)
    }

    fn found(name: &OsStr, path: Option<&OsStr>, extent: Extent) -> Result<Self, FindError> {
        let found = find::find(name, path)?;
        Ok(Self {
            scripts: found.scripts,
            ..Self::examine(&found.file, extent)
        })
    }

    /// Examines a file, whether it can be executed or not.
    pub fn of_file(file: &Path) -> Self {
        Self::examine(file, Extent::Allocator)
    }

    fn examine(file: &Path, extent: Extent) -> Self {
        let rights = Rights::from_path(file);
        Self {
            file: file.to_owned(),
            scripts: Vec::new(),
            gains: rights.and_then(|rights| rights.gained_by(Identity::of_this_process())),
            contents: Contents::of_file(file, extent),
        }
    }

    /// Returns whether the program is a shell that executes a script.
    pub fn is_shell_of_script(&self) -> bool {
        !self.scripts.is_empty() && wrapper::is_shell(&self.file)
    }

    /// Returns the command that its shell script finally executes in its place. `None` if it is not
    /// a shell script, or if the command depends on expansions of the shell.
    pub fn executed_by_script(&self) -> Option<OsString> {
        let script = self.scripts.last().filter(|_| self.is_shell_of_script())?;
        wrapper::executed_by(script)
    }

    /// Returns its properties; `None` if it cannot be read, or is not a program for a known machine.
    pub fn executable(&self) -> Option<&Executable> {
        match &self.contents {
            Contents::Executable(executable) => Some(executable),
            _ => None,
        }
    }
}

impl Contents {
    fn of_file(path: &Path, extent: Extent) -> Self {
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
            Ok(elf) => Executable::from_elf(&elf, extent)
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
    /// Returns `None` if the file is a shared library.
    fn from_elf(elf: &Elf<'_>, extent: Extent) -> Option<Self> {
        let dynamic = elf.dynamic();
        let linking = Linking::from_elf(elf, &dynamic)?;
        let mut language = Language::of_sections(elf);
        let allocator = match extent {
            Extent::Loading => Allocator::default(),
            Extent::Allocator => Allocator::from_elf(elf, &dynamic.needed, || {
                language = std::mem::take(&mut language).or_of_texts(elf);
                matches!(language, Language::Rust { .. })
            }),
        };
        if !allocator.is_seen_from_outside() {
            language = language.or_of_texts(elf);
        }
        Some(Self {
            machine: elf.machine(),
            allocator,
            language,
            has_plimsoll: has_plimsoll(elf),
            sanitizer: sanitizer(elf, &dynamic.needed),
            has_sections: elf.has_sections(),
            linking,
            needed: dynamic.needed,
        })
    }
}

/// Examines whether the functions of a library keep frame pointers. The result is empty if the file
/// is not a library that can be read.
pub fn frame_pointers_of_library(path: &Path) -> FramePointers {
    let Ok(file) = find::open(path) else {
        return FramePointers::default();
    };
    let cache = Cache::new(file);
    Elf::parse(&cache).map_or_else(
        |_| FramePointers::default(),
        |elf| FramePointers::from_elf(&elf),
    )
}

impl Linking {
    fn from_elf(elf: &Elf<'_>, dynamic: &Dynamic) -> Option<Self> {
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
    /// Returns the language, if the file's sections tell it.
    fn of_sections(elf: &Elf<'_>) -> Self {
        if elf.has_section(".go.buildinfo") || elf.has_section(".note.go.buildid") {
            return Self::Go;
        }
        let comment = elf.contents_of(".comment").unwrap_or_default();
        let version = comment
            .split(|&byte| byte == 0)
            .find_map(|line| line.strip_prefix(b"rustc version "))
            .map(|rest| rest.split(|&byte| byte == b' ').next().unwrap_or(rest))
            .map(|version| String::from_utf8_lossy(version).into_owned());
        match version {
            Some(_) => Self::Rust { version },
            None => Self::Other,
        }
    }

    /// Returns the language; if it is unknown, the one that the file's texts tell. That reads all of
    /// the program's constants.
    fn or_of_texts(self, elf: &Elf<'_>) -> Self {
        if self != Self::Other {
            return self;
        }
        // Source paths and messages of panics in the standard library. Builds may remap the paths.
        const TEXTS: [&str; 5] = [
            "/rustc|/",
            "library/|core/src/",
            "library/|std/src/",
            "fatal runtime |error: ",
            "called `Option::|unwrap()` on a `None` value",
        ];
        let has_text = |piece: &[u8]| {
            let mut texts = TEXTS.iter();
            let is_there = texts.any(|text| allocator::contains(piece, text));
            is_there.then_some(())
        };
        match elf.find_in(".rodata", has_text) {
            Some(()) => Self::Rust { version: None },
            None => Self::Other,
        }
    }
}

/// Returns whether the program contains the crate `plimsoll`, which has a note in each program.
fn has_plimsoll(elf: &Elf<'_>) -> bool {
    elf.note(b"Plimsoll", 1).is_some()
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
        let names = SANITIZERS.map(|(_, function, _)| function);
        let exported = elf.dynamic_symbols_among(&names).into_iter();
        // All that are linked in begin before the program's libraries.
        let may_be_linked_in = elf.has_section(".preinit_array");
        let all = may_be_linked_in.then(|| elf.symbols_among(".symtab", &names));
        exported
            .chain(all.flatten().unwrap_or_default())
            .find_map(|symbol| {
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

/// Finds and examines the program that a command executes in this process's environment.
///
/// # Errors
/// The errors of [`Program::find`].
pub fn find_in_environment(name: &OsStr) -> Result<Program, FindError> {
    Program::find(name, env::var_os("PATH").as_deref())
}

/// The same without the allocator, as [`Program::find_to_load`].
///
/// # Errors
/// The errors of [`Program::find`].
pub fn find_to_load_in_environment(name: &OsStr) -> Result<Program, FindError> {
    Program::find_to_load(name, env::var_os("PATH").as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_a_rust_program_with_names_and_with_plimsoll() {
        // Links the library.
        std::hint::black_box(plimsoll::heap_stats());
        let program = Program::of_file(Path::new("/proc/self/exe"));
        let executable = program.executable().unwrap();
        assert_eq!(Some(executable.machine), Machine::of_this_process());
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
        let details = Details::of_file(Path::new("/proc/self/exe")).unwrap();
        assert!(details.symbols.has_table);
        assert!(details.unwind_tables.work());
        assert_eq!(executable.allocator, Allocator::default());
        assert_eq!(preload_verdict(&program), Verdict::Inside);
        let stripped = env::temp_dir().join(format!("plimsoll-stripped-{}", std::process::id()));
        let mut strip = std::process::Command::new("strip");
        strip.args([OsStr::new("-s"), OsStr::new("-o"), stripped.as_os_str()]);
        match strip.arg(env::current_exe().unwrap()).status() {
            Ok(status) => assert!(status.success()),
            Err(error) => return plimsoll_testkit::skip!("strip: {error}"),
        }
        let program = Program::of_file(&stripped);
        std::fs::remove_file(&stripped).unwrap();
        assert_eq!(preload_verdict(&program), Verdict::Inside);
    }
}
