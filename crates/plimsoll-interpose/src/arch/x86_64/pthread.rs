//! The assembly of the functions, in the parts that they share.
//!
//! Assembly is used for three reasons. A call that is not reported takes only a jump. A
//! cancellation may unwind the stack of a waiting thread, which must not contain Rust frames. And a
//! captured stack begins in the function, by its name, followed by its caller.
//!
//! Labels have the same meaning everywhere: 1 is the function, 5 the code for first calls,
//! and 6 a jump to the C library's function. Code for `attempt` follows at 4 and 7.

use core::ffi::CStr;

/// The version of the C library since which conditions have their current layout. It still contains
/// the functions for the earlier layout.
pub(crate) const CONDITIONS: &CStr = c"GLIBC_2.3.2";

macro_rules! shared {
    () => {
        r#"
    .hidden plimsoll_interpose_pthread_personality
    .globl plimsoll_interpose_pthread_personality
    .type plimsoll_interpose_pthread_personality, %function
    .balign 16
plimsoll_interpose_pthread_personality:
    .cfi_startproc
    test esi, {cleanup_phase}
    jz 1f
    sub rsp, 8
    .cfi_adjust_cfa_offset 8
    mov rdi, r8
    call [rip + _Unwind_GetCFA@GOTPCREL]
    mov rdi, rax
    call [rip + plimsoll_interpose_pthread_abandoned]
    add rsp, 8
    .cfi_adjust_cfa_offset -8
1:
    mov eax, {continue_unwind}
    ret
    .cfi_endproc
    .size plimsoll_interpose_pthread_personality, . - plimsoll_interpose_pthread_personality

    .hidden plimsoll_interpose_pthread_missing
    .globl plimsoll_interpose_pthread_missing
    .type plimsoll_interpose_pthread_missing, %function
plimsoll_interpose_pthread_missing:
    .cfi_startproc
    mov eax, {enosys}
    ret
    .cfi_endproc
    .size plimsoll_interpose_pthread_missing, . - plimsoll_interpose_pthread_missing

    // The same functions under names that are not taken over, if the C library has them: only that
    // an error has another number.
    .weak mtx_lock
    .hidden plimsoll_interpose_pthread_other_lock
    .globl plimsoll_interpose_pthread_other_lock
    .type plimsoll_interpose_pthread_other_lock, %function
plimsoll_interpose_pthread_other_lock:
    .cfi_startproc
    mov rax, [rip + mtx_lock@GOTPCREL]
    test rax, rax
    jz plimsoll_interpose_pthread_missing
    jmp rax
    .cfi_endproc
    .size plimsoll_interpose_pthread_other_lock, . - plimsoll_interpose_pthread_other_lock

    .weak mtx_unlock
    .hidden plimsoll_interpose_pthread_other_unlock
    .globl plimsoll_interpose_pthread_other_unlock
    .type plimsoll_interpose_pthread_other_unlock, %function
plimsoll_interpose_pthread_other_unlock:
    .cfi_startproc
    mov rax, [rip + mtx_unlock@GOTPCREL]
    test rax, rax
    jz plimsoll_interpose_pthread_missing
    jmp rax
    .cfi_endproc
    .size plimsoll_interpose_pthread_other_unlock, . - plimsoll_interpose_pthread_other_unlock
    "#
    };
}

macro_rules! arrives {
    () => {
        r#"
    .cfi_startproc
1:
    jmp [rip + {entry}]
5:
    lea rsp, [rsp - 40]
    .cfi_adjust_cfa_offset 40
    mov [rsp], rdi
    mov [rsp + 8], rsi
    mov [rsp + 16], rdx
    mov [rsp + 24], rcx
    mov edi, {number}
    call {resolve}
    mov rdi, [rsp]
    mov rsi, [rsp + 8]
    mov rdx, [rsp + 16]
    mov rcx, [rsp + 24]
    lea rsp, [rsp + 40]
    .cfi_adjust_cfa_offset -40
    jmp rax
6:
    jmp [rip + {entry} + 8]
    .balign 16
    "#
    };
}

// Label 8 begins the code for reported calls. It has separate unwind information, because a
// cancellation must call the personality routine there.
macro_rules! is_reported {
    () => {
        r#"
    .cfi_endproc
    .cfi_startproc
    .cfi_personality 0x1b, plimsoll_interpose_pthread_personality
8:
    // A `Call`, which also keeps the stack aligned.
    push rbp
    .cfi_def_cfa_offset 16
    .cfi_offset rbp, -16
    mov rbp, rsp
    sub rsp, 160
    .cfi_adjust_cfa_offset 160
    mov qword ptr [rsp], 0
    mov [rsp + 96], rdi
    mov [rsp + 104], rsi
    mov [rsp + 112], rdx
    mov [rsp + 120], rcx
    mov qword ptr [rsp + 128], {number}
    lea rax, [rip + 9f]
    mov [rsp + 136], rax
    mov [rsp + 144], rbp
    mov rdi, rsp
    call [rip + plimsoll_interpose_pthread_begin]
9:
    mov rdi, [rsp + 96]
    mov rsi, [rsp + 104]
    mov rdx, [rsp + 112]
    mov rcx, [rsp + 120]
    call [rip + {entry} + 8]
    mov [rsp + 152], eax
    mov rdi, rsp
    call [rip + plimsoll_interpose_pthread_end]
    mov eax, [rsp + 152]
    leave
    .cfi_def_cfa rsp, 8
    .cfi_restore rbp
    ret
    .cfi_endproc
    "#
    };
}

