//! The kinds of waits.

/// The recorded kind of a wait. A profile distinguishes more kinds, by the names in the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum WaitKind {
    /// A futex on which no known primitive waits.
    Other = 0,
    /// A lock.
    Mutex = 1,
    /// A lock, by a reader.
    RwLockRead = 2,
    /// A lock of readers and writers, by a writer.
    RwLockWrite = 3,
    /// A condition.
    Condvar = 4,
    /// An initialization by another thread.
    Once = 5,
    /// A parked thread.
    Park = 6,
    /// A barrier.
    Barrier = 7,
    /// A message, or room for one.
    Channel = 8,
    /// A permit.
    Semaphore = 9,
    // 10 is unused: it was a wait for a group of threads.
    /// A task's wait for a notification.
    Notify = 11,
    /// A task's wait for a lock that it gave up, from the last release that was charged for it.
    GivenUp = 12,
}

impl WaitKind {
    /// Returns whether the awaited object has an owner, which is charged for the wait.
    pub fn is_lock(self) -> bool {
        matches!(self, Self::Mutex | Self::RwLockRead | Self::RwLockWrite)
    }

    /// Returns whether it is a read or write wait for a readers-writer lock.
    pub fn is_rwlock(self) -> bool {
        matches!(self, Self::RwLockRead | Self::RwLockWrite)
    }

    /// Returns the kind with a number; [`WaitKind::Other`] for an unknown one.
    pub fn from_number(number: u64) -> Self {
        match number {
            1 => Self::Mutex,
            2 => Self::RwLockRead,
            3 => Self::RwLockWrite,
            4 => Self::Condvar,
            5 => Self::Once,
            6 => Self::Park,
            7 => Self::Barrier,
            8 => Self::Channel,
            9 => Self::Semaphore,
            11 => Self::Notify,
            12 => Self::GivenUp,
            _ => Self::Other,
        }
    }

    /// Returns the value of the label `kind` in profiles.
    pub fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Mutex => "mutex",
            Self::RwLockRead => "rwlock read",
            Self::RwLockWrite => "rwlock write",
            Self::Condvar => "condvar",
            Self::Once => "once",
            Self::Park => "park",
            Self::Barrier => "barrier",
            Self::Channel => "channel",
            Self::Semaphore => "semaphore",
            Self::Notify => "notify",
            Self::GivenUp => "given up",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_back() {
        for kind in [
            WaitKind::Other,
            WaitKind::Mutex,
            WaitKind::RwLockRead,
            WaitKind::RwLockWrite,
            WaitKind::Condvar,
            WaitKind::Once,
            WaitKind::Park,
            WaitKind::Barrier,
            WaitKind::Channel,
            WaitKind::Semaphore,
            WaitKind::Notify,
            WaitKind::GivenUp,
        ] {
            assert_eq!(WaitKind::from_number(kind as u64), kind);
        }
    }
}
