//! Systems with ELF files and `dl_iterate_phdr`.

use std::ffi::{CStr, c_int, c_void};

use super::{Name, Object, Segment};
use crate::own_memory::probe;
use plimsoll_sys::os::region::PAGE;

#[cfg(target_pointer_width = "64")]
type Header = libc::Elf64_Phdr;
#[cfg(not(target_pointer_width = "64"))]
type Header = libc::Elf32_Phdr;

/// The beginning of a file, up to the last field that is needed here.
#[repr(C)]
struct FileHeader {
    magic: [u8; 4],
    identification: [u8; 12],
    kind: u16,
    machine: u16,
    version: u32,
    entry_point: usize,
    /// The position of the program headers in the file.
    headers: usize,
    sections: usize,
    flags: u32,
    size: u16,
    header_size: u16,
    header_count: u16,
}

const MAGIC: [u8; 4] = *b"\x7fELF";

pub(super) const LISTS_OBJECTS: bool = true;

pub(super) type Segments<'a> = &'a [Header];

type Visit<'a> = &'a mut dyn FnMut(&Object<'_>) -> bool;

pub(super) fn segments<'a>(
    headers: &'a Segments<'_>,
) -> impl Iterator<Item = Segment> + Clone + 'a {
    headers.iter().map(segment)
}

// The fields of the headers are of other types on 32-bit systems.
#[allow(clippy::useless_conversion)]
fn segment(header: &Header) -> Segment {
    Segment {
        kind: header.p_type,
        flags: header.p_flags,
        offset: header.p_offset.into(),
        address: header.p_vaddr.into(),
        file_size: header.p_filesz.into(),
        memory_size: header.p_memsz.into(),
        align: header.p_align.into(),
    }
}

/// # Safety
/// If an object is loaded at `start`, it must stay loaded while the result is used.
pub(super) unsafe fn segments_at<'a>(
    start: usize,
) -> Option<impl Iterator<Item = Segment> + Clone + 'a> {
    if start % PAGE != 0 || !probe::readable(start) {
        return None;
    }
    // SAFETY: the page is readable and stays so, by this function's contract; an object's headers never
    // change. Any words are valid.
    let page = unsafe { std::slice::from_raw_parts(start as *const usize, PAGE_WORDS) };
    segments_in(page)
}

/// The number of words in a page.
const PAGE_WORDS: usize = PAGE / size_of::<usize>();

pub(super) fn segments_in(page: &[usize]) -> Option<impl Iterator<Item = Segment> + Clone + '_> {
    if size_of_val(page) < PAGE {
        return None;
    }
    // SAFETY: the page is longer than the header, and aligned to words. Any bytes are a valid header.
    let header = unsafe { page.as_ptr().cast::<FileHeader>().read() };
    let count = usize::from(header.header_count);
    let end = (count * size_of::<Header>()).checked_add(header.headers)?;
    if header.magic != MAGIC
        || usize::from(header.header_size) != size_of::<Header>()
        || header.headers % align_of::<Header>() != 0
        || end > PAGE
    {
        return None;
    }
    // SAFETY: the headers are aligned and lie within the page, by the check above.
    let headers = unsafe {
        let first = page.as_ptr().cast::<u8>().add(header.headers);
        std::slice::from_raw_parts(first.cast::<Header>(), count)
    };
    Some(headers.iter().map(segment))
}

/// An entry of a dynamic section.
#[repr(C)]
pub struct Dynamic {
    /// What the value is: one of the `DT_` constants.
    pub tag: isize,
    /// A number, or an address as in the file.
    pub value: usize,
}

const PT_DYNAMIC: u32 = 2;
const DT_NULL: isize = 0;
const DT_NEEDED: isize = 1;
/// The table of strings.
pub const DT_STRTAB: isize = 5;
/// The table of symbols.
pub const DT_SYMTAB: isize = 6;
const DT_SYMENT: isize = 11;
const DT_SONAME: isize = 14;
/// The hash table of symbols.
pub const DT_GNU_HASH: isize = 0x6fff_fef5;

/// Returns the entries of the dynamic section at an address, up to the one that ends them.
///
/// # Safety
/// The loader has mapped the section, of so many bytes, and keeps it while the result is used.
pub unsafe fn dynamic_entries<'a>(
    section: usize,
    bytes: usize,
) -> impl Iterator<Item = &'a Dynamic> + Clone {
    let count = bytes / size_of::<Dynamic>();
    // SAFETY: the section is mapped, by this function's contract. Any bytes are valid entries.
    let entries = unsafe { std::slice::from_raw_parts(section as *const Dynamic, count) };
    entries.iter().take_while(|entry| entry.tag != DT_NULL)
}

