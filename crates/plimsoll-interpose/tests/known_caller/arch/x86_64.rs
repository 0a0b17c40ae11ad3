//! x86-64, whose programs can make the processor trap after each instruction.

use std::ffi::c_int;

/// rbx, rbp and r12 to r15.
pub const REGISTERS: usize = 6;
pub const FRAME_POINTER: usize = 1;
pub const FRAME_POINTER_NUMBER: c_int = 6;
// Only one test binary uses it.
#[allow(dead_code)]
pub const JUMP: usize = 1;

macro_rules! caller {
    () => {
        r#"
    .cfi_startproc
    push rbx
    .cfi_adjust_cfa_offset 8
    .cfi_offset rbx, -16
    push rbp
    .cfi_adjust_cfa_offset 8
    .cfi_offset rbp, -24
    push r12
    .cfi_adjust_cfa_offset 8
    .cfi_offset r12, -32
    push r13
    .cfi_adjust_cfa_offset 8
    .cfi_offset r13, -40
    push r14
    .cfi_adjust_cfa_offset 8
    .cfi_offset r14, -48
    push r15
    .cfi_adjust_cfa_offset 8
    .cfi_offset r15, -56
    sub rsp, 24
    .cfi_adjust_cfa_offset 24
    mov [rsp + 16], rdi
    mov rax, [rdi + 56]
    mov [rsp], rax
    mov [rdi + 64], rsp
    lea rax, [rip + 3f]
    mov [rdi + 80], rax
    mov rax, rdi
    mov rdi, [rax + 8]
    mov rsi, [rax + 16]
    mov rdx, [rax + 24]
    mov rcx, [rax + 32]
    mov r8, [rax + 40]
    mov r9, [rax + 48]
    mov rbx, [rax + 96]
    mov rbp, [rax + 104]
    mov r12, [rax + 112]
    mov r13, [rax + 120]
    mov r14, [rax + 128]
    mov r15, [rax + 136]
    cmp qword ptr [rax + 88], 0
    mov rax, [rax]
    je 2f
    pushfq
    .cfi_adjust_cfa_offset 8
    or qword ptr [rsp], 0x100
    popfq
    .cfi_adjust_cfa_offset -8
2:
    call rax
3:
    pushfq
    .cfi_adjust_cfa_offset 8
    and qword ptr [rsp], -0x101
    popfq
    .cfi_adjust_cfa_offset -8
    mov rdi, [rsp + 16]
    mov [rdi + 72], rsp
    mov [rdi + 96], rbx
    mov [rdi + 104], rbp
    mov [rdi + 112], r12
    mov [rdi + 120], r13
    mov [rdi + 128], r14
    mov [rdi + 136], r15
    add rsp, 24
    .cfi_adjust_cfa_offset -24
    pop r15
    .cfi_adjust_cfa_offset -8
    pop r14
    .cfi_adjust_cfa_offset -8
    pop r13
    .cfi_adjust_cfa_offset -8
    pop r12
    .cfi_adjust_cfa_offset -8
    pop rbp
    .cfi_adjust_cfa_offset -8
    pop rbx
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc
    "#
    };
}

pub(crate) use caller;

pub fn instruction(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
}

pub fn begin(_function: usize, _size: usize) {}

pub fn end() {}

pub fn pause() {}

pub fn go_on(_at: usize) {}

pub fn leave(_at: usize) {}
