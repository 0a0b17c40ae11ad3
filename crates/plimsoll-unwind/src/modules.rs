//! The program and its libraries, with the tables that unwind their code.
//!
//! A list is made outside of hooks, from the mappings of the dynamic loader, and never changes.
//! After code was loaded or unloaded, a new list replaces it (see `plimsoll_core::stack::capture`).
//!
//! Objects that were loaded when the program started are never unloaded, so the list suffices to
//! unwind their code. For a library that was loaded later, the loader must first confirm that the
//! listed library is still loaded; glibc's `_dl_find_object` does so without a lock. It also finds
//! libraries that the list lacks. Their tables are then read anew for each frame.

mod loaded_object;

use std::ops::Range;

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, ParsedEhFrameHdr};

use plimsoll_process::loader::{self, LoadedObject, Object, Segment, initial};
use plimsoll_sys::primitives::{AtomicU32, AtomicUsize, Ordering};

use crate::arch;
use crate::frame_detection::{self, MAX_WITHOUT_PER_CENT};

pub(crate) use loaded_object::module_of;

/// One generation of the module list.
pub struct ModuleList {
    /// The modules, sorted by address.
    modules: Vec<Module>,
    /// The loader's counts of loaded and unloaded objects when the list was made.
    counts: (u64, u64),
    /// The number of this list; never 0.
    generation: u16,
    /// Whether the first module is the program and contains this code.
    in_program: bool,
    /// The address at which the program is mapped.
    program: usize,
    /// Objects that the loader finds by address but does not list: those in other namespaces, which
    /// `dlmopen` creates.
    unlisted: Vec<Range<usize>>,
    /// The copies of unwind tables to which modules of another process refer; empty for this process. They
    /// stay at their addresses when the list moves.
    #[expect(dead_code, reason = "owns the memory to which the modules refer")]
    copies: Vec<Vec<u8>>,
    /// Whether the modules are of another process.
    is_foreign: bool,
}

/// The address ranges and unwind tables of a loaded object.
pub(crate) struct Module {
    /// All segments, and the gaps between them.
    mapped: Range<usize>,
    /// The executable segments; empty if there are none.
    code: Range<usize>,
    /// Whether it was mapped before `main`, so that it is never unmapped.
    permanent: bool,
    /// The address of `.eh_frame_hdr`; 0 if missing.
    eh_frame_hdr: usize,
    cfi: Option<Cfi>,
}

/// A loaded object of another process, with a copy of its unwind tables.
pub struct Image {
    /// The addresses of all segments, and of the gaps between them.
    pub mapped: Range<usize>,
    /// The addresses of the executable segments.
    pub code: Range<usize>,
    /// The addresses of `.eh_frame_hdr`; empty if missing.
    pub eh_frame_hdr: Range<usize>,
    /// The address at which `tables` begins.
    pub tables_at: usize,
    /// A copy of memory that holds `.eh_frame_hdr`, and `.eh_frame` up to its end.
    pub tables: Vec<u8>,
    /// Whether it may contain musl, whose functions have no tables and no frame pointers.
    pub may_contain_musl: bool,
}

/// A module's call frame information, in memory.
pub struct Cfi {
    pub(crate) hdr: ParsedEhFrameHdr<EndianSlice<'static, LittleEndian>>,
    pub(crate) eh_frame: EhFrame<EndianSlice<'static, LittleEndian>>,
    pub(crate) bases: BaseAddresses,
    /// The addresses of `.eh_frame_hdr`.
    pub(crate) hdr_range: Range<usize>,
    /// Whether the module is of another process, and may contain musl.
    pub(crate) may_contain_musl: bool,
}

