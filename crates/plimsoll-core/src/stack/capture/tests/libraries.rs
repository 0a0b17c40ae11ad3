//! Libraries that are loaded while the list is in use. Static programs load none.

use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use plimsoll_unwind::modules::Lookup;

use super::*;

/// A library without dependencies.
#[cfg(target_arch = "x86_64")]
const LIBRARY: &[u8] = include_bytes!("../../../../../plimsoll-symbolize/tests/fixtures/four.so");
#[cfg(target_arch = "aarch64")]
const LIBRARY: &[u8] =
    include_bytes!("../../../../../plimsoll-symbolize/tests/fixtures/aarch64.so");

/// Loads a copy of the library with `load`, for good. Returns its load address.
fn load(name: &str, load: impl FnOnce(&CString) -> *mut c_void) -> usize {
    let path = std::env::temp_dir().join(format!("plimsoll-{name}-{}.so", std::process::id()));
    std::fs::write(&path, LIBRARY).unwrap();
    let library = load(&CString::new(path.as_os_str().as_bytes()).unwrap());
    std::fs::remove_file(&path).unwrap();
    assert!(!library.is_null());
    // SAFETY: the library is loaded; a `link_map` begins with the load address.
    unsafe {
        let mut map = ptr::null_mut::<usize>();
        let status = libc::dlinfo(library, libc::RTLD_DI_LINKMAP, (&raw mut map).cast());
        assert_eq!(status, 0);
        *map
    }
}

fn open(path: &CString) -> *mut c_void {
    // SAFETY: the library has no code that runs on loading.
    unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }
}

#[test]
fn only_code_of_objects_that_were_loaded_since_is_stale() {
    // Objects loaded later may be unloaded.
    ModuleList::from_loader();
    let base = load("known", open);
    let list = ModuleList::from_loader();
    // The head of the library is not code.
    assert!(matches!(list.look_up(base), Lookup::NotCode));
    let later = load("later", open);
    for address in [later, later + 0x1000] {
        assert!(matches!(list.look_up(address), Lookup::Stale(_)));
    }
    assert!(matches!(list.look_up(base), Lookup::NotCode));
    let list = list.successor(later).expect("a new library is loaded");
    assert!(matches!(list.look_up(later), Lookup::NotCode));
}

/// The loader finds the object by address but never lists it. Without a note, walks would request a
/// refresh each time.
#[test]
#[cfg_attr(plimsoll_sanitized, ignore = "sanitizers fail with namespaces")]
fn an_object_of_another_namespace_is_requested_once() {
    ModuleList::from_loader();
    let base = load("unlisted", |path| {
        // SAFETY: the library has no code that runs on loading.
        unsafe { libc::dlmopen(libc::LM_ID_NEWLM, path.as_ptr(), libc::RTLD_NOW) }
    });
    let list = ModuleList::from_loader();
    assert!(matches!(list.look_up(base), Lookup::Stale(_)));
    // Repeats until no other test loads a library in between.
    let mut list = list.successor(base).expect("the library must be recorded");
    while let Lookup::Stale(_) = list.look_up(base) {
        list = list.successor(base).expect("the library must be recorded");
    }
    assert!(matches!(list.look_up(base), Lookup::Unlisted(_)));
}

/// The lock keeps other tests from refreshing the list and taking the request.
#[test]
fn a_walk_that_meets_a_new_library_requests_a_refresh() {
    prepare(None);
    let slot = take_slot().expect("the pool has free slots");
    let alone = lock_lists();
    let start = Start::Here(Registers {
        instruction: load("requested", open) as u64 + 0x3a0,
        frame: 0,
        ..Registers::here()
    });
    unknown_code::take();
    let (mut context, mut trail, mut frames) = (Context::new_in(), Trail::new(), [0; 8]);
    let frames = Frames::leaf_end(&mut frames);
    let (walk, remembered) = walk_by_tables(start, slot, &mut context, &mut trail, frames);
    assert_ne!(unknown_code::take(), 0);
    // The library has no tables, and the frame pointer leads nowhere.
    assert_eq!(walk.end, End::Lost);
    assert!(remembered.is_none());
    drop(alone);
    slot.owner.store(0, Ordering::Release);
    refresh_modules();
}
