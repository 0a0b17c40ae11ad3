//! A model of the system under loom: the functions that the loom models call.

#[path = "os/fork/lock.rs"]
pub mod fork;

pub mod clock {
    pub fn now() -> u64 {
        0
    }

    pub fn coarse() -> u64 {
        0
    }
}

/// A model in which both halves of the barrier are fences; see
/// [`light_barrier`](crate::primitives).
pub mod membarrier {
    #[derive(PartialEq, Eq)]
    pub enum Support {
        Fence,
        None,
    }

    pub fn register() -> Support {
        Support::Fence
    }

    pub fn fence_all_threads() -> bool {
        loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
        true
    }
}

pub fn thread_place(_places: usize) -> usize {
    0
}
