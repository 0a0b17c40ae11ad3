//! `vfork`.

/// The child returns into its caller first, and may overwrite the return address on the stack that it shares with its
/// parent. So the address waits in a register, which the kernel keeps for both.
macro_rules! body {
    () => {
        concat!(
            r#"
    .cfi_startproc
    mov rax, [rip + plimsoll_interpose_before_vfork]
    test rax, rax
    jz 1f
    sub rsp, 8
    .cfi_adjust_cfa_offset 8
    call rax
    add rsp, 8
    .cfi_adjust_cfa_offset -8
1:
    pop rdx
    .cfi_adjust_cfa_offset -8
    .cfi_register rip, rdx
    mov eax, 58
    syscall
    push rdx
    .cfi_adjust_cfa_offset 8
    .cfi_offset rip, -8
    test eax, eax
    jnz 2f
    ret
2:
    // The parent.
    push rax
    .cfi_adjust_cfa_offset 8
    mov rax, [rip + plimsoll_interpose_after_vfork]
    test rax, rax
    jz 3f
    call rax
3:
    pop rax
    .cfi_adjust_cfa_offset -8
    cmp rax, -4095
    jae 4f
    ret
4:
    "#,
            $crate::arch::fails!(),
            ".cfi_endproc",
        )
    };
}

pub(crate) use body;
