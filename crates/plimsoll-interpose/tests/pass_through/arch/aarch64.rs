//! aarch64.

use std::arch::asm;

/// The bytes that a call instruction pushes.
pub const PUSHED: usize = 0;

/// The word at which the stack of a thread that is blocked in `syscall` has the return address.
pub const RETURN_ADDRESS: usize = 1;

pub const VFORK: Option<libc::c_long> = None;

/// Makes a system call directly, and returns the kernel's result.
///
/// # Safety
/// The arguments meet the requirements of the system call.
pub unsafe fn direct(number: usize, arguments: [usize; 6]) -> isize {
    let result;
    // SAFETY: the contract of this function makes the arguments valid for the system call.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") arguments[0] => result,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x4") arguments[4],
            in("x5") arguments[5],
        );
    }
    result
}

macro_rules! hook {
    () => {
        r#"
    .cfi_startproc
    mov x1, sp
    stp x29, x30, [sp, -48]!
    .cfi_def_cfa_offset 48
    .cfi_offset x29, -48
    .cfi_offset x30, -40
    mov x29, sp
    str x19, [sp, 16]
    .cfi_offset x19, -32
    mov x19, x0
    add x2, sp, 32
    bl {note}
    tst w0, 0xff
    ldr x0, [sp, 32]
    b.ne 2f
    mov x0, x19
    adrp x9, {before}
    ldr x9, [x9, :lo12:{before}]
    cbz x9, 1f
    blr x9
    b 2f
1:
    ldp x8, x0, [x19]
    ldp x1, x2, [x19, 16]
    ldp x3, x4, [x19, 32]
    ldr x5, [x19, 48]
    svc 0
2:
    ldr x19, [sp, 16]
    ldp x29, x30, [sp], 48
    .cfi_def_cfa_offset 0
    .cfi_restore x19
    .cfi_restore x29
    .cfi_restore x30
    ret
    .cfi_endproc
    "#
    };
}

macro_rules! vfork {
    () => {
        r#"
    .cfi_startproc
    stp x29, x30, [sp, -16]!
    .cfi_def_cfa_offset 16
    .cfi_offset x29, -16
    .cfi_offset x30, -8
    bl syscall
    cbz x0, plimsoll_test_child
    ldp x29, x30, [sp], 16
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    ret
    .cfi_endproc
    "#
    };
}

macro_rules! child {
    () => {
        r#"
    mov x0, {fine}
    mov x8, {exit_group}
    svc 0
    brk 0
    "#
    };
}

pub(crate) use {child, hook, vfork};
