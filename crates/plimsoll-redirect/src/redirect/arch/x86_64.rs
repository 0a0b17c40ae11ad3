//! x86-64.
//!
//! The jump has a 32-bit distance: its thunk is near. A function that begins with `endbr64` keeps
//! this instruction, which indirect calls require under control-flow enforcement.

use crate::redirect::Obstacle;
use decode::{Flow, Instruction};

mod decode;
#[cfg(test)]
mod refused_calls;
#[cfg(test)]
mod tests;

/// The size of `jmp rel32`.
pub(crate) const JUMP: usize = 5;
/// The size of a thunk: `jmp [rip + distance]`, and padding.
pub(crate) const THUNK: usize = 16;

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// The longest sequence: four bytes, and one instruction more.
const MAX_MOVED: usize = JUMP - 1 + 15;

/// The instructions that a trampoline repeats.
#[derive(Clone, Copy)]
pub(crate) struct Moved {
    /// The offset of the first of them in the function, where the jump is written.
    pub(crate) start: usize,
    bytes: [u8; MAX_MOVED],
    length: usize,
}

impl Moved {
    pub(crate) const NONE: Self = Self {
        start: 0,
        bytes: [0; MAX_MOVED],
        length: 0,
    };
}

/// Finds the instructions at the start of a function that a jump replaces. `code` is the whole
/// function.
pub(crate) fn displace(code: &[u8]) -> Result<Moved, Obstacle> {
    let start = if code.starts_with(&ENDBR64) {
        ENDBR64.len()
    } else {
        0
    };
    let code = &code[start..];
    let mut length = 0;
    while length < JUMP {
        let rest = code.get(length..).filter(|rest| !rest.is_empty());
        let rest = rest.ok_or(Obstacle::Short)?;
        match decode::first(rest) {
            Some(found) if found.is_movable() => length += found.length,
            // It is as long as the jump.
            Some(found) if found.is_movable_end() => length += found.length,
            // A function that ends here is too short.
            Some(Instruction {
                flow: Flow::Return, ..
            }) if length + 1 >= code.len() => return Err(Obstacle::Short),
            _ => {
                let mut bytes = [0; 8];
                let shown = &code[..code.len().min(8)];
                bytes[..shown.len()].copy_from_slice(shown);
                return Err(Obstacle::Instructions(bytes));
            }
        }
    }
    if length > code.len() {
        return Err(Obstacle::Short);
    }
    if has_branch_into(code, length) {
        return Err(Obstacle::Branch);
    }
    let mut moved = Moved {
        start,
        length,
        ..Moved::NONE
    };
    moved.bytes[..length].copy_from_slice(&code[..length]);
    Ok(moved)
}

/// Returns whether a branch leads to a byte from the second to the last that the jump replaces.
/// `code` begins at the jump; its first `known` bytes are whole instructions.
///
/// Where all instructions are known, these are examined. From the first unknown one on, any byte may
/// be the start of a branch.
fn has_branch_into(code: &[u8], known: usize) -> bool {
    let leads_into = |at: usize, branch: Option<(usize, i32)>| {
        branch.is_some_and(|(length, distance)| {
            let target = (at + length) as i64 + i64::from(distance);
            (1..JUMP as i64).contains(&target)
        })
    };
    let mut at = 0;
    while at < code.len() {
        let Some(found) = decode::first(&code[at..]) else {
            break;
        };
        let distance = found.flow.distance();
        if leads_into(at, distance.map(|distance| (found.length, distance))) {
            return true;
        }
        at += found.length;
    }
    let from = at.max(known);
    (from..code.len()).any(|at| leads_into(at, decode::branch(&code[at..])))
}

/// Encodes a jump at address `from` to `to`; `None` if that is too far.
pub(crate) fn jump(from: usize, to: usize) -> Option<[u8; JUMP]> {
    let distance = distance(from + JUMP, to)?.to_le_bytes();
    let mut jump = [0xe9; JUMP];
    jump[1..].copy_from_slice(&distance);
    Some(jump)
}

fn distance(from: usize, to: usize) -> Option<i32> {
    i32::try_from(to.wrapping_sub(from) as isize).ok()
}

