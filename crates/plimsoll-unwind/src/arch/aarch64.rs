//! aarch64.
//!
//! A call stores its return address in the link register, `x30`. A function that calls others saves
//! it with the frame pointer, `x29`, as a pair. Return addresses may be signed; the signature is in
//! bits that no address of a program uses.

use gimli::{AArch64, Register, Vendor};

use super::{Call, Captured};

/// A call stores its return address in a register.
pub(crate) const HAS_LINK_REGISTER: bool = true;

/// Instructions are aligned by this number of bytes.
pub(crate) const INSTRUCTION_ALIGNMENT: usize = 4;

/// The stack pointer's number.
pub(crate) const STACK_POINTER: Register = AArch64::SP;

/// The frame pointer's number.
pub(crate) const FRAME_POINTER: Register = AArch64::X29;

/// The link register's number.
pub(crate) const RETURN_ADDRESS: Register = AArch64::X30;

/// The tables may contain `DW_CFA_AARCH64_negate_ra_state`, which marks signed return addresses.
pub(crate) const VENDOR: Vendor = Vendor::AArch64;

/// The length of a call instruction, in bytes.
pub(crate) const LONGEST_CALL: usize = 4;

/// Returns the registers of the calling function. Always inlined, so that they belong to a live
/// frame.
#[inline(always)]
pub(crate) fn here() -> Captured {
    let (instruction, stack, frame, link);
    // SAFETY: the template only copies four registers.
    unsafe {
        std::arch::asm!(
            "adr {0}, .",
            "mov {1}, sp",
            "mov {2}, x29",
            "mov {3}, x30",
            out(reg) instruction,
            out(reg) stack,
            out(reg) frame,
            out(reg) link,
            options(nomem, nostack, preserves_flags),
        );
    }
    Captured {
        instruction,
        stack,
        frame,
        link,
    }
}

/// Returns the registers of the code that a signal interrupted.
#[cfg(target_os = "linux")]
pub(crate) fn interrupted(context: &libc::ucontext_t) -> Captured {
    let machine = &context.uc_mcontext;
    Captured {
        instruction: machine.pc,
        stack: machine.sp,
        frame: machine.regs[29],
        link: machine.regs[30],
    }
}

/// The kernel's signal frame is a `siginfo_t` of 128 bytes, then a `ucontext_t`, in which the machine
/// context is at offset 176: the fault address, 31 registers, the stack pointer, the instruction.
const REGISTERS: usize = 128 + 176 + 8;

/// Returns the registers that a signal interrupted. `stack` is the stack pointer at the signal
/// trampoline: the address of the kernel's signal frame.
pub(crate) fn signal_frame(
    stack: usize,
    mut read: impl FnMut(usize) -> Option<usize>,
) -> Option<Captured> {
    let mut register = |number: usize| {
        let word = read(stack + REGISTERS + 8 * number)?;
        Some(word as u64)
    };
    Some(Captured {
        instruction: register(32)?,
        stack: register(31)?,
        frame: register(29)?,
        link: register(30)?,
    })
}

/// A signal trampoline: `mov x8, #139` (`rt_sigreturn`), `svc #0`.
const TRAMPOLINE: [u32; 2] = [0xd280_1168, 0xd400_0001];

/// Returns whether a signal handler returns to the code at `address`, which has no unwind tables
/// since Linux 5.8. The code must be mapped.
pub(crate) fn is_signal_trampoline(address: usize) -> bool {
    /// Both instructions are read in one page, since the next one may not be mapped.
    const LAST_IN_PAGE: usize = 0x1000 - size_of::<[u32; 2]>();
    address % 4 == 0
        && address % 0x1000 <= LAST_IN_PAGE
        // SAFETY: aligned, and in the page of a code address, which is mapped by this function's
        // contract.
        && unsafe { *(address as *const [u32; 2]) } == TRAMPOLINE
}

/// Returns the same for a copy of the code.
pub(crate) fn is_copied_trampoline(code: [u8; 8]) -> bool {
    let [a, b, c, d, e, f, g, h] = code;
    [[a, b, c, d], [e, f, g, h]].map(u32::from_le_bytes) == TRAMPOLINE
}

/// Returns an address without its signature.
#[inline(always)]
pub(crate) fn strip(address: usize) -> usize {
    let stripped;
    // SAFETY: `xpaclri` changes only the link register. Processors without signatures execute it as a
    // no-operation.
    unsafe {
        std::arch::asm!(
            "hint #7",
            inlateout("x30") address => stripped,
            options(nomem, nostack, preserves_flags),
        );
    }
    stripped
}

