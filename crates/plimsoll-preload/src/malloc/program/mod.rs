//! An allocator inside the program: its functions are redirected to hooks.
//!
//! If the program exports `malloc`, its definition precedes the preloaded library's, so no call reaches
//! the interposition. An allocator that is linked in and not exported is called by the program's own code
//! only. [`redirect()`] changes the code of these functions, while the loader is
//! still relocating. So no code of the program has run, no block exists, and no thread.
//!
//! A hook calls the original function and counts. Every block stays the program's allocator's, and
//! a sampled one too: [`SAMPLED_INSIDE`](plimsoll_core::alloc::sampled_inside) notes its address. So a block
//! may be freed by code that no hook sees, such as an inlined copy of `free`: the counts then miss
//! the free, and the program works as before.
//!
//! All functions are redirected, or none.

mod arch;
mod hooks;
mod jemalloc_classes;
mod linked;
mod names;
mod sized;

use std::ffi::CStr;
use std::fmt;

use plimsoll_redirect::redirect::{self, Image, Obstacle, Redirection, Symbol};
use plimsoll_sys::os::privileges;
use plimsoll_sys::primitives::{AtomicU8, AtomicU64, Ordering};

use hooks::{ORIGINALS, USABLE};
use linked::{Kind, Linked};
use names::{COUNT, ENTRIES, Entry, MIMALLOC, MIMALLOC_COUNT, OPERATORS};

/// The state of the program's allocator: one of the following.
static STATE: AtomicU8 = AtomicU8::new(NONE);
/// The program has no allocator, or one that was not found.
const NONE: u8 = 0;
/// The program exports an allocator, whose functions are redirected.
const REDIRECTED: u8 = 1;
/// The program exports an allocator whose functions are not redirected: [`CAUSE`] has the cause.
const LEFT: u8 = 2;
/// The program has an allocator that it does not export, whose functions are redirected.
const LINKED_REDIRECTED: u8 = 3;
/// They are not: [`CAUSE`] has the cause.
const LINKED_LEFT: u8 = 4;

/// The cause why nothing was redirected: the index of a name, a code, and bytes of an instruction.
static CAUSE: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Returns whether the program exports an allocator, which all libraries call.
pub fn has_allocator() -> bool {
    matches!(STATE.load(Ordering::Relaxed), REDIRECTED | LEFT)
}

/// Returns whether the program exports an allocator whose functions are redirected.
pub(super) fn is_redirected() -> bool {
    STATE.load(Ordering::Relaxed) == REDIRECTED
}

/// Returns whether the program has an allocator that it does not export, whose functions are redirected.
/// Libraries then call the C library's allocator, whose blocks are counted as well.
pub fn is_linked_redirected() -> bool {
    STATE.load(Ordering::Relaxed) == LINKED_REDIRECTED
}

/// The reason why the functions of the program's allocator were not redirected.
#[derive(Clone, Copy)]
enum Cause {
    /// The process has privileges that the user who started it lacks.
    Privileges,
    /// The loader writes to the program's code.
    TextRelocations,
    /// The program lacks a function.
    Missing,
    /// A function of the program is not an ordinary function.
    Special,
    /// Two functions of different types are the same.
    Shared,
    /// A function of C++ frees memory, but not by the program's `free`.
    Operator,
    /// The code cannot be changed.
    Code(Obstacle),
}

impl Cause {
    fn encode(self) -> [u64; 2] {
        match self {
            Self::Privileges => [0, 0],
            Self::TextRelocations => [1, 0],
            Self::Missing => [2, 0],
            Self::Special => [3, 0],
            Self::Shared => [4, 0],
            Self::Operator => [5, 0],
            Self::Code(Obstacle::Processor) => [6, 0],
            Self::Code(Obstacle::Short) => [7, 0],
            Self::Code(Obstacle::Instructions(bytes)) => [8, u64::from_le_bytes(bytes)],
            Self::Code(Obstacle::Branch) => [9, 0],
            Self::Code(Obstacle::Outside) => [10, 0],
            Self::Code(Obstacle::Overlap) => [11, 0],
            Self::Code(Obstacle::Memory) => [12, 0],
            Self::Code(Obstacle::Denied) => [13, 0],
        }
    }
}

/// The name of `malloc_usable_size`, which is called but not redirected.
const USABLE_SIZE: &CStr = c"malloc_usable_size";

/// The index that stands for [`USABLE_SIZE`]. Those of mimalloc's functions follow, and of jemalloc's with
/// sizes.
const USABLE_SIZE_AT: usize = COUNT;
const FIRST_OF_MIMALLOC: usize = COUNT + 1;
const FIRST_SIZED: usize = FIRST_OF_MIMALLOC + MIMALLOC_COUNT;

