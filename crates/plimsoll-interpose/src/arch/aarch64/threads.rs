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
            "adrp {0}, :got:__interceptor_pthread_create",
            "ldr {0}, [{0}, :got_lo12:__interceptor_pthread_create]",
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
    hint #34
    stp x29, x30, [sp, -16]!
    .cfi_def_cfa_offset 16
    .cfi_offset x29, -16
    .cfi_offset x30, -8
    mov x29, sp
    adrp x9, plimsoll_interpose_begin
    ldr x9, [x9, :lo12:plimsoll_interpose_begin]
    blr x9
    ldp x29, x30, [sp], 16
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    ldp x16, x0, [x0]
    br x16
    .cfi_endproc
    "#
    };
}

macro_rules! pthread_create {
    () => {
        $crate::arch::threads::body!("x1", "x2", "x3", "ret")
    };
}

macro_rules! thrd_create {
    () => {
        $crate::arch::threads::body!("xzr", "x1", "x2", "b {c11_says}")
    };
}

/// A function that is in assembly for the same reasons as `syscall`. The arguments are the places of
/// a `Creation`'s words.
macro_rules! body {
    ($attributes:literal, $routine:literal, $argument:literal, $end:literal) => {
        concat!(
            r#"
    .cfi_startproc
    hint #34
    adrp x9, plimsoll_interpose_create_hook
    add x9, x9, :lo12:plimsoll_interpose_create_hook
    ldar x9, [x9]
    cbnz x9, 1f
    b {go_on}
1:
    // The frame record, a `Creation` of seven words, and one that keeps the stack aligned.
    stp x29, x30, [sp, -80]!
    .cfi_def_cfa_offset 80
    .cfi_offset x29, -80
    .cfi_offset x30, -72
    stp x0, "#,
            $attributes,
            r#", [sp, 16]
    stp "#,
            $routine,
            ", ",
            $argument,
            r#", [sp, 32]
    add x10, sp, 80
    stp x29, x10, [sp, 48]
    str x30, [sp, 64]
    mov x29, sp
    add x0, sp, 16
    blr x9
    ldp x29, x30, [sp], 80
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    "#,
            $end,
            r#"
    .cfi_endproc
    "#
        )
    };
}

pub(crate) use {begin, body, pthread_create, thrd_create};
