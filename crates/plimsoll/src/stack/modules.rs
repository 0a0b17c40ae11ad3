//! The program and its libraries, with the tables from which their code can be unwound.
//!
//! A list is made outside of hooks, from what the dynamic loader has mapped, and then never
//! changed: when something was loaded or unloaded, a new list takes its place (see
//! [`super::capture`]).
//!
//! What was there when the program started can never be unloaded, so a stack in it is unwound from
//! the list without further ado. For a library that was loaded later, the loader is asked first
//! whether it is still the one in the list; glibc's `_dl_find_object` answers that without a lock.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, ParsedEhFrameHdr};

use super::frame_pointers;
use crate::os::loader;
use crate::primitives::{AtomicU32, AtomicUsize, Ordering};

/// One generation of the module list.
pub(crate) struct ModuleList {
    /// Sorted by where they are mapped.
    modules: Vec<Module>,
    /// The loader's counts of what it has loaded and unloaded, at the time.
    counts: (u64, u64),
    /// Never 0.
    generation: u16,
    /// Whether the first module is the program, and this code is part of it.
    in_program: bool,
    /// Where the program is mapped.
    program: usize,
    /// Objects that the loader finds by address and does not list: those of other namespaces, which
    /// `dlmopen` makes.
    unlisted: Vec<Range<usize>>,
}

struct Module {
    /// All of its segments, and what lies between them.
    mapped: Range<usize>,
    /// Empty if it has none.
    code: Range<usize>,
    /// Mapped before `main`, so never unmapped.
    permanent: bool,
    /// Where `.eh_frame_hdr` begins; 0 if there is none.
    eh_frame_hdr: usize,
    cfi: Option<Cfi>,
}

/// A module's call frame information, in memory.
pub(crate) struct Cfi {
    pub(super) hdr: ParsedEhFrameHdr<EndianSlice<'static, LittleEndian>>,
    pub(super) eh_frame: EhFrame<EndianSlice<'static, LittleEndian>>,
    pub(super) bases: BaseAddresses,
    /// Where `.eh_frame_hdr` is.
    pub(super) hdr_range: Range<usize>,
}

/// How the code at an address can be unwound.
pub(super) enum Lookup<'a> {
    /// By these tables, at any time.
    Permanent(&'a Cfi),
    /// By these tables, now.
    Current(&'a Cfi),
    /// Not by this list: something was loaded or unloaded since.
    Stale,
    /// Not by any list: generated code, code without tables, or no code at all.
    NotCode,
}

/// How many objects there were in the first listing; later ones are not permanent.
static LISTED_AT_START: AtomicUsize = AtomicUsize::new(0);

/// `_dl_find_object`, or 0 where the C library has none.
static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);

static GENERATIONS: AtomicU32 = AtomicU32::new(0);

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
        unsafe { loader::each_object(collect, (&raw mut found).cast()) };
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
            .map_or(0, |program| program.mapped.start);
        let mut modules = found.modules;
        for module in modules.iter_mut().take(permanent) {
            module.permanent = true;
        }
        modules.retain(|module| !module.mapped.is_empty());
        modules.sort_by_key(|module| module.mapped.start);
        let generation = (GENERATIONS.fetch_add(1, Ordering::Relaxed) % 0xffff) as u16 + 1;
        Self {
            modules,
            counts: found.counts,
            generation,
            in_program,
            program,
            unlisted: Vec::new(),
        }
    }

    /// Returns the list that replaces this one: if the loader has loaded or unloaded something, or
    /// if the loader finds an object at the address `unknown` that this list does not know. Not for
    /// hooks.
    pub(super) fn successor(&self, unknown: usize) -> Option<Self> {
        if !self.is_current() {
            return Some(Self::from_loader());
        }
        let Lookup::Stale = self.look_up(unknown) else {
            return None;
        };
        let object = find_object(unknown)?;
        let mut list = Self::from_loader();
        list.unlisted.clone_from(&self.unlisted);
        list.unlisted.push(object.mapped);
        Some(list)
    }

    /// A number that tells this list from those before it.
    pub(super) fn generation(&self) -> u16 {
        self.generation
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
        unsafe { loader::each_object(first, (&raw mut counts).cast()) };
        counts == self.counts
    }

    /// Whether the program was compiled with frame pointers throughout. False if this code is in a
    /// library, from which the program cannot be judged.
    pub(crate) fn has_frame_pointers(&self) -> bool {
        let program = self
            .modules
            .iter()
            .find(|module| module.mapped.start == self.program);
        let cfi = program
            .filter(|_| self.in_program)
            .and_then(|program| program.cfi.as_ref());
        cfi.is_some_and(frame_pointers::kept_throughout)
    }

    /// How the code at `address` can be unwound, now. For hooks.
    pub(super) fn look_up(&self, address: usize) -> Lookup<'_> {
        let after = self
            .modules
            .partition_point(|module| module.mapped.start <= address);
        let before = after.checked_sub(1).map(|at| &self.modules[at]);
        let module = before.filter(|module| address < module.mapped.end);
        if let Some(module) = module.filter(|module| module.permanent) {
            let cfi = module.tables_at(address);
            return cfi.map_or(Lookup::NotCode, Lookup::Permanent);
        }
        let Some(found) = find_object(address) else {
            return Lookup::NotCode;
        };
        match module {
            Some(module) if module.eh_frame_hdr == found.eh_frame_hdr => {
                let cfi = module.tables_at(address);
                cfi.map_or(Lookup::NotCode, Lookup::Current)
            }
            None if self.unlisted.contains(&found.mapped) => Lookup::NotCode,
            _ => Lookup::Stale,
        }
    }
}

