//! The functions themselves.

use core::arch::global_asm;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::{Call, Function, Hook};
use crate::define::define;

// In assembly for the reasons that `syscall` is. The fourth argument is where a function call has
// it, not a system call.
macro_rules! body {
    () => {
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

global_asm!(
    r#"
    .hidden plimsoll_interpose_mapping_hook
    .globl plimsoll_interpose_mapping_hook

    .section .bss.plimsoll_interpose_mappings, "aw", @nobits
    .balign 8
    .type plimsoll_interpose_mapping_hook, @object
    .size plimsoll_interpose_mapping_hook, 8
plimsoll_interpose_mapping_hook:
    .zero 8
    .text
    "#
);

unsafe extern "C" {
    static plimsoll_interpose_mapping_hook: AtomicPtr<()>;
}

pub(super) fn set_hook(hook: Hook) {
    // SAFETY: defined above, with that size and alignment.
    unsafe { &plimsoll_interpose_mapping_hook }.store(hook as *mut (), Ordering::Release);
}

define! {
    mmap as plimsoll_interpose_mmap in ".text.plimsoll_interpose_mappings" =>
    body!();
    function = const Function::Map as usize,
    number = const 9,
}

define! {
    mmap64 as plimsoll_interpose_mmap64 in ".text.plimsoll_interpose_mappings" =>
    body!();
    function = const Function::Map as usize,
    number = const 9,
}

define! {
    munmap as plimsoll_interpose_munmap in ".text.plimsoll_interpose_mappings" =>
    body!();
    function = const Function::Unmap as usize,
    number = const 11,
}

define! {
    mremap as plimsoll_interpose_mremap in ".text.plimsoll_interpose_mappings" =>
    body!();
    function = const Function::Remap as usize,
    number = const 25,
}

const _: () = assert!(size_of::<Call>() == 80);

pub(super) fn are_linked() -> bool {
    let same = |function: unsafe extern "C" fn(), own: unsafe extern "C" fn()| {
        core::hint::black_box(function as *const () as usize)
            == core::hint::black_box(own as *const () as usize)
    };
    same(mmap, plimsoll_interpose_mmap)
        && same(mmap64, plimsoll_interpose_mmap64)
        && same(munmap, plimsoll_interpose_munmap)
        && same(mremap, plimsoll_interpose_mremap)
}
