//! The systems on which functions of the C library can be interposed: see `build.rs`.

/// Evaluates the first expression where functions are interposed whose calls pass to the C
/// library's, and the second one elsewhere. With `syscall =>`, where `syscall` is interposed; with
/// `threads =>`, where the functions that create threads are.
macro_rules! in_force {
    ($there:expr, $elsewhere:expr $(,)?) => {{
        #[cfg(interposes_functions)]
        {
            $there
        }
        #[cfg(not(interposes_functions))]
        {
            $elsewhere
        }
    }};
    (threads => $there:expr, $elsewhere:expr $(,)?) => {{
        #[cfg(interposes_threads)]
        {
            $there
        }
        #[cfg(not(interposes_threads))]
        {
            $elsewhere
        }
    }};
    (syscall => $there:expr, $elsewhere:expr $(,)?) => {{
        #[cfg(interposes_syscall)]
        {
            $there
        }
        #[cfg(not(interposes_syscall))]
        {
            $elsewhere
        }
    }};
}

pub(crate) use in_force;
