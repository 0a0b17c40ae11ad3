//! An allocator inside the program: its functions are redirected to hooks.
//!
//! The program's definition of `malloc` precedes the preloaded library's, so no call reaches the
//! interposition. [`redirect()`] changes the code of the program's functions, while the loader is
//! still relocating. So no code of the program has run, no block exists, and no thread.
//!
//! A hook calls the original function and counts. Every block stays the program's allocator's, and
//! a sampled one too: [`SAMPLED_LARGE`](crate::alloc::sampled_large) notes its address. So a block
//! may be freed by code that no hook sees, such as an inlined copy of `free`: the counts then miss
//! the free, and the program works as before.
//!
//! All functions are redirected, or none.

mod hooks;
mod names;

use std::ffi::CStr;
use std::fmt;

use plimsoll_sys::os::privileges;
use plimsoll_sys::primitives::{AtomicU8, AtomicU64, Ordering};
use plimsoll_sys::redirect::{self, Image, Obstacle, Redirection, Symbol};

use hooks::{ORIGINALS, USABLE};
use names::{COUNT, ENTRIES, OPERATORS};

/// The state of the program's allocator: one of the following.
static STATE: AtomicU8 = AtomicU8::new(NONE);
/// The program has no allocator.
const NONE: u8 = 0;
/// Its functions are redirected.
const REDIRECTED: u8 = 1;
/// Its functions are not redirected: [`CAUSE`] has the cause.
const LEFT: u8 = 2;

/// The cause why nothing was redirected: the index of a name, a code, and bytes of an instruction.
static CAUSE: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Returns whether the program contains an allocator.
pub fn has_allocator() -> bool {
    STATE.load(Ordering::Relaxed) != NONE
}

/// Returns whether the functions of the program's allocator are redirected.
pub(super) fn is_redirected() -> bool {
    STATE.load(Ordering::Relaxed) == REDIRECTED
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

/// The index that stands for [`USABLE_SIZE`].
const USABLE_SIZE_AT: usize = COUNT;

/// Describes why the functions of the program's allocator were not redirected; `None` if it has
/// none, or if they were.
pub(crate) fn why_not_redirected() -> Option<impl fmt::Display> {
    if STATE.load(Ordering::Relaxed) != LEFT {
        return None;
    }
    let [at, code, bytes] = [0, 1, 2].map(|at| CAUSE[at].load(Ordering::Relaxed));
    let name = ENTRIES
        .get(at as usize)
        .map_or(USABLE_SIZE, |entry| entry.name);
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

/// Redirects the functions of an allocator that the program exports, if it does. For the loader's
/// relocation of the preloaded library: nothing that is called here uses the C library, except
/// `getauxval` and functions on memory.
///
/// # Safety
/// No code of the program has run.
pub unsafe fn redirect() {
    let Some(image) = Image::of_program() else {
        return;
    };
    if image.symbol(ENTRIES[0].name).is_none() {
        return;
    }
    // SAFETY: no code of the program has run, by this function's contract.
    let state = match unsafe { redirect_all(&image) } {
        Ok(()) => REDIRECTED,
        Err((at, cause)) => {
            let [code, bytes] = cause.encode();
            for (to, value) in CAUSE.iter().zip([at as u64, code, bytes]) {
                to.store(value, Ordering::Relaxed);
            }
            LEFT
        }
    };
    STATE.store(state, Ordering::Relaxed);
}

/// # Safety
/// As for [`redirect()`].
unsafe fn redirect_all(image: &Image) -> Result<(), (usize, Cause)> {
    if privileges::are_elevated() {
        return Err((0, Cause::Privileges));
    }
    if image.has_text_relocations() {
        return Err((0, Cause::TextRelocations));
    }
    let usable = image.symbol(USABLE_SIZE);
    let usable = usable.ok_or((USABLE_SIZE_AT, Cause::Missing))?;
    if !usable.is_function {
        return Err((USABLE_SIZE_AT, Cause::Special));
    }
    let mut symbols = [None; COUNT];
    for (at, (entry, symbol)) in ENTRIES.iter().zip(&mut symbols).enumerate() {
        *symbol = image.symbol(entry.name);
        match symbol {
            Some(found) if !found.is_function => return Err((at, Cause::Special)),
            None if entry.is_required => return Err((at, Cause::Missing)),
            _ => {}
        }
    }
    // SAFETY: no code of the program has run, by this function's contract.
    unsafe { leave_passing_operators(image, &mut symbols)? };
    let mut all = [Redirection::default(); COUNT];
    // The indices of the redirected names, and of the redirection for each name.
    let mut names = [0; COUNT];
    let mut of_name = [None; COUNT];
    let mut count = 0;
    for (at, (entry, symbol)) in ENTRIES.iter().zip(&symbols).enumerate() {
        let Some(symbol) = symbol else {
            continue;
        };
        let same = all[..count]
            .iter()
            .position(|its| its.function == symbol.address);
        if let Some(same) = same {
            if ENTRIES[names[same]].signature != entry.signature {
                return Err((at, Cause::Shared));
            }
            of_name[at] = Some(same);
            continue;
        }
        all[count] = Redirection {
            function: symbol.address,
            size: symbol.size,
            hook: entry.hook as usize,
            original: 0,
        };
        names[count] = at;
        of_name[at] = Some(count);
        count += 1;
    }
    USABLE.store(usable.address, Ordering::Relaxed);
    // SAFETY: each hook has the type of the C function of its name, and the functions belong to the
    // program, none of whose code has run.
    unsafe { redirect::redirect(image, &mut all[..count]) }
        .map_err(|(at, obstacle)| (names.get(at).map_or(0, |&at| at), Cause::Code(obstacle)))?;
    for (original, of_name) in ORIGINALS.iter().zip(of_name) {
        if let Some(at) = of_name {
            original.store(all[at].original, Ordering::Relaxed);
        }
    }
    Ok(())
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
