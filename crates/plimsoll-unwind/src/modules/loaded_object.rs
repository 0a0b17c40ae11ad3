//! The module of an object that the loader's index has, and the module list may lack.

use plimsoll_process::loader::{self, LoadedObject};
use plimsoll_sys::os::region::page_size;

use super::Module;

/// Reads the object's segments and unwind tables from its memory. Returns `None` if its first
/// segment does not begin with its program headers, or if they contradict the loader's index.
/// Takes no lock and does not allocate; safe to call in hooks.
///
/// # Safety
/// The object must stay loaded while the result is used.
pub(crate) unsafe fn module_of(object: &LoadedObject) -> Option<Module> {
    // SAFETY: the object stays loaded, by this function's contract.
    let segments = unsafe { loader::segments_at(object.mapped.start) }?;
    let mut loaded = segments
        .clone()
        .filter(|segment| segment.kind == loader::LOAD);
    let first = loaded.next()?.address as usize & !(page_size() - 1);
    let base = object.mapped.start.wrapping_sub(first);
    // SAFETY: the object stays loaded, by this function's contract.
    let module = unsafe { Module::new(base, segments) };
    (module.eh_frame_hdr == object.eh_frame_hdr).then_some(module)
}
