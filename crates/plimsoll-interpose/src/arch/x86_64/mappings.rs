//! Functions that map memory.

pub(crate) const MAP: i64 = 9;
pub(crate) const UNMAP: i64 = 11;
pub(crate) const REMAP: i64 = 25;

/// A function with the symbol `function`, which calls the system with `number`. It is in assembly for
/// the same reasons as `syscall`. The fourth argument moves from the register of function calls to
/// that for system calls.
macro_rules! body {
    () => {
        concat!(
            r#"
    .cfi_startproc
    mov rax, [rip + plimsoll_interpose_mapping_hook]
    test rax, rax
    jz 1f
    // A `Call`, of ten words, which also keeps the stack aligned.
    push rbp
    .cfi_def_cfa_offset 16
    .cfi_offset rbp, -16
    mov rbp, rsp
    sub rsp, 80
    .cfi_adjust_cfa_offset 80
    mov [rsp], rdi
    mov [rsp + 8], rsi
    mov [rsp + 16], rdx
    mov [rsp + 24], rcx
    mov [rsp + 32], r8
    mov [rsp + 40], r9
    mov qword ptr [rsp + 48], {function}
    mov rcx, [rbp]
    mov [rsp + 56], rcx
    lea rcx, [rbp + 16]
    mov [rsp + 64], rcx
    mov rcx, [rbp + 8]
    mov [rsp + 72], rcx
    mov rdi, rsp
    call rax
    leave
    .cfi_def_cfa rsp, 8
    .cfi_restore rbp
    jmp 2f
1:
    mov r10, rcx
    mov eax, {number}
    syscall
2:
    cmp rax, -4095
    jae 3f
    ret
3:
    "#,
            $crate::arch::fails!(),
            ".cfi_endproc",
        )
    };
}

pub(crate) use body;
