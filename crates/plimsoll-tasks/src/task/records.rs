//! The records of tasks that changed during a snapshot, in their state before.

#[cfg(not(loom))]
pub(super) use memory::Records;
#[cfg(loom)]
pub(super) use model::Records;

#[cfg(not(loom))]
mod memory {
    use std::ptr;
    use std::sync::atomic::AtomicPtr;

    use plimsoll_sys::os::region;
    use plimsoll_sys::primitives::{AtomicUsize, Ordering};

    use crate::task::slot::Seen;

    /// The records of one cut, in separately mapped memory. The system provides only the pages that
    /// are used.
    pub(in super::super) struct Records {
        base: AtomicPtr<Seen>,
        capacity: AtomicUsize,
        taken: AtomicUsize,
    }

    impl Records {
        pub(in super::super) const fn new() -> Self {
            Self {
                base: AtomicPtr::new(ptr::null_mut()),
                capacity: AtomicUsize::new(0),
                taken: AtomicUsize::new(0),
            }
        }

        /// Maps memory for `capacity` records. Returns false if the system refuses. Must not run
        /// while a thread [puts](Records::put) a record.
        pub(in super::super) fn open(&self, capacity: usize) -> bool {
            let Some(base) = region::map(length(capacity)) else {
                return false;
            };
            self.base.store(base as *mut Seen, Ordering::Relaxed);
            self.capacity.store(capacity, Ordering::Relaxed);
            self.taken.store(0, Ordering::Relaxed);
            true
        }

        pub(in super::super) fn put(&self, task: Seen) {
            let at = self.taken.fetch_add(1, Ordering::Relaxed);
            if at < self.capacity.load(Ordering::Relaxed) {
                // SAFETY: the place is within the memory that `open` mapped, which stays until
                // `close`. The fetch-add gave it to this thread alone.
                unsafe { self.base.load(Ordering::Relaxed).add(at).write(task) };
            }
        }

        /// Calls `visit` with each record, and unmaps the memory. No thread may put records any
        /// more.
        pub(in super::super) fn close(&self, mut visit: impl FnMut(&Seen)) {
            let base = self.base.load(Ordering::Relaxed);
            let capacity = self.capacity.load(Ordering::Relaxed);
            for at in 0..self.taken.load(Ordering::Relaxed).min(capacity) {
                // SAFETY: `put` wrote this place, and no thread puts any more.
                visit(unsafe { &*base.add(at) });
            }
            // SAFETY: `open` mapped this memory, and no thread uses it any more.
            unsafe { region::unmap(base as usize, length(capacity)) };
        }
    }

    fn length(capacity: usize) -> usize {
        (capacity * size_of::<Seen>()).next_multiple_of(region::PAGE)
    }
}

/// A stand-in under loom, which is not part of the models.
#[cfg(loom)]
mod model {
    use std::sync::Mutex;

    use crate::task::slot::Seen;

    pub(in super::super) struct Records(Mutex<Vec<Seen>>);

    impl Records {
        pub(in super::super) fn new() -> Self {
            Self(Mutex::new(Vec::new()))
        }

        pub(in super::super) fn open(&self, _capacity: usize) -> bool {
            true
        }

        pub(in super::super) fn put(&self, task: Seen) {
            self.0.lock().expect("no holder panics").push(task);
        }

        pub(in super::super) fn close(&self, visit: impl FnMut(&Seen)) {
            let tasks = std::mem::take(&mut *self.0.lock().expect("no holder panics"));
            tasks.iter().for_each(visit);
        }
    }
}
