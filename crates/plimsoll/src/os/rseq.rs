//! Restartable sequences as the C library sets them up (glibc 2.35 and later).
//!
//! The kernel keeps two things in a small area of each thread: the number of the processor it runs
//! on, and a pointer that the thread sets to describe the few instructions it is in. If the thread
//! is preempted, migrated or signalled among them, they start over.

/// The head of the kernel's `struct rseq`: what a counting sequence reads and writes.
#[repr(C)]
pub(crate) struct Area {
    /// The processor, always in range even if the thread is not registered.
    pub(crate) cpu_id_start: u32,
    /// The processor, or negative if the thread is not registered.
    pub(crate) cpu_id: i32,
    /// The descriptor of the sequence the thread is in; 0 for none.
    pub(crate) sequence: usize,
}

/// The calling thread's area, if the C library registered one that the kernel accepted.
#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_env = "gnu",
    not(miri)
))]
pub(crate) fn area() -> Option<*mut Area> {
    let offset_symbol: *const isize;
    let thread_pointer: usize;
    // SAFETY: reads the address of a weak data symbol from the global offset table (0 where the C
    // library does not have it) and the thread pointer, which the ABI keeps at %fs:0.
    unsafe {
        std::arch::asm!(
            ".weak __rseq_offset",
            "mov {symbol}, qword ptr [rip + __rseq_offset@GOTPCREL]",
            "mov {tp}, qword ptr fs:[0]",
            symbol = out(reg) offset_symbol,
            tp = out(reg) thread_pointer,
            options(nostack, preserves_flags, readonly),
        );
    }
    if offset_symbol.is_null() {
        return None;
    }
    // SAFETY: glibc exports `const ptrdiff_t __rseq_offset`.
    let offset = unsafe { *offset_symbol };
    let area = thread_pointer.wrapping_add_signed(offset) as *mut Area;
    // SAFETY: the area lies in this thread's control block. A volatile read, since the kernel
    // writes it.
    let cpu = unsafe { (&raw const (*area).cpu_id).read_volatile() };
    (cpu >= 0).then_some(area)
}

/// There is no known way to restartable sequences on this platform.
#[cfg(not(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_env = "gnu",
    not(miri)
)))]
pub(crate) fn area() -> Option<*mut Area> {
    None
}