/// Code that decides whether a call is reported: from 7 on, or from 4 on if it suffices to report
/// most calls.
///
/// For a function that takes a lock, the code from 7 on tries the lock; if it is held, control
/// passes to 8. The code from 4 on tries the lock only if it does not look free. Otherwise, the C
/// library takes the lock; if another thread is faster, the wait is not reported. A different
/// layout of the C library's locks would only cause more attempts, or fewer reports.
macro_rules! attempt {
    ($lock:ident) => {
        concat!(
            "4:",
            $crate::arch::pthread::glance!($lock),
            "7:",
            $crate::arch::pthread::tries_with_one!($lock)
        )
    };
    // An invalid time limit is left to the C library, which rejects it before or after an attempt.
    ($lock:ident timed) => {
        concat!(
            "4:",
            $crate::arch::pthread::glance!($lock),
            r#"
7:
    test rsi, rsi
    jz 6b
    cmp qword ptr [rsi + 8], 999999999
    ja 6b
            "#,
            $crate::arch::pthread::tries_with_three!($lock)
        )
    };
    // So is an unknown clock: 0 is CLOCK_REALTIME, and 1 is CLOCK_MONOTONIC.
    ($lock:ident clock) => {
        concat!(
            "4:",
            $crate::arch::pthread::glance!($lock),
            r#"
7:
    cmp esi, 1
    ja 6b
    test rdx, rdx
    jz 6b
    cmp qword ptr [rdx + 8], 999999999
    ja 6b
            "#,
            $crate::arch::pthread::tries_with_three!($lock)
        )
    };
}

/// Code that passes control to the C library's function if the lock looks free. It reads the word
/// that holds the owner, if the lock has one. A read of the lock word itself would have to wait for
/// a locked instruction that has just written it.
macro_rules! glance {
    (mutex) => {
        r#"
    cmp dword ptr [rdi + 8], 0
    je 6b
        "#
    };
    // The word that holds the writer.
    (read) => {
        r#"
    cmp dword ptr [rdi + 24], 0
    je 6b
        "#
    };
    // Readers are not recorded as owners, so this reads the state. Its lowest bit only shows the
    // kind of the last owner.
    (write) => {
        r#"
    test dword ptr [rdi], -2
    je 6b
        "#
    };
}

macro_rules! tries {
    (mutex) => {
        "call [rip + pthread_mutex_trylock@GOTPCREL]"
    };
    (read) => {
        "call [rip + pthread_rwlock_tryrdlock@GOTPCREL]"
    };
    (write) => {
        "call [rip + pthread_rwlock_trywrlock@GOTPCREL]"
    };
}

/// Code that tries a lock, and preserves the argument.
macro_rules! tries_with_one {
    ($lock:ident) => {
        concat!(
            r#"
    push rdi
    .cfi_adjust_cfa_offset 8
            "#,
            $crate::arch::pthread::tries!($lock),
            r#"
    pop rdi
    .cfi_adjust_cfa_offset -8
            "#,
            $crate::arch::pthread::tried!()
        )
    };
}

/// Code that tries a lock, and preserves two or three arguments.
macro_rules! tries_with_three {
    ($lock:ident) => {
        concat!(
            r#"
    push rdi
    .cfi_adjust_cfa_offset 8
    push rsi
    .cfi_adjust_cfa_offset 8
    push rdx
    .cfi_adjust_cfa_offset 8
            "#,
            $crate::arch::pthread::tries!($lock),
            r#"
    pop rdx
    .cfi_adjust_cfa_offset -8
    pop rsi
    .cfi_adjust_cfa_offset -8
    pop rdi
    .cfi_adjust_cfa_offset -8
            "#,
            $crate::arch::pthread::tried!()
        )
    };
}

macro_rules! tried {
    () => {
        r#"
    cmp eax, 16 // EBUSY
    je 8f
    ret
        "#
    };
}

/// Code that passes control to 8 if the released lock or the signalled condition has a waiter.
macro_rules! release {
    () => {
        r#"
4:
7:
    push rdi
    .cfi_adjust_cfa_offset 8
    call [rip + plimsoll_interpose_pthread_is_waited_for]
    pop rdi
    .cfi_adjust_cfa_offset -8
    test al, al
    je 6b
        "#
    };
}

/// Code that waits for a condition: always reported.
macro_rules! wait {
    () => {
        "4: 7:"
    };
}

pub(crate) use {
    arrives, attempt, glance, is_reported, release, shared, tried, tries, tries_with_one,
    tries_with_three, wait,
};
