//! `syscall`.

pub(crate) const FUTEX: i32 = 98;
pub(crate) const PRCTL: i32 = 167;

/// The function is written in assembly for three reasons. The hook needs the caller's registers
/// unchanged. Calls that only pass through must not create a frame. A Rust function of that name
/// would have to be variadic.
///
/// A futex call that passes through keeps a frame record nevertheless. Without one, its return address
/// would be in the link register only, which another thread cannot read while this one waits.
///
/// The mode and the watched numbers are read with acquire order, since the hooks were set before.
macro_rules! body {
    () => {
        concat!(
            r#"
    .cfi_startproc
    hint #34
    cmp w0, {futex}
    b.eq 1f
    cmp w0, {numbers}
    b.hs 5f
    adrp x9, plimsoll_interpose_watched
    add x9, x9, :lo12:plimsoll_interpose_watched
    lsr w10, w0, 5
    add x9, x9, w10, uxtw 2
    ldar w9, [x9]
    lsr w9, w9, w0
    tbnz w9, 0, 6f
5:
    mov w8, w0
    mov x0, x1
    mov x1, x2
    mov x2, x3
    mov x3, x4
    mov x4, x5
    mov x5, x6
    svc 0
    cmn x0, 4095
    b.cs 4f
    ret
1:
    adrp x9, plimsoll_interpose_mode
    add x9, x9, :lo12:plimsoll_interpose_mode
    ldarb w9, [x9]
    cbnz w9, 2f
    stp x29, x30, [sp, -16]!
    .cfi_def_cfa_offset 16
    .cfi_offset x29, -16
    .cfi_offset x30, -8
    mov x29, sp
    mov w8, w0
    mov x0, x1
    mov x1, x2
    mov x2, x3
    mov x3, x4
    mov x4, x5
    mov x5, x6
    svc 0
    ldp x29, x30, [sp], 16
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    b 3f
6:
    adrp x10, plimsoll_interpose_watcher
    ldr x10, [x10, :lo12:plimsoll_interpose_watcher]
    b 7f
2:
    adrp x10, plimsoll_interpose_hook
    ldr x10, [x10, :lo12:plimsoll_interpose_hook]
7:
    // The frame record, and a `Call` of ten words.
    stp x29, x30, [sp, -96]!
    .cfi_def_cfa_offset 96
    .cfi_offset x29, -96
    .cfi_offset x30, -88
    stp x0, x1, [sp, 16]
    stp x2, x3, [sp, 32]
    stp x4, x5, [sp, 48]
    stp x6, x29, [sp, 64]
    add x9, sp, 96
    stp x9, x30, [sp, 80]
    mov x29, sp
    add x0, sp, 16
    blr x10
    ldp x29, x30, [sp], 96
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
3:
    cmn x0, 4095
    b.cs 4f
    ret
4:
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
    hint #34
    mov x5, x4
    mov x4, x3
    mov x3, x2
    mov x2, x1
    mov x1, x0
    mov w0, {prctl}
    b plimsoll_interpose_syscall
    .cfi_endproc
    "#
    };
}

pub(crate) use {body, prctl};
