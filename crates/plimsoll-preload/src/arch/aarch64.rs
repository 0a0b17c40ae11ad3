//! aarch64.

/// The arguments of a call, as the caller passed them: eight in registers, and the others on the
/// stack.
#[repr(C)]
pub(crate) struct Call {
    registers: [usize; 8],
    /// The register `x8`, which is restored before a jump to the C library's function, and a word
    /// that keeps the stack aligned.
    saved: [usize; 2],
    stack: [usize; 0],
}

impl Call {
    /// Returns the argument at index `at`.
    ///
    /// # Safety
    /// The call must have at least `at + 1` arguments.
    pub(crate) unsafe fn argument(&self, at: usize) -> usize {
        match self.registers.get(at) {
            Some(&register) => register,
            // SAFETY: the call has at least `at + 1` arguments, by this function's contract. Those
            // beyond the registers lie on the stack.
            None => unsafe { self.stack.as_ptr().add(at - self.registers.len()).read() },
        }
    }
}

macro_rules! executes {
    () => {
        r#"
    .cfi_startproc
    hint #34
    stp x29, x30, [sp, -96]!
    .cfi_def_cfa_offset 96
    .cfi_offset x29, -96
    .cfi_offset x30, -88
    mov x29, sp
    stp x0, x1, [sp, 16]
    stp x2, x3, [sp, 32]
    stp x4, x5, [sp, 48]
    stp x6, x7, [sp, 64]
    str x8, [sp, 80]
    mov w0, {position}
    add x1, sp, 16
    bl {called}
    mov x16, x0
    ldp x0, x1, [sp, 16]
    ldp x2, x3, [sp, 32]
    ldp x4, x5, [sp, 48]
    ldp x6, x7, [sp, 64]
    ldr x8, [sp, 80]
    ldp x29, x30, [sp], 96
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    cbz x16, 2f
    br x16
2:
    mov w0, -1
    ret
    .cfi_endproc
        "#
    };
}

pub(crate) use executes;

macro_rules! with_caller {
    () => {
        r#"
    .cfi_startproc
    hint #34
    stp x29, x30, [sp, -16]!
    .cfi_def_cfa_offset 16
    .cfi_offset x29, -16
    .cfi_offset x30, -8
    mov x1, x30
    add x2, sp, 16
    mov x3, x29
    mov x29, sp
    bl {called}
    ldp x29, x30, [sp], 16
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    ret
    .cfi_endproc
        "#
    };
}

pub(crate) use with_caller;

/// Does not run the function: there is nothing to do for it on this processor.
macro_rules! relocation {
    ($at_relocation:path) => {
        /// Does nothing.
        pub(crate) fn keep() {
            let _: fn() = $at_relocation;
        }
    };
}

pub(crate) use relocation;
