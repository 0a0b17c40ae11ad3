//! Redirects functions of the program to hooks, by changing the first bytes of their code.
//!
//! The first five bytes of a function become a jump to a thunk, which jumps to the hook. A
//! trampoline holds the displaced instructions and continues behind them: it is the original
//! function for its hook. Thunks and trampolines lie in an area near the program. Until all functions
//! are redirected, thunks jump to trampolines, so that a function works at any time.
//!
//! # Conditions
//! - The displaced instructions are of known forms, which `arch` lists. All others are refused.
//! - The function is at least as long as these instructions, by its symbol, and no branch in it
//!   leads into the replaced bytes. A jump to its first byte runs the hook again.
//! - No code of the program has run, so no other thread and no frame of it exists: see [`redirect()`].
//! - All functions are redirected, or none.
//! - No memory is writable and executable at the same time. If the system does not permit to make
//!   written memory executable, the area fails before any code is changed.

mod arch;
mod image;
mod pages;
mod symbol_table;

pub use image::{Image, Symbol};
pub use symbol_table::SymbolTable;

/// The largest number of functions that are redirected together.
pub const MAX_FUNCTIONS: usize = 64;

/// A function, and its hook.
#[derive(Clone, Copy, Debug, Default)]
pub struct Redirection {
    /// The address of the function's first byte.
    pub function: usize,
    /// The size of the function in bytes.
    pub size: usize,
    /// The address of the hook.
    pub hook: usize,
    /// Set by [`redirect()`]: the address at which the original function can be called.
    pub original: usize,
}

/// The reason why a function was not redirected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The processor is not supported.
    Processor,
    /// The function is shorter than the jump.
    Short,
    /// The function begins with instructions that are not known to be movable.
    Instructions([u8; 8]),
    /// A branch in the function leads into the bytes that the jump replaces.
    Branch,
    /// The function does not lie in the program's code.
    Outside,
    /// Two functions overlap.
    Overlap,
    /// No memory was available near the program, or the system does not permit to make written
    /// memory executable.
    Memory,
    /// The system does not permit to change the program's code.
    Denied,
}

/// Redirects all functions, or none. Returns the index of a function that is an obstacle.
///
/// # Safety
/// The functions belong to `image`, and each hook has the type of its function. No code of the
/// program has run, or will run on another thread meanwhile.
pub unsafe fn redirect(image: &Image, all: &mut [Redirection]) -> Result<(), (usize, Obstacle)> {
    let mut moved = [const { arch::Moved::NONE }; MAX_FUNCTIONS];
    if all.len() > MAX_FUNCTIONS {
        return Err((MAX_FUNCTIONS, Obstacle::Memory));
    }
    for (at, (its, moved)) in all.iter().zip(&mut moved).enumerate() {
        let end = its.function.checked_add(its.size);
        if end.is_none_or(|end| !image.is_code(its.function, end)) {
            return Err((at, Obstacle::Outside));
        }
        // SAFETY: the range lies in one segment of the program's code, which is readable.
        let code = unsafe { std::slice::from_raw_parts(its.function as *const u8, its.size) };
        *moved = arch::displace(code).map_err(|obstacle| (at, obstacle))?;
    }
    for (at, one) in all.iter().enumerate() {
        let overlaps = |other: &Redirection| {
            let distance = other.function.wrapping_sub(one.function);
            distance < one.size || other.function == one.function
        };
        if all[at + 1..].iter().any(overlaps) || all[..at].iter().any(overlaps) {
            return Err((at, Obstacle::Overlap));
        }
    }
    let area = pages::Area::near(image).ok_or((0, Obstacle::Memory))?;
    let mut jumps = [[0; arch::JUMP]; MAX_FUNCTIONS];
    for (at, its) in all.iter_mut().enumerate() {
        let thunk = area.part(at);
        let trampoline = thunk.address + arch::THUNK;
        let written = arch::thunk(thunk.address, area.target(at), thunk.bytes)
            .and_then(|()| {
                let bytes = &mut thunk.bytes[arch::THUNK..];
                arch::trampoline(&moved[at], its.function, trampoline, bytes)
            })
            .and_then(|()| arch::jump(its.function + moved[at].start, thunk.address));
        match written {
            Some(jump) => jumps[at] = jump,
            None => {
                area.discard();
                return Err((at, Obstacle::Memory));
            }
        }
        its.original = trampoline;
        area.set_target(at, trampoline);
    }
    if !area.make_executable() {
        area.discard();
        return Err((0, Obstacle::Memory));
    }
    let place = |at: usize, its: &Redirection| its.function + moved[at].start;
    for (at, its) in all.iter().enumerate() {
        // SAFETY: the bytes belong to the function, and no thread runs the program's code.
        let changed = unsafe { pages::replace(image, place(at, its), &mut jumps[at]) };
        if changed {
            continue;
        }
        // `replace` has stored the original bytes of those before in place of the jumps.
        let mut are_restored = true;
        for (at, its) in all[..at].iter().enumerate() {
            // SAFETY: as above.
            are_restored &= unsafe { pages::replace(image, place(at, its), &mut jumps[at]) };
        }
        // A jump that stays leads to the original function by its thunk.
        if are_restored {
            area.discard();
        }
        return Err((at, Obstacle::Denied));
    }
    for (at, its) in all.iter().enumerate() {
        area.set_target(at, its.hook);
    }
    Ok(())
}

/// Returns whether a function calls one of others, or jumps to it, by a direct branch.
///
/// # Safety
/// The function belongs to `image`.
pub unsafe fn calls_one_of(image: &Image, function: &Symbol, others: &[usize]) -> bool {
    let end = function.address.saturating_add(function.size);
    if !image.is_code(function.address, end) {
        return false;
    }
    // SAFETY: the range lies in one segment of the program's code, which is readable.
    let code = unsafe { std::slice::from_raw_parts(function.address as *const u8, function.size) };
    arch::calls_one_of(code, function.address, others)
}
