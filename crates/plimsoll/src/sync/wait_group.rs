//! A group of threads that can be waited for.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::contended::{self, keeps_its_frame, key_of, unseen};
use crate::contention::{Ended, WaitKind};

/// A group of threads, of any number, whose end can be awaited.
///
/// ```
/// use plimsoll::sync::WaitGroup;
///
/// let group = WaitGroup::new();
/// for _ in 0..4 {
///     let member = group.clone();
///     std::thread::spawn(move || {
///         // ...
///         drop(member);
///     });
/// }
/// group.wait();
/// ```
///
/// A clone replaces Go's `Add`, and a drop its `Done`, as in crossbeam. This excludes the mistakes
/// that Go's type allows: a thread that panics is done as well, no handle can be done twice, and no
/// member can be added once all are done.
pub struct WaitGroup {
    shared: Arc<Shared>,
}

struct Shared {
    members: Mutex<usize>,
    all_done: Condvar,
}

impl WaitGroup {
    /// Creates a group with one member, the returned handle.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                members: Mutex::new(1),
                all_done: Condvar::new(),
            }),
        }
    }

    /// Leaves the group, and waits until all other members have left.
    pub fn wait(self) {
        let shared = self.shared.clone();
        drop(self);
        if unseen(|| *shared.lock()) == 0 {
            return;
        }
        contended::wait(
            WaitKind::WaitGroup,
            key_of(&*shared),
            || {
                let mut members = shared.lock();
                while *members != 0 {
                    members = shared
                        .all_done
                        .wait(members)
                        .unwrap_or_else(PoisonError::into_inner);
                }
            },
            |()| Ended::Woken,
        );
        keeps_its_frame();
    }
}

impl Shared {
    /// Locks the number of members. No code panics while it is locked, so poison is ignored.
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for WaitGroup {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for WaitGroup {
    fn clone(&self) -> Self {
        unseen(|| *self.shared.lock() += 1);
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl Drop for WaitGroup {
    fn drop(&mut self) {
        unseen(|| {
            let mut members = self.shared.lock();
            *members -= 1;
            if *members == 0 {
                contended::wake(key_of(&*self.shared), || self.shared.all_done.notify_all());
            }
        });
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = unseen(|| *self.shared.lock());
        f.debug_struct("WaitGroup")
            .field("members", &members)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_wait_group_waits_for_all_threads_panicking_ones_included() {
        let done = Arc::new(AtomicUsize::new(0));
        let group = WaitGroup::new();
        for number in 0..8 {
            let (member, done) = (group.clone(), done.clone());
            std::thread::spawn(move || {
                std::thread::yield_now();
                let later = (number % 2 == 0).then(|| member.clone());
                done.fetch_add(1, Ordering::Relaxed);
                if later.is_none() {
                    let _member = member;
                    std::panic::resume_unwind(Box::new("a panic"));
                }
            });
        }
        group.wait();
        assert_eq!(done.load(Ordering::Relaxed), 8);
    }

    #[test]
    fn a_group_of_one_does_not_wait() {
        WaitGroup::default().wait();
    }
}
