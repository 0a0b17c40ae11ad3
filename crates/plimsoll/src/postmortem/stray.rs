//! Children that a program makes with the system call `clone` or `fork` itself. The C library calls
//! no handler for them, so such a child continues in its parent's file.
//!
//! No hook on the fast path checks for this. The system clears a page of memory in every child, and
//! the next cold path checks the page: a sampled allocation, or the end by `exit`. The child then
//! marks the file, whose counts are not only the parent's any more, and continues with a copy in
//! private memory. Counts of the child up to that moment stay in the file: some [`HEAP_RATE`] bytes
//! of them. A child that ends before it samples anything, and not by `exit`, leaves no mark.
//!
//! [`HEAP_RATE`]: word::HEAP_RATE

use plimsoll_postmortem::layout::word;
use plimsoll_sys::os::region::{self, PAGE};
use plimsoll_sys::os::syscall::call;
use plimsoll_sys::primitives::{AtomicU64, Ordering};

use super::{leave_history, replace};
use plimsoll_core::alloc::counts::HEAP;
use plimsoll_core::stack::TABLE;
use plimsoll_ledger::postmortem_file;
use plimsoll_ledger::postmortem_file::{header, notes, part_of};

/// Marks the file and continues in private memory. For hooks: makes system calls only.
#[cold]
#[inline(never)]
pub(super) fn leave() {
    let Some(header) = header() else { return };
    header[word::STRAYS].fetch_add(1, Ordering::Relaxed);
    let parts = [word::NOTES, word::TABLE, word::PER_CPU, word::PER_THREAD];
    let [notes_part, table, per_cpu, per_thread] = parts.map(|at| part_of(header, at));
    // From here on, this process neither notes anything in the file nor marks its end there.
    let Some((_, base)) = postmortem_file::detach() else {
        return;
    };
    leave_history(header);
    // The accessible pieces of all other parts. Shards are last, because this thread may count meanwhile.
    let noted = notes::bytes().min(notes_part.length);
    let copied = [
        (base, notes_part.base + noted - base),
        (table.base, TABLE.bytes()),
        (per_cpu.base, per_cpu.length),
        (per_thread.base, HEAP.shard_bytes_committed()),
    ];
    for (address, length) in copied {
        if !copy_in_place(address, length) {
            // The remaining parts continue in the file, which is marked.
            return;
        }
    }
    for (part, used) in [
        (notes_part, noted),
        (table, TABLE.bytes()),
        (per_thread, HEAP.shard_bytes_committed()),
    ] {
        replace(part.base + used, part.length - used, libc::PROT_NONE);
    }
    TABLE.leave_file();
    HEAP.leave_file();
}

/// Replaces a piece of the file with a copy in private memory. Returns false if no memory is
/// available.
fn copy_in_place(address: usize, length: usize) -> bool {
    if length == 0 {
        return true;
    }
    let Some(copy) = region::map(length.max(PAGE)) else {
        return false;
    };
    for at in (0..length).step_by(8) {
        // SAFETY: `address` is the beginning of an accessible piece of the file of that length,
        // which stays mapped, and `copy` was mapped above. The parent may be adding to the file:
        // words are read whole.
        unsafe {
            let word = (*((address + at) as *const AtomicU64)).load(Ordering::Relaxed);
            // The copy is zeros already; most of its pages stay without memory.
            if word != 0 {
                *((copy + at) as *mut u64) = word;
            }
        }
    }
    let how = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    // SAFETY: the copy replaces the piece, with the same content.
    let moved = unsafe { call(libc::SYS_mremap, [copy, length, length, how, address, 0]) };
    moved >= 0
}
