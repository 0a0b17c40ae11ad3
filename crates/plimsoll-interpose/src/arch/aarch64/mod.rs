//! aarch64.
//!
//! Every function that may wait or call saves the frame pointer and the link register as a frame
//! record. Unwind tables find the record by the stack pointer throughout, since only that register of
//! a blocked thread is known. Each target of an indirect branch begins with `bti c` (`hint #34`), and
//! indirect jumps go through `x16`.

#[cfg(all(interposes_functions, feature = "mmap"))]
pub(crate) mod mappings;
#[cfg(all(interposes_functions, feature = "pthread"))]
pub(crate) mod pthread;
pub(crate) mod syscall;
#[cfg(interposes_threads)]
#[cfg_attr(
    all(target_env = "musl", target_feature = "crt-static"),
    allow(dead_code, reason = "no sanitizer supports static programs")
)]
pub(crate) mod threads;
pub(crate) mod vfork;

/// Returns the thread pointer: never 0, and different in all threads that live.
#[cfg(all(interposes_functions, feature = "pthread"))]
pub(crate) fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: the ABI keeps the thread pointer in this register; the read changes nothing.
    unsafe {
        core::arch::asm!(
            "mrs {}, tpidr_el0",
            out(reg) pointer,
            options(nostack, preserves_flags, readonly)
        );
    }
    pointer
}

/// Code that makes `errno` and -1 of the kernel's result in `x0`, and returns.
macro_rules! fails {
    () => {
        r#"
    stp x29, x30, [sp, -32]!
    .cfi_def_cfa_offset 32
    .cfi_offset x29, -32
    .cfi_offset x30, -24
    mov x29, sp
    str x0, [sp, 16]
    adrp x9, :got:__errno_location
    ldr x9, [x9, :got_lo12:__errno_location]
    blr x9
    ldr x9, [sp, 16]
    neg w9, w9
    str w9, [x0]
    mov x0, -1
    ldp x29, x30, [sp], 32
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    ret
        "#
    };
}

pub(crate) use fails;
