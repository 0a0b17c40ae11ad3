//! The program and its libraries, with the tables from which their code can be unwound.
//!
//! A list is made outside of hooks, from what the dynamic loader has mapped, and then never
//! changed: when something was loaded or unloaded, a new list takes its place (see
//! [`super::capture`]).
//!
//! What was there when the program started can never be unloaded, so a stack in it is unwound from
//! the list without further ado. For a library that was loaded later, the loader is asked first
//! whether it is still the one in the list; glibc's `_dl_find_object` answers that without a lock.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;

use framehop::x86_64::UnwinderX86_64;
use framehop::{ExplicitModuleSectionInfo, MustNotAllocateDuringUnwind};

use super::frame_pointers::{self, Tables};
use crate::primitives::{AtomicUsize, Ordering};

pub(crate) type TableUnwinder = UnwinderX86_64<&'static [u8], MustNotAllocateDuringUnwind>;

/// One generation of the module list.
pub(crate) struct ModuleList {
    pub(crate) unwinder: TableUnwinder,
    /// Sorted by start.
    modules: Vec<Module>,
    /// The loader's counts of what it has loaded and unloaded, at the time.
    counts: (u64, u64),
    /// The program's own tables, if this code is part of it.
    program: Option<Tables>,
}

struct Module {
    code: Range<usize>,
    /// Mapped before `main`, so never unmapped.
    permanent: bool,
    eh_frame_hdr: usize,
}

/// How the code at an address can be unwound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// By the list's tables.
    Known,
    /// Not by this list: something was loaded or unloaded since.
    Stale,
    /// Not by any list: generated code, or a jump into nowhere.
    NotCode,
}

/// How many objects there were in the first listing; later ones are not permanent.
static LISTED_AT_START: AtomicUsize = AtomicUsize::new(0);

/// `_dl_find_object`, or 0 where the C library has none.
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

impl ModuleList {
    /// Asks the loader. Takes its lock and allocates: not for hooks.
    pub(crate) fn from_loader() -> Self {
        let mut found = Listing {
            modules: Vec::new(),
            counts: (0, 0),
        };
        // SAFETY: the callback matches, and `found` outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut found).cast()) };
        let listed = found.modules.len();
        let first =
            LISTED_AT_START.compare_exchange(0, listed, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            // SAFETY: looks a function up by name.
            let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
            FIND_OBJECT.store(function as usize, Ordering::Release);
        }
        // The loader lists objects in the order in which it loaded them, the program first. If this
        // code is not part of the program, it may have been loaded itself after others that can go.
        let here = Self::from_loader as *const () as usize;
        let in_program = found
            .modules
            .first()
            .is_some_and(|program| program.code.contains(&here));
        let permanent = if in_program {
            first.err().unwrap_or(listed)
        } else {
            1
        };
        let program = found
            .modules
            .first()
            .filter(|_| in_program)
            .and_then(|program| {
                let (hdr, eh_frame) = program.tables.as_ref()?;
                // SAFETY: in segments of the program, which is never unmapped.
                Some(unsafe { Tables::new(hdr, eh_frame) })
            });
        let mut unwinder = TableUnwinder::new();
        let mut modules = Vec::new();
        for (position, object) in found.modules.into_iter().enumerate() {
            modules.push(Module {
                code: object.code.clone(),
                permanent: position < permanent,
                eh_frame_hdr: object.tables.as_ref().map_or(0, |(hdr, _)| hdr.start),
            });
            unwinder_add(&mut unwinder, object);
        }
        modules.sort_by_key(|module| module.code.start);
        Self {
            unwinder,
            modules,
            counts: found.counts,
            program,
        }
    }

    /// True if nothing was loaded or unloaded since. Takes the loader's lock: not for hooks.
    pub(crate) fn is_current(&self) -> bool {
        let mut counts = (0u64, 0u64);
        unsafe extern "C" fn first(
            info: *mut libc::dl_phdr_info,
            _: usize,
            counts: *mut c_void,
        ) -> c_int {
            // SAFETY: the loader passes a valid info, and `counts` is the caller's.
            unsafe { *counts.cast::<(u64, u64)>() = ((*info).dlpi_adds, (*info).dlpi_subs) };
            1
        }
        // SAFETY: the callback matches, and `counts` outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut counts).cast()) };
        counts == self.counts
    }

    /// Whether the program was compiled with frame pointers throughout. False if this code is in a
    /// library, from which the program cannot be judged.
    pub(crate) fn has_frame_pointers(&self) -> bool {
        self.program
            .as_ref()
            .is_some_and(frame_pointers::kept_throughout)
    }

    /// How the code at `address` can be unwound, now.
    #[inline]
    pub(crate) fn look_up(&self, address: usize) -> Lookup {
        let after = self
            .modules
            .partition_point(|module| module.code.start <= address);
        let module = after
            .checked_sub(1)
            .map(|at| &self.modules[at])
            .filter(|m| address < m.code.end);
        if let Some(module) = module {
            if module.permanent {
                return Lookup::Known;
            }
        }
        match (find_object(address), module) {
            (Some(eh_frame_hdr), Some(module)) if eh_frame_hdr == module.eh_frame_hdr => {
                Lookup::Known
            }
            (Some(_), _) => Lookup::Stale,
            (None, _) => Lookup::NotCode,
        }
    }
}

