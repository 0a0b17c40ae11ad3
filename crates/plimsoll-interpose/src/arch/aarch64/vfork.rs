//! `vfork`.

/// The child returns into its caller first, and may overwrite the stack that it shares with its parent. So the return
/// address waits in its register, which the kernel keeps for both.
macro_rules! body {
    () => {
        concat!(
            r#"
    .cfi_startproc
    hint #34
    adrp x9, plimsoll_interpose_before_vfork
    add x9, x9, :lo12:plimsoll_interpose_before_vfork
    ldar x9, [x9]
    cbz x9, 1f
    stp x29, x30, [sp, -16]!
    .cfi_def_cfa_offset 16
    .cfi_offset x29, -16
    .cfi_offset x30, -8
    mov x29, sp
    blr x9
    ldp x29, x30, [sp], 16
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
1:
    // `clone` with CLONE_VM, CLONE_VFORK and SIGCHLD.
    mov x0, 0x4111
    mov x1, 0
    mov x8, 220
    svc 0
    cbz x0, 3f
    // The parent.
    adrp x9, plimsoll_interpose_after_vfork
    add x9, x9, :lo12:plimsoll_interpose_after_vfork
    ldar x9, [x9]
    cbz x9, 2f
    stp x29, x30, [sp, -32]!
    .cfi_def_cfa_offset 32
    .cfi_offset x29, -32
    .cfi_offset x30, -24
    str x0, [sp, 16]
    mov x29, sp
    blr x9
    ldr x0, [sp, 16]
    ldp x29, x30, [sp], 32
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
2:
    cmn x0, 4095
    b.cs 4f
3:
    ret
4:
            "#,
            $crate::arch::fails!(),
            ".cfi_endproc",
        )
    };
}

pub(crate) use body;
