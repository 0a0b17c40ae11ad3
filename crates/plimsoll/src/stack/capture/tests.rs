//! Code that is not in the module list.

use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;

use super::super::modules::Lookup;
use super::*;

/// A library that depends on nothing.
const LIBRARY: &[u8] = include_bytes!("../../symbol/tests/fixtures/four.so");

/// Where a library begins that is loaded from here on, for good, by `load`.
fn load(name: &str, load: impl FnOnce(&CString) -> *mut c_void) -> usize {
    let path = std::env::temp_dir().join(format!("plimsoll-{name}-{}.so", std::process::id()));
    std::fs::write(&path, LIBRARY).unwrap();
    let library = load(&CString::new(path.as_os_str().as_bytes()).unwrap());
    std::fs::remove_file(&path).unwrap();
    assert!(!library.is_null());
    // SAFETY: the library is loaded; a `link_map` begins with the address that it is loaded at.
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
fn a_walk_with_the_list_before_is_answered_after_a_refresh() {
    prepare(None);
    // What a walk does that began before this refresh, and met a new library.
    refresh_modules();
    unknown_code::met_at(1);
    // Nothing has changed since. Another thread may note another address beside this one.
    refresh_modules();
    assert_ne!(unknown_code::take(), 1, "no walk calls again");
}

#[test]
fn only_code_of_objects_that_were_loaded_since_is_stale() {
    // Later ones are not there for good.
    ModuleList::from_loader();
    let base = load("known", open);
    let list = ModuleList::from_loader();
    // Its head is no code.
    assert!(matches!(list.look_up(base), Lookup::NotCode));
    let later = load("later", open);
    for address in [later, later + 0x1000] {
        assert!(matches!(list.look_up(address), Lookup::Stale));
    }
    assert!(matches!(list.look_up(base), Lookup::NotCode));
    let list = list.successor(later).expect("there is a new library");
    assert!(matches!(list.look_up(later), Lookup::NotCode));
}

/// The loader finds it by address and never lists it, so that walks would ask for it for ever.
#[test]
#[cfg_attr(plimsoll_sanitized, ignore = "sanitizers fail with namespaces")]
fn an_object_of_another_namespace_is_asked_for_once() {
    ModuleList::from_loader();
    let base = load("unlisted", |path| {
        // SAFETY: the library has no code that runs on loading.
        unsafe { libc::dlmopen(libc::LM_ID_NEWLM, path.as_ptr(), libc::RTLD_NOW) }
    });
    let list = ModuleList::from_loader();
    assert!(matches!(list.look_up(base), Lookup::Stale));
    // Until no other test loads a library in between.
    let mut list = list.successor(base).expect("it has to be noted");
    while let Lookup::Stale = list.look_up(base) {
        list = list.successor(base).expect("it has to be noted");
    }
    assert!(matches!(list.look_up(base), Lookup::NotCode));
}
