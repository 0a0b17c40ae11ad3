//! The assembly of the functions, in the parts that they share.
//!
//! Assembly is used for three reasons. A call that is not reported takes only a jump. A
//! cancellation may unwind the stack of a waiting thread, which must not contain Rust frames. And a
//! captured stack begins in the function, by its name, followed by its caller.
//!
//! Labels have the same meaning everywhere: 1 is the function, 5 the code for first calls,
//! and 6 a jump to the C library's function. Code for `attempt` follows at 4 and 7, and 8 begins a
//! report.
//!
//! A call may read the target of a mode and yet an earlier value of the words that were stored before
//! it. The jump at 6 therefore expects that the C library's function is unknown. Reports begin with a
//! barrier, after which the hooks are known.

use core::ffi::CStr;

/// The version of the C library since which conditions have their current layout: its first one on
/// this processor.
pub(crate) const CONDITIONS: &CStr = c"GLIBC_2.17";

macro_rules! shared {
    () => {
        r#"
    .hidden plimsoll_interpose_pthread_personality
    .globl plimsoll_interpose_pthread_personality
    .type plimsoll_interpose_pthread_personality, %function
    .balign 16
plimsoll_interpose_pthread_personality:
    .cfi_startproc
    hint #34
    tst w1, {cleanup_phase}
    b.eq 1f
    stp x29, x30, [sp, -16]!
    .cfi_def_cfa_offset 16
    .cfi_offset x29, -16
    .cfi_offset x30, -8
    mov x29, sp
    mov x0, x4
    adrp x9, :got:_Unwind_GetCFA
    ldr x9, [x9, :got_lo12:_Unwind_GetCFA]
    blr x9
    adrp x9, plimsoll_interpose_pthread_abandoned
    ldr x9, [x9, :lo12:plimsoll_interpose_pthread_abandoned]
    blr x9
    ldp x29, x30, [sp], 16
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
1:
    mov w0, {continue_unwind}
    ret
    .cfi_endproc
    .size plimsoll_interpose_pthread_personality, . - plimsoll_interpose_pthread_personality

    .hidden plimsoll_interpose_pthread_missing
    .globl plimsoll_interpose_pthread_missing
    .type plimsoll_interpose_pthread_missing, %function
plimsoll_interpose_pthread_missing:
    .cfi_startproc
    hint #34
    mov w0, {enosys}
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
    hint #34
    adrp x16, :got:mtx_lock
    ldr x16, [x16, :got_lo12:mtx_lock]
    cbz x16, plimsoll_interpose_pthread_missing
    br x16
    .cfi_endproc
    .size plimsoll_interpose_pthread_other_lock, . - plimsoll_interpose_pthread_other_lock

    .weak mtx_unlock
    .hidden plimsoll_interpose_pthread_other_unlock
    .globl plimsoll_interpose_pthread_other_unlock
    .type plimsoll_interpose_pthread_other_unlock, %function
plimsoll_interpose_pthread_other_unlock:
    .cfi_startproc
    hint #34
    adrp x16, :got:mtx_unlock
    ldr x16, [x16, :got_lo12:mtx_unlock]
    cbz x16, plimsoll_interpose_pthread_missing
    br x16
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
    hint #34
    adrp x16, {entry}
    ldr x16, [x16, :lo12:{entry}]
    br x16
5:
    hint #34
    stp x29, x30, [sp, -48]!
    .cfi_def_cfa_offset 48
    .cfi_offset x29, -48
    .cfi_offset x30, -40
    stp x0, x1, [sp, 16]
    stp x2, x3, [sp, 32]
    mov x29, sp
    mov w0, {number}
    bl {resolve}
    mov x16, x0
    ldp x0, x1, [sp, 16]
    ldp x2, x3, [sp, 32]
    ldp x29, x30, [sp], 48
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    br x16
6:
    adrp x16, {entry} + 8
    ldr x16, [x16, :lo12:{entry} + 8]
    cbz x16, 5b
    br x16
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
    // A `Call` at the stack pointer, and the frame record.
    sub sp, sp, 176
    .cfi_def_cfa_offset 176
    stp x29, x30, [sp, 160]
    .cfi_offset x29, -16
    .cfi_offset x30, -8
    add x29, sp, 160
    str xzr, [sp]
    stp x0, x1, [sp, 96]
    stp x2, x3, [sp, 112]
    mov x9, {number}
    adr x10, 9f
    stp x9, x10, [sp, 128]
    str x29, [sp, 144]
    dmb ishld
    mov x0, sp
    adrp x9, plimsoll_interpose_pthread_begin
    ldr x9, [x9, :lo12:plimsoll_interpose_pthread_begin]
    blr x9
9:
    ldp x0, x1, [sp, 96]
    ldp x2, x3, [sp, 112]
    adrp x9, {entry} + 8
    ldr x9, [x9, :lo12:{entry} + 8]
    blr x9
    str w0, [sp, 152]
    mov x0, sp
    adrp x9, plimsoll_interpose_pthread_end
    ldr x9, [x9, :lo12:plimsoll_interpose_pthread_end]
    blr x9
    ldr w0, [sp, 152]
    ldp x29, x30, [sp, 160]
    .cfi_restore x29
    .cfi_restore x30
    add sp, sp, 176
    .cfi_def_cfa_offset 0
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
            "4:\nhint #34\n",
            $crate::arch::pthread::glance!($lock),
            "7:\nhint #34\n",
            $crate::arch::pthread::tries!($lock)
        )
    };
    // An invalid time limit is left to the C library, which rejects it before or after an attempt.
    ($lock:ident timed) => {
        concat!(
            "4:\nhint #34\n",
            $crate::arch::pthread::glance!($lock),
            "7:\nhint #34\n",
            $crate::arch::pthread::checks!("x1"),
            $crate::arch::pthread::tries!($lock)
        )
    };
    // So is an unknown clock: 0 is CLOCK_REALTIME, and 1 is CLOCK_MONOTONIC.
    ($lock:ident clock) => {
        concat!(
            "4:\nhint #34\n",
            $crate::arch::pthread::glance!($lock),
            r#"
7:
    hint #34
    cmp w1, 1
    b.hi 6b
            "#,
            $crate::arch::pthread::checks!("x2"),
            $crate::arch::pthread::tries!($lock)
        )
    };
}

