//! Descriptors that are closed in the child of a fork.
//!
//! A descriptor is registered with the inode of its socket. A child closes it only if it still
//! refers to that inode: the owner closes its descriptor without a word to this module, and the
//! program may have the number by then.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use crate::primitives::{AtomicI32, AtomicU64, Ordering};

struct Entry {
    /// The descriptor and 1; 0 if the entry is free, [`TAKEN`] while it is written.
    descriptor: AtomicI32,
    inode: AtomicU64,
}

const TAKEN: i32 = -1;

/// More servers than that in one process are not closed.
const MAX_ENTRIES: usize = 16;

static ENTRIES: [Entry; MAX_ENTRIES] = [const {
    Entry {
        descriptor: AtomicI32::new(0),
        inode: AtomicU64::new(0),
    }
}; MAX_ENTRIES];

/// Has forked children close the descriptor of a socket.
pub(crate) fn register(socket: BorrowedFd<'_>) {
    let descriptor = socket.as_raw_fd();
    let Some(inode) = inode(descriptor) else {
        return;
    };
    for entry in &ENTRIES {
        let known = entry.descriptor.load(Ordering::Acquire);
        if known == TAKEN || (known != 0 && entry.is_valid(known - 1)) {
            continue;
        }
        let taken =
            entry
                .descriptor
                .compare_exchange(known, TAKEN, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            entry.inode.store(inode, Ordering::Relaxed);
            entry.descriptor.store(descriptor + 1, Ordering::Release);
            return;
        }
    }
}

/// In the child of a fork: closes what was registered.
pub(crate) fn after_fork_in_child() {
    for entry in &ENTRIES {
        let known = entry.descriptor.swap(0, Ordering::Acquire);
        if known > 0 && entry.is_valid(known - 1) {
            // SAFETY: the descriptor is the registered socket's, by its inode. Its owner was a
            // thread of the parent, which this process does not have.
            unsafe { libc::close(known - 1) };
        }
    }
}

impl Entry {
    /// Whether the descriptor is still that of the socket.
    fn is_valid(&self, descriptor: RawFd) -> bool {
        inode(descriptor) == Some(self.inode.load(Ordering::Relaxed))
    }
}

/// The inode of a socket.
fn inode(descriptor: RawFd) -> Option<u64> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: a valid place for the answer, of which zero is a value.
    let found = unsafe {
        let failed = libc::fstat(descriptor, found.as_mut_ptr()) != 0;
        (!failed).then(|| found.assume_init())
    }?;
    (found.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(found.st_ino)
}
