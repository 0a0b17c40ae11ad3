//! aarch64.

/// Returns the address of `plimsoll_thread` for the calling thread.
#[inline(always)]
pub(in crate::internal_scope) fn thread_storage() -> *const () {
    let storage;
    // SAFETY: reads a word that the loader has written, and the thread pointer; both are constant for
    // a thread.
    unsafe {
        std::arch::asm!(
            "adrp {0}, :gottprel:plimsoll_thread",
            "mrs {1}, tpidr_el0",
            "ldr {0}, [{0}, :gottprel_lo12:plimsoll_thread]",
            "add {0}, {1}, {0}",
            out(reg) storage,
            out(reg) _,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    storage
}
