//! x86-64.

use std::arch::asm;

use plimsoll_sys::os::rseq::Area;
use plimsoll_sys::sequence_descriptor as descriptor;

use super::super::per_cpu::{LOG, Operation, UNUSED_HALF};

/// Whether [`macro@increment`] consists of restartable sequences. Otherwise it is the ordinary Rust of
/// per-thread shards, and [`Protocol::PerCpu`](super::super::Protocol) is not available.
pub const HAS_SEQUENCES: bool = true;

/// Adds 1 to a word of a ledger.
///
/// Six instructions, none of them locked, for both kinds of shards:
///
/// ```text
///     lea   descriptor, %t          announce: in a per-CPU shard, to the kernel, which restarts the
///     mov   %t, 8(area)                       sequence if the thread is disturbed before its last
///                                             instruction; in a per-thread shard, to the reader
///     imul  $8192, (area), %t       which shard: the processor's number, or the thread's own
///     add   LEDGER.current, %t      which generation, and where shards are
///     incq  FIRST(%t, offset)       count: the last instruction, the commit
///     movq  $0, 8(area)             done
/// ```
#[macro_export]
macro_rules! increment {
    ($ledger:path, $area:expr, $offset:expr, $first:literal) => {
        $crate::ledger::increment!(
            @ $ledger, $area,
            concat!("inc qword ptr [{t} + {offset} + 8*", $first, "]"),
            { offset = in(reg) $offset, }
        )
    };
    (@ $ledger:path, $area:expr, $count:expr, {$($operands:tt)*}) => {{
        std::arch::asm!(
            "771:",
            "lea {t}, [rip + 773f]",
            "mov qword ptr [{area} + 8], {t}",
            "774:",
            "imul {t:e}, dword ptr [{area}], 8192",
            "add {t}, qword ptr [rip + {ledger}]",
            $count,
            "775:",
            "mov qword ptr [{area} + 8], 0",
            plimsoll_sys::sequence_descriptor!(),
            area = in(reg) $area,
            $($operands)*
            t = out(reg) _,
            ledger = sym $ledger,
            options(nostack),
        );
    }};
}

/// Adds `amount` to word `WORD` of the delta, a literal, in the same way as [`increment`].
///
/// Safety: as for [`increment`].
#[macro_export]
macro_rules! add {
    ($ledger:path, $area:expr, $word:literal, $amount:expr) => {
        $crate::ledger::increment!(
            @ $ledger, $area,
            concat!("add qword ptr [{t} + 8*", $word, "], {amount}"),
            { amount = in(reg) $amount, }
        )
    };
}

pub use add;
pub use increment;

/// Adds `operation` by the redo log of the processor's shard in the second row.
///
/// # Safety
/// As for [`PerCpu::record`](super::super::per_cpu::PerCpu::record). `operation` has positions within
/// a generation.
pub(in super::super) unsafe fn record(
    area: *mut Area,
    current: *const usize,
    second_row: usize,
    operation: &Operation,
) {
    // SAFETY: the sequence writes only to the log and the words of the second row's shard for the
    // current processor, in the current generation; `words` are positions within a generation. The
    // kernel's rules for sequences are kept: no calls, no stack, one commit at the end.
    unsafe {
        asm!(
            "771:",
            "lea {shard}, [rip + 773f]",
            "mov qword ptr [{area} + 8], {shard}",
            "774:",
            "imul {shard:e}, dword ptr [{area}], 8192",
            "add {shard}, qword ptr [{current}]",
            "add {shard}, {second_row}",
            // Apply the operation in the log.
            "mov {packed}, qword ptr [{shard} + {log}]",
            "test {packed}, {packed}",
            "jz 772f",
            "movzx {word:e}, {packed:x}",
            "mov {value}, qword ptr [{shard} + {log} + 8]",
            "mov qword ptr [{shard} + {word} * 8], {value}",
            "shr {packed}, 16",
            "movzx {word:e}, {packed:x}",
            "mov {value}, qword ptr [{shard} + {log} + 16]",
            "mov qword ptr [{shard} + {word} * 8], {value}",
            "shr {packed}, 16",
            "movzx {word:e}, {packed:x}",
            "mov {value}, qword ptr [{shard} + {log} + 24]",
            "mov qword ptr [{shard} + {word} * 8], {value}",
            "shr {packed}, 16",
            "mov {value}, qword ptr [{shard} + {log} + 32]",
            "mov qword ptr [{shard} + {packed} * 8], {value}",
            "mov qword ptr [{shard} + {log}], 0",
            "772:",
            // Write the new operation to the log.
            "movzx {word:e}, word ptr [{operation}]",
            "mov {value}, qword ptr [{shard} + {word} * 8]",
            "add {value}, qword ptr [{operation} + 8]",
            "mov qword ptr [{shard} + {log} + 8], {value}",
            "movzx {word:e}, word ptr [{operation} + 2]",
            "mov {value}, qword ptr [{shard} + {word} * 8]",
            "add {value}, qword ptr [{operation} + 16]",
            "mov qword ptr [{shard} + {log} + 16], {value}",
            "movzx {word:e}, word ptr [{operation} + 4]",
            "mov {value}, qword ptr [{shard} + {word} * 8]",
            "add {value}, qword ptr [{operation} + 24]",
            "mov qword ptr [{shard} + {log} + 24], {value}",
            "movzx {word:e}, word ptr [{operation} + 6]",
            "mov {value}, qword ptr [{shard} + {word} * 8]",
            "add {value}, qword ptr [{operation} + 32]",
            "mov qword ptr [{shard} + {log} + 32], {value}",
            "mov {packed}, qword ptr [{operation}]",
            "mov qword ptr [{shard} + {log}], {packed}",
            "775:",
            "mov qword ptr [{area} + 8], 0",
            descriptor!(),
            area = in(reg) area,
            current = in(reg) current,
            second_row = in(reg) second_row,
            operation = in(reg) operation,
            shard = out(reg) _,
            packed = out(reg_abcd) _,
            word = out(reg) _,
            value = out(reg) _,
            log = const LOG,
            options(nostack),
        );
    }
}