impl Module {
    /// The tables for an address in this object, if there is code.
    fn tables_at(&self, address: usize) -> Option<&Cfi> {
        let cfi = self.cfi.as_ref();
        cfi.filter(|_| self.code.contains(&address))
    }
}

/// An object that is mapped at an address.
struct Found {
    mapped: Range<usize>,
    /// Its unwind table header; 0 if there is none.
    eh_frame_hdr: usize,
}

/// Returns the object that is mapped at an address. Lock-free; for hooks.
fn find_object(address: usize) -> Option<Found> {
    let function = FIND_OBJECT.load(Ordering::Acquire);
    if function == 0 {
        return None;
    }
    // SAFETY: the address of glibc's function of this type; it is async-signal-safe.
    unsafe {
        let function: unsafe extern "C" fn(*const c_void, *mut FoundObject) -> c_int =
            std::mem::transmute(function);
        let mut found: FoundObject = std::mem::zeroed();
        (function(address as *const c_void, &raw mut found) == 0).then_some(Found {
            mapped: found.map_start as usize..found.map_end as usize,
            eh_frame_hdr: found.eh_frame as usize,
        })
    }
}

struct Listing {
    modules: Vec<Module>,
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
    let (mut mapped, mut code) = (0..0, 0..0);
    let mut eh_frame_hdr = None;
    for header in headers {
        match header.p_type {
            libc::PT_LOAD => {
                include(&mut mapped, range(header));
                if header.p_flags & libc::PF_X != 0 {
                    include(&mut code, range(header));
                }
            }
            libc::PT_GNU_EH_FRAME => eh_frame_hdr = Some(range(header)),
            _ => {}
        }
    }
    // Here, while the loader's lock keeps the object where it is.
    let cfi = eh_frame_hdr.clone().and_then(|hdr| {
        let holds = |header: &&libc::Elf64_Phdr| {
            header.p_type == libc::PT_LOAD && range(header).contains(&hdr.start)
        };
        let end = range(headers.iter().find(holds)?).end;
        // SAFETY: within a segment that the loader has mapped, which stays mapped as long as its
        // code can be on a stack; `look_up` is asked before the tables are read.
        unsafe { Cfi::new(hdr, end) }
    });
    // Objects without code are kept too: positions tell what was there at the start.
    listing.modules.push(Module {
        mapped,
        code,
        permanent: false,
        eh_frame_hdr: eh_frame_hdr.map_or(0, |hdr| hdr.start),
        cfi,
    });
    0
}

/// Extends a range as far as another reaches; an empty range becomes the other.
fn include(range: &mut Range<usize>, other: Range<usize>) {
    *range = if range.start == range.end {
        other
    } else {
        range.start.min(other.start)..range.end.max(other.end)
    };
}

impl Cfi {
    /// The tables whose header is at `hdr`, and which reach to `end` at most.
    ///
    /// # Safety
    /// All of it is mapped, and stays so while it is used.
    unsafe fn new(hdr: Range<usize>, end: usize) -> Option<Self> {
        let start = eh_frame_start(&hdr)?;
        if start >= end || hdr.end > end {
            return None;
        }
        // SAFETY: the caller's.
        let bytes = |range: Range<usize>| unsafe {
            std::slice::from_raw_parts(range.start as *const u8, range.len())
        };
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(hdr.start as u64)
            .set_eh_frame(start as u64);
        let parsed = EhFrameHdr::new(bytes(hdr.clone()), LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        let mut eh_frame = EhFrame::new(bytes(start..end), LittleEndian);
        eh_frame.set_address_size(8);
        Some(Self {
            hdr: parsed,
            eh_frame,
            bases,
            hdr_range: hdr,
        })
    }
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
