//! x86-64.

/// Returns the address of `plimsoll_thread` for the calling thread.
#[inline(always)]
pub(in crate::internal_scope) fn thread_storage() -> *const () {
    let storage;
    // SAFETY: reads a word that the loader has written, and the thread pointer, which the ABI keeps
    // at %fs:0; both are constant for a thread.
    unsafe {
        std::arch::asm!(
            "mov {0}, qword ptr [rip + plimsoll_thread@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) storage,
            options(pure, nomem, nostack),
        );
    }
    storage
}
