//! Detects whether code keeps frame pointers, from its call-frame information, which describes how
//! each function's frame is found.

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, EhFrame, EhHdrTable,
    EndianSlice, LittleEndian, Register, UnwindSection,
};

/// The greatest percentage of functions without a frame pointer, among those with a frame, in code
/// that counts as compiled with frame pointers. The standard library is compiled with them, and has
/// a few functions that end in a jump before they would need one.
pub const MAX_WITHOUT_PER_CENT: usize = 8;

/// The bytes of a table.
pub type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Returns whether each of at most `limit` functions keeps a frame pointer, in the register
/// `frame_pointer`. Skips functions without a frame. The functions are spread evenly over the sorted table of an `.eh_frame_hdr` with
/// `header_bytes` bytes. `frames` begins at the address `start`. The tables may be damaged.
pub fn functions<'a: 'b, 'b>(
    table: &'b EhHdrTable<'b, Bytes<'a>>,
    header_bytes: usize,
    start: u64,
    frames: &'b EhFrame<Bytes<'a>>,
    bases: &'b BaseAddresses,
    frame_pointer: Register,
    limit: usize,
) -> impl Iterator<Item = bool> + use<'a, 'b> {
    // The header takes 12 bytes, and each function 8.
    let functions = header_bytes.saturating_sub(12) / 8;
    let stride = functions.div_ceil(limit).max(1);
    let mut entries = table.iter(bases);
    let pointers = std::iter::from_fn(move || {
        let (_, pointer) = entries.nth(stride - 1).ok()??;
        Some(pointer)
    });
    pointers.take(limit).filter_map(move |pointer| {
        // gimli's own conversion to an offset subtracts without a check of the order.
        let offset = pointer.direct().ok()?.checked_sub(start)?;
        let offset = usize::try_from(offset).ok()?;
        let described = frames.fde_from_offset(bases, offset.into(), EhFrame::cie_from_offset);
        let instructions = described.ok()?.instructions(frames, bases);
        is_kept(instructions, frame_pointer)
    })
}

/// Returns whether a function finds its frame by the register `frame_pointer`; `None` if it never
/// moves the stack pointer.
pub fn is_kept(
    mut instructions: CallFrameInstructionIter<'_, Bytes<'_>>,
    frame_pointer: Register,
) -> Option<bool> {
    let mut moves = false;
    while let Ok(Some(instruction)) = instructions.next() {
        match instruction {
            CallFrameInstruction::DefCfaRegister { register }
            | CallFrameInstruction::DefCfa { register, .. }
                if register == frame_pointer =>
            {
                return Some(true);
            }
            CallFrameInstruction::DefCfaOffset { .. } => moves = true,
            _ => {}
        }
    }
    moves.then_some(false)
}
