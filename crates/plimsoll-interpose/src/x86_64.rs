//! The function itself.

use core::arch::global_asm;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use super::{Call, Hook, Mode};
use crate::define::define;

const FUTEX: i32 = 202;

// In assembly, because the caller's registers must be seen as they are, because no frame may be
// made for calls that only pass through, and because a Rust function of that name would have to be
// variadic. The frame is found by the stack pointer all along: of a thread that is blocked in the
// call, nobody knows the frame pointer.
macro_rules! body {
    () => {
        r#"
    .cfi_startproc
    cmp edi, {futex}
    je 2f
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
    call [rip + plimsoll_interpose_hook]
    leave
    .cfi_def_cfa rsp, 8
    .cfi_restore rbp
    cmp rax, -4095
    jae 3f
    ret
3:
    push rax
    .cfi_adjust_cfa_offset 8
    call [rip + __errno_location@GOTPCREL]
    pop rcx
    .cfi_adjust_cfa_offset -8
    neg ecx
    mov [rax], ecx
    mov rax, -1
    ret
    .cfi_endproc
    "#
    };
}

// The data is defined in assembly as well, hidden: it is reached relative to the instruction
// pointer, also where this ends up in a shared library.
global_asm!(
    r#"
    .hidden plimsoll_interpose_mode
    .globl plimsoll_interpose_mode
    .hidden plimsoll_interpose_hook
    .globl plimsoll_interpose_hook

    .section .bss.plimsoll_interpose, "aw", @nobits
    .balign 64
    .type plimsoll_interpose_hook, @object
    .size plimsoll_interpose_hook, 8
plimsoll_interpose_hook:
    .zero 8
    .type plimsoll_interpose_mode, @object
    .size plimsoll_interpose_mode, 1
plimsoll_interpose_mode:
    .zero 1
    .zero 55
    .text
    "#
);

define! {
    syscall as plimsoll_interpose_syscall in ".text.plimsoll_interpose" =>
    body!();
    futex = const FUTEX,
}

const _: () = assert!(size_of::<Call>() == 80);

unsafe extern "C" {
    static plimsoll_interpose_mode: AtomicU8;
    static plimsoll_interpose_hook: AtomicPtr<()>;
}

pub(super) fn set_hook(hook: Hook) {
    // SAFETY: defined above, with that size and alignment.
    unsafe { &plimsoll_interpose_hook }.store(hook as *mut (), Ordering::Release);
}

pub(super) fn hook() -> Option<Hook> {
    // SAFETY: defined above, with that size and alignment.
    let hook = unsafe { &plimsoll_interpose_hook }.load(Ordering::Acquire);
    // SAFETY: of a null pointer, it is `None`; anything else is what was set, which is a `Hook`.
    unsafe { core::mem::transmute::<*mut (), Option<Hook>>(hook) }
}

pub(super) fn set_mode(mode: Mode) {
    // SAFETY: defined above. Sequentially consistent: who has set the mode may count on calls that
    // begin later being seen, and the hook is there before.
    unsafe { &plimsoll_interpose_mode }.store(mode as u8, Ordering::SeqCst);
}

pub(super) fn is_linked() -> bool {
    core::hint::black_box(syscall as *const () as usize)
        == core::hint::black_box(plimsoll_interpose_syscall as *const () as usize)
}