/// The unwind tables for the code at an address.
pub enum Lookup<'a> {
    /// These tables, valid at any time.
    Permanent(&'a Cfi),
    /// These tables, valid now.
    Current(&'a Cfi),
    /// Unknown, since the list is outdated: this object was loaded since.
    Stale(LoadedObject),
    /// Unknown, since the loader never lists this object, which is in another namespace.
    Unlisted(LoadedObject),
    /// None in any list: generated code, code without tables, or data.
    NotCode,
}

/// The number of objects in the first listing; later objects are not permanent.
static LISTED_AT_START: AtomicUsize = AtomicUsize::new(0);

static GENERATIONS: AtomicU32 = AtomicU32::new(0);

impl ModuleList {
    /// Lists the objects of the loader. Takes its lock and allocates: not for use in hooks.
    pub fn from_loader() -> Self {
        let mut found = Listing {
            modules: Vec::new(),
            names: Vec::new(),
            counts: (0, 0),
        };
        loader::each_object(|object| {
            found.add(object);
            true
        });
        let listed = found.modules.len();
        let first =
            LISTED_AT_START.compare_exchange(0, listed, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            loader::prepare();
        }
        // The loader lists objects in the order of loading, the program first. If this code is not
        // part of the program, objects that can be unloaded may precede it in that order.
        let here = Self::from_loader as *const () as usize;
        let is_here = |module: &Module| module.code.contains(&here);
        let in_program = found.modules.first().is_some_and(is_here);
        let permanent = match in_program {
            true => (0..listed)
                .map(|at| at < first.err().unwrap_or(listed))
                .collect(),
            false => initial::are_initial(&found.names),
        };
        let program = found
            .modules
            .first()
            .map_or(0, |program| program.mapped.start);
        let mut modules = found.modules;
        for (module, permanent) in modules.iter_mut().zip(permanent) {
            module.permanent = permanent;
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
            copies: Vec::new(),
            is_foreign: false,
        }
    }

    /// Lists the objects of another process, for walks of its stacks in a
    /// [`Memory`](plimsoll_process::stack_memory::Memory) that is not of this process. An object without
    /// tables, or with tables in an unusual form, is code without tables.
    pub fn from_images(images: Vec<Image>) -> Self {
        let (mut modules, mut copies) = (Vec::new(), Vec::new());
        for image in images {
            let copy = image.tables;
            // SAFETY: the list owns the copy as long as the module. Code outside of this crate gets references to
            // `Cfi` for no longer than the list lives, and no access to its bytes.
            let bytes = unsafe { std::slice::from_raw_parts(copy.as_ptr(), copy.len()) };
            copies.push(copy);
            modules.push(Module {
                mapped: image.mapped,
                code: image.code,
                permanent: true,
                eh_frame_hdr: image.eh_frame_hdr.start,
                cfi: Cfi::in_copy(image.eh_frame_hdr, image.tables_at, bytes).map(|cfi| Cfi {
                    may_contain_musl: image.may_contain_musl,
                    ..cfi
                }),
            });
        }
        modules.sort_by_key(|module| module.mapped.start);
        Self {
            modules,
            counts: (0, 0),
            generation: 1,
            in_program: true,
            program: 0,
            unlisted: Vec::new(),
            copies,
            is_foreign: true,
        }
    }

    /// Returns the list that replaces this one, if code was loaded or unloaded. Also returns one if
    /// the loader finds an object at the address `unknown` that this list lacks. Not for use in
    /// hooks.
    pub fn successor(&self, unknown: usize) -> Option<Self> {
        if !self.is_current() {
            return Some(Self::from_loader());
        }
        let Lookup::Stale(object) = self.look_up(unknown) else {
            return None;
        };
        let mut list = Self::from_loader();
        list.unlisted.clone_from(&self.unlisted);
        list.unlisted.push(object.mapped);
        Some(list)
    }

    /// Returns a number that distinguishes this list from earlier ones.
    pub(crate) fn generation(&self) -> u16 {
        self.generation
    }

    /// Returns whether no code was loaded or unloaded since. Takes the loader's lock: not for use
    /// in hooks.
    pub(crate) fn is_current(&self) -> bool {
        let mut counts = (0u64, 0u64);
        loader::each_object(|object| {
            counts = object.counts;
            false
        });
        counts == self.counts
    }

    /// Returns whether the program was compiled with frame pointers throughout. Returns `false` if
    /// this code is in a library, where the list does not identify the program. On a system that
    /// lists no objects, returns `true`, because stacks can be walked in no other way there.
    pub fn has_frame_pointers(&self) -> bool {
        if self.modules.is_empty() {
            return true;
        }
        let program = self
            .modules
            .iter()
            .find(|module| module.mapped.start == self.program);
        let cfi = program
            .filter(|_| self.in_program)
            .and_then(|program| program.cfi.as_ref());
        cfi.is_some_and(keeps_frame_pointers)
    }

    /// Returns whether there is code of the program at `address`, or of a library that was loaded with the
    /// program if this code is in the program; with tables or without.
    pub(crate) fn is_code_of_program(&self, address: usize) -> bool {
        let mut modules = self.modules.iter().filter(|module| match self.in_program {
            true => module.permanent,
            false => module.mapped.start == self.program,
        });
        modules.any(|module| module.code.contains(&address))
    }

    /// Returns the tables that unwind the code at `address` now. Safe to call in hooks.
    pub fn look_up(&self, address: usize) -> Lookup<'_> {
        let after = self
            .modules
            .partition_point(|module| module.mapped.start <= address);
        let before = after.checked_sub(1).map(|at| &self.modules[at]);
        let module = before.filter(|module| address < module.mapped.end);
        if let Some(module) = module.filter(|module| module.permanent) {
            let cfi = module.tables_at(address);
            return cfi.map_or(Lookup::NotCode, Lookup::Permanent);
        }
        if self.is_foreign {
            return Lookup::NotCode;
        }
        let Some(found) = LoadedObject::at(address) else {
            return Lookup::NotCode;
        };
        match module {
            Some(module) if module.eh_frame_hdr == found.eh_frame_hdr => {
                let cfi = module.tables_at(address);
                cfi.map_or(Lookup::NotCode, Lookup::Current)
            }
            None if self.unlisted.contains(&found.mapped) => Lookup::Unlisted(found),
            _ => Lookup::Stale(found),
        }
    }
}

