//! Finds the object at an address through the loader's index, rather than the module list.
//!
//! glibc's `_dl_find_object` searches this index without a lock. The loader adds an object to the
//! index before it runs its constructors, and removes it after its destructors, before it unmaps it.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use plimsoll_sys::primitives::{AtomicUsize, Ordering};

/// The address of `_dl_find_object`, or 0 if the C library lacks it.
static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);

/// The head of glibc's `struct dl_find_object`.
#[repr(C)]
struct FoundObject {
    flags: u64,
    map_start: *const c_void,
    map_end: *const c_void,
    link_map: *const c_void,
    eh_frame: *const c_void,
    reserved: [u64; 7],
}

/// An object that was loaded when it was found.
#[derive(Clone, Debug)]
pub struct LoadedObject {
    /// Its addresses.
    pub mapped: Range<usize>,
    /// The address of its unwind table header; 0 if missing.
    pub eh_frame_hdr: usize,
}

/// Looks up the loader's function that [`LoadedObject::at`] calls. Not for use in hooks.
pub fn prepare() {
    let function = super::function(c"_dl_find_object");
    FIND_OBJECT.store(function as usize, Ordering::Release);
}

impl LoadedObject {
    /// Returns the object that is mapped at an address. Lock-free; safe to call in hooks.
    pub fn at(address: usize) -> Option<Self> {
        let function = FIND_OBJECT.load(Ordering::Acquire);
        if function == 0 {
            return None;
        }
        // SAFETY: `function` is the address of glibc's `_dl_find_object`, which has this type and
        // is async-signal-safe. Zeros are a valid `FoundObject`.
        unsafe {
            let function: unsafe extern "C" fn(*const c_void, *mut FoundObject) -> c_int =
                std::mem::transmute(function);
            let mut found: FoundObject = std::mem::zeroed();
            (function(address as *const c_void, &raw mut found) == 0).then_some(Self {
                mapped: found.map_start as usize..found.map_end as usize,
                eh_frame_hdr: found.eh_frame as usize,
            })
        }
    }
}
