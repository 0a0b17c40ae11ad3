//! Where those who change a task while a cut is taken put it as it was.

#[cfg(not(loom))]
pub(super) use memory::Records;
#[cfg(loom)]
pub(super) use model::Records;

#[cfg(not(loom))]
mod memory {
    use std::ptr;
    use std::sync::atomic::AtomicPtr;

    use crate::os::region;
    use crate::os::syscall::call3;
    use crate::primitives::{AtomicUsize, Ordering};
    use crate::task::slot::Seen;

    /// Memory of its own for each cut, of which only what is used is there.
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

        /// Makes room for so many. False if the system refuses. To be called while nobody
        /// [puts](Records::put).
        pub(in super::super) fn open(&self, capacity: usize) -> bool {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let Some(base) = region::map(length(capacity), 0, access) else {
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
                // SAFETY: within the memory, which is there until `close`; and the place is nobody
                // else's.
                unsafe { self.base.load(Ordering::Relaxed).add(at).write(task) };
            }
        }

        /// Calls `visit` with each, and gives the memory back. To be called when nobody puts any
        /// more.
        pub(in super::super) fn close(&self, mut visit: impl FnMut(&Seen)) {
            let base = self.base.load(Ordering::Relaxed);
            let capacity = self.capacity.load(Ordering::Relaxed);
            for at in 0..self.taken.load(Ordering::Relaxed).min(capacity) {
                // SAFETY: it was written.
                visit(unsafe { &*base.add(at) });
            }
            // SAFETY: mapped by `open`; nobody uses it any more.
            unsafe { call3(libc::SYS_munmap, base as usize, length(capacity), 0) };
        }
    }

    fn length(capacity: usize) -> usize {
        (capacity * size_of::<Seen>()).next_multiple_of(region::PAGE)
    }
}

/// No part of the model.
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
            self.0.lock().expect("nobody panics").push(task);
        }

        pub(in super::super) fn close(&self, visit: impl FnMut(&Seen)) {
            let tasks = std::mem::take(&mut *self.0.lock().expect("nobody panics"));
            tasks.iter().for_each(visit);
        }
    }
}
