//! x86-64.

use std::arch::asm;

/// The bytes that a call instruction pushes.
pub const PUSHED: usize = size_of::<usize>();

/// The word at which the stack of a thread that is blocked in `syscall` has the return address.
pub const RETURN_ADDRESS: usize = 0;

pub const VFORK: Option<libc::c_long> = Some(libc::SYS_vfork);

/// Makes a system call directly, and returns the kernel's result.
///
/// # Safety
/// The arguments meet the requirements of the system call.
pub unsafe fn direct(number: usize, arguments: [usize; 6]) -> isize {
    let result;
    // SAFETY: the contract of this function makes the arguments valid for the system call.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

macro_rules! hook {
    () => {
        r#"
    .cfi_startproc
    mov rsi, rsp
    push rbx
    .cfi_adjust_cfa_offset 8
    .cfi_offset rbx, -16
    sub rsp, 16
    .cfi_adjust_cfa_offset 16
    mov rbx, rdi
    mov rdx, rsp
    call {note}
    test al, al
    mov rax, [rsp]
    jnz 2f
    mov rdi, rbx
    mov rax, [rip + {before}]
    test rax, rax
    jz 1f
    call rax
    jmp 2f
1:
    mov rax, [rbx]
    mov rdi, [rbx + 8]
    mov rsi, [rbx + 16]
    mov rdx, [rbx + 24]
    mov r10, [rbx + 32]
    mov r8, [rbx + 40]
    mov r9, [rbx + 48]
    syscall
2:
    add rsp, 16
    .cfi_adjust_cfa_offset -16
    pop rbx
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc
    "#
    };
}

macro_rules! vfork {
    () => {
        r#"
    .cfi_startproc
    sub rsp, 8
    .cfi_adjust_cfa_offset 8
    call syscall@PLT
    test rax, rax
    jz 2f
    add rsp, 8
    .cfi_adjust_cfa_offset -8
    ret
2:
    .cfi_endproc
    "#
    };
}

macro_rules! child {
    () => {
        r#"
    mov edi, {fine}
    mov eax, {exit_group}
    syscall
    ud2
    "#
    };
}

pub(crate) use {child, hook, vfork};