/// Describes why the functions of the program's allocator were not redirected; `None` if it has
/// none, or if they were.
pub fn why_not_redirected() -> Option<impl fmt::Display> {
    if !matches!(STATE.load(Ordering::Relaxed), LEFT | LINKED_LEFT) {
        return None;
    }
    let [at, code, bytes] = [0, 1, 2].map(|at| CAUSE[at].load(Ordering::Relaxed));
    let names = ENTRIES
        .iter()
        .map(|entry| entry.name)
        .chain([USABLE_SIZE])
        .chain(MIMALLOC.iter().map(|entry| entry.name))
        .chain(sized::ENTRIES.iter().map(|entry| entry.name));
    let name = names.into_iter().nth(at as usize).unwrap_or(USABLE_SIZE);
    let name = name.to_string_lossy();
    Some(match code {
        0 => "the process has privileges that its user lacks".to_owned(),
        1 => "the loader changes the program's code".to_owned(),
        2 => format!("it lacks {name}"),
        3 => format!("{name} is chosen at run time"),
        4 => format!("{name} is the same as a function of another type"),
        5 => format!("{name} may free memory without calling free"),
        6 => "that takes x86-64".to_owned(),
        7 => format!("{name} is too short to be redirected"),
        8 => {
            let bytes = bytes.to_le_bytes();
            let bytes = bytes.map(|byte| format!("{byte:02x}")).join(" ");
            format!("{name} begins with instructions that cannot be moved ({bytes})")
        }
        9 => format!("{name} has a branch into its first instructions"),
        10 => format!("{name} is not in the program's code"),
        11 => format!("{name} overlaps another function"),
        12 => "no executable memory was available near the program".to_owned(),
        _ => "the system does not permit to change the program's code".to_owned(),
    })
}

/// Redirects the functions of an allocator that the program exports; otherwise, of one that is linked in.
/// For the loader's relocation of the preloaded library: nothing that is called here uses the C library,
/// except `getauxval` and functions on memory.
///
/// # Safety
/// No code of the program has run.
pub unsafe fn redirect() {
    let Some(image) = Image::of_program() else {
        return;
    };
    // SAFETY: no code of the program has run, by this function's contract.
    let (redirected, [state, otherwise]) = unsafe {
        if image.symbol(ENTRIES[0].name).is_some() {
            (redirect_exported(&image), [REDIRECTED, LEFT])
        } else if let Some(linked) = linked::find(&image) {
            let states = [LINKED_REDIRECTED, LINKED_LEFT];
            (redirect_linked(&image, &linked), states)
        } else {
            return;
        }
    };
    let state = match redirected {
        Ok(()) => state,
        Err((at, cause)) => {
            let [code, bytes] = cause.encode();
            for (to, value) in CAUSE.iter().zip([at as u64, code, bytes]) {
                to.store(value, Ordering::Relaxed);
            }
            otherwise
        }
    };
    STATE.store(state, Ordering::Relaxed);
}

/// Fails if no function of the program may be changed.
fn may_be_changed(image: &Image) -> Result<(), (usize, Cause)> {
    if privileges::are_elevated() {
        return Err((0, Cause::Privileges));
    }
    if image.has_text_relocations() {
        return Err((0, Cause::TextRelocations));
    }
    Ok(())
}

/// # Safety
/// As for [`redirect()`].
unsafe fn redirect_exported(image: &Image) -> Result<(), (usize, Cause)> {
    may_be_changed(image)?;
    let usable = image.symbol(USABLE_SIZE);
    let usable = usable.ok_or((USABLE_SIZE_AT, Cause::Missing))?;
    let mut symbols = [None; COUNT];
    for (entry, symbol) in ENTRIES.iter().zip(&mut symbols) {
        *symbol = image.symbol(entry.name);
    }
    if let Some(at) = missing(&ENTRIES, &symbols) {
        return Err((at, Cause::Missing));
    }
    // SAFETY: no code of the program has run, by this function's contract.
    unsafe {
        leave_passing_operators(image, &mut symbols)?;
        redirect_measured(image, &ENTRIES, &symbols, usable)
    }
}

/// # Safety
/// As for [`redirect()`].
unsafe fn redirect_linked(image: &Image, linked: &Linked) -> Result<(), (usize, Cause)> {
    may_be_changed(image)?;
    let usable = linked.usable.ok_or((USABLE_SIZE_AT, Cause::Missing));
    // SAFETY: no code of the program has run, by this function's contract.
    unsafe {
        match linked.kind {
            Kind::Prefixed => redirect_measured(image, &ENTRIES, &linked.prefixed, usable?),
            Kind::Mimalloc => {
                let of_mimalloc = |(at, cause)| match at {
                    USABLE_SIZE_AT => (at, cause),
                    _ => (FIRST_OF_MIMALLOC + at, cause),
                };
                if let Some(at) = missing(&MIMALLOC, &linked.mimalloc) {
                    return Err(of_mimalloc((at, Cause::Missing)));
                }
                redirect_measured(image, &MIMALLOC, &linked.mimalloc, usable?).map_err(of_mimalloc)
            }
            Kind::Sized if linked.has_all_sizes() => {
                jemalloc_classes::rounds_to_pages_by(linked.rounds_to_pages);
                redirect_sized(image, &linked.sized)
                    .map_err(|(at, cause)| (FIRST_SIZED + at, cause))
            }
            Kind::Sized => usable.map(drop),
        }
    }
}

