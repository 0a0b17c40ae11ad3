//! Linux.

pub mod cgroup;
pub mod clock;
pub mod code_mappings;
pub mod copied_memory;
pub mod cpus;
pub mod eventfd;
pub mod handler_stacks;
mod mapping;
mod mapping_query;
pub mod membarrier;
mod page_scan;
pub mod pages;
pub mod privileges;
pub mod probe;
pub mod random;
pub mod realtime_signal;
pub mod residency;
mod resident_mappings;
pub mod smaps;
pub mod syscall;
pub mod task_file;
pub mod thread_stack;
pub mod wipe_on_fork;

use std::cell::Cell;
use std::ffi::CStr;

thread_local! {
    static THREAD_ID: Cell<i32> = const { Cell::new(0) };
}

/// Returns the system's id of the calling thread.
#[inline]
pub fn thread_id() -> i32 {
    match THREAD_ID.get() {
        0 => {
            // SAFETY: `gettid` takes no arguments and cannot fail.
            let id = unsafe { syscall::call3(libc::SYS_gettid, 0, 0, 0) } as i32;
            THREAD_ID.set(id);
            id
        }
        id => id,
    }
}

/// Clears the cached thread id: in the child of a fork, the thread has another id.
#[inline]
pub fn forget_thread_id() {
    THREAD_ID.set(0);
}

/// Names the calling thread. The system truncates the name to 15 bytes, and ignores a failure.
pub fn name_thread(name: &CStr) {
    // SAFETY: the name is NUL-terminated.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
}

/// Returns the most memory that the process ever had resident, in bytes; 0 if unknown.
pub fn peak_resident_bytes() -> u64 {
    // SAFETY: the kernel fills a struct of the right layout, for which all zeros is a valid value.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) != 0 {
            return 0;
        }
        usage
    };
    usage.ru_maxrss as u64 * 1024
}
