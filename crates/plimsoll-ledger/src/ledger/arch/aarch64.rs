//! aarch64.
//!
//! # Order of memory accesses
//! Other processors may observe the accesses of a sequence in another order. The sequences rely on
//! these orders only:
//!
//! - Threads on one processor write its shard. Each observes the writes of its predecessors, because a
//!   switch of threads is a full fence; so a redo log is complete for the next sequence. The reader
//!   reads a generation only after `membarrier` has restarted every sequence in progress. That is a
//!   full fence on each processor, so the reader observes all earlier commits.
//! - In a per-thread shard, a sequence stores its announcement before it loads the generation. The
//!   processor may reorder the two, as x86-64 may. The reader's `membarrier`, between its change of
//!   the generation and its reads of the announcements, ensures that at least one side observes the
//!   other.
//! - In a per-thread shard, the end of a sequence follows the count. x86-64 keeps the order of stores.
//!   Here, `stlr` withdraws the announcement with release order, and the reader loads it with acquire
//!   order.

use std::arch::asm;

use plimsoll_sys::os::rseq::Area;
use plimsoll_sys::sequence_descriptor as descriptor;

use super::super::per_cpu::{LOG, Operation, UNUSED_HALF};

/// Whether [`macro@increment`] consists of restartable sequences. Otherwise it is the ordinary Rust of
/// per-thread shards, and [`Protocol::PerCpu`](super::super::Protocol) is not available.
pub const HAS_SEQUENCES: bool = true;

/// Adds 1 to a word of a ledger, as on x86-64, in eleven instructions, where x86-64 has six. The
/// difference: an address takes two instructions, and arithmetic works on registers only.
///
/// The store of the announcement moves `area` to the announced word, since `stlr` takes no offset. A
/// restart moves it back. The sequence begins after that store, so a restart always follows it.
#[macro_export]
macro_rules! increment {
    ($ledger:path, $area:expr, $offset:expr, $first:literal) => {
        $crate::ledger::increment!(@ $ledger, $area, $offset + 8 * $first, "1", {})
    };
    (@ $ledger:path, $area:expr, $offset:expr, $amount:literal, {$($operands:tt)*}) => {{
        std::arch::asm!(
            "771:",
            "adrp {t}, 773f",
            "add {t}, {t}, :lo12:773f",
            "str {t}, [{area}, #8]!",
            "774:",
            "ldr {shard:w}, [{area}, #-8]",
            "adrp {t}, {ledger}",
            "ldr {t}, [{t}, :lo12:{ledger}]",
            "add {shard}, {t}, {shard}, lsl #13",
            "ldr {t}, [{shard}, {offset}]",
            concat!("add {t}, {t}, ", $amount),
            "str {t}, [{shard}, {offset}]",
            "775:",
            "stlr xzr, [{area}]",
            plimsoll_sys::sequence_descriptor!("sub {area}, {area}, #8"),
            area = inout(reg) $area => _,
            offset = in(reg) $offset,
            $($operands)*
            t = out(reg) _,
            shard = out(reg) _,
            ledger = sym $ledger,
            options(nostack),
        );
    }};
}

