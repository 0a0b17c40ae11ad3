//! Descriptors that are closed in the child of a fork.
//!
//! A descriptor is registered with the identity of its socket. A child closes it only if it still
//! has that. The owner does not unregister a descriptor that it closes, and the program may have
//! reused its number.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use super::own_descriptor::Identity;
use crate::os::filter;
use crate::os::fork::{Rank, Table, join};
use crate::primitives::{AtomicI32, AtomicU64, Ordering};

struct Entry {
    /// The descriptor plus 1; 0 if the entry is free, [`TAKEN`] during registration.
    descriptor: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

const TAKEN: i32 = -1;

/// The most sockets that can be registered; children keep further ones open.
const MAX_ENTRIES: usize = 16;

static ENTRIES: [Entry; MAX_ENTRIES] = [const {
    Entry {
        descriptor: AtomicI32::new(0),
        device: AtomicU64::new(0),
        inode: AtomicU64::new(0),
    }
}; MAX_ENTRIES];

/// Registers a socket, whose descriptor children of a fork will close.
pub fn register(socket: BorrowedFd<'_>) {
    let descriptor = socket.as_raw_fd();
    let Some(identity) = Identity::at(descriptor) else {
        return;
    };
    join(&FORK);
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
            entry.device.store(identity.device, Ordering::Relaxed);
            entry.inode.store(identity.inode, Ordering::Relaxed);
            entry.descriptor.store(descriptor + 1, Ordering::Release);
            return;
        }
    }
}

static FORK: Table = Table::new(Rank::TABLES, after_fork_in_child);

/// Closes the registered sockets. Called in the child of a fork. Where a system call filter forbids that, the child keeps
/// them.
fn after_fork_in_child() {
    for entry in &ENTRIES {
        let known = entry.descriptor.swap(0, Ordering::Acquire);
        if known > 0 && entry.is_valid(known - 1) && filter::may_close_files() {
            // SAFETY: the identity shows that the descriptor is the registered socket's. A thread of
            // the parent owned it, and this process does not have that thread.
            unsafe { libc::close(known - 1) };
        }
    }
}

impl Entry {
    /// Returns whether the descriptor still refers to the socket.
    fn is_valid(&self, descriptor: RawFd) -> bool {
        let identity = Identity {
            kind: libc::S_IFSOCK,
            device: self.device.load(Ordering::Relaxed),
            inode: self.inode.load(Ordering::Relaxed),
        };
        Identity::at(descriptor) == Some(identity)
    }
}
