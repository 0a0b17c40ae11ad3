//! Finding a frame pointer that is not known.
//!
//! Of a thread that is blocked, the system tells the stack pointer and the instruction pointer, and
//! nothing else. A function that keeps its frame by the frame pointer sets that up at its
//! beginning, and says there how far the stack pointer is below it from then on: so its code is
//! read, from its start to where it stands. Where that is not to be had (a stack that is aligned
//! anew, arguments on it, code without description), the stack is searched for the first place that
//! looks like what such a function leaves there: a frame pointer, and an address to return to.

use super::memory::Memory;
use super::modules::{Lookup, ModuleList};

/// How far the stack is searched, in bytes.
const SEARCHED: usize = 16 << 10;

/// How much of a function's beginning is read, in bytes.
const BEGINNING: usize = 64;

/// How far up a saved frame pointer points at most.
const FARTHEST: usize = 1 << 20;

/// The frame pointer of the function that begins at `function`, if that is known, and stands at
/// `address` with its stack pointer at `stack`. The code of both is there, and stays.
#[cold]
pub(super) fn find(
    function: Option<usize>,
    address: usize,
    stack: usize,
    memory: &mut impl Memory,
    modules: &ModuleList,
) -> Option<usize> {
    let function = function.filter(|&start| start <= address);
    if let Some(start) = function {
        let length = (address - start).min(BEGINNING);
        // SAFETY: from the start of a function up to where it is executed, which the caller says is
        // there.
        let code = unsafe { std::slice::from_raw_parts(start as *const u8, length) };
        let frame = distance(code).map(|distance| stack + distance);
        let found = frame.filter(|&frame| {
            let returns = memory.read(frame + 8);
            returns.is_some_and(|address| call_before(address, modules).is_some())
        });
        if found.is_some() {
            return found;
        }
    }
    search(function, stack, memory, modules)
}

/// How far the frame pointer is above the stack pointer after the beginning of a function, as far
/// as that is executed: `push rbp; mov rbp, rsp`, further registers, and `sub rsp`.
fn distance(code: &[u8]) -> Option<usize> {
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code);
    let code = code.strip_prefix(&[0x55])?;
    let mut code = code
        .strip_prefix(&[0x48, 0x89, 0xe5])
        .or_else(|| code.strip_prefix(&[0x48, 0x8b, 0xec]))?;
    let mut distance = 0;
    loop {
        code = match *code {
            [0x50..=0x57, ref rest @ ..] | [0x41, 0x50..=0x57, ref rest @ ..] => {
                distance += 8;
                rest
            }
            [0x48, 0x83, 0xec, bytes, ref rest @ ..] if bytes < 0x80 => {
                distance += usize::from(bytes);
                rest
            }
            [0x48, 0x81, 0xec, a, b, c, d, ref rest @ ..] if d < 0x80 => {
                distance += u32::from_le_bytes([a, b, c, d]) as usize;
                rest
            }
            // A large frame is touched page by page.
            [0x48, 0xc7, 0x04, 0x24, 0, 0, 0, 0, ref rest @ ..] => rest,
            // An alignment, by as much as is not to be known.
            [0x48, 0x83 | 0x81, 0xe4, ..] => return None,
            _ => return Some(distance),
        };
    }
}

/// The first place from the stack pointer up where a frame pointer that points further up is below
/// the address after a call. A call of this very function is one whatever is below.
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
        match call_before(above, modules) {
            Some(Call::Of(called)) if Some(called) == function => return Some(at),
            Some(_) if points_up => return Some(at),
            _ => {}
        }
        below = above;
    }
    None
}

/// A call instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Of(usize),
    /// Of what a register or a word in memory says.
    Indirect,
}

/// The call that returns to an address; `None` if there is none.
fn call_before(address: usize, modules: &ModuleList) -> Option<Call> {
    /// The longest call.
    const LONGEST: usize = 7;
    let known = |address| {
        matches!(
            modules.look_up(address),
            Lookup::Permanent(_) | Lookup::Current(_)
        )
    };
    if !known(address.checked_sub(1)?) || !known(address - LONGEST) {
        return None;
    }
    // SAFETY: code that is there, at both ends.
    let code = unsafe { *((address - LONGEST) as *const [u8; LONGEST]) };
    if code[2] == 0xe8 {
        let distance = i32::from_le_bytes([code[3], code[4], code[5], code[6]]);
        return Some(Call::Of(address.wrapping_add_signed(distance as isize)));
    }
    let indirect = |at: usize| code[at] == 0xff && code[at + 1] >> 3 & 7 == 2;
    (0..LONGEST - 1).any(indirect).then_some(Call::Indirect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_function_says_how_large_its_frame_is() {
        for (code, expected) in [
            (&[0x55, 0x48, 0x89, 0xe5, 0x90][..], Some(0)),
            (&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5], Some(0)),
            // push r15; push r14; push rbx; sub rsp, 0x18
            (
                &[
                    0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0x41, 0x56, 0x53, 0x48, 0x83, 0xec, 0x18,
                    0x31, 0xc0,
                ],
                Some(3 * 8 + 0x18),
            ),
            // sub rsp, 0x1000; mov qword ptr [rsp], 0; sub rsp, 0x20
            (
                &[
                    0x55, 0x48, 0x89, 0xe5, 0x48, 0x81, 0xec, 0, 0x10, 0, 0, 0x48, 0xc7, 4, 0x24,
                    0, 0, 0, 0, 0x48, 0x83, 0xec, 0x20,
                ],
                Some(0x1020),
            ),
            // As far as it has come.
            (&[0x55, 0x48, 0x89, 0xe5, 0x41], Some(0)),
            // and rsp, -32
            (&[0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xe0], None),
            (&[0x53, 0x48, 0x89, 0xe5], None),
            (&[], None),
        ] {
            assert_eq!(distance(code), expected, "{code:x?}");
        }
    }

    #[test]
    fn a_return_address_comes_after_a_call() {
        let modules = ModuleList::from_loader();
        #[inline(never)]
        fn called(modules: &ModuleList) -> Option<Call> {
            let mut frames = [0; 2];
            super::super::capture::with_stack(
                super::super::Start::Here(super::super::Registers::here()),
                2,
                |stack| frames[..stack.len()].copy_from_slice(stack),
            );
            call_before(frames[0], modules)
        }
        super::super::prepare(None);
        assert!(called(&modules).is_some());
        for address in [0, 1, 8, 0x1000, usize::MAX, &raw const modules as usize] {
            assert_eq!(call_before(address, &modules), None, "{address:#x}");
        }
    }
}
