//! A hook that counts calls and forwards them to the kernel or to the previous hook. Also
//! serializes the tests that set the mode, and detects that a thread waits.

use std::arch::global_asm;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_interpose::{Call, Mode};

pub mod arch;

pub use arch::direct;

// Written in assembly for two reasons. The test must know the stack pointer at entry, and a
// cancellation during a wait must unwind through it without meeting a Rust personality routine.
global_asm!(
    r#"
    .text
    .globl plimsoll_test_hook
    .hidden plimsoll_test_hook
    .type plimsoll_test_hook, %function
plimsoll_test_hook:
    "#,
    arch::hook!(),
    r#"
    .size plimsoll_test_hook, . - plimsoll_test_hook
    "#,
    note = sym note,
    before = sym BEFORE,
);

/// The previous hook.
static BEFORE: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

unsafe extern "C" {
    fn plimsoll_test_hook(call: &Call) -> isize;
}

/// The last call of this thread that the hook saw.
#[derive(Clone, Copy)]
pub struct Seen {
    pub call: Call,
    /// The stack pointer when the hook was entered.
    pub entry: usize,
}

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
    static LAST: Cell<Option<Seen>> = const { Cell::new(None) };
    static ANSWER: Cell<Option<isize>> = const { Cell::new(None) };
    static INSPECT: Cell<Option<extern "C" fn()>> = const { Cell::new(None) };
}

extern "C" fn note(call: &Call, entry: usize, answer: &mut isize) -> bool {
    COUNT.set(COUNT.get() + 1);
    LAST.set(Some(Seen { call: *call, entry }));
    if let Some(inspect) = INSPECT.take() {
        inspect();
    }
    match ANSWER.take() {
        Some(given) => {
            *answer = given;
            true
        }
        None => false,
    }
}

/// Returns the number of calls of this thread that the hook has seen.
pub fn count() -> usize {
    COUNT.get()
}

pub fn last() -> Seen {
    LAST.get().expect("the hook has seen a call of this thread")
}

/// Makes the hook return `answer` for the next call of this thread, without a system call.
pub fn answer_next(answer: isize) {
    ANSWER.set(Some(answer));
}

/// Makes the hook call `inspect` in the next call of this thread.
pub fn inspect_next(inspect: extern "C" fn()) {
    INSPECT.set(Some(inspect));
}

/// Returns the result of `work`, and the number of calls of this thread that the hook saw
/// meanwhile.
pub fn counted<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = count();
    let result = work();
    (result, count() - before)
}

pub fn set_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        super::before_the_hook_is_set();
        if let Some(before) = plimsoll_interpose::hook() {
            BEFORE.store(before as *mut (), Ordering::Release);
        }
        plimsoll_interpose::set_hook(plimsoll_test_hook);
    });
}

/// Runs `work` in this mode, and no other test meanwhile.
pub fn in_mode<R>(mode: Mode, work: impl FnOnce() -> R) -> R {
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            plimsoll_interpose::set_mode(Mode::Off);
        }
    }

    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    set_hook();
    plimsoll_interpose::set_mode(mode);
    let _off = Off;
    work()
}

/// Runs `work` without the hook, then with it.
pub fn for_each_mode(work: impl Fn(Mode)) {
    for mode in [Mode::Off, Mode::All] {
        in_mode(mode, || work(mode));
    }
}

/// Runs `work` as [`for_each_mode`] does. Asserts that the hook saw as many calls of this thread as
/// `work` returns, or none if the mode is off.
pub fn in_each_mode(work: impl Fn() -> usize) {
    for_each_mode(|mode| {
        let (made, seen) = counted(&work);
        assert_eq!(seen, if mode == Mode::All { made } else { 0 }, "{mode:?}");
    });
}

/// Runs `work`, which makes one futex call, and asserts that the hook saw it exactly if the mode is
/// on.
pub fn once<R>(mode: Mode, work: impl FnOnce() -> R) -> R {
    let (result, seen) = counted(work);
    assert_eq!(seen, usize::from(mode == Mode::All), "{mode:?}");
    result
}

pub fn errno() -> i32 {
    // SAFETY: `errno` belongs to this thread.
    unsafe { *libc::__errno_location() }
}

pub fn set_errno(errno: i32) {
    // SAFETY: `errno` belongs to this thread.
    unsafe { *libc::__errno_location() = errno }
}

/// The value of `errno` before each call of [`call`]. No error of the kernel has this number.
pub const UNTOUCHED: i32 = 12_345;

