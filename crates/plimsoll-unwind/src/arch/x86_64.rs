//! x86-64.

use gimli::{Register, Vendor, X86_64};

use super::{Call, Captured};

/// A call stores its return address on the stack.
pub(crate) const HAS_LINK_REGISTER: bool = false;

/// Instructions are aligned by this number of bytes.
pub(crate) const INSTRUCTION_ALIGNMENT: usize = 1;

/// The stack pointer's number.
pub(crate) const STACK_POINTER: Register = X86_64::RSP;

/// The frame pointer's number.
pub(crate) const FRAME_POINTER: Register = X86_64::RBP;

/// The number of the column for the return address.
pub(crate) const RETURN_ADDRESS: Register = X86_64::RA;

/// No extension.
pub(crate) const VENDOR: Vendor = Vendor::Default;

/// The length of the longest call instruction, in bytes.
pub(crate) const LONGEST_CALL: usize = 7;

/// Returns the registers of the calling function. Always inlined, so that they belong to a live
/// frame.
#[inline(always)]
pub(crate) fn here() -> Captured {
    let (instruction, stack, frame);
    // SAFETY: the template only copies three registers.
    unsafe {
        std::arch::asm!(
            "lea {0}, [rip]",
            "mov {1}, rsp",
            "mov {2}, rbp",
            out(reg) instruction,
            out(reg) stack,
            out(reg) frame,
            options(nomem, nostack, preserves_flags),
        );
    }
    Captured {
        instruction,
        stack,
        frame,
        link: 0,
    }
}

/// Returns the registers of the code that a signal interrupted.
#[cfg(target_os = "linux")]
pub(crate) fn interrupted(context: &libc::ucontext_t) -> Captured {
    let registers = &context.uc_mcontext.gregs;
    Captured {
        instruction: registers[libc::REG_RIP as usize] as u64,
        stack: registers[libc::REG_RSP as usize] as u64,
        frame: registers[libc::REG_RBP as usize] as u64,
        link: 0,
    }
}

/// Returns `None`: every signal trampoline of this architecture has unwind tables.
pub(crate) fn signal_frame(
    _stack: usize,
    _read: impl FnMut(usize) -> Option<usize>,
) -> Option<Captured> {
    None
}

/// Returns whether a signal handler returns to the code at `address`, which has no unwind tables.
pub(crate) fn is_signal_trampoline(_address: usize) -> bool {
    false
}

/// Returns the same for a copy of the code.
pub(crate) fn is_copied_trampoline(_code: [u8; 8]) -> bool {
    false
}

/// Returns the address: return addresses are not signed.
#[inline(always)]
pub(crate) fn strip(address: usize) -> usize {
    address
}

/// Returns the distance from the stack pointer up to the frame pointer after the executed part of a
/// prologue: `push rbp; mov rbp, rsp`, pushes of other registers, and `sub rsp`. Returns `None` for
/// other prologues.
pub(crate) fn distance_to_frame(code: &[u8]) -> Option<usize> {
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
            // Code probes a large frame page by page.
            [0x48, 0xc7, 0x04, 0x24, 0, 0, 0, 0, ref rest @ ..] => rest,
            // An alignment, whose effect on the distance is unknown.
            [0x48, 0x83 | 0x81, 0xe4, ..] => return None,
            _ => return Some(distance),
        };
    }
}

/// The length of the longest epilogue that [`freed_by_epilogue`] knows.
pub(crate) const LONGEST_EPILOGUE: usize = 5;

/// Returns the bytes between the stack pointer and the return address, if the code returns at once:
/// `add rsp, N; ret`.
pub(crate) fn freed_by_epilogue(code: [u8; LONGEST_EPILOGUE]) -> Option<usize> {
    match code {
        [0x48, 0x83, 0xc4, bytes @ ..=0x7f, 0xc3] if bytes % 8 == 0 => Some(usize::from(bytes)),
        _ => None,
    }
}

/// Returns the call that returns to `address`, behind `code`.
pub(crate) fn call_before(address: usize, code: [u8; LONGEST_CALL]) -> Option<Call> {
    if code[2] == 0xe8 {
        let distance = i32::from_le_bytes([code[3], code[4], code[5], code[6]]);
        return Some(Call::Of(address.wrapping_add_signed(distance as isize)));
    }
    let indirect = |at: usize| code[at] == 0xff && code[at + 1] >> 3 & 7 == 2;
    (0..LONGEST_CALL - 1)
        .any(indirect)
        .then_some(Call::Indirect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prologue_determines_the_frame_size() {
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
            // An incomplete prologue.
            (&[0x55, 0x48, 0x89, 0xe5, 0x41], Some(0)),
            // and rsp, -32
            (&[0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xe0], None),
            (&[0x53, 0x48, 0x89, 0xe5], None),
            (&[], None),
        ] {
            assert_eq!(distance_to_frame(code), expected, "{code:x?}");
        }
    }
}
