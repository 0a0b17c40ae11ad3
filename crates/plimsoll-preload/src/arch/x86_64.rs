//! x86-64.

/// The arguments of a call, as the caller passed them: six in registers, and the others on the
/// stack.
#[repr(C)]
pub(crate) struct Call {
    /// The register `rax`, which is restored before a jump to the C library's function.
    rax: usize,
    /// The argument registers, from the last to the first.
    registers: [usize; 6],
    return_address: usize,
    stack: [usize; 0],
}

impl Call {
    /// Returns the argument at index `at`.
    ///
    /// # Safety
    /// The call must have at least `at + 1` arguments.
    pub(crate) unsafe fn argument(&self, at: usize) -> usize {
        match self.registers.len().checked_sub(1 + at) {
            Some(register) => self.registers[register],
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
    push rdi
    push rsi
    push rdx
    push rcx
    push r8
    push r9
    push rax
    .cfi_adjust_cfa_offset 56
    mov edi, {position}
    mov rsi, rsp
    call {called}
    mov r11, rax
    pop rax
    pop r9
    pop r8
    pop rcx
    pop rdx
    pop rsi
    pop rdi
    .cfi_adjust_cfa_offset -56
    test r11, r11
    jz 2f
    jmp r11
2:
    mov eax, -1
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
    push rbp
    .cfi_def_cfa_offset 16
    .cfi_offset rbp, -16
    mov rbp, rsp
    mov rsi, [rbp + 8]
    lea rdx, [rbp + 16]
    mov rcx, [rbp]
    call {called}
    pop rbp
    .cfi_def_cfa rsp, 8
    .cfi_restore rbp
    ret
    .cfi_endproc
        "#
    };
}

pub(crate) use with_caller;

/// Makes the loader call a function while it relocates this library: the resolver of a function that is
/// chosen at that time. `keep` must be called, or the linker leaves the relocation out.
macro_rules! relocation {
    ($at_relocation:path) => {
        std::arch::global_asm!(
            ".text",
            ".globl plimsoll_relocation",
            ".hidden plimsoll_relocation",
            ".type plimsoll_relocation, @gnu_indirect_function",
            "plimsoll_relocation:",
            "jmp {resolve}",
            ".size plimsoll_relocation, . - plimsoll_relocation",
            resolve = sym resolve,
        );

        unsafe extern "C" {
            fn plimsoll_relocation();
        }

        /// The function that the resolver returns.
        static CHOSEN: unsafe extern "C" fn() = plimsoll_relocation;

        extern "C" fn resolve() -> unsafe extern "C" fn() {
            $at_relocation();
            nothing
        }

        unsafe extern "C" fn nothing() {}

        /// Keeps the relocation in the library.
        pub(crate) fn keep() {
            // SAFETY: the function does nothing. The read is volatile so that it is not left out.
            unsafe { (&raw const CHOSEN).read_volatile()() }
        }
    };
}

pub(crate) use relocation;
