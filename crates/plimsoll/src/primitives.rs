//! The one door through which the lock-free parts of the crate take their atomics.
//!
//! Under `--cfg loom` every name here is loom's, so that the model checker sees each load, store
//! and fence of the code that ships; otherwise they are the standard library's.

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::yield_now,
};

#[cfg(not(loom))]
pub(crate) use std::{
    sync::MutexGuard,
    sync::atomic::{
        AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        Ordering, compiler_fence, fence,
    },
    thread::yield_now,
};

#[cfg(not(loom))]
pub(crate) use crate::own_mutex::Mutex;

/// Orders this thread's earlier stores before its later loads, for the compiler only.
///
/// It is the writer's half of an asymmetric barrier: the reader pays for both with
/// [`crate::os::membarrier`]. The models have no such system call, so there both halves are full
/// fences, which is what the system call provides.
#[inline(always)]
pub(crate) fn light_barrier() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
    #[cfg(not(loom))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Keeps the compiler from merging the branch before this with the one behind it. It adds no
/// instruction.
#[inline(always)]
pub(crate) fn keep_branches_apart() {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // SAFETY: an empty template touches nothing.
    unsafe {
        std::arch::asm!("", options(nomem, nostack, preserves_flags));
    }
}

/// Waits a moment for another thread to get out of a few instructions: spins first, then gives up
/// the processor, so that a thread which was taken off its core can finish.
pub(crate) struct Backoff(u32);

impl Backoff {
    const SPINS: u32 = if cfg!(loom) { 0 } else { 64 };

    pub(crate) fn new() -> Self {
        Self(0)
    }

    pub(crate) fn wait(&mut self) {
        if self.0 < Self::SPINS {
            self.0 += 1;
            std::hint::spin_loop();
        } else {
            yield_now();
        }
    }
}
