//! The functions themselves.

use core::arch::global_asm;
use core::ffi::CStr;
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::{Call, Function, Hooks, Mode, real};
use crate::define::define;

/// What there is for each function, in data of its own.
#[repr(C, align(64))]
pub(super) struct Entry {
    /// Where calls go: one of the others.
    pub(super) target: AtomicPtr<()>,
    /// The real function, once it is known.
    pub(super) real: AtomicPtr<()>,
    /// For the first calls: finds out where the real function is.
    pub(super) resolving: *mut (),
    /// For calls of which most are to be reported that wait.
    glancing: *mut (),
    /// For calls that are reported.
    reporting: *mut (),
    /// What there is for a real function if that cannot be had.
    pub(super) substitute: *mut (),
    /// This crate's function.
    own: *mut (),
    /// What a sanitizer that is linked into the program has for the real function, if anything. It
    /// must know of locks; its function of the same name gives way to this crate's, and goes by
    /// this name as well.
    pub(super) sanitizers: *mut (),
}

// SAFETY: all but the first two is never written, and those are atomic.
unsafe impl Sync for Entry {}

const _: () = assert!(size_of::<Entry>() == 64);
const _: () = assert!(offset_of!(Entry, real) == 8);
const _: () = assert!(size_of::<Call>() == 160);
const _: () = assert!(offset_of!(Call, arguments) == 96);
const _: () = assert!(offset_of!(Call, function) == 128);
const _: () = assert!(offset_of!(Call, instruction) == 136);
const _: () = assert!(offset_of!(Call, frame_pointer) == 144);
const _: () = assert!(offset_of!(Call, result) == 152);

// In assembly for three reasons: a call that is not reported is a jump and nothing else; what is on
// the stack while a thread waits may be unwound by a cancellation, which frames of Rust's may not;
// and stacks begin in the function, by its name, and below that with its caller.
//
// Numbers are the same in all of them: 1 is the function, 5 what is done first of all calls, 6 the
// C library's function as it is. What follows is `attempt`'s.
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

// 8 is what is done with calls that are reported. It is unwound by rules of its own, because a
// cancellation has something to do there.
macro_rules! is_reported {
    ($name:ident) => {
        concat!(
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

    .pushsection .data.plimsoll_interpose_pthread, "aw", @progbits
    .hidden {entry}
    .globl {entry}
    .type {entry}, @object
    .size {entry}, 64
    .balign 64
{entry}:
    .weak __interceptor_"#,
            stringify!($name),
            r#"
    .quad 5b, 0, 5b, 4b, 7b, {substitute}, 1b, __interceptor_"#,
            stringify!($name),
            r#"
    .popsection
        "#
        )
    };
}

/// What is done with calls that may have to be reported, before it is known: from 7 on; or from 4
/// on, if it is enough to report most of them.
///
/// Where a lock is taken, from 7 on, it is tried; if somebody has it, on goes to 8. From 4 on it is
/// tried if it does not look free; otherwise it is left to the C library, and if somebody was
/// faster, a wait is not reported. If the C library had otherwise what is looked at there, more
/// would be tried, or less be reported.
macro_rules! attempt {
    ($lock:ident) => {
        concat!("4:", glance!($lock), "7:", tries_with_one!($lock))
    };
    // Whether the time limit is one is for the C library to say, before a lock is tried or after.
    ($lock:ident timed) => {
        concat!(
            "4:",
            glance!($lock),
            r#"
7:
    test rsi, rsi
    jz 6b
    cmp qword ptr [rsi + 8], 999999999
    ja 6b
            "#,
            tries_with_three!($lock)
        )
    };
    // And whether the clock is: there are CLOCK_REALTIME and CLOCK_MONOTONIC.
    ($lock:ident clock) => {
        concat!(
            "4:",
            glance!($lock),
            r#"
7:
    cmp esi, 1
    ja 6b
    test rdx, rdx
    jz 6b
    cmp qword ptr [rdx + 8], 999999999
    ja 6b
            "#,
            tries_with_three!($lock)
        )
    };
}

