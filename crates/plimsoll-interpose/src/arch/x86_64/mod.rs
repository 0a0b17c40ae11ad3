//! x86-64.

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
    // SAFETY: the ABI guarantees that %fs:0 contains the thread pointer; the read changes nothing.
    unsafe {
        core::arch::asm!(
            "mov {}, qword ptr fs:[0]",
            out(reg) pointer,
            options(nostack, preserves_flags, readonly)
        );
    }
    pointer
}

/// Code that makes `errno` and -1 of the kernel's result in `rax`, and returns.
macro_rules! fails {
    () => {
        r#"
    push rax
    .cfi_adjust_cfa_offset 8
    call [rip + __errno_location@GOTPCREL]
    pop rcx
    .cfi_adjust_cfa_offset -8
    neg ecx
    mov [rax], ecx
    mov rax, -1
    ret
        "#
    };
}

pub(crate) use fails;
