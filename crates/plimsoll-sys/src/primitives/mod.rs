//! The only module from which lock-free code imports its atomics, and the mutex of Plimsoll's data.
//!
//! Under `--cfg loom`, every name here is loom's, so that the model checker observes each load,
//! store and fence of the shipped code. Otherwise, the names are the standard library's.

#[cfg(loom)]
pub use loom::{
    sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};

#[cfg(not(loom))]
pub use std::{
    sync::MutexGuard,
    sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
        AtomicUsize, Ordering, compiler_fence, fence,
    },
    thread::yield_now,
};

#[cfg(not(loom))]
mod mutex;
#[cfg(not(loom))]
mod wait_observer;

#[cfg(not(loom))]
pub use mutex::Mutex;
#[cfg(not(loom))]
pub use wait_observer::{observe_waits, observed};

/// Orders this thread's earlier stores before its later loads, for the compiler only.
///
/// This is the writer's half of an asymmetric barrier: the reader orders both halves with
/// `os::membarrier`. The models lack that system call, so there both halves are full fences, which
/// is the effect of the system call.
#[inline(always)]
pub fn light_barrier() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// A wait for another thread to leave a few instructions. It spins first and then yields the
/// processor, so that a descheduled thread can finish.
pub struct Backoff(u32);

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

impl Backoff {
    const SPINS: u32 = if cfg!(loom) { 0 } else { 64 };

    /// Creates a wait that begins with spinning.
    #[inline]
    pub fn new() -> Self {
        Self(0)
    }

    /// Spins, or yields the processor after some calls.
    #[inline]
    pub fn wait(&mut self) {
        if self.0 < Self::SPINS {
            self.0 += 1;
            std::hint::spin_loop();
        } else {
            yield_now();
        }
    }
}