/// Goes on to the C library's function if the lock looks free: by the word that says who has it,
/// where there is one. The word that is locked was last written by an instruction that reads must
/// wait for.
macro_rules! glance {
    (mutex) => {
        r#"
    cmp dword ptr [rdi + 8], 0
    je 6b
        "#
    };
    // By a writer.
    (read) => {
        r#"
    cmp dword ptr [rdi + 24], 0
    je 6b
        "#
    };
    // Of readers it is not said who they are. The lowest bit says who had it last.
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

/// Tries a lock, and keeps the argument.
macro_rules! tries_with_one {
    ($lock:ident) => {
        concat!(
            r#"
    push rdi
    .cfi_adjust_cfa_offset 8
            "#,
            tries!($lock),
            r#"
    pop rdi
    .cfi_adjust_cfa_offset -8
            "#,
            tried!()
        )
    };
}

/// The same with two or three arguments.
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
            tries!($lock),
            r#"
    pop rdx
    .cfi_adjust_cfa_offset -8
    pop rsi
    .cfi_adjust_cfa_offset -8
    pop rdi
    .cfi_adjust_cfa_offset -8
            "#,
            tried!()
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

/// Where something is given up or signalled: goes on to 8 if somebody waits for it.
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

/// Where a condition is waited for.
macro_rules! wait {
    () => {
        "4: 7:"
    };
}

// What all of them use. Hidden: it is reached relative to the instruction pointer, also where this
// ends up in a shared library.
//
// The personality routine is called for frames that are cancelled in mid-wait. What it calls the
// canonical frame address is the stack pointer at the call that is under way, where the `Call` is.
global_asm!(
    r#"
    .hidden plimsoll_interpose_pthread_is_waited_for
    .globl plimsoll_interpose_pthread_is_waited_for
    .hidden plimsoll_interpose_pthread_begin
    .globl plimsoll_interpose_pthread_begin
    .hidden plimsoll_interpose_pthread_end
    .globl plimsoll_interpose_pthread_end
    .hidden plimsoll_interpose_pthread_abandoned
    .globl plimsoll_interpose_pthread_abandoned

    .section .bss.plimsoll_interpose_pthread, "aw", @nobits
    .balign 64
    .type plimsoll_interpose_pthread_is_waited_for, @object
    .size plimsoll_interpose_pthread_is_waited_for, 8
plimsoll_interpose_pthread_is_waited_for:
    .zero 8
    .type plimsoll_interpose_pthread_begin, @object
    .size plimsoll_interpose_pthread_begin, 8
plimsoll_interpose_pthread_begin:
    .zero 8
    .type plimsoll_interpose_pthread_end, @object
    .size plimsoll_interpose_pthread_end, 8
plimsoll_interpose_pthread_end:
    .zero 8
    .type plimsoll_interpose_pthread_abandoned, @object
    .size plimsoll_interpose_pthread_abandoned, 8
plimsoll_interpose_pthread_abandoned:
    .zero 8
    .zero 32

    .section .text.plimsoll_interpose_pthread, "ax", @progbits
    .hidden plimsoll_interpose_pthread_personality
    .globl plimsoll_interpose_pthread_personality
    .type plimsoll_interpose_pthread_personality, @function
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
    .type plimsoll_interpose_pthread_missing, @function
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
    .type plimsoll_interpose_pthread_other_lock, @function
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
    .type plimsoll_interpose_pthread_other_unlock, @function
plimsoll_interpose_pthread_other_unlock:
    .cfi_startproc
    mov rax, [rip + mtx_unlock@GOTPCREL]
    test rax, rax
    jz plimsoll_interpose_pthread_missing
    jmp rax
    .cfi_endproc
    .size plimsoll_interpose_pthread_other_unlock, . - plimsoll_interpose_pthread_other_unlock
    .text
    "#,
    cleanup_phase = const 2,
    continue_unwind = const 8,
    enosys = const 38,
);

unsafe extern "C" {
    static plimsoll_interpose_pthread_is_waited_for: AtomicPtr<()>;
    static plimsoll_interpose_pthread_begin: AtomicPtr<()>;
    static plimsoll_interpose_pthread_end: AtomicPtr<()>;
    static plimsoll_interpose_pthread_abandoned: AtomicPtr<()>;
    fn plimsoll_interpose_pthread_missing();
    fn plimsoll_interpose_pthread_other_lock();
    fn plimsoll_interpose_pthread_other_unlock();
}

/// Defines a function, and declares what there is for it.
macro_rules! function {
    ($function:ident, $name:ident, $entry:ident, $substitute:ident, $attempt:expr) => {
        define! {
            $name in concat!(".text.plimsoll_interpose_pthread.", stringify!($name)) =>
            arrives!(), $attempt, is_reported!($name);
            entry = sym $entry,
            number = const Function::$function as usize,
            resolve = sym real::resolve,
            substitute = sym $substitute,
        }

        unsafe extern "C" {
            static $entry: Entry;
        }
    };
}

/// Defines all of them, and lists of them in the order of [`Function`].
macro_rules! functions {
    ($($function:ident: $name:ident, $entry:ident, $substitute:ident, $attempt:expr;)*) => {
        $(function!($function, $name, $entry, $substitute, $attempt);)*

        const FUNCTIONS: usize = [$(Function::$function),*].len();

        /// What there is for each.
        pub(super) fn entries() -> [&'static Entry; FUNCTIONS] {
            // SAFETY: defined above, and filled in.
            unsafe { [$(&$entry),*] }
        }

        /// What each is called.
        pub(super) const NAMES: [&CStr; FUNCTIONS] = [$(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            }
        ),*];

        /// What the program calls.
        fn called() -> [unsafe extern "C" fn(); FUNCTIONS] {
            [$($name),*]
        }

        const _: () = {
            let functions = [$(Function::$function as usize),*];
            let mut number = 0;
            while number < FUNCTIONS {
                assert!(functions[number] == number);
                number += 1;
            }
        };
    };
}

