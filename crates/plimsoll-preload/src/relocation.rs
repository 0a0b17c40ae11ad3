//! Work while the loader relocates this library, before any code of the program.
//!
//! For a function that a resolver chooses, the loader calls the resolver. It relocates a library
//! before the objects that precede it, so before the program, and after the C library. At this time
//! an allocator in the program can be redirected: no constructor has allocated memory or created a
//! thread.

use crate::malloc;

crate::arch::relocation!(at_relocation);

/// Runs in the loader: without thread-local storage, and without the library's own heap.
fn at_relocation() {
    // SAFETY: the loader has not started the program.
    unsafe { malloc::redirect() }
}
