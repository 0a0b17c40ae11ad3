//! The allocator that a program contains, judged by its file.
//!
//! A preloaded library observes calls of `malloc` that go through the dynamic linker. An allocator
//! that is linked into the program is called directly. If the program exports it as `malloc`, all
//! calls in the process go to it, because the program's definition precedes the preloaded
//! library's.

use memchr::memmem;

use super::elf::{Elf, Symbol};

/// The allocator of a program, as far as its file shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocator {
    /// The name of a known allocator that is linked in.
    pub linked: Option<&'static str>,
    /// Whether the program defines `malloc` or the allocation function of a known allocator, and by
    /// which evidence.
    pub own: Own,
    /// Whether the symbol table of the file has the functions of the allocator, so that they can be
    /// redirected even if they are not exported.
    pub is_named: bool,
    /// The file name of a library in its dependencies that is an allocator.
    pub library: Option<String>,
}

/// Whether a program contains an allocator, and the evidence for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Own {
    /// No allocator was found.
    #[default]
    No,
    /// The program exports `malloc`: all allocations of the process go there, including those of
    /// its libraries.
    Exported,
    /// The program defines `malloc`, or a known allocation function, without exporting it.
    /// Libraries use the C library's `malloc`.
    Linked,
    /// The program is stripped, and contains texts of a known allocator.
    Texts,
    /// A Rust program that does not call the functions that the standard library's `System` calls.
    /// So its `#[global_allocator]` is another allocator, whose name is unknown.
    NotTheSystems,
}

/// An allocator that is known by name.
struct Known {
    name: &'static str,
    /// Functions that only this allocator defines.
    functions: &'static [&'static str],
    /// The beginnings of its library's file names.
    libraries: &'static [&'static str],
    /// A text that it contains, in the form that [`contains`] takes.
    text: &'static str,
}

const KNOWN: [Known; 7] = [
    Known {
        name: "jemalloc",
        functions: &[
            "_rjem_malloc",
            "_rjem_mallocx",
            "_rjem_mallctl",
            "je_malloc",
            "je_mallocx",
            "je_mallctl",
            "mallctlnametomib",
            "jemalloc_constructor",
            "jemalloc_prefork",
        ],
        libraries: &["libjemalloc."],
        text: "<jemal|loc>: ",
    },
    Known {
        name: "mimalloc",
        functions: &["mi_malloc", "mi_malloc_aligned", "mi_heap_malloc"],
        libraries: &["libmimalloc.", "libmimalloc-"],
        text: "mimal|loc: ",
    },
    Known {
        name: "tcmalloc",
        functions: &[
            "tc_malloc",
            "TCMallocInternalMalloc",
            "TCMalloc_Internal_TryAlloc",
        ],
        libraries: &["libtcmalloc.", "libtcmalloc_"],
        text: "TCMALLOC_|SAMPLE_PARAMETER",
    },
    Known {
        name: "snmalloc",
        functions: &["sn_malloc", "sn_rust_alloc", "rust_alloc_snmalloc"],
        libraries: &["libsnmalloc"],
        text: "SNMAL|LOC_",
    },
    Known {
        name: "rpmalloc",
        functions: &["rpmalloc", "rpaligned_alloc", "rpmalloc_initialize"],
        libraries: &["librpmalloc"],
        text: "rpmalloc_|finalize",
    },
    Known {
        name: "Scudo",
        functions: &["scudo_malloc", "__scudo_get_error_info"],
        libraries: &["libscudo", "libclang_rt.scudo"],
        text: "Scudo| ERROR",
    },
    Known {
        name: "PartitionAlloc",
        functions: &[],
        libraries: &[],
        text: "partition_alloc/|allocated_objects",
    },
];

impl Allocator {
    /// Returns whether a preloaded library observes the program's allocations.
    pub fn is_seen_from_outside(&self) -> bool {
        self.own == Own::No
    }

    /// Returns the name of the program's allocator, unless it is the C library's.
    pub fn name(&self) -> Option<&str> {
        match (self.linked, &self.library) {
            (Some(name), _) => Some(name),
            (None, _) if self.own == Own::NotTheSystems => Some("its own #[global_allocator]"),
            (None, _) if self.own != Own::No => Some("its own malloc"),
            (None, Some(library)) => Some(library),
            (None, None) => None,
        }
    }

