//! What is done before `main`: what is wanted is read from the environment, which is then as if
//! nothing had been said, so that the program and its children find it as it was.
//!
//! | variable | what it says |
//! |---|---|
//! | `PLIMSOLL_RUN` | settings, in the grammar of `PLIMSOLL` |
//! | `PLIMSOLL_RUN_TO` | the directory for reports |
//! | `PLIMSOLL_RUN_CHILDREN` | that there are to be reports of children and of what they execute, too: then the environment stays |
//!
//! A process with elevated privileges (setuid, setgid, file capabilities) obeys none of them.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use plimsoll::preload;

use crate::{ending, execution, signals};

/// Variables that only this library knows.
const OURS: [&str; 3] = ["PLIMSOLL_RUN", "PLIMSOLL_RUN_TO", "PLIMSOLL_RUN_CHILDREN"];

/// What the loader reads.
const PRELOAD: &str = "LD_PRELOAD";

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    preload::open();
    if !preload::may_obey_environment() {
        return leave_no_trace();
    }
    let children = variable(OURS[2]).is_some();
    if let Some(directory) = variable(OURS[1]) {
        let directory = PathBuf::from(OsStr::from_bytes(directory));
        preload::begin(directory, children);
        signals::prepare();
        ending::prepare();
    }
    if children {
        note_use(library());
    } else {
        execution::prepare(variables(), library());
        leave_no_trace();
    }
}

/// What is executed may long outlive the command, which removes libraries that have not been used
/// for a month.
fn note_use(library: Vec<u8>) {
    if let Ok(library) = CString::new(library) {
        // SAFETY: a string; no times are now. Somebody else's file stays as it is.
        unsafe { libc::utimensat(libc::AT_FDCWD, library.as_ptr(), std::ptr::null(), 0) };
    }
}

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

/// The entries of the environment. The C library's functions for that may be the program's own, as
/// a shell's are.
fn entries() -> impl Iterator<Item = *mut *mut c_char> {
    // SAFETY: a list of strings up to a null; before `main`, nobody changes it.
    let mut at = unsafe { environ };
    std::iter::from_fn(move || {
        // SAFETY: as above.
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

/// What is behind the name and the sign of equality, if this is the entry of that name.
fn value_in(entry: *mut *mut c_char, name: &str) -> Option<&'static [u8]> {
    // SAFETY: a string of the environment, which stays.
    let text = unsafe { CStr::from_ptr(*entry) }.to_bytes();
    text.strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

fn variable(name: &str) -> Option<&'static [u8]> {
    entries().find_map(|entry| value_in(entry, name))
}

/// What set this library off, to be handed on.
fn variables() -> Vec<CString> {
    let variable = |name: &&str| {
        let value = variable(name)?;
        CString::new([name.as_bytes(), b"=", value].concat()).ok()
    };
    OURS.iter().filter_map(variable).collect()
}

/// The path that this library was loaded by: the command puts it before others.
fn library() -> Vec<u8> {
    let list = variable(PRELOAD).unwrap_or_default();
    list.split(|&at| at == b':')
        .next()
        .unwrap_or_default()
        .to_vec()
}

/// Takes out of the environment what set this library off.
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
            // SAFETY: the rest, and the null behind it, are moved to the front of the list, which
            // nobody looks at meanwhile.
            unsafe { std::ptr::copy(rest.as_ptr(), list.as_ptr().cast_mut(), rest.len() + 1) };
        }
        // SAFETY: an earlier place of the same list, or the same.
        unsafe {
            if let Some(place) = kept.next() {
                *place = *entry;
            }
        }
    }
    // SAFETY: the place behind those that were kept.
    unsafe {
        if let Some(place) = kept.next() {
            *place = std::ptr::null_mut();
        }
    }
}
