//! Finds a frame pointer that is unknown.
//!
//! For a blocked thread, the system returns only the stack pointer and the instruction pointer. A
//! function with a frame pointer sets it up in its prologue, and the prologue shows its distance
//! from the stack pointer. So the code is read from the function's start to the instruction. This
//! fails for a realigned stack, for arguments on the stack, and for code without description. Then
//! the stack is searched for the first words that look like the frame of such a function: a frame
//! pointer and a return address.

use crate::arch::{self, BEGINNING, Call};
use crate::modules::{Lookup, ModuleList};
use plimsoll_process::stack_memory::Memory;

/// The range of the stack that is searched, in bytes.
const SEARCHED: usize = 16 << 10;

/// The greatest distance from a saved frame pointer to the frame to which it points, in bytes.
pub(crate) const FARTHEST: usize = 1 << 20;

/// Returns the frame pointer of a function that is at `address` with its stack pointer at `stack`.
/// `function` is its start, if known. If the stack is of this process, the code at both addresses must be
/// mapped, and stay so.
#[cold]
pub(crate) fn find(
    function: Option<usize>,
    address: usize,
    stack: usize,
    memory: &mut impl Memory,
    modules: &ModuleList,
) -> Option<usize> {
    let function = function.filter(|&start| start <= address);
    if let Some(start) = function {
        let mut code = [0; BEGINNING];
        let code = &mut code[..(address - start).min(BEGINNING)];
        // SAFETY: the range begins at a function's start and ends before its current instruction,
        // both of which are mapped by this function's contract.
        let is_read = unsafe { copy_code(start, code, memory) };
        let frame = arch::distance_to_frame(code).map(|distance| stack + distance);
        let found = frame.filter(|&frame| {
            let returns = memory.read(frame + 8).map(arch::strip);
            is_read && returns.is_some_and(|at| call_before(at, memory, modules).is_some())
        });
        if found.is_some() {
            return found;
        }
    }
    search(function, stack, memory, modules)
}

/// Returns the frame record of the first function that has one, from the stack pointer up. For a
/// function that has not saved its return address, in a register whose value is unknown.
#[cold]
pub(crate) fn first_record(
    stack: usize,
    memory: &mut impl Memory,
    modules: &ModuleList,
) -> Option<usize> {
    search(None, stack, memory, modules)
}

/// Returns whether one of the words from the stack pointer up is the return address of a call by a
/// function with tables. Looks at as much as the frames of some functions of C take.
pub(crate) fn has_return_address(
    stack: usize,
    memory: &mut impl Memory,
    modules: &ModuleList,
) -> bool {
    const SEARCHED: usize = 4 << 10;
    let has_tables = |address| match modules.look_up(address) {
        Lookup::Permanent(cfi) | Lookup::Current(cfi) => cfi.describe(address).is_some(),
        Lookup::Stale(_) | Lookup::Unlisted(_) | Lookup::NotCode => false,
    };
    for at in (stack..stack + SEARCHED).step_by(8) {
        let Some(word) = memory.read(at).map(arch::strip) else {
            return false;
        };
        if call_before(word, memory, modules).is_some() && has_tables(word - 1) {
            return true;
        }
    }
    false
}

/// Returns the position of the first word, from the stack pointer up, that is the return address of a call.
/// Looks at as much as the frames of some functions of C take.
pub(crate) fn first_return_address(
    stack: usize,
    memory: &mut impl Memory,
    modules: &ModuleList,
) -> Option<usize> {
    const SEARCHED: usize = 4 << 10;
    for at in (stack..stack.saturating_add(SEARCHED)).step_by(8) {
        let word = arch::strip(memory.read(at)?);
        if call_before(word, memory, modules).is_some() {
            return Some(at);
        }
    }
    None
}

/// Returns the first position, from the stack pointer up, of a frame: a word that points further
/// up, followed by a return address. If that is a return address of a call to `function`, the word
/// before it may have any value.
fn search(
    function: Option<usize>,
    stack: usize,
    memory: &mut impl Memory,
    modules: &ModuleList,
) -> Option<usize> {
    let mut below = memory.read(stack)?;
    for at in (stack..stack + SEARCHED).step_by(8) {
        let above = memory.read(at + 8)?;
        let points_up = below > at && below - at < FARTHEST && below % 8 == 0;
        match call_before(arch::strip(above), memory, modules) {
            Some(Call::Of(called)) if Some(called) == function => return Some(at),
            Some(_) if points_up => return Some(at),
            _ => {}
        }
        below = above;
    }
    None
}

/// Returns whether an address is the return address of a call by code of a file.
pub(crate) fn returns_to_file(
    address: usize,
    memory: &mut impl Memory,
    modules: &ModuleList,
) -> bool {
    call_before(address, memory, modules).is_some()
}

/// Copies code of the process to which the stack in `memory` belongs. Returns whether all of it was read.
///
/// # Safety
/// If the stack is of this process, the code must be mapped.
unsafe fn copy_code<M: Memory>(address: usize, to: &mut [u8], memory: &mut M) -> bool {
    if !M::IS_OWN_PROCESS {
        return memory.copy_code(address, to);
    }
    // SAFETY: the code is mapped, by this function's contract, and `to` is memory of this process that
    // nothing else refers to.
    unsafe { std::ptr::copy(address as *const u8, to.as_mut_ptr(), to.len()) };
    true
}

/// Returns the call that returns to an address; `None` if no call precedes it.
fn call_before(address: usize, memory: &mut impl Memory, modules: &ModuleList) -> Option<Call> {
    let known = |address| {
        matches!(
            modules.look_up(address),
            Lookup::Permanent(_) | Lookup::Current(_)
        )
    };
    if !known(address.checked_sub(1)?) || !known(address - arch::LONGEST_CALL) {
        return None;
    }
    let mut code = [0; arch::LONGEST_CALL];
    // SAFETY: the lookups above found both ends of the range in mapped code.
    let is_read = unsafe { copy_code(address - arch::LONGEST_CALL, &mut code, memory) };
    is_read.then(|| arch::call_before(address, code))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registers::{Registers, Start};
    use crate::unwind_tables::{self, Context};
    use crate::walk::Frames;
    use crate::walk_cache::Trail;
    use plimsoll_process::stack_memory::StackMemory;

    fn this_stack() -> StackMemory {
        StackMemory::of_this_thread(Registers::here().stack as usize)
    }

    #[test]
    fn a_return_address_comes_after_a_call() {
        let modules = ModuleList::from_loader();
        #[inline(never)]
        fn called(modules: &ModuleList) -> Option<Call> {
            let mut frames = [0; 2];
            let start = Start::Here(Registers::here());
            let (mut context, mut trail) = (Context::new_in(), Trail::new());
            unwind_tables::walk(
                start,
                modules,
                &mut context,
                &mut trail,
                Frames::leaf_end(&mut frames),
            );
            call_before(frames[0], &mut this_stack(), modules)
        }
        assert!(called(&modules).is_some());
        for address in [0, 1, 8, 0x1000, usize::MAX, &raw const modules as usize] {
            let call = call_before(address, &mut this_stack(), &modules);
            assert_eq!(call, None, "{address:#x}");
        }
    }
}
