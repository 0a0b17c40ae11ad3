//! The kinds of waits.

/// The recorded kind of a wait. A profile distinguishes more kinds, by the names in the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum WaitKind {
    /// A futex on which no known primitive waits.
    Other = 0,
    Mutex = 1,
    RwLockRead = 2,
    RwLockWrite = 3,
    Condvar = 4,
    Once = 5,
    Park = 6,
    Barrier = 7,
    Channel = 8,
    Semaphore = 9,
    // 10 is unused: it was a wait for a group of threads.
    /// A task's wait for a notification.
    Notify = 11,
    /// A task's wait for a lock that it gave up, from the last release that was charged for it.
    GivenUp = 12,
}

impl WaitKind {
    /// Returns whether the awaited object has an owner, which is charged for the wait.
    pub(crate) fn is_lock(self) -> bool {
        matches!(self, Self::Mutex | Self::RwLockRead | Self::RwLockWrite)
    }

    /// Returns whether it is a read or write wait for a readers-writer lock.
    pub(crate) fn is_rwlock(self) -> bool {
        matches!(self, Self::RwLockRead | Self::RwLockWrite)
    }

    pub(crate) fn from_number(number: u64) -> Self {
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
    pub(crate) fn name(self) -> &'static str {
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
