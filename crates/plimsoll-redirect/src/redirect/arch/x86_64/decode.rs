//! Decodes the instructions with which functions begin.
//!
//! Other instructions are unknown: vector extensions, port input and output, string operations,
//! system calls.

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) length: usize,
    /// The offset of a 32-bit distance from the end of the instruction to its operand in memory.
    pub(super) relative: Option<usize>,
    pub(super) flow: Flow,
}

/// The instruction that is executed next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// The one that follows.
    Next,
    /// That, or the one at a distance from the end.
    Branch { condition: u8, distance: i32 },
    /// The one at a distance from the end.
    Jump { distance: i32 },
    /// A function at a distance from the end, which returns behind the instruction.
    Call { distance: i32 },
    /// A function whose address is in a register or in memory.
    IndirectCall,
    /// One whose address is in memory at a distance from the end.
    IndirectJump,
    /// One whose address is elsewhere in memory, or in a register.
    Indirect,
    /// The caller's.
    Return,
}

impl Instruction {
    /// Returns whether the instruction may be repeated elsewhere, and the next one after it.
    pub(super) fn is_movable(&self) -> bool {
        matches!(self.flow, Flow::Next | Flow::Branch { .. })
    }

    /// Returns whether the instruction may be repeated elsewhere as the last one: a long jump or a call
    /// whose target is at a distance, or in memory at a distance.
    pub(super) fn is_movable_end(&self) -> bool {
        match self.flow {
            Flow::Jump { .. } => self.length == 5,
            Flow::Call { .. } => true,
            Flow::IndirectCall => self.relative.is_some(),
            Flow::IndirectJump => true,
            _ => false,
        }
    }
}

impl Flow {
    /// Returns the distance of a branch, jump or call.
    pub(super) fn distance(self) -> Option<i32> {
        match self {
            Self::Branch { distance, .. } | Self::Jump { distance } | Self::Call { distance } => {
                Some(distance)
            }
            _ => None,
        }
    }
}

/// The operands after an operation code.
#[derive(Clone, Copy)]
enum Operands {
    None,
    /// A constant of that many bytes.
    Constant(usize),
    /// A register or memory operand, then a constant of that many bytes.
    Memory(usize),
}

use Operands::{Constant, Memory};

