//! Functions that map memory.

pub(crate) const MAP: i64 = 222;
pub(crate) const UNMAP: i64 = 215;
pub(crate) const REMAP: i64 = 216;

/// A function with the symbol `function`, which calls the system with `number`. It is in assembly for
/// the same reasons as `syscall`.
macro_rules! body {
    () => {
        concat!(
            r#"
    .cfi_startproc
    hint #34
    adrp x9, plimsoll_interpose_mapping_hook
    add x9, x9, :lo12:plimsoll_interpose_mapping_hook
    ldar x9, [x9]
    cbz x9, 1f
    // The frame record, and a `Call` of ten words.
    stp x29, x30, [sp, -96]!
    .cfi_def_cfa_offset 96
    .cfi_offset x29, -96
    .cfi_offset x30, -88
    stp x0, x1, [sp, 16]
    stp x2, x3, [sp, 32]
    stp x4, x5, [sp, 48]
    mov x10, {function}
    stp x10, x29, [sp, 64]
    add x10, sp, 96
    stp x10, x30, [sp, 80]
    mov x29, sp
    add x0, sp, 16
    blr x9
    ldp x29, x30, [sp], 96
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    b 2f
1:
    mov x8, {number}
    svc 0
2:
    cmn x0, 4095
    b.cs 3f
    ret
3:
            "#,
            $crate::arch::fails!(),
            ".cfi_endproc",
        )
    };
}

pub(crate) use body;
