//! The fields of the C library's locks that the hooks read. Their layout is in its public headers
//! and cannot change, since programs contain locks in their own data.
//!
//! A caller either holds the lock, or is about to call a C library function that reads the same
//! fields.

use plimsoll_sys::os::syscall;
use plimsoll_sys::primitives::{AtomicU32, Ordering};

/// Offsets in a mutex, in bytes.
mod mutex {
    pub(super) const LOCK: usize = 0;
    pub(super) const COUNT: usize = 4;
    pub(super) const OWNER: usize = 8;
    pub(super) const KIND: usize = 16;
}

/// Offsets in a readers-writer lock, in bytes.
mod rwlock {
    pub(super) const WRITER: usize = 24;
    pub(super) const SHARED: usize = 28;
}

/// The bits of a mutex's kind.
mod kind {
    pub(super) const TYPE: u32 = 3;
    pub(super) const RECURSIVE: u32 = 1;
    pub(super) const ERRORCHECK: u32 = 2;
    pub(super) const ROBUST: u32 = 16;
    pub(super) const INHERITS_PRIORITY: u32 = 32;
    pub(super) const PROTECTS_PRIORITY: u32 = 64;
    pub(super) const SHARED: u32 = 128;
}

/// The bits of the lock word that hold the owner, in a mutex that is robust or inherits priorities.
const OWNER_IN_LOCK: u32 = 0x3fff_ffff;

/// Returns whether an unlock by the calling thread releases the mutex. It does not if the C library
/// would refuse it, or if the thread has locked the mutex more than once.
///
/// # Safety
/// `address` is the address of a mutex.
pub(super) unsafe fn gives_up_mutex(address: usize) -> bool {
    // SAFETY: a mutex lies at `address`, by this function's contract, and `place` lies inside it.
    let field = |place| unsafe { field(address, place) };
    let kind = field(mutex::KIND);
    let type_of = kind & kind::TYPE;
    let owner = if kind & (kind::ROBUST | kind::INHERITS_PRIORITY) != 0 {
        field(mutex::LOCK) & OWNER_IN_LOCK
    } else if kind & kind::PROTECTS_PRIORITY != 0
        || type_of == kind::RECURSIVE
        || type_of == kind::ERRORCHECK
    {
        field(mutex::OWNER)
    } else {
        // Any thread may unlock such a mutex.
        return true;
    };
    let once = type_of != kind::RECURSIVE || field(mutex::COUNT) <= 1;
    once && owner == this_thread()
}

/// Returns whether the mutex may be shared with other processes.
///
/// # Safety
/// `address` is the address of a mutex.
pub(super) unsafe fn is_mutex_shared(address: usize) -> bool {
    // SAFETY: a mutex lies at `address`, by this function's contract.
    unsafe { field(address, mutex::KIND) & kind::SHARED != 0 }
}

/// Returns whether the readers-writer lock may be shared with other processes.
///
/// # Safety
/// `address` is the address of a readers-writer lock.
pub(super) unsafe fn is_rwlock_shared(address: usize) -> bool {
    // SAFETY: a readers-writer lock lies at `address`, by this function's contract.
    unsafe { field(address, rwlock::SHARED) != 0 }
}

/// Returns whether the calling thread, which holds the readers-writer lock, holds it for writing.
///
/// # Safety
/// `address` is the address of a readers-writer lock.
pub(super) unsafe fn is_written(address: usize) -> bool {
    // SAFETY: a readers-writer lock lies at `address`, by this function's contract.
    unsafe { field(address, rwlock::WRITER) != 0 }
}

/// # Safety
/// Four bytes at `address + place` belong to a live lock.
unsafe fn field(address: usize, place: usize) -> u32 {
    // SAFETY: the four bytes at `place` are readable, by this function's contract; locks are
    // aligned.
    unsafe { AtomicU32::from_ptr((address + place) as *mut u32) }.load(Ordering::Relaxed)
}

fn this_thread() -> u32 {
    // SAFETY: `gettid` has no arguments.
    unsafe { syscall::call(libc::SYS_gettid, [0; 6]) as u32 }
}
