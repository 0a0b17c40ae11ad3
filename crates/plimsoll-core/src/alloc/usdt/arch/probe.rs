//! The probes in assembly: a function for each, and the ELF note by which tracers
//! find it.
//!
//! In the language of the assembler, because the compiler may emit a function's inline assembly more
//! than once: each note must be in a program once.
//!
//! The note has SystemTap's format, version 3: the address of the probe's instruction, the address of
//! the section `.stapsdt.base`, which shows whether the file was changed by a later relocation, the
//! address of the semaphore (0: none), and three strings. Linkers keep notes, but not all of them keep
//! the sections to which notes point: these have the flag `R`, retain.
//!
//! The symbols are weak: if a program contains two versions of this crate, the linker keeps the functions of one for both.

/// Defines the probe `$name` of the provider `otel_memory` as the function `$function`. `$arguments`
/// describes where its arguments are at the `nop`: in the registers of a C function's first arguments.
macro_rules! define_probe {
    ($function:literal, $name:literal, $arguments:literal) => {
        core::arch::global_asm!(
            concat!(".section .text.", $function, ", \"axR\", %progbits"),
            concat!(".hidden ", $function),
            concat!(".weak ", $function),
            concat!(".type ", $function, ", %function"),
            ".balign 16",
            concat!($function, ":"),
            ".cfi_startproc",
            "990:",
            "nop",
            "ret",
            ".cfi_endproc",
            concat!(".size ", $function, ", . - ", $function),
            ".ifndef _.stapsdt.base",
            ".section .stapsdt.base, \"aGR\", %progbits, .stapsdt.base, comdat",
            ".weak _.stapsdt.base",
            ".hidden _.stapsdt.base",
            "_.stapsdt.base:",
            ".byte 0",
            ".size _.stapsdt.base, 1",
            ".endif",
            ".section .note.stapsdt, \"\", %note",
            ".balign 4",
            ".long 8, 993f - 992f, 3",
            ".asciz \"stapsdt\"",
            "992:",
            ".8byte 990b",
            ".8byte _.stapsdt.base",
            ".8byte 0",
            ".asciz \"otel_memory\"",
            concat!(".asciz \"", $name, "\""),
            concat!(".asciz \"", $arguments, "\""),
            "993:",
            ".balign 4",
            ".text",
        );
    };
}

#[cfg(target_arch = "x86_64")]
define_probe!("plimsoll_probe_alloc", "alloc", "8@%rdi 8@%rsi 8@%rdx");
#[cfg(target_arch = "x86_64")]
define_probe!("plimsoll_probe_free", "free", "8@%rdi");

#[cfg(target_arch = "aarch64")]
define_probe!("plimsoll_probe_alloc", "alloc", "8@x0 8@x1 8@x2");
#[cfg(target_arch = "aarch64")]
define_probe!("plimsoll_probe_free", "free", "8@x0");

unsafe extern "C" {
    safe fn plimsoll_probe_alloc(block: usize, size: u64, weight: u64);
    safe fn plimsoll_probe_free(block: usize);
}

/// Fires the probe `alloc`.
#[inline]
pub fn probe_alloc(block: usize, size: u64, weight: u64) {
    plimsoll_probe_alloc(block, size, weight);
}

/// Fires the probe `free`.
#[inline]
pub fn probe_free(block: usize) {
    plimsoll_probe_free(block);
}
