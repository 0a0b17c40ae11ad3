//! What the models need of the rest of the crate, in place of it.

pub(crate) mod os {
    pub(crate) mod clock {
        pub(crate) fn now() -> u64 {
            0
        }

        pub(crate) fn coarse() -> u64 {
            0
        }
    }

    /// Both halves of the barrier are fences, see [`light_barrier`](crate::primitives).
    pub(crate) mod membarrier {
        #[derive(PartialEq, Eq)]
        pub(crate) enum Support {
            Fence,
            None,
        }

        pub(crate) fn register() -> Support {
            Support::Fence
        }

        pub(crate) fn fence_all_threads() -> bool {
            loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
            true
        }
    }

    pub(crate) fn thread_place(_places: usize) -> usize {
        0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackName(pub(crate) u32);