/// Returns the index of a required function that is missing.
fn missing(entries: &[Entry], symbols: &[Option<Symbol>]) -> Option<usize> {
    let mut pairs = entries.iter().zip(symbols);
    pairs.position(|(entry, symbol)| entry.is_required && symbol.is_none())
}

/// Redirects functions whose blocks have a size that `usable` returns.
///
/// # Safety
/// As for [`redirect()`].
unsafe fn redirect_measured(
    image: &Image,
    entries: &[Entry],
    symbols: &[Option<Symbol>],
    usable: Symbol,
) -> Result<(), (usize, Cause)> {
    if !usable.is_function {
        return Err((USABLE_SIZE_AT, Cause::Special));
    }
    let mut all = [Redirection::default(); COUNT];
    // The indices of the redirected names, and of the redirection for each name.
    let mut names = [0; COUNT];
    let mut of_name = [None; COUNT];
    let mut count = 0;
    for (at, (entry, symbol)) in entries.iter().zip(symbols).enumerate() {
        let Some(symbol) = symbol else {
            continue;
        };
        if !symbol.is_function {
            return Err((at, Cause::Special));
        }
        let same = all[..count]
            .iter()
            .position(|its| its.function == symbol.address);
        if let Some(same) = same {
            if entries[names[same]].signature != entry.signature {
                return Err((at, Cause::Shared));
            }
            of_name[at] = Some(same);
            continue;
        }
        all[count] = redirection(symbol, entry.hook);
        names[count] = at;
        of_name[at] = Some(count);
        count += 1;
    }
    USABLE.store(usable.address, Ordering::Relaxed);
    // SAFETY: each hook has the type of the C function of its name, and the functions belong to the
    // program, none of whose code has run.
    unsafe { redirect::redirect(image, &mut all[..count]) }
        .map_err(|(at, obstacle)| (names.get(at).map_or(0, |&at| at), Cause::Code(obstacle)))?;
    for (entry, of_name) in entries.iter().zip(of_name) {
        if let Some(at) = of_name {
            ORIGINALS[entry.index].store(all[at].original, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Redirects jemalloc's functions whose sizes are known without a function that returns them.
///
/// # Safety
/// As for [`redirect()`].
unsafe fn redirect_sized(
    image: &Image,
    symbols: &[Option<Symbol>; sized::COUNT],
) -> Result<(), (usize, Cause)> {
    let inner = sized::COUNT - 1;
    let replaces = symbols[sized::REPLACE].iter().any(Option::is_some);
    if replaces && symbols[inner].is_none() {
        return Err((inner, Cause::Missing));
    }
    let mut all = [Redirection::default(); sized::COUNT];
    let mut names = [0; sized::COUNT];
    let mut count = 0;
    for (at, (entry, symbol)) in sized::ENTRIES.iter().zip(symbols).enumerate() {
        if let Some(symbol) = symbol {
            all[count] = redirection(symbol, entry.hook as *const ());
            names[count] = at;
            count += 1;
        }
    }
    // SAFETY: each hook has the type of the function of its name, and the functions belong to the
    // program, none of whose code has run.
    unsafe { redirect::redirect(image, &mut all[..count]) }
        .map_err(|(at, obstacle)| (names.get(at).map_or(0, |&at| at), Cause::Code(obstacle)))?;
    for (redirection, at) in all[..count].iter().zip(names) {
        sized::set_original(at, redirection.original);
    }
    Ok(())
}

fn redirection(function: &Symbol, hook: *const ()) -> Redirection {
    Redirection {
        function: function.address,
        size: function.size,
        hook: hook as usize,
        original: 0,
    }
}

/// Removes the operators of C++ that call functions which are redirected: they need no hook. All
/// others are redirected if they belong to the allocator for certain: if the operator that frees is
/// the same function as `free`. Else their blocks may differ from the allocator's by a header.
///
/// # Safety
/// As for [`redirect()`].
unsafe fn leave_passing_operators(
    image: &Image,
    symbols: &mut [Option<Symbol>; COUNT],
) -> Result<(), (usize, Cause)> {
    let is = |name: &CStr| ENTRIES.iter().position(|entry| entry.name == name);
    let address = |name: &CStr| is(name).and_then(|at| symbols[at]).map(|its| its.address);
    if address(c"_ZdlPv").is_some_and(|its| Some(its) == address(c"free")) {
        return Ok(());
    }
    let mut known = [0; COUNT];
    for (known, symbol) in known.iter_mut().zip(&*symbols) {
        *known = symbol.map_or(0, |its| its.address);
    }
    for at in OPERATORS {
        let Some(symbol) = symbols[at] else {
            continue;
        };
        // SAFETY: the function belongs to the program.
        if !unsafe { redirect::calls_one_of(image, &symbol, &known) } {
            return Err((at, Cause::Operator));
        }
        symbols[at] = None;
    }
    Ok(())
}
