//! Children that a program makes with the system call `clone` or `fork` itself: the C library
//! calls no handler for them, so such a child goes on in its parent's file.
//!
//! No hook on the fast path notices. The system clears a page of memory in every child, and the
//! next cold path looks at it: a sampled allocation, or the end by `exit`. The child then marks the
//! file, whose counts are not the parent's alone any more, and continues with a copy in memory of
//! its own. Counts of the child up to that moment stay in the file: some [`HEAP_RATE`] bytes of
//! them. A child that ends before it samples anything, and not by `exit`, leaves no mark.
//!
//! [`HEAP_RATE`]: super::word::HEAP_RATE

use super::{BASE, DESCRIPTOR, header, layout, notes, part_of, replace, word};
use crate::alloc::counts::HEAP;
use crate::os::forgotten::Forgotten;
use crate::os::region::{self, PAGE};
use crate::os::syscall::call;
use crate::primitives::{AtomicU32, AtomicU64, Ordering};
use crate::stack::TABLE;

/// 1 in the process that made the file, and in children that the C library knows of; 0 in others.
static OWNER: Forgotten<AtomicU32> = Forgotten::new(AtomicU32::new(0));

/// The file is this process's. Before `main`.
pub(super) fn mark_owner() {
    OWNER.prepare();
    OWNER.store(1, Ordering::Relaxed);
}

/// Marks the file and leaves it, if it is a parent's. For hooks: makes system calls only.
#[inline]
pub(crate) fn leave_if_parents() {
    if BASE.load(Ordering::Relaxed) != 0
        && OWNER.is_forgotten()
        && OWNER.load(Ordering::Relaxed) == 0
    {
        leave();
    }
}

#[cold]
#[inline(never)]
fn leave() {
    // Only the first thread here, should there be several.
    if OWNER.swap(1, Ordering::Relaxed) != 0 {
        return;
    }
    let Some(header) = header() else { return };
    header[word::STRAYS].fetch_add(1, Ordering::Relaxed);
    let parts = [
        word::SHARED,
        word::NOTES,
        word::TABLE,
        word::PER_CPU,
        word::PER_THREAD,
    ];
    let [shared, notes_part, table, per_cpu, per_thread] = parts.map(|at| part_of(header, at));
    // From here on, this process neither notes anything in the file nor marks its end there.
    let base = BASE.swap(0, Ordering::Relaxed);
    super::file::close(DESCRIPTOR.swap(-1, Ordering::Relaxed));
    // What is accessible of each part; shards last, in which this thread may count meanwhile.
    let noted = notes::bytes().min(notes_part.length);
    let copied = [
        (base, layout::HEADER_BYTES + shared.length + noted),
        (table.base, TABLE.bytes()),
        (per_cpu.base, per_cpu.length),
        (per_thread.base, HEAP.shard_bytes_committed()),
    ];
    for (address, length) in copied {
        if !copy_in_place(address, length) {
            // What is left goes on in the file, which is marked.
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

/// Puts a copy in memory of this process's own in the place of a piece of the file. False if there
/// is no memory for it.
fn copy_in_place(address: usize, length: usize) -> bool {
    if length == 0 {
        return true;
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let Some(copy) = region::map(length.max(PAGE), 0, access) else {
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
    // SAFETY: the copy takes the place of the piece, with the same content.
    let moved = unsafe { call(libc::SYS_mremap, [copy, length, length, how, address, 0]) };
    moved >= 0
}
