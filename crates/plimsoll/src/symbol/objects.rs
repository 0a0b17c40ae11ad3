//! The program and its libraries, as the dynamic loader has them.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::elf::{PT_LOAD, PT_NOTE, Segment};
use super::notes::build_id_in;
use crate::os::loader;

/// One of them.
pub(super) struct Object {
    /// Empty for the program.
    pub(super) path: PathBuf,
    /// True for the program, as opposed to its libraries.
    pub(super) is_program: bool,
    /// What to add to an address as stated in the file.
    pub(super) base: usize,
    /// The segments that are loaded.
    pub(super) loaded: Vec<Segment>,
    /// From the notes in memory; empty if it has none.
    pub(super) build_id: Vec<u8>,
}

impl Object {
    /// The address ranges of its code.
    pub(super) fn code(&self) -> impl Iterator<Item = Range<usize>> {
        let code = self
            .loaded
            .iter()
            .filter(|segment| segment.flags & libc::PF_X != 0);
        code.map(|segment| in_memory(self.base, segment))
    }

    /// The lowest address of its code, as stated in the file.
    #[cfg(feature = "symbolize")]
    pub(super) fn code_start(&self) -> u64 {
        let start = self.code().map(|code| code.start).min().unwrap_or(0);
        start.wrapping_sub(self.base) as u64
    }
}

/// All of them, at this moment; the program comes first. Takes the loader's lock.
pub(super) fn loaded() -> Vec<Object> {
    let mut objects = Vec::new();
    // SAFETY: the callback matches, and `objects` outlives the call.
    unsafe { loader::each_object(collect, (&raw mut objects).cast()) };
    objects
}

unsafe extern "C" fn collect(
    info: *mut libc::dl_phdr_info,
    _: usize,
    objects: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid info with `dlpi_phnum` headers; `objects` is `loaded`'s.
    let (info, objects) = unsafe { (&*info, &mut *objects.cast::<Vec<Object>>()) };
    let headers = if info.dlpi_phdr.is_null() {
        &[]
    } else {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) }
    };
    let path = if info.dlpi_name.is_null() {
        PathBuf::new()
    } else {
        // SAFETY: a name, if there is one, is a C string.
        PathBuf::from(OsStr::from_bytes(
            unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes(),
        ))
    };
    let base = info.dlpi_addr as usize;
    let segments = || headers.iter().map(segment);
    let loaded: Vec<Segment> = segments()
        .filter(|segment| segment.kind == PT_LOAD)
        .collect();
    let build_id = segments()
        .filter(|segment| segment.kind == PT_NOTE && is_within_one(segment, &loaded))
        // SAFETY: the notes lie within a segment that is loaded, and the loader's lock, which is
        // held during this call, keeps it from being unloaded.
        .find_map(|segment| unsafe {
            let notes = in_memory(base, &segment);
            let notes = std::slice::from_raw_parts(notes.start as *const u8, notes.len());
            build_id_in(notes, segment.align).map(<[u8]>::to_vec)
        })
        .unwrap_or_default();
    objects.push(Object {
        path,
        is_program: objects.is_empty(),
        base,
        loaded,
        build_id,
    });
    0
}

fn segment(header: &libc::Elf64_Phdr) -> Segment {
    Segment {
        kind: header.p_type,
        flags: header.p_flags,
        offset: header.p_offset,
        address: header.p_vaddr,
        file_size: header.p_filesz,
        memory_size: header.p_memsz,
        align: header.p_align,
    }
}

fn in_memory(base: usize, segment: &Segment) -> Range<usize> {
    let start = base.wrapping_add(segment.address as usize);
    start..start.saturating_add(segment.memory_size as usize)
}

/// Some tools move notes to where the loader does not map them.
fn is_within_one(inner: &Segment, loaded: &[Segment]) -> bool {
    let end = |segment: &Segment| segment.address.saturating_add(segment.memory_size);
    loaded.iter().any(|outer| {
        outer.flags & libc::PF_R != 0 && outer.address <= inner.address && end(inner) <= end(outer)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_comes_first_and_holds_this_code() {
        let objects = loaded();
        let here = loaded as *const () as usize;
        let holds_this: Vec<bool> = objects
            .iter()
            .map(|object| object.code().any(|code| code.contains(&here)))
            .collect();
        assert!(objects[0].is_program && holds_this[0]);
        assert_eq!(holds_this.iter().filter(|&&holds| holds).count(), 1);
        assert_eq!(objects.iter().filter(|object| object.is_program).count(), 1);
    }
}
