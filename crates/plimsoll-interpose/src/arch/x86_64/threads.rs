//! Functions that create threads.

use core::ffi::c_void;

/// Returns the `pthread_create` of a sanitizer in the program; null if there is none. The sanitizer
/// must observe threads. Its function yields to this crate's, and exists under another name, too.
pub(crate) fn sanitizers() -> *mut c_void {
    let found;
    // SAFETY: reads the address of a weak symbol from the global offset table, and changes nothing.
    // The address is 0 if the symbol is undefined.
    unsafe {
        core::arch::asm!(
            ".weak __interceptor_pthread_create",
            "mov {}, qword ptr [rip + __interceptor_pthread_create@GOTPCREL]",
            out(reg) found,
            options(nostack, preserves_flags, readonly),
        );
    }
    found
}

/// The first function of a thread with a token. It ends in a jump.
macro_rules! begin {
    () => {
        r#"
    .cfi_startproc
    sub rsp, 8
    .cfi_def_cfa_offset 16
    call [rip + plimsoll_interpose_begin]
    add rsp, 8
    .cfi_def_cfa_offset 8
    mov rdi, [rax + 8]
    jmp [rax]
    .cfi_endproc
    "#
    };
}

macro_rules! pthread_create {
    () => {
        $crate::arch::threads::body!("rsi", "rdx", "rcx", "ret")
    };
}

macro_rules! thrd_create {
    () => {
        $crate::arch::threads::body!("0", "rsi", "rdx", "mov edi, eax\njmp {c11_says}")
    };
}

/// A function that is in assembly for the same reasons as `syscall`. The arguments are the places of
/// a `Creation`'s words.
macro_rules! body {
    ($attributes:literal, $routine:literal, $argument:literal, $end:literal) => {
        concat!(
            r#"
    .cfi_startproc
    cmp qword ptr [rip + plimsoll_interpose_create_hook], 0
    je {go_on}
    // A `Creation`, of seven words, and one that keeps the stack aligned.
    push rbp
    .cfi_def_cfa_offset 16
    .cfi_offset rbp, -16
    mov rbp, rsp
    sub rsp, 64
    .cfi_adjust_cfa_offset 64
    mov [rsp], rdi
    mov qword ptr [rsp + 8], "#,
            $attributes,
            r#"
    mov [rsp + 16], "#,
            $routine,
            r#"
    mov [rsp + 24], "#,
            $argument,
            r#"
    mov rax, [rbp]
    mov [rsp + 32], rax
    lea rax, [rbp + 16]
    mov [rsp + 40], rax
    mov rax, [rbp + 8]
    mov [rsp + 48], rax
    mov rdi, rsp
    call [rip + plimsoll_interpose_create_hook]
    leave
    .cfi_def_cfa rsp, 8
    .cfi_restore rbp
    "#,
            $end,
            r#"
    .cfi_endproc
    "#
        )
    };
}

pub(crate) use {begin, body, pthread_create, thrd_create};
