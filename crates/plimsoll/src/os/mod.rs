//! What the crate asks of the operating system, one file a subject.
//!
//! Everything here may be called from inside an allocator hook unless its doc says otherwise: no
//! call allocates, takes a lock, or touches `errno` (the system calls are made directly).

pub(crate) mod bell;
pub(crate) mod cgroup;
pub(crate) mod clock;
#[cfg(feature = "http")]
pub(crate) mod closed_in_forks;
pub(crate) mod copied_memory;
pub(crate) mod cpus;
pub(crate) mod forgotten;
pub(crate) mod loader;
pub(crate) mod membarrier;
pub(crate) mod privileges;
pub(crate) mod probe;
pub(crate) mod random;
pub(crate) mod region;
pub(crate) mod residency;
pub(crate) mod rseq;
pub(crate) mod smaps;
pub(crate) mod syscall;
pub(crate) mod task_file;
pub(crate) mod thread_stack;

use std::cell::Cell;

/// A word that no two living threads share, and that is never 0.
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: the ABI keeps the thread pointer at %fs:0.
    unsafe {
        std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    pointer
}

/// A word that no two living threads share, and that is never 0.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", not(miri))))]
pub(crate) fn thread_pointer() -> usize {
    // SAFETY: always callable.
    unsafe { libc::pthread_self() as usize }
}

thread_local! {
    static THREAD_ID: Cell<i32> = const { Cell::new(0) };
}

/// The system's number of the calling thread.
#[inline]
pub(crate) fn thread_id() -> i32 {
    match THREAD_ID.get() {
        0 => {
            // SAFETY: has no arguments, and cannot fail.
            let id = unsafe { syscall::call3(libc::SYS_gettid, 0, 0, 0) } as i32;
            THREAD_ID.set(id);
            id
        }
        id => id,
    }
}

/// In the child of a fork, the thread has another number.
pub(crate) fn forget_thread_id() {
    THREAD_ID.set(0);
}

/// One of so many places, a power of two, for the calling thread: mostly another one than those of
/// threads that run beside it.
#[inline]
pub(crate) fn thread_place(places: usize) -> usize {
    let mixed = (thread_pointer() as u64 >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize & (places - 1)
}

/// The most memory that the process ever had in use, in bytes; 0 if the system does not say.
pub(crate) fn peak_resident_bytes() -> u64 {
    // SAFETY: fills a struct of the right layout, for which all zeros is a value.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) != 0 {
            return 0;
        }
        usage
    };
    usage.ru_maxrss as u64 * 1024
}
