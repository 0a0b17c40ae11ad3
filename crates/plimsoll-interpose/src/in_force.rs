//! Where functions of the C library's can be taken over.

/// One expression where that is so (glibc that is linked dynamically, on x86-64), and another
/// elsewhere.
macro_rules! in_force {
    ($there:expr, $elsewhere:expr $(,)?) => {{
        #[cfg(all(
            target_os = "linux",
            target_env = "gnu",
            target_arch = "x86_64",
            not(target_feature = "crt-static")
        ))]
        {
            $there
        }
        #[cfg(not(all(
            target_os = "linux",
            target_env = "gnu",
            target_arch = "x86_64",
            not(target_feature = "crt-static")
        )))]
        {
            $elsewhere
        }
    }};
}

pub(crate) use in_force;