/// Returns the distance from the stack pointer up to the frame pointer after the executed part of a
/// function: `stp` and `str` that lower the stack pointer, `sub sp`, and `add x29, sp`. Returns `None`
/// if it sets no frame pointer, or aligns the stack.
pub(crate) fn distance_to_frame(code: &[u8]) -> Option<usize> {
    /// The stack pointer's number in these instructions.
    const SP: u32 = 31;
    let mut distance = None;
    for bytes in code.chunks_exact(4) {
        let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let (to, from) = (word & 31, word >> 5 & 31);
        let lowers_by = match word {
            // stp x, x, [sp, #-n]!
            _ if word >> 22 == 0x2a6 && from == SP => {
                let words = (word >> 15 & 0x7f) as i32;
                -((words << 25) >> 25) * 8
            }
            // str x, [sp, #-n]!
            _ if word >> 21 == 0x7c0 && word >> 10 & 3 == 3 && from == SP => {
                let bytes = (word >> 12 & 0x1ff) as i32;
                -((bytes << 23) >> 23)
            }
            // sub sp, sp, #n
            _ if word >> 23 == 0x1a2 && to == SP && from == SP => immediate(word) as i32,
            // and sp, x, #n: an alignment, whose effect on the distance is unknown.
            _ if word >> 23 == 0x124 && to == SP => return None,
            // add x29, sp, #n
            _ if word >> 23 == 0x122 && to == 29 && from == SP => {
                distance = Some(immediate(word) as usize);
                0
            }
            _ => 0,
        };
        distance = match distance {
            Some(distance) => Some(distance + usize::try_from(lowers_by).ok()?),
            None => None,
        };
    }
    distance
}

/// Returns the immediate of an addition or subtraction.
fn immediate(word: u32) -> u32 {
    (word >> 10 & 0xfff) << (12 * (word >> 22 & 1))
}

/// The length of the code that [`freed_by_epilogue`] reads.
pub(crate) const LONGEST_EPILOGUE: usize = 1;

/// Returns `None`: functions that call others keep frame records.
pub(crate) fn freed_by_epilogue(_code: [u8; LONGEST_EPILOGUE]) -> Option<usize> {
    None
}

/// Returns the call that returns to `address`, behind `code`.
pub(crate) fn call_before(address: usize, code: [u8; LONGEST_CALL]) -> Option<Call> {
    let word = u32::from_le_bytes(code);
    // bl
    if word >> 26 == 0x25 {
        let distance = ((word << 6) as i32 >> 6) as isize * 4;
        return Some(Call::Of((address - 4).wrapping_add_signed(distance)));
    }
    // blr, and its signed variants
    (word & 0xfeff_f000 == 0xd63f_0000).then_some(Call::Indirect)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distance(instructions: &[u32]) -> Option<usize> {
        let code: Vec<u8> = instructions
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        distance_to_frame(&code)
    }

    #[test]
    fn the_prologue_determines_the_frame_size() {
        const STP_32: u32 = 0xa9be_7bfd; // stp x29, x30, [sp, #-32]!
        const SET: u32 = 0x9100_03fd; // mov x29, sp
        assert_eq!(distance(&[STP_32, SET]), Some(0));
        // paciasp first; sub sp, sp, #0x40 after it
        assert_eq!(
            distance(&[0xd503_233f, STP_32, SET, 0xd101_03ff]),
            Some(0x40)
        );
        // sub sp, sp, #0x50; stp x29, x30, [sp, #0x40]; add x29, sp, #0x40
        assert_eq!(
            distance(&[0xd101_43ff, 0xa904_7bfd, 0x9101_03fd]),
            Some(0x40)
        );
        // sub sp, sp, #1, lsl #12
        assert_eq!(distance(&[STP_32, SET, 0xd140_07ff]), Some(0x1000));
        // str x19, [sp, #-16]!
        assert_eq!(distance(&[STP_32, SET, 0xf81f_0ff3]), Some(16));
        // and sp, x9, #0xffffffffffffffe0
        assert_eq!(distance(&[STP_32, SET, 0x927b_e93f]), None);
        assert_eq!(distance(&[STP_32]), None);
        assert_eq!(distance(&[]), None);
    }

    #[test]
    fn calls_are_recognized() {
        let call = |word: u32| call_before(0x1_0004, word.to_le_bytes());
        assert_eq!(call(0x9400_0002), Some(Call::Of(0x1_0008)));
        assert_eq!(call(0x97ff_ffff), Some(Call::Of(0xfffc)));
        assert_eq!(call(0xd63f_0100), Some(Call::Indirect)); // blr x8
        assert_eq!(call(0xd73f_0909), Some(Call::Indirect)); // blraa x8, x9
        assert_eq!(call(0x1400_0002), None); // b
        assert_eq!(call(0xd65f_03c0), None); // ret
    }

    #[test]
    fn an_unsigned_address_is_unchanged_by_stripping() {
        let address = distance_to_frame as *const () as usize;
        assert_eq!(strip(address), address);
    }
}
