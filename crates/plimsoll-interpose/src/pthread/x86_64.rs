//! The functions themselves.

use core::arch::global_asm;
use core::ffi::{CStr, c_char};
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::{Call, Function, Hooks, Mode, real};

/// What there is for each function, in data of its own.
#[repr(C, align(64))]
pub(super) struct Entry {
    /// Where calls go: to find out where the real function is; to that; or to where they are
    /// reported.
    pub(super) target: AtomicPtr<()>,
    /// The real function, once it is known.
    pub(super) real: AtomicPtr<()>,
    /// What `target` is first.
    pub(super) resolving: *mut (),
    /// What `target` is if calls are reported.
    reporting: *mut (),
    /// What there is for a real function if that cannot be had.
    pub(super) substitute: *mut (),
    /// This crate's function.
    own: *mut (),
    name: *const c_char,
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

impl Entry {
    pub(super) fn name(&self) -> &CStr {
        // SAFETY: written below, with a null at the end.
        unsafe { CStr::from_ptr(self.name) }
    }
}

// In assembly for three reasons: a call that is not reported is a jump and nothing else; what is on
// the stack while a thread waits may be unwound by a cancellation, which frames of Rust's may not;
// and stacks begin in the function, by its name, and below that with its caller.
//
// A jump, as all that is done for a call that is not reported; what is done first of all calls (5);
// what is done with calls that may have to be reported (7), and what with those that are (8), which
// is unwound by rules of its own because a cancellation has something to do there.
macro_rules! body {
    ($name:ident, $entry:ident, $substitute:literal, $attempt:expr) => {
        concat!(
            ".cfi_startproc\n",
            "1: jmp [rip + ",
            stringify!($entry),
            "]\n",
            "5: lea rsp, [rsp - 40]\n",
            ".cfi_adjust_cfa_offset 40\n",
            "mov [rsp], rdi\n",
            "mov [rsp + 8], rsi\n",
            "mov [rsp + 16], rdx\n",
            "mov [rsp + 24], rcx\n",
            "mov edi, {number}\n",
            "call {resolve}\n",
            "mov rdi, [rsp]\n",
            "mov rsi, [rsp + 8]\n",
            "mov rdx, [rsp + 16]\n",
            "mov rcx, [rsp + 24]\n",
            "lea rsp, [rsp + 40]\n",
            ".cfi_adjust_cfa_offset -40\n",
            "jmp rax\n",
            // The C library's function as it is, for what is not to be looked at.
            "6: jmp [rip + ",
            stringify!($entry),
            " + 8]\n",
            ".balign 16\n",
            "7:\n",
            $attempt,
            ".cfi_endproc\n",
            ".cfi_startproc\n",
            ".cfi_personality 0x1b, plimsoll_interpose_pthread_personality\n",
            "8: push rbp\n",
            ".cfi_def_cfa_offset 16\n",
            ".cfi_offset rbp, -16\n",
            "mov rbp, rsp\n",
            ".cfi_def_cfa_register rbp\n",
            // A `Call`, which also keeps the stack aligned.
            "sub rsp, 160\n",
            "mov qword ptr [rsp], 0\n",
            "mov [rsp + 96], rdi\n",
            "mov [rsp + 104], rsi\n",
            "mov [rsp + 112], rdx\n",
            "mov [rsp + 120], rcx\n",
            "mov qword ptr [rsp + 128], {number}\n",
            "lea rax, [rip + 9f]\n",
            "mov [rsp + 136], rax\n",
            "mov [rsp + 144], rbp\n",
            "mov rdi, rsp\n",
            "call [rip + plimsoll_interpose_pthread_begin]\n",
            "9: mov rdi, [rsp + 96]\n",
            "mov rsi, [rsp + 104]\n",
            "mov rdx, [rsp + 112]\n",
            "mov rcx, [rsp + 120]\n",
            "call [rip + ",
            stringify!($entry),
            " + 8]\n",
            "mov [rsp + 152], eax\n",
            "mov rdi, rsp\n",
            "call [rip + plimsoll_interpose_pthread_end]\n",
            "mov eax, [rsp + 152]\n",
            "leave\n",
            ".cfi_def_cfa rsp, 8\n",
            ".cfi_restore rbp\n",
            "ret\n",
            ".cfi_endproc\n",
            ".pushsection .data.plimsoll_interpose_pthread, \"aw\", @progbits\n",
            ".hidden ",
            stringify!($entry),
            "\n",
            ".globl ",
            stringify!($entry),
            "\n",
            ".type ",
            stringify!($entry),
            ", @object\n",
            ".size ",
            stringify!($entry),
            ", 64\n",
            ".balign 64\n",
            stringify!($entry),
            ":\n",
            ".quad 5b, 0, 5b, 7b, plimsoll_interpose_pthread_",
            $substitute,
            ", 1b, 3f, 0\n",
            "3: .asciz \"",
            stringify!($name),
            "\"\n",
            ".popsection\n",
        )
    };
}

/// Where a lock is taken: tries, and goes on to [`body`]'s 8 if somebody has it. `$save` to
/// `$restore` keep the arguments, and the stack aligned.
macro_rules! try_first {
    ($check:expr, $save:expr, $try:literal, $restore:expr) => {
        concat!(
            $check,
            $save,
            "call [rip + ",
            $try,
            "@GOTPCREL]\n",
            $restore,
            // EBUSY.
            "cmp eax, 16\n",
            "je 8f\n",
            "ret\n",
        )
    };
}

macro_rules! save_one {
    () => {
        "push rdi\n.cfi_adjust_cfa_offset 8\n"
    };
}

macro_rules! restore_one {
    () => {
        "pop rdi\n.cfi_adjust_cfa_offset -8\n"
    };
}

macro_rules! save_three {
    () => {
        "push rdi\n.cfi_adjust_cfa_offset 8\npush rsi\n.cfi_adjust_cfa_offset 8\n\
         push rdx\n.cfi_adjust_cfa_offset 8\n"
    };
}

macro_rules! restore_three {
    () => {
        "pop rdx\n.cfi_adjust_cfa_offset -8\npop rsi\n.cfi_adjust_cfa_offset -8\n\
         pop rdi\n.cfi_adjust_cfa_offset -8\n"
    };
}

/// What [`body`] does first where a call may have to be reported.
macro_rules! attempt {
    (lock $try:literal) => {
        try_first!("", save_one!(), $try, restore_one!())
    };
    // Whether the time limit is one is for the C library to say, before a lock is tried or after.
    (timed $try:literal) => {
        try_first!(
            "test rsi, rsi\njz 6b\ncmp qword ptr [rsi + 8], 999999999\nja 6b\n",
            save_three!(),
            $try,
            restore_three!()
        )
    };
    // And whether the clock is: there are CLOCK_REALTIME and CLOCK_MONOTONIC.
    (clock $try:literal) => {
        try_first!(
            "cmp esi, 1\nja 6b\ntest rdx, rdx\njz 6b\n\
             cmp qword ptr [rdx + 8], 999999999\nja 6b\n",
            save_three!(),
            $try,
            restore_three!()
        )
    };
    (release) => {
        concat!(
            save_one!(),
            "call [rip + plimsoll_interpose_pthread_is_waited_for]\n",
            restore_one!(),
            "test al, al\n",
            "je 6b\n",
        )
    };
    (wait) => {
        ""
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
}

/// Defines a function, in the forms that `syscall` is defined in.
macro_rules! define {
    ($function:ident, $name:ident, $entry:ident, $substitute:literal, $attempt:expr) => {
        #[cfg(not(feature = "export"))]
        global_asm!(
            concat!(
                ".section .text.plimsoll_interpose_pthread.",
                stringify!($name),
                ", \"ax\", @progbits"
            ),
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ", @function"),
            ".balign 16",
            concat!(stringify!($name), ":"),
            body!($name, $entry, $substitute, $attempt),
            concat!(".size ", stringify!($name), ", . - ", stringify!($name)),
            ".text",
            number = const Function::$function as usize,
            resolve = sym real::resolve,
        );

        /// # Safety
        /// As the C library's.
        #[cfg(feature = "export")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                body!($name, $entry, $substitute, $attempt),
                number = const Function::$function as usize,
                resolve = sym real::resolve,
            )
        }