functions! {
    MutexLock: pthread_mutex_lock, plimsoll_interpose_mutex_lock,
        plimsoll_interpose_pthread_other_lock, attempt!(mutex);
    MutexTimedLock: pthread_mutex_timedlock, plimsoll_interpose_mutex_timedlock,
        plimsoll_interpose_pthread_missing, attempt!(mutex timed);
    MutexClockLock: pthread_mutex_clocklock, plimsoll_interpose_mutex_clocklock,
        plimsoll_interpose_pthread_missing, attempt!(mutex clock);
    MutexUnlock: pthread_mutex_unlock, plimsoll_interpose_mutex_unlock,
        plimsoll_interpose_pthread_other_unlock, release!();
    RwLockRead: pthread_rwlock_rdlock, plimsoll_interpose_rwlock_rdlock,
        plimsoll_interpose_pthread_missing, attempt!(read);
    RwLockTimedRead: pthread_rwlock_timedrdlock, plimsoll_interpose_rwlock_timedrdlock,
        plimsoll_interpose_pthread_missing, attempt!(read timed);
    RwLockClockRead: pthread_rwlock_clockrdlock, plimsoll_interpose_rwlock_clockrdlock,
        plimsoll_interpose_pthread_missing, attempt!(read clock);
    RwLockWrite: pthread_rwlock_wrlock, plimsoll_interpose_rwlock_wrlock,
        plimsoll_interpose_pthread_missing, attempt!(write);
    RwLockTimedWrite: pthread_rwlock_timedwrlock, plimsoll_interpose_rwlock_timedwrlock,
        plimsoll_interpose_pthread_missing, attempt!(write timed);
    RwLockClockWrite: pthread_rwlock_clockwrlock, plimsoll_interpose_rwlock_clockwrlock,
        plimsoll_interpose_pthread_missing, attempt!(write clock);
    RwLockUnlock: pthread_rwlock_unlock, plimsoll_interpose_rwlock_unlock,
        plimsoll_interpose_pthread_missing, release!();
    CondWait: pthread_cond_wait, plimsoll_interpose_cond_wait,
        plimsoll_interpose_pthread_missing, wait!();
    CondTimedWait: pthread_cond_timedwait, plimsoll_interpose_cond_timedwait,
        plimsoll_interpose_pthread_missing, wait!();
    CondClockWait: pthread_cond_clockwait, plimsoll_interpose_cond_clockwait,
        plimsoll_interpose_pthread_missing, wait!();
    CondSignal: pthread_cond_signal, plimsoll_interpose_cond_signal,
        plimsoll_interpose_pthread_missing, release!();
    CondBroadcast: pthread_cond_broadcast, plimsoll_interpose_cond_broadcast,
        plimsoll_interpose_pthread_missing, release!();
}

pub(super) fn set_hooks(hooks: Hooks) {
    let set = |place: &AtomicPtr<()>, hook: *mut ()| place.store(hook, Ordering::Release);
    // SAFETY: defined above, with that size and alignment.
    unsafe {
        set(
            &plimsoll_interpose_pthread_is_waited_for,
            hooks.is_waited_for as *mut (),
        );
        set(&plimsoll_interpose_pthread_begin, hooks.begin as *mut ());
        set(&plimsoll_interpose_pthread_end, hooks.end as *mut ());
        set(
            &plimsoll_interpose_pthread_abandoned,
            hooks.abandoned as *mut (),
        );
    }
}

pub(super) fn set_mode(mode: Mode) {
    for (number, entry) in entries().into_iter().enumerate() {
        let real = real::of(number);
        // What the C library does not have answers as it did.
        if !real.is_null() {
            let target = match mode {
                Mode::Off => real,
                Mode::LockWaits if FUNCTIONS_THAT_LOCK.contains(&number) => entry.glancing,
                Mode::LockWaits => real,
                Mode::All => entry.reporting,
            };
            entry.target.store(target, Ordering::SeqCst);
        }
    }
}

/// The numbers of the functions that take a lock.
const FUNCTIONS_THAT_LOCK: [usize; 9] = [
    Function::MutexLock as usize,
    Function::MutexTimedLock as usize,
    Function::MutexClockLock as usize,
    Function::RwLockRead as usize,
    Function::RwLockTimedRead as usize,
    Function::RwLockClockRead as usize,
    Function::RwLockWrite as usize,
    Function::RwLockTimedWrite as usize,
    Function::RwLockClockWrite as usize,
];

pub(super) fn is_linked() -> bool {
    entries()
        .into_iter()
        .zip(called())
        .all(|(entry, called)| core::hint::black_box(called as *mut ()) == entry.own)
}
