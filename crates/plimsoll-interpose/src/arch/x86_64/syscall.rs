//! `syscall`.

pub(crate) const FUTEX: i32 = 202;
pub(crate) const PRCTL: i32 = 157;

/// The function is written in assembly for three reasons. The hook needs the caller's registers
/// unchanged. Calls that only pass through must not create a frame. A Rust function of that name
/// would have to be variadic. Unwind tables find the frame by the stack pointer throughout, since
/// the frame pointer of a thread that is blocked in the call is unknown.
macro_rules! body {
    () => {
        concat!(
            r#"
    .cfi_startproc
    cmp edi, {futex}
    je 2f
    cmp edi, {numbers}
    jae 1f
    bt dword ptr [rip + plimsoll_interpose_watched], edi
    jc 4f
1:
    mov rax, rdi
    mov rdi, rsi
    mov rsi, rdx
    mov rdx, rcx
    mov r10, r8
    mov r8, r9
    mov r9, [rsp + 8]
    syscall
    cmp rax, -4095
    jae 3f
    ret
2:
    cmp byte ptr [rip + plimsoll_interpose_mode], 0
    je 1b
    mov r11, [rip + plimsoll_interpose_hook]
    jmp 5f
4:
    mov r11, [rip + plimsoll_interpose_watcher]
5:
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
    mov rax, [rbp + 16]
    mov [rsp + 48], rax
    mov rax, [rbp]
    mov [rsp + 56], rax
    lea rax, [rbp + 16]
    mov [rsp + 64], rax
    mov rax, [rbp + 8]
    mov [rsp + 72], rax
    mov rdi, rsp
    call r11
    leave
    .cfi_def_cfa rsp, 8
    .cfi_restore rbp
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

/// Calls `syscall` with the number of `prctl`, as if the caller had done so.
macro_rules! prctl {
    () => {
        r#"
    .cfi_startproc
    mov r9, r8
    mov r8, rcx
    mov rcx, rdx
    mov rdx, rsi
    mov rsi, rdi
    mov edi, {prctl}
    jmp plimsoll_interpose_syscall
    .cfi_endproc
    "#
    };
}

pub(crate) use {body, prctl};
