//! Stacks through libraries that are called as soon as they are loaded.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use plimsoll::profile::{self, Format};

use crate::process::{allocate_in_callback, build_plugin, write_profile};
use plimsoll_testkit::child;

const LIBRARIES: usize = 50;

/// The number of calls of each library.
const CALLS: usize = 10;

/// Builds the plugin that is copied, in a new directory.
fn build_original() -> (PathBuf, CString) {
    let directory = std::env::temp_dir().join(format!("plimsoll-storm-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let plugin = build_plugin(&directory, "stormy", 10);
    (directory, plugin)
}

/// Loads a copy of the plugin `original`, which is never unloaded, and returns its function.
fn load_copy(
    directory: &Path,
    original: &CString,
    number: usize,
) -> extern "C" fn(extern "C" fn()) {
    let copy = directory.join(format!("copy{number}.so"));
    std::fs::copy(original.to_str().unwrap(), &copy).unwrap();
    let path = CString::new(copy.as_os_str().as_bytes()).unwrap();
    // SAFETY: `build_plugin` built the library with this function; it is never closed.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!library.is_null());
        std::mem::transmute(libc::dlsym(library, c"stormy".as_ptr()))
    }
}

/// Returns the records of `allocs` whose stack contains `allocate_in_callback`.
fn records_of_callbacks() -> Vec<String> {
    let mut text = Vec::new();
    let allocs = profile::lookup("allocs").expect("built in");
    allocs.write_to(&mut text, Format::Text).unwrap();
    let text = String::from_utf8(text).unwrap();
    text.split("\n\n")
        .filter(|record| record.contains("allocate_in_callback"))
        .map(str::to_owned)
        .collect()
}

/// Without a maintenance thread, only `write_profile` refreshes the module list.
fn storm_without_refresh() {
    // Makes the module list.
    write_profile();
    let (directory, plugin) = build_original();
    for number in 0..LIBRARIES {
        let call = load_copy(&directory, &plugin, number);
        for _ in 0..CALLS {
            call(allocate_in_callback);
        }
    }
    assert_eq!(profile::lost_events().cut_stacks, 0);
    let records = records_of_callbacks();
    assert!(records.len() >= LIBRARIES, "{} records", records.len());
    for record in records {
        let at = |name: &str| {
            let mut lines = record.lines();
            let found = lines.position(|line| line.starts_with('#') && line.contains(name));
            found.unwrap_or_else(|| panic!("{name} in {record}"))
        };
        assert!(at("allocate_in_callback") < at("stormy+"), "{record}");
        assert!(at("stormy+") < at("storm_without_refresh"), "{record}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn stacks_pass_through_libraries_that_the_module_list_lacks() {
    child::run(
        "late_libraries::stacks_pass_through_libraries_that_the_module_list_lacks",
        "heap_rate=1,unwinder=tables",
        storm_without_refresh,
    );
}

/// Two threads walk stacks while the maintenance thread replaces the list.
fn storm_during_refreshes() {
    let _plimsoll = plimsoll::start();
    let (directory, plugin) = build_original();
    for number in 0..LIBRARIES {
        let call = load_copy(&directory, &plugin, number);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..CALLS {
                        call(allocate_in_callback);
                    }
                });
            }
        });
    }
    assert_eq!(profile::lost_events().cut_stacks, 0);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn no_stack_is_cut_while_the_module_list_is_replaced() {
    child::run(
        "late_libraries::no_stack_is_cut_while_the_module_list_is_replaced",
        "heap_rate=1,unwinder=tables",
        storm_during_refreshes,
    );
}