    /// `is_rust` is called only if the result depends on it.
    pub(super) fn from_elf(
        elf: &Elf<'_>,
        needed: &[String],
        is_rust: impl FnOnce() -> bool,
    ) -> Self {
        let functions = KNOWN.iter().flat_map(|known| known.functions);
        let mut names: Vec<&[u8]> = functions.map(|name| name.as_bytes()).collect();
        names.extend([&b"malloc"[..], PYTHONS]);
        let exported = elf.dynamic_symbols_among(&names);
        let is_python = exported.iter().any(|symbol| symbol.name == PYTHONS);
        let exported = exported.into_iter();
        let all = elf.symbols_among(".symtab", &names);
        let is_stripped = all.is_none();
        let all = all.unwrap_or_default();
        let redirected = ["_rjem_", "je_", "mi_"];
        let is_named = all.iter().any(|symbol| {
            let is = |prefix: &str| symbol.name.starts_with(prefix.as_bytes());
            symbol.is_defined && redirected.into_iter().any(is)
        });
        let mut found = Self::in_symbols(exported, all.into_iter());
        found.is_named = is_named;
        found.library = needed.iter().find(|name| is_allocator(name)).cloned();
        if is_stripped && found.linked.is_none() {
            found.linked = in_constants(elf);
            if found.linked.is_some() && found.own == Own::No {
                found.own = Own::Texts;
            }
        }
        if is_python && found.linked == Some("mimalloc") && found.own != Own::Exported {
            (found.linked, found.own, found.is_named) = (None, Own::No, false);
        }
        // If the standard library is a shared library, `System` is in that library.
        let is_std_apart = needed.iter().any(|name| {
            let parts = ["libstd-", "librustc_driver-"];
            parts.iter().any(|start| name.starts_with(start))
        });
        if !is_std_apart && found.own == Own::No {
            let called = elf.dynamic_symbols_among(&CALLED_BY_SYSTEM);
            let calls = called.iter().any(|its| !its.is_defined);
            if elf.has_section(".dynsym") && !calls && is_rust() {
                found.own = Own::NotTheSystems;
            }
        }
        found
    }

    fn in_symbols<'a>(
        exported: impl Iterator<Item = Symbol<'a>>,
        all: impl Iterator<Item = Symbol<'a>>,
    ) -> Self {
        let mut found = Self::default();
        let symbols = exported
            .map(|symbol| (symbol, true))
            .chain(all.map(|symbol| (symbol, false)));
        for (symbol, is_exported) in symbols.filter(|(symbol, _)| symbol.is_defined) {
            if let Some(known) = by_function(symbol.name) {
                found.linked = found.linked.or(Some(known));
                if found.own == Own::No {
                    found.own = Own::Linked;
                }
            }
            match symbol.name {
                b"malloc" if is_exported => found.own = Own::Exported,
                b"malloc" if found.own == Own::No => found.own = Own::Linked,
                _ => {}
            }
        }
        found
    }
}

/// Returns the name of the known allocator in a library, from the library's path or file name.
pub fn library(path: &str) -> Option<&'static str> {
    let file = path.rsplit('/').next().unwrap_or(path);
    let is_it = |known: &&Known| known.libraries.iter().any(|start| file.starts_with(start));
    KNOWN.iter().find(is_it).map(|known| known.name)
}

/// Returns whether a library is an allocator. Includes rare ones that behave as the known ones do.
fn is_allocator(name: &str) -> bool {
    library(name).is_some() || name.starts_with("libhoard") || name.starts_with("libmesh.")
}

fn by_function(name: &[u8]) -> Option<&'static str> {
    let is_it = |known: &&Known| known.functions.iter().any(|its| its.as_bytes() == name);
    KNOWN.iter().find(is_it).map(|known| known.name)
}

/// Functions that the standard library's `System` calls. `malloc` proves nothing, because other parts
/// of the standard library call it too.
const CALLED_BY_SYSTEM: [&[u8]; 4] = [b"calloc", b"posix_memalign", b"aligned_alloc", b"memalign"];

/// A symbol of Python's interpreter. From 3.13 on, it contains mimalloc for its own blocks, but calls the
/// C library for all memory unless the environment selects mimalloc.
const PYTHONS: &[u8] = b"_PyRuntime";

