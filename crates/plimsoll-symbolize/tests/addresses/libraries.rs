//! Libraries loaded while the program runs, from files made by another compiler. See
//! `fixtures/README.md`.

#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_symbolize::{Detail, Mapping, resolve};

use super::{Call, calls_at, mapping_of};

const FOUR: &[u8] = include_bytes!("../fixtures/four.so");
const FIVE: &[u8] = include_bytes!("../fixtures/five.so");
const ZLIB: &[u8] = include_bytes!("../fixtures/zlib.so");
const LTO: &[u8] = include_bytes!("../fixtures/lto.so");
const SKELETON: &[u8] = include_bytes!("../fixtures/skeleton.so");
const SPLIT: &[u8] = include_bytes!("../fixtures/split.so");
const SPLIT_DEBUG: &[u8] = include_bytes!("../fixtures/split.debug");

/// A directory that is removed when the value is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("plimsoll-symbol-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path.canonicalize().unwrap())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Writes a library, and loads it for the rest of the process.
    fn load(&self, name: &str, bytes: &[u8]) -> Library {
        let path = self.write(name, bytes);
        let c_path = [path.as_os_str().as_bytes(), b"\0"].concat();
        let c_path = CStr::from_bytes_with_nul(&c_path).unwrap();
        // SAFETY: the library has no code that runs on loading.
        let handle = unsafe { libc::dlopen(c_path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{}", path.display());
        Library {
            path,
            handle: handle as usize,
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Library {
    path: PathBuf,
    handle: usize,
}

impl Library {
    /// Returns the return address of an imaginary one-byte call at the symbol.
    fn after(&self, symbol: &CStr) -> usize {
        // SAFETY: `load` returned the handle, and the library is never closed.
        let found = unsafe { libc::dlsym(self.handle as *mut _, symbol.as_ptr()) };
        assert!(!found.is_null(), "{symbol:?}");
        found as usize + 1
    }
}

const INNERMOST: &CStr = c"mark_innermost";

fn flags(mapping: &Mapping) -> [bool; 4] {
    let Mapping {
        has_functions,
        has_filenames,
        has_line_numbers,
        has_inline_frames,
        ..
    } = mapping;
    [
        *has_functions,
        *has_filenames,
        *has_line_numbers,
        *has_inline_frames,
    ]
}

/// Checks all that can be resolved at the fixtures' marks.
#[cfg(feature = "debug-info")]
fn assert_all_calls_are_found(library: &Library, directory: &str) {
    let file = &*format!("{directory}/calls.c");
    let call = |name, start_line, line| Call {
        name,
        file,
        start_line,
        line,
    };
    let marks = [
        c"mark_innermost",
        c"mark_middle",
        c"mark_outer",
        c"mark_hidden",
    ];
    let addresses = marks.map(|mark| library.after(mark));
    let symbols = resolve(&addresses, Detail::Full);
    let [innermost, middle, outer, hidden] = addresses.map(|at| calls_at(&symbols, at));
    let chain = [
        call("innermost", 6, 8),
        call("middle", 11, 13),
        call("outer", 17, 20),
    ];
    assert_eq!(innermost, chain);
    assert_eq!(middle, [call("middle", 11, 14), call("outer", 17, 20)]);
    assert_eq!(outer, [call("outer", 17, 22)]);
    assert_eq!(hidden, [call("hidden", 26, 28)]);
    let mapping = mapping_of(&symbols, addresses[0]);
    assert_eq!(flags(mapping), [true; 4]);
    assert_eq!(mapping.file, library.path.to_str().unwrap());
    let offset = |at: usize| symbols.location(at).unwrap().symbol_offset;
    assert_eq!(
        offset(addresses[0]),
        Some(addresses[0] - (library.after(c"outer") - 1))
    );
}

#[cfg(feature = "debug-info")]
#[test]
fn inlined_calls_are_found_in_every_form_of_debug_information() {
    let directory = Directory::new();
    let forms = [
        ("/four", FOUR),
        ("/five", FIVE),
        ("/zlib", ZLIB),
        ("/lto", LTO),
    ];
    for (at, (form, bytes)) in forms.into_iter().enumerate() {
        assert_all_calls_are_found(&directory.load(&format!("{at}.so"), bytes), form);
    }
}

#[cfg(feature = "debug-info")]
#[test]
fn debug_information_in_a_file_of_its_own_is_found_by_its_link() {
    let directory = Directory::new();
    directory.write("split.debug", SPLIT_DEBUG);
    assert_all_calls_are_found(&directory.load("split.so", SPLIT), "/split");
    let hidden = Directory::new();
    std::fs::create_dir(hidden.0.join(".debug")).unwrap();
    hidden.write(".debug/split.debug", SPLIT_DEBUG);
    assert_all_calls_are_found(&hidden.load("split.so", SPLIT), "/split");
}

/// The loaded library has no build id. So its file is identified by its layout, and the file with
/// debug information by the checksum in the link.
#[cfg(feature = "debug-info")]
#[test]
fn layout_and_sum_are_compared_without_a_build_id() {
    let mut bytes = SPLIT.to_vec();
    let note = b"GNU\0\x07\x07\x07\x07";
    let at = bytes
        .windows(note.len())
        .position(|part| part == note)
        .unwrap();
    bytes[at] = b'X';
    let directory = Directory::new();
    let library = directory.load("split.so", &bytes);
    directory.write("split.debug", SPLIT_DEBUG);
    assert_all_calls_are_found(&library, "/split");
    let mut damaged = SPLIT_DEBUG.to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    directory.write("split.debug", &damaged);
    let outer = library.after(INNERMOST);
    assert_eq!(
        calls_at(&resolve(&[outer], Detail::Full), outer)[0].file,
        ""
    );
    assert_eq!(
        calls_at(&resolve(&[outer], Detail::Full), outer)[0].name,
        "outer"
    );
    // The same layout does not suffice once another file is at the path.
    let copy = directory.write("copy.so", &bytes);
    std::fs::rename(copy, &library.path).unwrap();
    assert!(calls_at(&resolve(&[outer], Detail::Full), outer).is_empty());
}

#[test]
fn a_debug_file_of_another_build_is_not_believed() {
    let directory = Directory::new();
    directory.write("split.debug", FIVE);
    let library = directory.load("split.so", SPLIT);
    let outer = library.after(INNERMOST);
    let symbols = resolve(&[outer], Detail::Full);
    let name = "outer";
    let expected = [Call {
        name,
        file: "",
        start_line: 0,
        line: 0,
    }];
    assert_eq!(
        calls_at(&symbols, outer),
        expected,
        "the dynamic symbol table's"
    );
}

#[test]
fn stripped_libraries_have_the_names_of_the_dynamic_symbol_table() {
    let directory = Directory::new();
    let library = directory.load("split.so", SPLIT);
    let (outer, hidden) = (library.after(INNERMOST), library.after(c"mark_hidden"));
    for detail in [Detail::Full, Detail::Names] {
        let symbols = resolve(&[outer], detail);
        let name = "outer";
        let expected = [Call {
            name,
            file: "",
            start_line: 0,
            line: 0,
        }];
        assert_eq!(calls_at(&symbols, outer), expected);
        assert_eq!(
            flags(mapping_of(&symbols, outer)),
            [true, false, false, false]
        );
        let symbols = resolve(&[outer, hidden], detail);
        let calls = calls_at(&symbols, hidden);
        let mapping = mapping_of(&symbols, hidden);
        let offset = hidden as u64 - 1 - mapping.start + mapping.offset;
        let name = &*format!("split.so+{offset:#x}");
        assert_eq!(
            calls,
            [Call {
                name,
                ..expected[0]
            }],
            "not in that table"
        );
        assert!(symbols.location(outer).unwrap().is_named);
        assert!(!symbols.location(hidden).unwrap().is_named);
        assert_eq!(
            flags(mapping_of(&symbols, outer)),
            [true, false, false, false],
            "readers do not look the names up again"
        );
    }
}

#[cfg(feature = "debug-info")]
#[test]
fn a_library_without_its_split_units_has_lines_but_no_inlined_calls() {
    let directory = Directory::new();
    let library = directory.load("skeleton.so", SKELETON);
    let innermost = library.after(INNERMOST);
    let symbols = resolve(&[innermost], Detail::Full);
    let expected = Call {
        name: "outer",
        file: "/skeleton/calls.c",
        start_line: 0,
        line: 8,
    };
    assert_eq!(calls_at(&symbols, innermost), [expected]);
    assert_eq!(
        flags(mapping_of(&symbols, innermost)),
        [true, true, true, false]
    );
}

#[test]
fn labels_reach_to_the_end_of_their_section_and_no_further() {
    let directory = Directory::new();
    let library = directory.load("five.so", FIVE);
    let label = library.after(c"bare");
    let symbols = resolve(&[label, label + 1, label + 2], Detail::Names);
    let names = |at| {
        calls_at(&symbols, at)
            .iter()
            .map(|call| call.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(label), ["bare"]);
    assert_eq!(names(label + 1), ["bare"]);
    let mapping = mapping_of(&symbols, label);
    let behind = label as u64 + 1 - mapping.start + mapping.offset;
    assert_eq!(names(label + 2), [format!("five.so+{behind:#x}")]);
    assert_eq!(symbols.location(label + 1).unwrap().symbol_offset, Some(2));
}

#[test]
fn functions_of_one_name_differ_by_mapping_and_file() {
    let directory = Directory::new();
    let libraries = [
        directory.load("one.so", FOUR),
        directory.load("two.so", FIVE),
    ];
    let marks = libraries
        .each_ref()
        .map(|library| library.after(c"mark_outer"));
    let symbols = resolve(&marks, Detail::Full);
    for (library, mark) in libraries.iter().zip(marks) {
        assert_eq!(
            mapping_of(&symbols, mark).file,
            library.path.to_str().unwrap()
        );
        assert_eq!(calls_at(&symbols, mark)[0].name, "outer");
    }
    let build_ids = marks.map(|mark| mapping_of(&symbols, mark).build_id.as_str());
    assert_eq!(build_ids, ["04040404", "05050505"]);
    if cfg!(feature = "debug-info") {
        let files = marks.map(|mark| calls_at(&symbols, mark)[0].file);
        assert_eq!(files, ["/four/calls.c", "/five/calls.c"]);
        assert_eq!(symbols.functions.len(), 2);
    }
}

#[test]
fn a_library_that_was_replaced_or_removed_has_addresses_only() {
    let directory = Directory::new();
    let library = directory.load("upgraded.so", FOUR);
    let innermost = library.after(INNERMOST);
    let replacement = directory.write("new.so", FIVE);
    let assert_addresses_only = || {
        for detail in [Detail::Full, Detail::Names] {
            let symbols = resolve(&[innermost], detail);
            assert!(calls_at(&symbols, innermost).is_empty());
            let mapping = mapping_of(&symbols, innermost);
            assert_eq!(flags(mapping), [false; 4]);
            assert_eq!(mapping.build_id, "04040404", "the file is loaded");
            assert_eq!(mapping.file, library.path.to_str().unwrap());
        }
    };
    assert!(!calls_at(&resolve(&[innermost], Detail::Names), innermost).is_empty());
    std::fs::rename(replacement, &library.path).unwrap();
    assert_addresses_only();
    std::fs::remove_file(&library.path).unwrap();
    assert_addresses_only();
    // A file of the same build may come back.
    directory.write("upgraded.so", FOUR);
    assert!(!calls_at(&resolve(&[innermost], Detail::Names), innermost).is_empty());
}

#[test]
fn libraries_of_the_system_have_names() {
    // SAFETY: the mathematics library runs no code on loading; the names are C strings.
    let cbrt = unsafe {
        let library = libc::dlopen(c"libm.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        libc::dlsym(library, c"cbrt".as_ptr())
    };
    assert!(!cbrt.is_null());
    let after = cbrt as usize + 1;
    let symbols = resolve(&[after], Detail::Names);
    assert_eq!(calls_at(&symbols, after)[0].name, "cbrt");
    assert_eq!(symbols.location(after).unwrap().symbol_offset, Some(1));
    let mapping = mapping_of(&symbols, after);
    assert!(mapping.file.contains("/libm") && mapping.has_functions);
}
