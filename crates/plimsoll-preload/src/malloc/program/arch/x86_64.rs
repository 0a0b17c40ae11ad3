//! x86-64.

macro_rules! pass_on {
    ($name:ident, $note:path, $next:path) => {
        std::arch::global_asm!(
            ".text",
            concat!(".globl ", stringify!($name)),
            concat!(".hidden ", stringify!($name)),
            concat!(".type ", stringify!($name), ", @function"),
            concat!(stringify!($name), ":"),
            ".cfi_startproc",
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "sub rsp, 8",
            ".cfi_adjust_cfa_offset 56",
            "mov rdi, rdx",
            "mov rsi, rcx",
            "call {note}",
            "add rsp, 8",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            ".cfi_adjust_cfa_offset -56",
            "jmp qword ptr [rip + {next}]",
            ".cfi_endproc",
            concat!(".size ", stringify!($name), ", . - ", stringify!($name)),
            note = sym $note,
            next = sym $next,
        );

        unsafe extern "C" {
            fn $name();
        }
    };
}

pub(in crate::malloc::program) use pass_on;
