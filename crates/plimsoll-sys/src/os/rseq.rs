//! Restartable sequences, as the C library registers them (glibc 2.35 and later).
//!
//! The kernel maintains a small area for each thread. It contains the number of the current
//! processor, and a pointer by which the thread describes its current sequence of instructions. If
//! the thread is preempted, migrated or signalled within the sequence, the sequence starts over.

use crate::arch;

/// The head of the kernel's `struct rseq`: the fields that a counting sequence accesses.
#[repr(C)]
pub struct Area {
    /// The number of the processor; valid as an index even if the thread is not registered.
    pub cpu_id_start: u32,
    /// The number of the processor; negative if the thread is not registered.
    pub cpu_id: i32,
    /// The descriptor of the current sequence; 0 for none.
    pub sequence: usize,
}

/// Returns the calling thread's area, if the C library registered one that the kernel accepted.
pub fn area() -> Option<*mut Area> {
    Some(registered()?.0)
}

/// Returns the number of the processor on which the calling thread has just run, if it has such an area.
pub fn processor() -> Option<usize> {
    Some(registered()?.1)
}

fn registered() -> Option<(*mut Area, usize)> {
    let offset = arch::rseq_area_offset()?;
    let area = arch::thread_pointer().wrapping_add_signed(offset) as *mut Area;
    // SAFETY: the area lies in this thread's control block, at the offset that the C library
    // exports. The read is volatile, since the kernel writes the field.
    let cpu = unsafe { (&raw const (*area).cpu_id).read_volatile() };
    Some((area, usize::try_from(cpu).ok()?))
}