/// Returns the name of the first known allocator of which the program's constants contain a text.
fn in_constants(elf: &Elf<'_>) -> Option<&'static str> {
    let mut first = KNOWN.len();
    elf.find_in(".rodata", |piece| {
        first = in_texts(piece, &KNOWN[..first]).unwrap_or(first);
        (first == 0).then_some(())
    });
    KNOWN.get(first).map(|known| known.name)
}

/// Returns the position of the first of these allocators of which `texts` contains a text.
fn in_texts(texts: &[u8], allocators: &[Known]) -> Option<usize> {
    let mut allocators = allocators.iter();
    allocators.position(|known| contains(texts, known.text))
}

/// Returns whether `bytes` contains a text. `marked` is the text with a mark (`|`) in it, which is
/// ignored. So an executable that contains the list of marked texts does not match.
pub(super) fn contains(bytes: &[u8], marked: &str) -> bool {
    let text: Vec<u8> = marked.bytes().filter(|&byte| byte != b'|').collect();
    memmem::find(bytes, &text).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols(names: &[&'static str]) -> Vec<Symbol<'static>> {
        let symbol = |name: &&'static str| Symbol {
            // A question mark stands for a symbol that is used but not defined.
            name: name.strip_prefix('?').unwrap_or(name).as_bytes(),
            is_defined: !name.starts_with('?'),
            is_function: true,
            address: 0x1000,
            size: 16,
        };
        names.iter().map(symbol).collect()
    }

    fn found(exported: &[&'static str], all: &[&'static str]) -> Allocator {
        Allocator::in_symbols(symbols(exported).into_iter(), symbols(all).into_iter())
    }

    #[test]
    fn a_program_that_only_calls_malloc_has_none() {
        let found = found(
            &["?malloc", "?free", "main"],
            &["?malloc@GLIBC_2.2.5", "main"],
        );
        assert_eq!(found, Allocator::default());
        assert!(found.is_seen_from_outside());
        assert_eq!(found.name(), None);
    }

    #[test]
    fn an_exported_malloc_serves_the_whole_process() {
        let found = found(&["malloc", "free"], &["malloc", "free", "main"]);
        assert_eq!(found.own, Own::Exported);
        assert_eq!(found.name(), Some("its own malloc"));
        assert!(!found.is_seen_from_outside());
    }

    #[test]
    fn known_allocators_are_recognised_by_their_functions() {
        for (function, name) in [
            ("_rjem_malloc", "jemalloc"),
            ("je_malloc", "jemalloc"),
            ("mi_malloc", "mimalloc"),
            ("tc_malloc", "tcmalloc"),
            ("sn_rust_alloc", "snmalloc"),
            ("rpmalloc", "rpmalloc"),
        ] {
            let linked = found(&[], &["main", function]);
            assert_eq!((linked.linked, linked.own), (Some(name), Own::Linked));
            let exported = found(&["malloc"], &["malloc", function]);
            assert_eq!((exported.linked, exported.own), (Some(name), Own::Exported));
            let used = found(&[&*format!("?{function}").leak()], &[]);
            assert_eq!(used, Allocator::default(), "that is a library's");
        }
        assert_eq!(found(&[], &["my_je_malloc", "mi_malloc2"]).own, Own::No);
    }

    #[test]
    fn libraries_are_recognised_by_their_file_names() {
        assert_eq!(library("/usr/lib/libjemalloc.so.2"), Some("jemalloc"));
        assert_eq!(library("libmimalloc.so.2.1"), Some("mimalloc"));
        assert_eq!(library("libmimalloc-secure.so.2"), Some("mimalloc"));
        assert_eq!(library("libtcmalloc_minimal.so.4"), Some("tcmalloc"));
        assert_eq!(library("libsnmallocshim.so"), Some("snmalloc"));
        assert_eq!(library("/opt/libjemalloc.d/libc.so.6"), None);
        assert_eq!(library("libc.so.6"), None);
    }

    #[test]
    fn texts_are_found_wherever_they_are() {
        let with = |text: &str| {
            let texts = format!("abc\0<jemalloc<{text}\0");
            in_texts(texts.as_bytes(), &KNOWN).map(|at| KNOWN[at].name)
        };
        let (jemalloc, mimalloc) = (["<jemal", "loc>: "].concat(), ["mimal", "loc: "].concat());
        assert_eq!(with(&jemalloc), Some("jemalloc"));
        assert_eq!(with(&mimalloc), Some("mimalloc"));
        assert_eq!(with(""), None);
        assert_eq!(with(&[mimalloc, jemalloc].concat()), Some("jemalloc"));
        assert_eq!(in_texts(b"", &KNOWN), None);
    }
}