/// Adds `amount` to word `WORD` of the delta, a literal, as [`increment`] does 1 to another.
///
/// Safety: as there.
#[macro_export]
macro_rules! add {
    ($ledger:path, $area:expr, $word:literal, $amount:expr) => {
        $crate::ledger::increment!(
            @ $ledger, $area, 8 * $word as usize, "{amount}", { amount = in(reg) $amount, }
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
            "adrp {value}, 773f",
            "add {value}, {value}, :lo12:773f",
            "str {value}, [{area}, #8]",
            "774:",
            "ldr {word:w}, [{area}]",
            "ldr {shard}, [{current}]",
            "add {shard}, {shard}, {word}, lsl #13",
            "add {shard}, {shard}, {second_row}",
            // Apply the operation in the log.
            "ldr {packed}, [{shard}, #{log}]",
            "cbz {packed}, 772f",
            "and {word:w}, {packed:w}, #0xffff",
            "ldr {value}, [{shard}, #{log} + 8]",
            "str {value}, [{shard}, {word}, lsl #3]",
            "lsr {packed}, {packed}, #16",
            "and {word:w}, {packed:w}, #0xffff",
            "ldr {value}, [{shard}, #{log} + 16]",
            "str {value}, [{shard}, {word}, lsl #3]",
            "lsr {packed}, {packed}, #16",
            "and {word:w}, {packed:w}, #0xffff",
            "ldr {value}, [{shard}, #{log} + 24]",
            "str {value}, [{shard}, {word}, lsl #3]",
            "lsr {packed}, {packed}, #16",
            "and {word:w}, {packed:w}, #0xffff",
            "ldr {value}, [{shard}, #{log} + 32]",
            "str {value}, [{shard}, {word}, lsl #3]",
            "str xzr, [{shard}, #{log}]",
            "772:",
            // Write the new operation to the log.
            "ldrh {word:w}, [{operation}, #0]",
            "ldr {value}, [{shard}, {word}, lsl #3]",
            "ldr {packed}, [{operation}, #8]",
            "add {value}, {value}, {packed}",
            "str {value}, [{shard}, #{log} + 8]",
            "ldrh {word:w}, [{operation}, #2]",
            "ldr {value}, [{shard}, {word}, lsl #3]",
            "ldr {packed}, [{operation}, #16]",
            "add {value}, {value}, {packed}",
            "str {value}, [{shard}, #{log} + 16]",
            "ldrh {word:w}, [{operation}, #4]",
            "ldr {value}, [{shard}, {word}, lsl #3]",
            "ldr {packed}, [{operation}, #24]",
            "add {value}, {value}, {packed}",
            "str {value}, [{shard}, #{log} + 24]",
            "ldrh {word:w}, [{operation}, #6]",
            "ldr {value}, [{shard}, {word}, lsl #3]",
            "ldr {packed}, [{operation}, #32]",
            "add {value}, {value}, {packed}",
            "str {value}, [{shard}, #{log} + 32]",
            "ldr {packed}, [{operation}]",
            "str {packed}, [{shard}, #{log}]",
            "775:",
            "str xzr, [{area}, #8]",
            descriptor!(),
            area = in(reg) area,
            current = in(reg) current,
            second_row = in(reg) second_row,
            operation = in(reg) operation,
            shard = out(reg) _,
            packed = out(reg) _,
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
            "adrp {value}, 773f",
            "add {value}, {value}, :lo12:773f",
            "str {value}, [{area}, #8]",
            "774:",
            "ldr {word:w}, [{area}]",
            "ldr {shard}, [{current}]",
            "add {shard}, {shard}, {word}, lsl #13",
            "add {shard}, {shard}, {second_row}",
            // Apply the operation in the log.
            "ldr {log_words}, [{shard}, #{log}]",
            "cbz {log_words}, 772f",
            "and {word:w}, {log_words:w}, #0xffff",
            "ldr {value}, [{shard}, #{log} + 8]",
            "str {value}, [{shard}, {word}, lsl #3]",
            "lsr {log_words}, {log_words}, #16",
            "and {word:w}, {log_words:w}, #0xffff",
            "ldr {value}, [{shard}, #{log} + 16]",
            "str {value}, [{shard}, {word}, lsl #3]",
            "lsr {log_words}, {log_words}, #16",
            "eor {word}, {log_words}, {unused_half}",
            "cbz {word}, 777f",
            "and {word:w}, {log_words:w}, #0xffff",
            "ldr {value}, [{shard}, #{log} + 24]",
            "str {value}, [{shard}, {word}, lsl #3]",
            "lsr {log_words}, {log_words}, #16",
            "and {word:w}, {log_words:w}, #0xffff",
            "ldr {value}, [{shard}, #{log} + 32]",
            "str {value}, [{shard}, {word}, lsl #3]",
            "777:",
            "str xzr, [{shard}, #{log}]",
            "772:",
            // Write the new operation to the log, and commit it by the words' positions.
            "ldr {value}, [{shard}, {first}, lsl #3]",
            "add {value}, {value}, {first_amount}",
            "str {value}, [{shard}, #{log} + 8]",
            "ldr {value}, [{shard}, {second}, lsl #3]",
            "add {value}, {value}, {second_amount}",
            "str {value}, [{shard}, #{log} + 16]",
            "str {packed}, [{shard}, #{log}]",
            "775:",
            "str xzr, [{area}, #8]",
            descriptor!(),
            area = in(reg) area,
            current = in(reg) current,
            second_row = in(reg) second_row,
            packed = in(reg) packed,
            first = in(reg) first,
            second = in(reg) second,
            first_amount = in(reg) first_amount,
            second_amount = in(reg) second_amount,
            unused_half = in(reg) UNUSED_HALF,
            shard = out(reg) _,
            log_words = out(reg) _,
            word = out(reg) _,
            value = out(reg) _,
            log = const LOG,
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
            "adrp {t}, 773f",
            "add {t}, {t}, :lo12:773f",
            "str {t}, [{area}, #8]",
            "774:",
            "ldr {shard:w}, [{area}]",
            "ldr {t}, [{current}]",
            "add {shard}, {t}, {shard}, lsl #13",
            "mov {t:w}, #1",
            "strb {t:w}, [{inside}]",
            "772:",
            "yield",
            "ldrb {t:w}, [{let_go}]",
            "cbz {t:w}, 772b",
            "ldr {t}, [{shard}]",
            "add {t}, {t}, #1",
            "str {t}, [{shard}]",
            "775:",
            "stlr xzr, [{announcement}]",
            descriptor!(),
            area = in(reg) area,
            announcement = in(reg) area.byte_add(8),
            current = in(reg) current,
            inside = in(reg) inside.as_ptr(),
            let_go = in(reg) let_go.as_ptr(),
            shard = out(reg) _,
            t = out(reg) _,
            options(nostack),
        );
    }
}