/// The unwind table header of the object that is mapped at an address. Lock-free; for hooks.
fn find_object(address: usize) -> Option<usize> {
    let function = FIND_OBJECT.load(Ordering::Acquire);
    if function == 0 {
        return None;
    }
    // SAFETY: the address of glibc's function of this type; it is async-signal-safe.
    unsafe {
        let function: unsafe extern "C" fn(*const c_void, *mut FoundObject) -> c_int =
            std::mem::transmute(function);
        let mut found: FoundObject = std::mem::zeroed();
        (function(address as *const c_void, &raw mut found) == 0).then_some(found.eh_frame as usize)
    }
}

/// What the loader says of one object, as addresses in this process.
struct Object {
    name: String,
    base: usize,
    code: Range<usize>,
    /// `.eh_frame_hdr`, and `.eh_frame` up to the end of its segment.
    tables: Option<(Range<usize>, Range<usize>)>,
}

struct Listing {
    modules: Vec<Object>,
    counts: (u64, u64),
}

unsafe extern "C" fn collect(
    info: *mut libc::dl_phdr_info,
    _: usize,
    listing: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid info with `dlpi_phnum` headers; `listing` is
    // `from_loader`'s.
    let (info, listing) = unsafe { (&*info, &mut *listing.cast::<Listing>()) };
    listing.counts = (info.dlpi_adds, info.dlpi_subs);
    // SAFETY: as above.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let base = info.dlpi_addr as usize;
    let range = |header: &libc::Elf64_Phdr| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        start..start.wrapping_add(header.p_memsz as usize)
    };
    let mut code: Option<Range<usize>> = None;
    let mut eh_frame_hdr = None;
    for header in headers {
        match header.p_type {
            libc::PT_LOAD if header.p_flags & libc::PF_X != 0 => {
                let segment = range(header);
                code = Some(match code {
                    Some(code) => code.start.min(segment.start)..code.end.max(segment.end),
                    None => segment,
                });
            }
            libc::PT_GNU_EH_FRAME => eh_frame_hdr = Some(range(header)),
            _ => {}
        }
    }
    // Here, while the loader's lock keeps the object where it is.
    let tables = eh_frame_hdr.and_then(|hdr| {
        let holds = |header: &&libc::Elf64_Phdr| {
            header.p_type == libc::PT_LOAD && range(header).contains(&hdr.start)
        };
        let end = range(headers.iter().find(holds)?).end;
        let start = eh_frame_start(&hdr)?;
        (start < end).then_some((hdr, start..end))
    });
    let name = if info.dlpi_name.is_null() {
        String::new()
    } else {
        // SAFETY: a name, if there is one, is a C string.
        unsafe { CStr::from_ptr(info.dlpi_name) }
            .to_string_lossy()
            .into_owned()
    };
    // Objects without code are kept too: positions tell what was there at the start.
    listing.modules.push(Object {
        name,
        base,
        code: code.unwrap_or(0..0),
        tables,
    });
    0
}

/// Hands an object's unwind tables, where they lie in memory, to the unwinder.
fn unwinder_add(unwinder: &mut TableUnwinder, object: Object) {
    use framehop::Unwinder;
    let Some((hdr, eh_frame)) = object.tables.filter(|_| !object.code.is_empty()) else {
        return;
    };
    // SAFETY: both lie within a segment that the loader has mapped and that stays mapped as long as
    // code in it can be on a stack; `look_up` is asked before they are read.
    let bytes = |range: &Range<usize>| unsafe {
        std::slice::from_raw_parts(range.start as *const u8, range.len())
    };
    let stated =
        |range: &Range<usize>| (range.start - object.base) as u64..(range.end - object.base) as u64;
    let sections = ExplicitModuleSectionInfo {
        eh_frame_hdr_svma: Some(stated(&hdr)),
        eh_frame_hdr: Some(bytes(&hdr)),
        eh_frame_svma: Some(stated(&eh_frame)),
        eh_frame: Some(bytes(&eh_frame)),
        ..Default::default()
    };
    let code = object.code.start as u64..object.code.end as u64;
    unwinder.add_module(framehop::Module::new(
        object.name,
        code,
        object.base as u64,
        sections,
    ));
}

/// Where `.eh_frame` begins, from the header: a signed 32-bit distance from the field itself, which
/// is the only form that linkers write.
fn eh_frame_start(hdr: &Range<usize>) -> Option<usize> {
    const VERSION: u8 = 1;
    const PC_RELATIVE_SIGNED_4: u8 = 0x1b;
    if hdr.len() < 8 {
        return None;
    }
    // SAFETY: the header lies in a mapped segment and is at least this long.
    let bytes = unsafe { (hdr.start as *const [u8; 8]).read_unaligned() };
    if bytes[0] != VERSION || bytes[1] != PC_RELATIVE_SIGNED_4 {
        return None;
    }
    let distance = i32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    Some((hdr.start + 4).wrapping_add_signed(distance as isize))
}
