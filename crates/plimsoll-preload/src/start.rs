//! What is done before `main`: what is wanted is read from the environment, which is then as if
//! nothing had been said, so that the program and its children find it as it was.
//!
//! | variable | what it says |
//! |---|---|
//! | `PLIMSOLL_RUN` | settings, in the grammar of `PLIMSOLL` |
//! | `PLIMSOLL_RUN_TO` | the directory for reports |
//! | `PLIMSOLL_RUN_CHILDREN` | that there are to be reports of children and of what they execute, too: then the environment stays |

use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use plimsoll::preload;

use crate::{execution, memory, signals};

/// Variables that only this library knows.
const OURS: [&CStr; 3] = [
    c"PLIMSOLL_RUN",
    c"PLIMSOLL_RUN_TO",
    c"PLIMSOLL_RUN_CHILDREN",
];

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;

extern "C" fn at_start() {
    let variable = |name: &CStr| {
        // SAFETY: before `main`, nobody changes the environment.
        let value = unsafe { libc::getenv(name.as_ptr()) };
        // SAFETY: a string of the environment, used up at once.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
    };
    let directory = variable(OURS[1]);
    let children = variable(OURS[2]).is_some();
    if let Some(directory) = directory {
        let directory = PathBuf::from(OsStr::from_bytes(directory.to_bytes()));
        let door = memory::malloc as *const c_void;
        preload::begin(directory, door, children);
        signals::prepare();
    }
    if !children {
        execution::prepare(variables(), library());
        leave_no_trace();
    }
}

/// What set this library off, to be handed on.
fn variables() -> Vec<CString> {
    let variable = |name: &&CStr| {
        // SAFETY: before `main`, nobody changes the environment.
        let value = unsafe { libc::getenv(name.as_ptr()) };
        if value.is_null() {
            return None;
        }
        // SAFETY: a string of the environment.
        let value = unsafe { CStr::from_ptr(value) };
        CString::new([name.to_bytes(), b"=", value.to_bytes()].concat()).ok()
    };
    OURS.iter().filter_map(variable).collect()
}

/// The path that this library was loaded by: the first that is preloaded.
fn library() -> Vec<u8> {
    // SAFETY: as above.
    unsafe {
        let list = libc::getenv(c"LD_PRELOAD".as_ptr());
        if list.is_null() {
            return Vec::new();
        }
        let mut paths = CStr::from_ptr(list).to_bytes().split(|&at| at == b':');
        paths.next().unwrap_or_default().to_vec()
    }
}

/// Takes out of the environment what set this library off.
fn leave_no_trace() {
    for name in OURS {
        // SAFETY: a name; before `main`, nobody else looks at the environment.
        unsafe { libc::unsetenv(name.as_ptr()) };
    }
    // SAFETY: as above; what was there is made shorter in its place.
    unsafe {
        let list = libc::getenv(c"LD_PRELOAD".as_ptr());
        if list.is_null() {
            return;
        }
        // The command puts this library before what was there.
        let rest = CStr::from_ptr(list)
            .to_bytes()
            .iter()
            .position(|&at| at == b':');
        match rest {
            None => {
                libc::unsetenv(c"LD_PRELOAD".as_ptr());
            }
            Some(colon) => {
                let rest = list.add(colon + 1);
                std::ptr::copy(rest, list, CStr::from_ptr(rest).to_bytes_with_nul().len());
            }
        }
    }
}
