//! A note in the program's file, by which `plimsoll run` and `plimsoll doctor` recognise programs that
//! contain Plimsoll, stripped ones as well. In the language of the assembler, since sanitizers put
//! space between statics, which would separate the notes around it.

/// Puts the note beside the code of the caller: the linker takes both or none.
#[inline(always)]
pub(super) fn place_note() {
    // An ELF note of the kind 1, with a name and without contents.
    #[cfg(all(
        unix,
        not(target_vendor = "apple"),
        any(target_arch = "x86_64", target_arch = "aarch64")
    ))]
    // SAFETY: no instruction is executed.
    unsafe {
        std::arch::asm!(
            ".pushsection .note.plimsoll, \"a\", %note",
            ".balign 4",
            ".long 9, 0, 1",
            ".asciz \"Plimsoll\"",
            ".balign 4",
            ".popsection",
            options(nomem, nostack, preserves_flags),
        );
    }
}
