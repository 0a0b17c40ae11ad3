//! Functions that run around each `fork`.

/// A function that the C library calls.
pub type Handler = extern "C" fn();

/// Registers functions that run before each fork, and after it in the parent and in the child. The
/// child of a bare system call runs none of them.
pub fn register(before: Handler, in_parent: Handler, in_child: Handler) {
    let (before, in_parent): (unsafe extern "C" fn(), unsafe extern "C" fn()) = (before, in_parent);
    // SAFETY: these functions have the right type and live as long as the program.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}
