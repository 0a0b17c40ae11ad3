//! What the C library keeps in its locks, as far as it is asked for: laid out as in its public
//! headers, where it cannot change, since programs have locks in their own data.
//!
//! Asked for by a thread that holds the lock, or that is about to have the C library's function
//! read the same.

use crate::os::syscall;
use crate::primitives::{AtomicU32, Ordering};

/// Places in a mutex, in bytes.
mod mutex {
    pub(super) const LOCK: usize = 0;
    pub(super) const COUNT: usize = 4;
    pub(super) const OWNER: usize = 8;
    pub(super) const KIND: usize = 16;
}

/// Places in a readers-writer lock.
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

/// The thread in the lock word of a mutex that is robust or inherits priorities.
const OWNER_IN_LOCK: u32 = 0x3fff_ffff;

/// Whether the calling thread gives up the mutex if it unlocks it: not if it would be refused, nor
/// if it has locked it more often.
///
/// # Safety
/// There is a mutex at that address.
pub(super) unsafe fn gives_up_mutex(address: usize) -> bool {
    // SAFETY: the caller's.
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
        // Anybody may.
        return true;
    };
    let once = type_of != kind::RECURSIVE || field(mutex::COUNT) <= 1;
    once && owner == this_thread()
}

/// Whether other processes may have the mutex, too.
///
/// # Safety
/// There is a mutex at that address.
pub(super) unsafe fn is_mutex_shared(address: usize) -> bool {
    // SAFETY: the caller's.
    unsafe { field(address, mutex::KIND) & kind::SHARED != 0 }
}

/// Whether other processes may have the readers-writer lock, too.
///
/// # Safety
/// There is a readers-writer lock at that address.
pub(super) unsafe fn is_rwlock_shared(address: usize) -> bool {
    // SAFETY: the caller's.
    unsafe { field(address, rwlock::SHARED) != 0 }
}

/// Whether the calling thread, which has the readers-writer lock, writes.
///
/// # Safety
/// There is a readers-writer lock at that address.
pub(super) unsafe fn is_written(address: usize) -> bool {
    // SAFETY: the caller's.
    unsafe { field(address, rwlock::WRITER) != 0 }
}

/// # Safety
/// There are four bytes at that place of what is at the address.
unsafe fn field(address: usize, place: usize) -> u32 {
    // SAFETY: the caller's; locks are aligned.
    unsafe { AtomicU32::from_ptr((address + place) as *mut u32) }.load(Ordering::Relaxed)
}

fn this_thread() -> u32 {
    // SAFETY: has no arguments.
    unsafe { syscall::call(libc::SYS_gettid, [0; 6]) as u32 }
}
