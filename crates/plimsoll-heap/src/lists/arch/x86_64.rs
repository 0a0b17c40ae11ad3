//! x86-64.
//!
//! Each operation is one sequence for both kinds of slots. It announces itself in the area, loads the
//! slot's number and address, and has one store, its last instruction, that changes the list.

use std::arch::asm;

use plimsoll_sys::os::rseq::Area;

use super::super::list::Head;
use super::super::slots::{CURRENT, SLOT_BYTES};
use super::Batch;

/// See the module documentation of `arch`.
pub(crate) const HAS_SEQUENCES: bool = true;

const WORD: usize = std::mem::offset_of!(Head, word);
const LIMIT: usize = std::mem::offset_of!(Head, limit);
const MOVED: usize = std::mem::offset_of!(Head, moved);
const ALLOCATED: usize = std::mem::offset_of!(Head, allocated);
const FIRST: usize = size_of::<Head>();

/// Announces a sequence in `{area}`. It lies between the labels 774 and 775.
macro_rules! announce {
    () => {
        r#"
771:
    lea {list}, [rip + 773f]
    mov qword ptr [{area} + 8], {list}
774:
        "#
    };
}

/// Announces a sequence, and computes the address of the list at `$offset` into `{list}`.
macro_rules! begin {
    ($offset:literal) => {
        concat!(
            announce!(),
            r#"
    imul {list:e}, dword ptr [{area}], {slot_bytes}
    add {list}, qword ptr [rip + {current}]
    add {list}, "#,
            $offset
        )
    };
}

/// Ends a sequence.
macro_rules! end {
    () => {
        concat!(
            r#"
775:
    mov qword ptr [{area} + 8], 0
            "#,
            plimsoll_sys::sequence_descriptor!()
        )
    };
}

/// Takes a block of the list at `offset` in the current slot. Returns null if it has none.
///
/// # Safety
/// `area` is the calling thread's, and a list begins at `offset` in each slot.
#[inline(always)]
pub(crate) unsafe fn pop(area: *mut Area, offset: usize) -> *mut u8 {
    let block: *mut u8;
    // SAFETY: the sequence reads a list of the current slot, and its last instruction takes a block.
    // The kernel's rules for sequences are kept: no calls, no stack, one commit at the end.
    unsafe {
        asm!(
            begin!("{offset}"),
            "mov {word}, qword ptr [{list} + {WORD}]",
            "movzx {block:e}, {word:x}",
            "test {block:e}, {block:e}",
            "jz 775f",
            "mov {block}, qword ptr [{list} + 8*{block} + {FIRST} - 8]",
            "add {word}, 0xffff",
            "mov qword ptr [{list} + {WORD}], {word}",
            end!(),
            area = in(reg) area,
            offset = in(reg) offset,
            list = out(reg) _,
            word = out(reg) _,
            block = out(reg) block,
            current = sym CURRENT,
            slot_bytes = const SLOT_BYTES,
            WORD = const WORD,
            FIRST = const FIRST,
            options(nostack),
        );
    }
    block
}

/// Adds a block to the list at `offset` in the current slot. Returns `false` if it is full.
///
/// # Safety
/// As for [`pop`]; the block is free and of the list's class.
#[inline(always)]
pub(crate) unsafe fn push(area: *mut Area, offset: usize, block: *mut u8) -> bool {
    let places: usize;
    // SAFETY: the sequence writes above the blocks of the list, below its limit; its last instruction
    // adds the block. Otherwise as for `pop`.
    unsafe {
        asm!(
            begin!("{offset}"),
            "movzx {index:e}, word ptr [{list} + {WORD}]",
            "mov {places}, qword ptr [{list} + {LIMIT}]",
            "sub {places}, {index}",
            "jbe 775f",
            "mov qword ptr [{list} + 8*{index} + {FIRST}], {block}",
            "inc qword ptr [{list} + {WORD}]",
            end!(),
            area = in(reg) area,
            offset = in(reg) offset,
            block = in(reg) block,
            list = out(reg) _,
            index = out(reg) _,
            places = out(reg) places,
            current = sym CURRENT,
            slot_bytes = const SLOT_BYTES,
            WORD = const WORD,
            LIMIT = const LIMIT,
            FIRST = const FIRST,
            options(nostack),
        );
    }
    places != 0
}

/// Copies `{length}` blocks from the address in `$from` to the address in `$to`, adds their number to the sums of
/// the list, or subtracts it by `$change`, and commits the new word.
macro_rules! commit_batch {
    ($from:literal, $to:literal, $change:literal) => {
        concat!(
            "778:\n mov {moved}, qword ptr [",
            $from,
            " + 8*{done}]\n mov qword ptr [",
            $to,
            r#" + 8*{done}], {moved}
    inc {done}
    cmp {done}, {length}
    jb 778b
    mov {word}, qword ptr [{list} + {WORD}]
    mov {pair}, {word}
    shr {pair}, 63
    mov {moved}, qword ptr [{list} + 8*{pair} + {MOVED}]
    "#,
            $change,
            r#" {moved}, {length}
    mov {allocated}, {word}
    shl {allocated}, 1
    shr {allocated}, 17
    add {allocated}, qword ptr [{list} + 8*{pair} + {ALLOCATED}]
    xor {pair}, 1
    mov qword ptr [{list} + 8*{pair} + {MOVED}], {moved}
    mov qword ptr [{list} + 8*{pair} + {ALLOCATED}], {allocated}
    shl {pair}, 63
    movzx {word:e}, {word:x}
    "#,
            $change,
            r#" {word}, {length}
    or {word}, {pair}
    mov qword ptr [{list} + {WORD}], {word}
        "#
        )
    };
}