/// Code that passes control to the C library's function if the lock looks free. It reads the word
/// that holds the owner, if the lock has one. A read of the lock word itself would have to wait for
/// an atomic instruction that has just written it.
macro_rules! glance {
    (mutex) => {
        r#"
    ldr w9, [x0, 8]
    cbz w9, 6b
        "#
    };
    // The word that holds the writer.
    (read) => {
        r#"
    ldr w9, [x0, 24]
    cbz w9, 6b
        "#
    };
    // Readers are not recorded as owners, so this reads the state. Its lowest bit only shows the
    // kind of the last owner.
    (write) => {
        r#"
    ldr w9, [x0]
    tst w9, 0xfffffffe
    b.eq 6b
        "#
    };
}

/// Code that passes control to the C library's function unless the nanoseconds of the time limit at
/// this address are at most 999,999,999.
macro_rules! checks {
    ($time:literal) => {
        concat!(
            "cbz ",
            $time,
            ", 6b\nldr x9, [",
            $time,
            r#", 8]
    mov w10, 0xc9ff
    movk w10, 0x3b9a, lsl 16
    cmp x9, x10
    b.hi 6b
            "#
        )
    };
}

/// Code that tries a lock, and preserves three arguments.
macro_rules! tries {
    (mutex) => {
        $crate::arch::pthread::tries!("pthread_mutex_trylock")
    };
    (read) => {
        $crate::arch::pthread::tries!("pthread_rwlock_tryrdlock")
    };
    (write) => {
        $crate::arch::pthread::tries!("pthread_rwlock_trywrlock")
    };
    ($function:literal) => {
        concat!(
            r#"
    stp x29, x30, [sp, -48]!
    .cfi_def_cfa_offset 48
    .cfi_offset x29, -48
    .cfi_offset x30, -40
    stp x0, x1, [sp, 16]
    str x2, [sp, 32]
    mov x29, sp
    adrp x9, :got:"#,
            $function,
            "\nldr x9, [x9, :got_lo12:",
            $function,
            r#"]
    blr x9
    cmp w0, 16 // EBUSY
    b.eq 3f
    ldp x29, x30, [sp], 48
    .cfi_remember_state
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    ret
3:
    .cfi_restore_state
    ldp x0, x1, [sp, 16]
    ldr x2, [sp, 32]
    ldp x29, x30, [sp], 48
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
            "#
        )
    };
}

/// Code that passes control to 8 if the released lock or the signalled condition has a waiter.
macro_rules! release {
    () => {
        r#"
4:
7:
    hint #34
    stp x29, x30, [sp, -32]!
    .cfi_def_cfa_offset 32
    .cfi_offset x29, -32
    .cfi_offset x30, -24
    mov x29, sp
    str x0, [sp, 16]
    dmb ishld
    adrp x9, plimsoll_interpose_pthread_is_waited_for
    ldr x9, [x9, :lo12:plimsoll_interpose_pthread_is_waited_for]
    blr x9
    tst w0, 0xff
    ldr x0, [sp, 16]
    ldp x29, x30, [sp], 32
    .cfi_def_cfa_offset 0
    .cfi_restore x29
    .cfi_restore x30
    b.eq 6b
        "#
    };
}

/// Code that waits for a condition: always reported.
macro_rules! wait {
    () => {
        "4:\n7:\nhint #34\n"
    };
}

pub(crate) use {arrives, attempt, checks, glance, is_reported, release, shared, tries, wait};
