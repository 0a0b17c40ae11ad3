//! Work before `main`. Reads the settings of `plimsoll run` from the environment and removes them,
//! so that the program and its children see the original environment.
//!
//! | variable | meaning |
//! |---|---|
//! | `PLIMSOLL_RUN` | settings, in the grammar of `PLIMSOLL` |
//! | `PLIMSOLL_RUN_TO` | the directory for reports |
//! | `PLIMSOLL_RUN_CHILDREN` | requests reports of children and of programs that they execute; the
//! environment then stays |
//! | `PLIMSOLL_RUN_WALL` | requests a wall-clock profile |
//! | `PLIMSOLL_RUN_FILTERS` | the number of system call filters of the command |
//!
//! A process with elevated privileges (setuid, setgid, file capabilities) ignores all of them, and so does one with a
//! system call filter that the command does not have, or with pages of a size that is not supported.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::reporting;
use plimsoll_sys::os::{filter, region::is_page_size_supported};

use crate::{ending, execution, malloc, relocation, signals};

/// Variables that only this library reads.
const OURS: [&str; 5] = [
    "PLIMSOLL_RUN",
    "PLIMSOLL_RUN_TO",
    "PLIMSOLL_RUN_CHILDREN",
    "PLIMSOLL_RUN_WALL",
    "PLIMSOLL_RUN_FILTERS",
];

/// The variable in which the loader finds preloaded libraries.
const PRELOAD: &str = "LD_PRELOAD";

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    relocation::keep();
    reporting::open();
    if !reporting::may_obey_environment() || filter::is_restricted() || !is_page_size_supported() {
        return leave_no_trace();
    }
    let children = variable(OURS[2]).is_some();
    if let Some(directory) = variable(OURS[1]) {
        let directory = PathBuf::from(OsStr::from_bytes(directory));
        let wall = variable(OURS[3]).is_some();
        reporting::begin(&malloc::Library, directory, children, wall);
        signals::prepare();
        ending::prepare();
        reporting::call_around_filters(signals::before_filter, signals::prepare);
    }
    execution::prepare(variables(), library(), children);
    if children {
        note_use(library());
    } else {
        leave_no_trace();
    }
}

/// Updates the times of the library's file. An executed program may outlive the command by far, and
/// the command removes libraries that were not used for a month.
fn note_use(library: Vec<u8>) {
    if let Ok(library) = CString::new(library) {
        // SAFETY: the path is a C string, and null times mean the current time. If the file belongs
        // to another user, the call fails without effect.
        unsafe { libc::utimensat(libc::AT_FDCWD, library.as_ptr(), std::ptr::null(), 0) };
    }
}

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

/// Returns the entries of the environment. The C library's functions for this may be replaced by
/// the program, as shells do.
fn entries() -> impl Iterator<Item = *mut *mut c_char> {
    // SAFETY: before `main`, no other thread changes `environ`.
    let mut at = unsafe { environ };
    std::iter::from_fn(move || {
        // SAFETY: `at` is null or points into a null-terminated list, which no other thread changes
        // before `main`.
        unsafe {
            if at.is_null() || (*at).is_null() {
                return None;
            }
            let entry = at;
            at = at.add(1);
            Some(entry)
        }
    })
}

/// Returns the value of an entry, if it is the variable of that name.
fn value_in(entry: *mut *mut c_char, name: &str) -> Option<&'static [u8]> {
    // SAFETY: the entry is a C string of the environment, which is never freed.
    let text = unsafe { CStr::from_ptr(*entry) }.to_bytes();
    text.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

fn variable(name: &str) -> Option<&'static [u8]> {
    entries().find_map(|entry| value_in(entry, name))
}

/// Returns the variables of `plimsoll run`, for programs that this process executes.
fn variables() -> Vec<CString> {
    let variable = |name: &&str| {
        let value = variable(name)?;
        CString::new([name.as_bytes(), b"=", value].concat()).ok()
    };
    OURS.iter().filter_map(variable).collect()
}

/// Returns the path of this library, which the command puts before all others.
fn library() -> Vec<u8> {
    let list = variable(PRELOAD).unwrap_or_default();
    list.split(|&at| at == b':')
        .next()
        .unwrap_or_default()
        .to_vec()
}

/// Removes the variables of `plimsoll run`, and this library, from the environment.
fn leave_no_trace() {
    let mut kept = entries();
    for entry in entries() {
        if OURS.iter().any(|name| value_in(entry, name).is_some()) {
            continue;
        }
        if let Some(list) = value_in(entry, PRELOAD) {
            let Some(colon) = list.iter().position(|&at| at == b':') else {
                continue;
            };
            let rest = &list[colon + 1..];
            // SAFETY: moves the rest and its NUL to the front of the same string. No other thread
            // reads the environment before `main`.
            unsafe { std::ptr::copy(rest.as_ptr(), list.as_ptr().cast_mut(), rest.len() + 1) };
        }
        // SAFETY: `place` is an entry of the same list, at or before `entry`.
        unsafe {
            if let Some(place) = kept.next() {
                *place = *entry;
            }
        }
    }
    // SAFETY: `place` is the entry after those that were kept.
    unsafe {
        if let Some(place) = kept.next() {
            *place = std::ptr::null_mut();
        }
    }
}