/// A sequence that moves a [`Batch`]. Returns whether the blocks were moved.
macro_rules! batch_sequence {
    ($area:ident, $batch:ident, [$($line:expr),+ $(,)?], {$($operands:tt)*}) => {{
        let done: usize;
        asm!(
            $($line,)+
            end!(),
            area = in(reg) $area,
            batch = in(reg) $batch,
            list = out(reg) _,
            word = out(reg) _,
            pair = out(reg) _,
            moved = out(reg) _,
            allocated = out(reg) _,
            length = out(reg) _,
            done = out(reg) done,
            $($operands)*
            current = sym CURRENT,
            slot_bytes = const SLOT_BYTES,
            WORD = const WORD,
            MOVED = const MOVED,
            ALLOCATED = const ALLOCATED,
            FIRST = const FIRST,
            OFFSET = const std::mem::offset_of!(Batch, offset),
            LENGTH = const std::mem::offset_of!(Batch, length),
            BLOCKS = const std::mem::offset_of!(Batch, blocks),
            options(nostack),
        );
        done != 0
    }};
}

/// Announces a sequence, and computes the address of the list of a batch into `{list}` if the lists are
/// open: nothing is written to closed ones. Executes `$first` before, also at each restart, and changes
/// `{word}`.
macro_rules! begin_if_open {
    ($first:literal) => {
        concat!(
            announce!(),
            $first,
            r#"
    mov {list}, qword ptr [rip + {current}]
    cmp {list}, qword ptr [{batch} + {OPEN}]
    jne 775f
    imul {word:e}, dword ptr [{area}], {slot_bytes}
    add {list}, {word}
    add {list}, qword ptr [{batch} + {OFFSET}]
            "#
        )
    };
}

/// Adds a batch to the list of the current slot, whose limit grows by the length of the batch. Returns
/// `false` if the blocks do not fit or the lists are closed.
///
/// # Safety
/// As for [`push`], for each block; the batch is not empty.
pub(crate) unsafe fn fill(area: *mut Area, batch: &Batch) -> bool {
    // SAFETY: as for `push`. The sequence writes to the limit, above the list's blocks, and to the sums
    // that are not valid, before its last instruction.
    unsafe {
        batch_sequence!(
            area,
            batch,
            [
                begin_if_open!("xor {done:e}, {done:e}"),
                "mov {length}, qword ptr [{batch} + {LENGTH}]",
                "mov {moved}, qword ptr [{batch} + {CAPACITY}]",
                "mov {allocated}, qword ptr [{list} + {LIMIT}]",
                "add {allocated}, {length}",
                "cmp {allocated}, {moved}",
                "cmova {allocated}, {moved}",
                "movzx {word:e}, word ptr [{list} + {WORD}]",
                "lea {moved}, [{word} + {length}]",
                "cmp {moved}, {allocated}",
                "ja 775f",
                "mov qword ptr [{list} + {LIMIT}], {allocated}",
                "lea {word}, [{list} + 8*{word} + {FIRST}]",
                "mov {pair}, qword ptr [{batch} + {BLOCKS}]",
                commit_batch!("{pair}", "{word}", "add"),
            ],
            {
                LIMIT = const LIMIT,
                OPEN = const std::mem::offset_of!(Batch, open),
                CAPACITY = const std::mem::offset_of!(Batch, capacity),
            }
        )
    }
}

/// Raises the limit of the list of the current slot by the length of the batch, unless the lists are closed.
///
/// # Safety
/// As for [`pop`].
pub(crate) unsafe fn grow(area: *mut Area, batch: &Batch) {
    // SAFETY: as for `pop`. The last instruction of the sequence writes the limit.
    unsafe {
        asm!(
            begin_if_open!(""),
            "mov {word}, qword ptr [{list} + {LIMIT}]",
            "add {word}, qword ptr [{batch} + {LENGTH}]",
            "cmp {word}, qword ptr [{batch} + {CAPACITY}]",
            "cmova {word}, qword ptr [{batch} + {CAPACITY}]",
            "mov qword ptr [{list} + {LIMIT}], {word}",
            end!(),
            area = in(reg) area,
            batch = in(reg) batch,
            list = out(reg) _,
            word = out(reg) _,
            current = sym CURRENT,
            slot_bytes = const SLOT_BYTES,
            LIMIT = const LIMIT,
            OPEN = const std::mem::offset_of!(Batch, open),
            OFFSET = const std::mem::offset_of!(Batch, offset),
            LENGTH = const std::mem::offset_of!(Batch, length),
            CAPACITY = const std::mem::offset_of!(Batch, capacity),
            options(nostack),
        );
    }
}

/// Takes a batch from the list of the current slot. Returns `false` if it has not as many blocks.
///
/// # Safety
/// As for [`pop`]; the batch is not empty, and its blocks are writable.
pub(crate) unsafe fn drain(area: *mut Area, batch: &Batch) -> bool {
    // SAFETY: as for `pop`. The sequence writes to the batch and to the sums that are not valid, before
    // its last instruction.
    unsafe {
        batch_sequence!(
            area,
            batch,
            [
                begin!("qword ptr [{batch} + {OFFSET}]"),
                "xor {done:e}, {done:e}",
                "mov {length}, qword ptr [{batch} + {LENGTH}]",
                "movzx {word:e}, word ptr [{list} + {WORD}]",
                "sub {word}, {length}",
                "jb 775f",
                "lea {word}, [{list} + 8*{word} + {FIRST}]",
                "mov {pair}, qword ptr [{batch} + {BLOCKS}]",
                commit_batch!("{word}", "{pair}", "sub"),
            ],
            {}
        )
    }
}