/// Encodes a thunk, which will lie at address `at`: a jump to the address that memory has at `place`. `None` if that is
/// too far.
pub(crate) fn thunk(at: usize, place: usize, to: &mut [u8]) -> Option<()> {
    let to = to.get_mut(..THUNK)?;
    to.fill(0xcc);
    Writer { at, to, length: 0 }.jump_by(place)
}

/// Encodes the trampoline of a function, which will lie at address `at`: the displaced instructions
/// with their distances corrected, then a jump to the next one. `None` if something is too far.
pub(crate) fn trampoline(moved: &Moved, function: usize, at: usize, to: &mut [u8]) -> Option<()> {
    let mut code = Writer { at, to, length: 0 };
    code.put(&ENDBR64)?;
    let mut done = 0;
    while done < moved.length {
        let bytes = &moved.bytes[done..moved.length];
        let Instruction {
            length,
            relative,
            flow,
        } = decode::first(bytes)?;
        let end = function + moved.start + done + length;
        let distance = flow.distance().or_else(|| {
            let field = bytes.get(relative?..)?.first_chunk::<4>()?;
            Some(i32::from_le_bytes(*field))
        });
        let target = end.wrapping_add_signed(distance.unwrap_or(0) as isize);
        match flow {
            Flow::Branch { condition, .. } => {
                code.put(&[0x0f, 0x80 | condition])?;
                code.put_distance(target, 4)?;
            }
            Flow::Jump { .. } => return code.put(&jump(code.here(), target)?),
            // The function returns to the code behind the original call, for which the unwind tables
            // are valid.
            Flow::Call { .. } => {
                code.push(end)?;
                return code.put(&jump(code.here(), target)?);
            }
            Flow::IndirectCall => {
                code.push(end)?;
                return code.jump_by(target);
            }
            Flow::IndirectJump => return code.jump_by(target),
            _ => match relative {
                Some(offset) => {
                    code.put(&bytes[..offset])?;
                    code.put_distance(target, length - offset)?;
                    code.put(&bytes[offset + 4..length])?;
                }
                None => code.put(&bytes[..length])?,
            },
        }
        done += length;
    }
    let next = function + moved.start + moved.length;
    let jump = jump(code.here(), next)?;
    code.put(&jump)
}

/// Writes code for an address.
struct Writer<'a> {
    at: usize,
    to: &'a mut [u8],
    length: usize,
}

impl Writer<'_> {
    /// Returns the address of the next byte.
    fn here(&self) -> usize {
        self.at + self.length
    }

    /// Writes an instruction that pushes a number, which lies in the last bytes of the memory.
    fn push(&mut self, number: usize) -> Option<()> {
        let place = self.to.len().checked_sub(size_of::<usize>())?;
        self.to[place..].copy_from_slice(&number.to_le_bytes());
        self.put(&[0xff, 0x35])?;
        self.put_distance(self.at + place, 4)
    }

    /// Writes a jump to the address that memory has at `place`.
    fn jump_by(&mut self, place: usize) -> Option<()> {
        self.put(&[0xff, 0x25])?;
        self.put_distance(place, 4)
    }

    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let place = self.to.get_mut(self.length..self.length + bytes.len())?;
        place.copy_from_slice(bytes);
        self.length += bytes.len();
        Some(())
    }

    /// Writes the distance to `target`, in an instruction that ends `left` bytes from here.
    fn put_distance(&mut self, target: usize, left: usize) -> Option<()> {
        let from = self.here() + left;
        self.put(&distance(from, target)?.to_le_bytes())
    }
}

/// Returns whether code at an address has a direct call of one of some functions, or a jump there.
pub(crate) fn calls_one_of(code: &[u8], address: usize, others: &[usize]) -> bool {
    (0..code.len()).any(|at| match code[at..].first_chunk::<5>() {
        Some([0xe8 | 0xe9, distance @ ..]) => {
            let distance = i32::from_le_bytes(*distance) as isize;
            let target = (address + at + JUMP).wrapping_add_signed(distance);
            others.contains(&target)
        }
        _ => false,
    })
}