/// Adds to the words `first` and `second`, as [`record`] does, without the unused half of the log.
/// `packed` has both positions as in the log.
///
/// # Safety
/// As for [`record`].
#[inline(always)]
pub(in super::super) unsafe fn record_pair(
    area: *mut Area,
    current: *const usize,
    second_row: usize,
    packed: u64,
    [(first, first_amount), (second, second_amount)]: [(usize, u64); 2],
) {
    // SAFETY: the sequence writes only to the log and the words of the second row's shard for the
    // current processor, in the current generation, and its last instruction commits it.
    unsafe {
        asm!(
            "771:",
            "lea {shard}, [rip + 773f]",
            "mov qword ptr [{area} + 8], {shard}",
            "774:",
            "imul {shard:e}, dword ptr [{area}], 8192",
            "add {shard}, qword ptr [{current}]",
            "add {shard}, {second_row}",
            // Carry out the operation in the log.
            "mov {log_words}, qword ptr [{shard} + {log}]",
            "test {log_words}, {log_words}",
            "jz 772f",
            "movzx {word:e}, {log_words:x}",
            "mov {value}, qword ptr [{shard} + {log} + 8]",
            "mov qword ptr [{shard} + {word} * 8], {value}",
            "shr {log_words}, 16",
            "movzx {word:e}, {log_words:x}",
            "mov {value}, qword ptr [{shard} + {log} + 16]",
            "mov qword ptr [{shard} + {word} * 8], {value}",
            "shr {log_words}, 16",
            "cmp {log_words:e}, {unused_half}",
            "je 777f",
            "movzx {word:e}, {log_words:x}",
            "mov {value}, qword ptr [{shard} + {log} + 24]",
            "mov qword ptr [{shard} + {word} * 8], {value}",
            "shr {log_words}, 16",
            "mov {value}, qword ptr [{shard} + {log} + 32]",
            "mov qword ptr [{shard} + {log_words} * 8], {value}",
            "777:",
            "mov qword ptr [{shard} + {log}], 0",
            "772:",
            // Write the new operation to the log, and commit it by the words' positions.
            "mov {value}, qword ptr [{shard} + {first} * 8]",
            "add {value}, {first_amount}",
            "mov qword ptr [{shard} + {log} + 8], {value}",
            "mov {value}, qword ptr [{shard} + {second} * 8]",
            "add {value}, {second_amount}",
            "mov qword ptr [{shard} + {log} + 16], {value}",
            "mov qword ptr [{shard} + {log}], {packed}",
            "775:",
            "mov qword ptr [{area} + 8], 0",
            descriptor!(),
            area = in(reg) area,
            current = in(reg) current,
            second_row = in(reg) second_row,
            packed = in(reg) packed,
            first = in(reg) first,
            second = in(reg) second,
            first_amount = in(reg) first_amount,
            second_amount = in(reg) second_amount,
            shard = out(reg) _,
            log_words = out(reg) _,
            word = out(reg) _,
            value = out(reg) _,
            log = const LOG,
            unused_half = const UNUSED_HALF,
            options(nostack),
        );
    }
}

/// Adds 1 to word 0, and stays between the load of the generation and the commit until `let_go`. Sets
/// `inside` meanwhile.
///
/// # Safety
/// As for [`record`].
#[cfg(test)]
pub(in super::super) unsafe fn count_held_up(
    area: *mut Area,
    current: *const usize,
    inside: &std::sync::atomic::AtomicBool,
    let_go: &std::sync::atomic::AtomicBool,
) {
    // SAFETY: the sequence writes only to word 0 of the current processor's shard and to `inside`,
    // and reads `let_go`; its last instruction commits it.
    unsafe {
        asm!(
            "771:",
            "lea {t}, [rip + 773f]",
            "mov qword ptr [{area} + 8], {t}",
            "774:",
            "imul {t:e}, dword ptr [{area}], 8192",
            "add {t}, qword ptr [{current}]",
            "mov byte ptr [{inside}], 1",
            "772:",
            "pause",
            "cmp byte ptr [{let_go}], 0",
            "je 772b",
            "inc qword ptr [{t}]",
            "775:",
            "mov qword ptr [{area} + 8], 0",
            descriptor!(),
            area = in(reg) area,
            current = in(reg) current,
            inside = in(reg) inside.as_ptr(),
            let_go = in(reg) let_go.as_ptr(),
            t = out(reg) _,
            options(nostack),
        );
    }
}