        unsafe extern "C" {
            static $entry: Entry;
            #[cfg(not(feature = "export"))]
            fn $name();
        }
    };
}

/// Defines all of them, and lists of them in their order: of what there is for each, with the mode
/// from which on it is reported; and of what the program calls.
macro_rules! functions {
    ($($function:ident $mode:ident: $name:ident, $entry:ident, $substitute:literal,
       $attempt:expr;)*) => {
        $(define!($function, $name, $entry, $substitute, $attempt);)*

        const FUNCTIONS: usize = [$(Function::$function),*].len();

        /// In the order of [`Function`].
        pub(super) fn entries() -> [&'static Entry; FUNCTIONS] {
            // SAFETY: defined above, and filled in.
            unsafe { [$(&$entry),*] }
        }

        const REPORTED_FROM: [Mode; FUNCTIONS] = [$(Mode::$mode),*];

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
    MutexLock LockWaits: pthread_mutex_lock, plimsoll_interpose_mutex_lock,
        "other_lock", attempt!(lock "pthread_mutex_trylock");
    MutexTimedLock LockWaits: pthread_mutex_timedlock, plimsoll_interpose_mutex_timedlock,
        "missing", attempt!(timed "pthread_mutex_trylock");
    MutexClockLock LockWaits: pthread_mutex_clocklock, plimsoll_interpose_mutex_clocklock,
        "missing", attempt!(clock "pthread_mutex_trylock");
    MutexUnlock All: pthread_mutex_unlock, plimsoll_interpose_mutex_unlock,
        "other_unlock", attempt!(release);
    RwLockRead LockWaits: pthread_rwlock_rdlock, plimsoll_interpose_rwlock_rdlock,
        "missing", attempt!(lock "pthread_rwlock_tryrdlock");
    RwLockTimedRead LockWaits: pthread_rwlock_timedrdlock, plimsoll_interpose_rwlock_timedrdlock,
        "missing", attempt!(timed "pthread_rwlock_tryrdlock");
    RwLockClockRead LockWaits: pthread_rwlock_clockrdlock, plimsoll_interpose_rwlock_clockrdlock,
        "missing", attempt!(clock "pthread_rwlock_tryrdlock");
    RwLockWrite LockWaits: pthread_rwlock_wrlock, plimsoll_interpose_rwlock_wrlock,
        "missing", attempt!(lock "pthread_rwlock_trywrlock");
    RwLockTimedWrite LockWaits: pthread_rwlock_timedwrlock, plimsoll_interpose_rwlock_timedwrlock,
        "missing", attempt!(timed "pthread_rwlock_trywrlock");
    RwLockClockWrite LockWaits: pthread_rwlock_clockwrlock, plimsoll_interpose_rwlock_clockwrlock,
        "missing", attempt!(clock "pthread_rwlock_trywrlock");
    RwLockUnlock All: pthread_rwlock_unlock, plimsoll_interpose_rwlock_unlock,
        "missing", attempt!(release);
    CondWait All: pthread_cond_wait, plimsoll_interpose_cond_wait,
        "missing", attempt!(wait);
    CondTimedWait All: pthread_cond_timedwait, plimsoll_interpose_cond_timedwait,
        "missing", attempt!(wait);
    CondClockWait All: pthread_cond_clockwait, plimsoll_interpose_cond_clockwait,
        "missing", attempt!(wait);
    CondSignal All: pthread_cond_signal, plimsoll_interpose_cond_signal,
        "missing", attempt!(release);
    CondBroadcast All: pthread_cond_broadcast, plimsoll_interpose_cond_broadcast,
        "missing", attempt!(release);
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
    for (entry, from) in entries().into_iter().zip(REPORTED_FROM) {
        let real = real::of(entry);
        // What the C library does not have answers as it did.
        if !real.is_null() {
            let reported = mode as u8 >= from as u8;
            let target = if reported { entry.reporting } else { real };
            entry.target.store(target, Ordering::SeqCst);
        }
    }
}

pub(super) fn is_linked() -> bool {
    entries()
        .into_iter()
        .zip(called())
        .all(|(entry, called)| core::hint::black_box(called as *mut ()) == entry.own)
}
