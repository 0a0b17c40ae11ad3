//! The interposed functions.

use core::arch::global_asm;
use core::ffi::CStr;
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::{Call, Function, Hooks, Mode, real};
use crate::arch::pthread::{self as arch, attempt, release, wait};
use crate::define::define;

/// The data of one interposed function.
#[repr(C, align(64))]
pub(super) struct Entry {
    /// The function to which calls go: one of those below.
    pub(super) target: AtomicPtr<()>,
    /// The real function; null until it is known.
    pub(super) real: AtomicPtr<()>,
    /// The target of the first calls: looks up the real function.
    pub(super) resolving: *mut (),
    /// The target of calls in [`Mode::LockWaits`]: reports most of those that wait.
    glancing: *mut (),
    /// The target of calls in [`Mode::All`].
    reporting: *mut (),
    /// A replacement for a real function that cannot be found.
    pub(super) substitute: *mut (),
    /// This crate's function.
    own: *mut (),
    /// The function of a sanitizer in the program; null if there is none. The sanitizer must
    /// observe locks. Its function of the same name yields to this crate's, and exists under
    /// another name, too.
    pub(super) sanitizers: *mut (),
}

// SAFETY: only the first two fields are written after initialization, and they are atomic.
unsafe impl Sync for Entry {}

const _: () = assert!(size_of::<Entry>() == 64);
const _: () = assert!(offset_of!(Entry, real) == 8);
const _: () = assert!(size_of::<Call>() == 160);
const _: () = assert!(offset_of!(Call, arguments) == 96);
const _: () = assert!(offset_of!(Call, function) == 128);
const _: () = assert!(offset_of!(Call, instruction) == 136);
const _: () = assert!(offset_of!(Call, frame_pointer) == 144);
const _: () = assert!(offset_of!(Call, result) == 152);

// Symbols that all functions share. They are hidden: they are addressed relative to the instruction
// pointer, also in a shared library.
//
// The unwinder calls the personality routine for frames whose thread is cancelled during a wait.
// The canonical frame address that it passes is the stack pointer at the current call, which is the
// address of the `Call`.
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

    .section .bss.plimsoll_interpose_pthread, "aw", %nobits
    .balign 64
    .type plimsoll_interpose_pthread_is_waited_for, %object
    .size plimsoll_interpose_pthread_is_waited_for, 8
plimsoll_interpose_pthread_is_waited_for:
    .zero 8
    .type plimsoll_interpose_pthread_begin, %object
    .size plimsoll_interpose_pthread_begin, 8
plimsoll_interpose_pthread_begin:
    .zero 8
    .type plimsoll_interpose_pthread_end, %object
    .size plimsoll_interpose_pthread_end, 8
plimsoll_interpose_pthread_end:
    .zero 8
    .type plimsoll_interpose_pthread_abandoned, %object
    .size plimsoll_interpose_pthread_abandoned, 8
plimsoll_interpose_pthread_abandoned:
    .zero 8
    .zero 32

    .section .text.plimsoll_interpose_pthread, "ax", %progbits
    "#,
    arch::shared!(),
    ".text",
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

/// The data of a function: an [`Entry`] with the labels of the function's parts.
macro_rules! entry {
    ($name:ident) => {
        concat!(
            r#"
    .pushsection .data.plimsoll_interpose_pthread, "aw", %progbits
    .hidden {entry}
    .globl {entry}
    .type {entry}, %object
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

/// Defines an interposed function, and declares its entry.
macro_rules! function {
    ($function:ident, $name:ident, $entry:ident, $substitute:ident, $attempt:expr) => {
        define! {
            $name in concat!(".text.plimsoll_interpose_pthread.", stringify!($name)) =>
            arch::arrives!(), $attempt, arch::is_reported!(), entry!($name);
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

/// Defines all functions, and lists of them in the order of [`Function`].
macro_rules! functions {
    ($($function:ident: $name:ident, $entry:ident, $substitute:ident, $attempt:expr;)*) => {
        $(function!($function, $name, $entry, $substitute, $attempt);)*

        const FUNCTIONS: usize = [$(Function::$function),*].len();

        /// Returns the entries of all functions.
        pub(super) fn entries() -> [&'static Entry; FUNCTIONS] {
            // SAFETY: the symbols are defined and initialized in assembly, with this type's layout.
            unsafe { [$(&$entry),*] }
        }

        /// The names of all functions.
        pub(super) const NAMES: [&CStr; FUNCTIONS] = [$(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            }
        ),*];

        /// Returns the functions that the program calls.
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
    // SAFETY: the symbols are defined above, with this size and alignment.
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
        let real = real::function(number);
        // A function that the C library lacks keeps its substitute.
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