impl Module {
    /// Reads an object that is loaded at `base`. Does not allocate.
    ///
    /// # Safety
    /// The object must stay loaded while its tables are used.
    unsafe fn new(base: usize, segments: impl Iterator<Item = Segment> + Clone) -> Self {
        let range = |segment: &Segment| {
            let start = base.wrapping_add(segment.address as usize);
            start..start.wrapping_add(segment.memory_size as usize)
        };
        let (mut mapped, mut code) = (0..0, 0..0);
        let mut eh_frame_hdr = None;
        for segment in segments.clone() {
            match segment.kind {
                loader::LOAD => {
                    include(&mut mapped, range(&segment));
                    if segment.flags & loader::EXECUTABLE != 0 {
                        include(&mut code, range(&segment));
                    }
                }
                loader::EH_FRAME => eh_frame_hdr = Some(range(&segment)),
                _ => {}
            }
        }
        let cfi = eh_frame_hdr.clone().and_then(|hdr| {
            let holds = |segment: &Segment| {
                segment.kind == loader::LOAD && range(segment).contains(&hdr.start)
            };
            let end = range(&segments.clone().find(holds)?).end;
            // SAFETY: both lie within a segment that the loader has mapped, and which stays mapped
            // by this function's contract.
            unsafe { Cfi::new(hdr, end) }
        });
        Self {
            mapped,
            code,
            permanent: false,
            eh_frame_hdr: eh_frame_hdr.map_or(0, |hdr| hdr.start),
            cfi,
        }
    }

    /// Returns the tables for an address in this object, if it is code.
    pub(crate) fn tables_at(&self, address: usize) -> Option<&Cfi> {
        let cfi = self.cfi.as_ref();
        cfi.filter(|_| self.code.contains(&address))
    }
}

struct Listing {
    modules: Vec<Module>,
    names: Vec<initial::Names>,
    counts: (u64, u64),
}

impl Listing {
    /// Adds an object. The loader's lock prevents its unloading.
    fn add(&mut self, object: &Object<'_>) {
        self.counts = object.counts;
        // Objects without code are kept too: their positions determine which objects are permanent.
        // SAFETY: the loader's lock prevents unloading now. Later, users call `look_up` before they
        // read the tables, and an object stays loaded as long as its code can be on a stack.
        let module = unsafe { Module::new(object.base, object.segments()) };
        self.modules.push(module);
        self.names.push(initial::Names::from_object(object));
    }
}

