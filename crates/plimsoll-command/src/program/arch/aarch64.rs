//! aarch64.

use gimli::{AArch64, Register};

pub(super) const NAME: &str = "aarch64";

pub(super) const FRAME_POINTER: Register = AArch64::X29;

/// Recognizes a store of the pair `x29, x30` to the stack, and soon after it `add x29, sp, N`, of
/// which `mov x29, sp` is a form.
pub(super) fn begins_with_frame_pointer(code: &[u8]) -> bool {
    // `stp x29, x30, [sp, N]`, and the form that subtracts from `sp` before.
    const STORES: [u32; 2] = [0xa900_7bfd, 0xa980_7bfd];
    const STORE_MASK: u32 = 0xffc0_7fff;
    const ADD: u32 = 0x9100_03fd;
    const ADD_MASK: u32 = 0xff80_03ff;
    let mut instructions = code.chunks_exact(4).map(|bytes| {
        let bytes = bytes.try_into().expect("chunks of four bytes");
        u32::from_le_bytes(bytes)
    });
    instructions.any(|instruction| STORES.contains(&(instruction & STORE_MASK)))
        && instructions.any(|instruction| instruction & ADD_MASK == ADD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins(instructions: &[u32]) -> bool {
        let code: Vec<u8> = instructions
            .iter()
            .flat_map(|instruction| instruction.to_le_bytes())
            .collect();
        begins_with_frame_pointer(&code)
    }

    #[test]
    fn prologues_are_recognised() {
        // paciasp; stp x29, x30, [sp, -32]!; mov x29, sp
        assert!(begins(&[0xd503_233f, 0xa9be_7bfd, 0x9100_03fd]));
        // sub sp, sp, 48; stp x29, x30, [sp, 32]; add x29, sp, 32
        assert!(begins(&[0xd100_c3ff, 0xa902_7bfd, 0x9100_83fd]));
        // stp x29, x30, [sp, -32]!; str x19, [sp, 16]
        assert!(!begins(&[0xa9be_7bfd, 0xf900_0bf3]));
        // str x30, [sp, -16]!; mov x29, sp
        assert!(!begins(&[0xf81f_0ffe, 0x9100_03fd]));
        // mov x29, sp; stp x29, x30, [sp, -32]!
        assert!(!begins(&[0x9100_03fd, 0xa9be_7bfd]));
        assert!(!begins_with_frame_pointer(b"\xfd\x7b"));
        assert!(!begins(&[]));
    }
}