/// Makes a call through `syscall` with all arguments in full width. Asserts that `errno` is
/// unchanged unless the result is -1.
///
/// # Safety
/// The arguments meet the requirements of the system call.
pub unsafe fn call(number: usize, arguments: [usize; 6]) -> Result<usize, i32> {
    let [a, b, c, d, e, f] = arguments;
    set_errno(UNTOUCHED);
    // SAFETY: the contract of this function makes the arguments valid for the system call.
    let result = unsafe { libc::syscall(number as libc::c_long, a, b, c, d, e, f) };
    let errno = errno();
    if result == -1 {
        assert_ne!(errno, UNTOUCHED, "an error has a number");
        Err(errno)
    } else {
        assert_eq!(errno, UNTOUCHED, "successful calls preserve errno");
        Ok(result as usize)
    }
}

pub const FUTEX: usize = libc::SYS_futex as usize;
pub const PRIVATE: i32 = libc::FUTEX_PRIVATE_FLAG;

/// The fourth argument of a futex call.
#[derive(Clone, Copy)]
pub enum Fourth<'a> {
    Number(u32),
    Timeout(&'a libc::timespec),
    None,
}

/// Makes a futex call through `syscall`.
pub fn futex(
    word: &AtomicU32,
    operation: i32,
    value: u32,
    fourth: Fourth<'_>,
    second: Option<&AtomicU32>,
    third_value: u32,
) -> Result<usize, i32> {
    let fourth = match fourth {
        Fourth::Number(number) => number as usize,
        Fourth::Timeout(timeout) => ptr::from_ref(timeout) as usize,
        Fourth::None => 0,
    };
    let second = second.map_or(0, |word| ptr::from_ref(word) as usize);
    // SAFETY: the borrowed words and timeout outlive the call; the kernel changes words atomically.
    unsafe {
        call(
            FUTEX,
            [
                word.as_ptr() as usize,
                operation as usize,
                value as usize,
                fourth,
                second,
                third_value as usize,
            ],
        )
    }
}

pub fn wait(word: &AtomicU32, value: u32) -> Result<usize, i32> {
    let operation = libc::FUTEX_WAIT | PRIVATE;
    futex(word, operation, value, Fourth::None, None, 0)
}

pub fn wake(word: &AtomicU32, most: u32) -> Result<usize, i32> {
    let operation = libc::FUTEX_WAKE | PRIVATE;
    futex(word, operation, most, Fourth::None, None, 0)
}

/// Returns the number of threads that wait for the word: a requeue from the word to itself counts
/// them.
pub fn waiting(word: &AtomicU32, scope: i32) -> usize {
    let address = word.as_ptr() as usize;
    // SAFETY: the requeue writes nothing and leaves the waiters on the same word.
    let moved = unsafe {
        direct(
            FUTEX,
            [
                address,
                (libc::FUTEX_REQUEUE | scope) as usize,
                0,
                i32::MAX as usize,
                address,
                0,
            ],
        )
    };
    usize::try_from(moved).expect("the waiters of a word can be counted")
}

pub fn until_waiting(word: &AtomicU32, scope: i32, threads: usize) {
    until("threads wait", || waiting(word, scope) == threads);
}

/// Waits until `is_so` returns true; panics after 60 seconds.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "until {what}");
        std::thread::yield_now();
    }
}

/// Returns this thread's id.
pub fn thread_number() -> i32 {
    // SAFETY: `gettid` takes no arguments.
    unsafe { libc::gettid() }
}

/// Waits until this thread of the process sleeps.
pub fn until_asleep(thread: i32) {
    let path = format!("/proc/self/task/{thread}/stat");
    until("it sleeps", || {
        let stat = std::fs::read_to_string(&path).expect("the thread is there");
        let (_, after_name) = stat.rsplit_once(')').expect("the name is in brackets");
        after_name.trim_start().starts_with('S')
    });
}

/// A signal handler that is removed on drop.
pub struct Handled {
    signal: c_int,
    before: libc::sigaction,
}

pub type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

pub fn handle(signal: c_int, handler: Handler, flags: c_int) -> Handled {
    // SAFETY: an all-zero action is valid, without flags and with an empty mask.
    let (mut action, mut before): (libc::sigaction, libc::sigaction) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | flags;
    // SAFETY: the handlers of these tests call only async-signal-safe functions.
    let done = unsafe { libc::sigaction(signal, &action, &mut before) };
    assert_eq!(done, 0);
    Handled { signal, before }
}

impl Drop for Handled {
    fn drop(&mut self) {
        // SAFETY: restores the action that `sigaction` returned.
        unsafe { libc::sigaction(self.signal, &self.before, ptr::null_mut()) };
    }
}

/// Sends a signal to a thread of this process.
pub fn signal(thread: i32, signal: c_int) {
    // SAFETY: each test installs a handler before it sends the signal.
    let sent = unsafe {
        direct(
            libc::SYS_tgkill as usize,
            [
                std::process::id() as usize,
                thread as usize,
                signal as usize,
                0,
                0,
                0,
            ],
        )
    };
    assert_eq!(sent, 0);
}