/// Returns the first instruction of `code`; `None` if it is unknown or not complete.
pub(super) fn first(code: &[u8]) -> Option<Instruction> {
    let mut at = 0;
    let (mut has_prefix_66, mut has_repeat) = (false, false);
    loop {
        match code.get(at)? {
            // The segment of thread-local storage.
            0x64 => {}
            0x66 => has_prefix_66 = true,
            0xf3 | 0xf2 => has_repeat = true,
            // A segment that is ignored: only in padding.
            0x2e => {}
            _ => break,
        }
        at += 1;
        if at > 6 {
            return None;
        }
    }
    let rex = match code.get(at)? {
        rex @ 0x40..=0x4f => {
            at += 1;
            *rex
        }
        _ => 0,
    };
    let is_wide = rex & 8 != 0;
    let operation = *code.get(at)?;
    at += 1;
    let short = |at: usize| Some(i32::from(*code.get(at)? as i8));
    let long = |at: usize| Some(i32::from_le_bytes(*code.get(at..)?.first_chunk::<4>()?));
    let branch = |length, flow| {
        // A prefix may change the size of the distance.
        (!has_prefix_66).then_some(Instruction {
            length,
            relative: None,
            flow,
        })
    };
    let operands = match operation {
        0x0f => {
            let operation = *code.get(at)?;
            at += 1;
            match operation {
                0x80..=0x8f => {
                    let condition = operation & 0xf;
                    let distance = long(at)?;
                    return branch(
                        at + 4,
                        Flow::Branch {
                            condition,
                            distance,
                        },
                    );
                }
                // Moves of vector registers, their `xor`, and prefetches.
                0x10 | 0x11 | 0x12 | 0x13 | 0x16 | 0x17 | 0x18 | 0x28 | 0x29 | 0x57 | 0x6e
                | 0x6f | 0x7e | 0x7f | 0xd6 | 0xef => Memory(0),
                // `endbr64` and `nop`.
                0x1e | 0x1f => Memory(0),
                // `cmov`, `set`.
                0x40..=0x4f | 0x90..=0x9f => Memory(0),
                // Multiplication, extension of numbers, `bsf` and `bsr` and their like.
                0xaf | 0xb6 | 0xb7 | 0xbe | 0xbf | 0xbc | 0xbd => Memory(0),
                // Bit tests and shifts of two registers by a constant.
                0xba | 0xa4 | 0xac => Memory(1),
                0xa3 | 0xb1 | 0xc1 | 0xa5 | 0xad => Memory(0),
                _ => return None,
            }
        }
        // Arithmetic of a register and an operand, and of the accumulator and a constant.
        0x00..=0x3f => match operation & 7 {
            0..=3 => Memory(0),
            4 => Constant(1),
            5 if !has_prefix_66 => Constant(4),
            _ => return None,
        },
        0x50..=0x5f => Operands::None,
        0x63 => Memory(0),
        0x68 if !has_prefix_66 => Constant(4),
        0x6a => Constant(1),
        0x69 if !has_prefix_66 => Memory(4),
        0x6b => Memory(1),
        0x70..=0x7f => {
            let condition = operation & 0xf;
            let distance = short(at)?;
            return branch(
                at + 1,
                Flow::Branch {
                    condition,
                    distance,
                },
            );
        }
        0x80 | 0x83 => Memory(1),
        0x81 if !has_prefix_66 => Memory(4),
        0x84..=0x8b | 0x8d => Memory(0),
        0x90 | 0x98 | 0x99 => Operands::None,
        0xa8 => Constant(1),
        0xa9 if !has_prefix_66 => Constant(4),
        0xb0..=0xb7 => Constant(1),
        0xb8..=0xbf if !has_prefix_66 => Constant(if is_wide { 8 } else { 4 }),
        0xc0 | 0xc1 => Memory(1),
        0xd0..=0xd3 => Memory(0),
        0xc3 => return branch(at, Flow::Return),
        0xc6 => Memory(1),
        // With another register number, `xbegin`: its constant is a distance.
        0xc7 if !has_prefix_66 && code.get(at)? >> 3 & 7 == 0 => Memory(4),
        0xcc => return branch(at, Flow::Return),
        0xe8 => {
            let distance = long(at)?;
            return branch(at + 4, Flow::Call { distance });
        }
        0xe9 => {
            return branch(
                at + 4,
                Flow::Jump {
                    distance: long(at)?,
                },
            );
        }
        0xeb => {
            return branch(
                at + 1,
                Flow::Jump {
                    distance: short(at)?,
                },
            );
        }
        0xf6 | 0xf7 => match code.get(at)? >> 3 & 7 {
            0 if operation == 0xf6 => Memory(1),
            0 if !has_prefix_66 => Memory(4),
            2.. => Memory(0),
            _ => return None,
        },
        0xfe | 0xff => Memory(0),
        _ => return None,
    };
    // Of these prefixes, only those of vector moves and `endbr64` are known, and of bit counts.
    if has_repeat && operation != 0x0f {
        return None;
    }
    let kind = code.get(at).map_or(0, |byte| byte >> 3 & 7);
    let (length, relative) = match operands {
        Operands::None => (at, None),
        Constant(size) => (at + size, None),
        Memory(constant) => {
            let (size, relative) = operand(code.get(at..)?)?;
            (at + size + constant, relative.map(|offset| at + offset))
        }
    };
    let flow = match (operation, kind) {
        (0xff, 2) => Flow::IndirectCall,
        (0xff, 4) if relative.is_some() => Flow::IndirectJump,
        // Far calls and jumps are not repeated elsewhere.
        (0xff, 3..=5) => Flow::Indirect,
        _ => Flow::Next,
    };
    (length <= code.len()).then_some(Instruction {
        length,
        relative,
        flow,
    })
}

/// Returns the size of a register or memory operand, and the offset of its distance if it is
/// relative to the instruction.
fn operand(code: &[u8]) -> Option<(usize, Option<usize>)> {
    let byte = *code.first()?;
    let (mode, register) = (byte >> 6, byte & 7);
    if mode == 3 {
        return Some((1, None));
    }
    if mode == 0 && register == 5 {
        return Some((5, Some(1)));
    }
    let index = usize::from(register == 4);
    let has_no_base = index == 1 && mode == 0 && code.get(1)? & 7 == 5;
    let distance = match mode {
        1 => 1,
        2 => 4,
        _ if has_no_base => 4,
        _ => 0,
    };
    Some((1 + index + distance, None))
}

/// Reads the bytes as a direct branch or jump; returns its length and distance.
pub(super) fn branch(code: &[u8]) -> Option<(usize, i32)> {
    let long = |at: usize| Some(i32::from_le_bytes(*code.get(at..)?.first_chunk::<4>()?));
    match code {
        [0x70..=0x7f | 0xe0..=0xe3 | 0xeb, distance, ..] => Some((2, i32::from(*distance as i8))),
        [0xe9, ..] => Some((5, long(1)?)),
        [0x0f, 0x80..=0x8f, ..] => Some((6, long(2)?)),
        _ => None,
    }
}