/// Returns an address of the dynamic section of an object that is loaded at `base`. Some loaders replace
/// addresses of the file there by those in memory.
pub fn dynamic_address(base: usize, value: usize) -> usize {
    match value < base {
        true => base + value,
        false => value,
    }
}

/// Returns the entries of an object's dynamic section.
fn entries_of<'a>(object: &'a Object<'_>) -> Option<impl Iterator<Item = &'a Dynamic> + Clone> {
    let mut segments = object.segments();
    let dynamic = segments.find(|segment| segment.kind == PT_DYNAMIC)?;
    let section = object.base.wrapping_add(dynamic.address as usize);
    // SAFETY: the loader has mapped the section with this object, and keeps it while the borrow of the
    // object lasts.
    Some(unsafe { dynamic_entries(section, dynamic.memory_size as usize) })
}

pub(super) fn names(object: &Object<'_>, visit: &mut dyn FnMut(Name<'_>)) {
    let Some(entries) = entries_of(object) else {
        return;
    };
    let Some(texts) = entries.clone().find(|entry| entry.tag == DT_STRTAB) else {
        return;
    };
    let texts = dynamic_address(object.base, texts.value);
    // SAFETY: the values of these entries are positions of C strings in the table, as the loader reads them.
    let text = |entry: &Dynamic| unsafe { CStr::from_ptr((texts + entry.value) as *const _) };
    for entry in entries {
        match entry.tag {
            DT_NEEDED => visit(Name::Needed(text(entry))),
            DT_SONAME => visit(Name::Own(text(entry))),
            _ => {}
        }
    }
}

pub(super) fn refers_to(object: &Object<'_>, names: &[&CStr]) -> Option<bool> {
    let entries = entries_of(object)?;
    let value = |tag| {
        let found = entries.clone().find(|entry| entry.tag == tag);
        found.map(|entry| entry.value)
    };
    let address = |tag| value(tag).map(|value| dynamic_address(object.base, value));
    let (symbols, texts) = (address(DT_SYMTAB)?, address(DT_STRTAB)?);
    let (hashes, size) = (address(DT_GNU_HASH)?, value(DT_SYMENT)?);
    // SAFETY: a GNU hash table has four numbers, a filter and the buckets. The loader relies on that, and on
    // the rest below, and keeps the object meanwhile.
    let (first, is_empty) = unsafe {
        let [buckets, first, filters] = [0, 1, 2].map(|at| *(hashes as *const u32).add(at));
        let filter = (hashes as *const u32).add(4).cast::<usize>();
        let bucket = filter.add(filters as usize).cast::<u32>();
        (first as usize, buckets == 1 && *bucket == 0)
    };
    // In an empty table, some linkers write 1 in place of the index.
    if is_empty {
        return None;
    }
    // The first symbol in the table follows all symbols of other objects.
    // SAFETY: each symbol begins with the position of its name, a C string in the table of names.
    let name = |at: usize| unsafe {
        let name = ((symbols + at * size) as *const u32).read() as usize;
        CStr::from_ptr((texts + name) as *const _)
    };
    Some((0..first).any(|at| names.contains(&name(at))))
}

pub(super) fn each_object(mut visit: Visit<'_>) {
    // SAFETY: `visit_object` has the callback's signature and expects a `Visit`; `visit` outlives
    // the call.
    unsafe { libc::dl_iterate_phdr(Some(visit_object), (&raw mut visit).cast()) };
}

// The counts are of other types on some systems.
#[allow(clippy::useless_conversion)]
unsafe extern "C" fn visit_object(
    info: *mut libc::dl_phdr_info,
    _: usize,
    visit: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid info with `dlpi_phnum` headers. `visit` is the pointer that
    // `each_object` passes, to a variable that it does not use during the call.
    let (info, visit) = unsafe { (&*info, &mut *visit.cast::<Visit<'_>>()) };
    let segments = if info.dlpi_phdr.is_null() {
        &[]
    } else {
        // SAFETY: the loader passes `dlpi_phnum` headers at `dlpi_phdr`, which is not null.
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) }
    };
    let name = if info.dlpi_name.is_null() {
        c""
    } else {
        // SAFETY: `dlpi_name` is not null, so it is a C string of the loader.
        unsafe { CStr::from_ptr(info.dlpi_name) }
    };
    let goes_on = visit(&Object {
        name,
        base: info.dlpi_addr as usize,
        counts: (info.dlpi_adds.into(), info.dlpi_subs.into()),
        segments,
    });
    c_int::from(!goes_on)
}

pub(super) fn function(name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string, and `dlsym` only searches for a symbol.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}