/// Extends a range to include another; an empty range becomes the other.
fn include(range: &mut Range<usize>, other: Range<usize>) {
    *range = if range.start == range.end {
        other
    } else {
        range.start.min(other.start)..range.end.max(other.end)
    };
}

impl Cfi {
    /// Parses the tables whose header is at `hdr`, and which end before `end`.
    ///
    /// # Safety
    /// The header and the memory up to `end` must be mapped, and stay so while the result is used.
    unsafe fn new(hdr: Range<usize>, end: usize) -> Option<Self> {
        // SAFETY: the section is mapped for as long as the result is used, by this function's
        // contract.
        let bytes = |range: Range<usize>| unsafe {
            std::slice::from_raw_parts(range.start as *const u8, range.len())
        };
        let start = eh_frame_start(hdr.start, bytes(hdr.clone()))?;
        if start >= end || hdr.end > end {
            return None;
        }
        Self::parse(hdr.clone(), bytes(hdr), start, bytes(start..end))
    }

    /// Parses the tables in `copy`, a copy of memory from the address `at`.
    fn in_copy(hdr: Range<usize>, at: usize, copy: &'static [u8]) -> Option<Self> {
        let bytes = |range: Range<usize>| {
            let start = range.start.checked_sub(at)?;
            copy.get(start..range.end.checked_sub(at)?)
        };
        let header = bytes(hdr.clone())?;
        let start = eh_frame_start(hdr.start, header)?;
        let tables = bytes(start..at.checked_add(copy.len())?)?;
        Self::parse(hdr, header, start, tables)
    }

    /// Parses a header at the addresses `hdr`, and `.eh_frame` at `start`.
    fn parse(
        hdr: Range<usize>,
        header: &'static [u8],
        start: usize,
        tables: &'static [u8],
    ) -> Option<Self> {
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(hdr.start as u64)
            .set_eh_frame(start as u64);
        let parsed = EhFrameHdr::new(header, LittleEndian)
            .parse(&bases, 8)
            .ok()?;
        let mut eh_frame = EhFrame::new(tables, LittleEndian);
        eh_frame.set_vendor(arch::VENDOR);
        eh_frame.set_address_size(8);
        Some(Self {
            hdr: parsed,
            eh_frame,
            bases,
            hdr_range: hdr,
            may_contain_musl: false,
        })
    }
}

/// Returns the start of `.eh_frame`, from the header at `hdr`. Only one form is supported, which all linkers
/// write: a signed 32-bit distance from the field.
fn eh_frame_start(hdr: usize, bytes: &[u8]) -> Option<usize> {
    const VERSION: u8 = 1;
    const PC_RELATIVE_SIGNED_4: u8 = 0x1b;
    let bytes = bytes.first_chunk::<8>()?;
    if bytes[0] != VERSION || bytes[1] != PC_RELATIVE_SIGNED_4 {
        return None;
    }
    let distance = i32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    Some((hdr + 4).wrapping_add_signed(distance as isize))
}

/// The most functions of a program that are examined. Each takes some 2,000 instructions before
/// `main`.
const MAX_FUNCTIONS: usize = 256;

/// Returns whether a program was compiled with frame pointers throughout, so that
/// [`crate::frame_pointers::walk`] misses nothing.
fn keeps_frame_pointers(cfi: &Cfi) -> bool {
    let start = cfi.hdr.eh_frame_ptr().direct();
    let (Some(table), Ok(start)) = (cfi.hdr.table(), start) else {
        return false;
    };
    let functions = frame_detection::functions(
        &table,
        cfi.hdr_range.len(),
        start,
        &cfi.eh_frame,
        &cfi.bases,
        arch::FRAME_POINTER,
        MAX_FUNCTIONS,
    );
    let (mut with, mut without) = (0_usize, 0);
    for is_kept in functions {
        if is_kept {
            with += 1;
        } else {
            without += 1;
        }
        // The result is certain, whatever the remaining functions are.
        if without * 100 > MAX_FUNCTIONS * MAX_WITHOUT_PER_CENT {
            return false;
        }
    }
    with + without > 0 && without * 100 <= (with + without) * MAX_WITHOUT_PER_CENT
}
