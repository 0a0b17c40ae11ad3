//! Linux.

pub mod bell;
pub mod clock;
pub mod files;
pub mod filter;
pub mod membarrier;
pub mod pages;
pub mod privileges;
pub mod random;
pub mod syscall;

use std::cell::Cell;
use std::ffi::CStr;

use crate::primitives::{AtomicI32, AtomicU32, Ordering};

thread_local! {
    static THREAD_ID: Cell<i32> = const { Cell::new(0) };
}

/// Returns the system's id of the calling thread; a negative number, which no other thread has, if a system call
/// filter forbids to ask for it.
#[inline]
pub fn thread_id() -> i32 {
    match THREAD_ID.get() {
        0 => {
            // SAFETY: `gettid` takes no arguments and fails only for a filter.
            let id = unsafe { syscall::call3(libc::SYS_gettid, 0, 0, 0) } as i32;
            let id = if id > 0 { id } else { number_without_id() };
            THREAD_ID.set(id);
            id
        }
        id => id,
    }
}

/// Returns the number of the calling process's namespace of processes; 0 if it is unknown. Takes the memory of the stack
/// alone.
pub fn pid_namespace() -> u64 {
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let path = c"/proc/self/ns/pid";
    let arguments = [
        libc::AT_FDCWD as usize,
        path.as_ptr() as usize,
        found.as_mut_ptr() as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the path is a C string, and the kernel fills the structure, which is valid with zeros too.
    unsafe {
        match syscall::call(libc::SYS_newfstatat, arguments) {
            0 => found.assume_init().st_ino,
            _ => 0,
        }
    }
}

#[cold]
fn number_without_id() -> i32 {
    static LAST: AtomicI32 = AtomicI32::new(0);
    // After 2^31 threads, numbers repeat.
    LAST.fetch_sub(1, Ordering::Relaxed).wrapping_sub(1) | i32::MIN
}

/// The process when a filter began to restrict it; 0 in its children.
static RESTRICTED: AtomicU32 = AtomicU32::new(0);

/// Returns the number of the process by a system call; 0 if a filter forbids to ask for it, in the child of a process
/// that a filter restricted.
#[inline]
pub fn process_id() -> u32 {
    // SAFETY: `getpid` takes no arguments and fails only for a filter.
    let id = unsafe { syscall::call3(libc::SYS_getpid, 0, 0, 0) };
    u32::try_from(id).unwrap_or_else(|_| RESTRICTED.load(Ordering::Relaxed))
}

/// Keeps the number of the process for the time when a filter forbids to ask for it.
pub fn keep_process_id(id: u32) {
    RESTRICTED.store(id, Ordering::Relaxed);
}

/// Returns whether a thread of this process exists; `false` if a filter forbids to ask.
pub fn is_running(thread: i32) -> bool {
    // SAFETY: the signal 0 is not sent; the call takes no pointers.
    unsafe { syscall::call3(libc::SYS_tgkill, process_id() as usize, thread as usize, 0) == 0 }
}

/// Returns whether a thread of this process has ended; false if a filter forbids to ask for it.
pub fn has_ended(thread: i32) -> bool {
    filter::check(&[(libc::SYS_tgkill, "tgkill")]).is_ok() && !is_running(thread)
}

/// Clears the cached ids: in the child of a fork, thread and process have others.
#[inline]
pub fn forget_ids() {
    THREAD_ID.set(0);
    RESTRICTED.store(0, Ordering::Relaxed);
}

/// Names the calling thread. The system truncates the name to 15 bytes, and ignores a failure.
pub fn name_thread(name: &CStr) {
    // SAFETY: the name is NUL-terminated.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
}

/// Returns the most memory that the process ever had resident, in bytes; 0 if unknown.
pub fn peak_resident_bytes() -> u64 {
    usage().map_or(0, |usage| usage.ru_maxrss as u64 * 1024)
}

/// Returns the resources that the process has used; `None` if a filter forbids to ask for it.
pub fn usage() -> Option<libc::rusage> {
    // SAFETY: the kernel fills a struct of the right layout, for which all zeros is a valid value.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let to = &raw mut usage as usize;
        let result = syscall::call3(libc::SYS_getrusage, libc::RUSAGE_SELF as usize, to, 0);
        (result == 0).then_some(usage)
    }
}
