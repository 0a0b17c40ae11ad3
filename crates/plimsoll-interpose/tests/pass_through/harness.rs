//! A hook that counts and forwards, to the kernel or to the hook that was there before; turns for
//! the mode, and ways to know that a thread waits.

use std::arch::{asm, global_asm};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_interpose::{Call, Mode};

// In assembly for two reasons: the stack pointer that it is entered with is told, and there is no
// personality in the way of a cancellation that unwinds through it while it waits.
global_asm!(
    r#"
    .text
    .globl plimsoll_test_hook
    .hidden plimsoll_test_hook
    .type plimsoll_test_hook, @function
plimsoll_test_hook:
    .cfi_startproc
    mov rsi, rsp
    push rbx
    .cfi_adjust_cfa_offset 8
    .cfi_offset rbx, -16
    sub rsp, 16
    .cfi_adjust_cfa_offset 16
    mov rbx, rdi
    mov rdx, rsp
    call {note}
    test al, al
    mov rax, [rsp]
    jnz 2f
    mov rdi, rbx
    mov rax, [rip + {before}]
    test rax, rax
    jz 1f
    call rax
    jmp 2f
1:
    mov rax, [rbx]
    mov rdi, [rbx + 8]
    mov rsi, [rbx + 16]
    mov rdx, [rbx + 24]
    mov r10, [rbx + 32]
    mov r8, [rbx + 40]
    mov r9, [rbx + 48]
    syscall
2:
    add rsp, 16
    .cfi_adjust_cfa_offset -16
    pop rbx
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc
    .size plimsoll_test_hook, . - plimsoll_test_hook
    "#,
    note = sym note,
    before = sym BEFORE,
);

/// The hook that was there before.
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

/// How many calls of this thread the hook has seen.
pub fn count() -> usize {
    COUNT.get()
}

pub fn last() -> Seen {
    LAST.get().expect("the hook has seen a call of this thread")
}

/// Has the hook return this to the next call of this thread, without asking the kernel.
pub fn answer_next(answer: isize) {
    ANSWER.set(Some(answer));
}

/// Has the hook call this in the next call of this thread.
pub fn inspect_next(inspect: extern "C" fn()) {
    INSPECT.set(Some(inspect));
}

/// What `work` returns, and how many calls of this thread the hook saw meanwhile.
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

/// Runs `work` in that mode, and no other test meanwhile.
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

/// Runs `work` with the hook out of the way, then with it.
pub fn for_each_mode(work: impl Fn(Mode)) {
    for mode in [Mode::Off, Mode::All] {
        in_mode(mode, || work(mode));
    }
}

/// As [`for_each_mode`]; holds that the hook saw as many calls of this thread as `work` says that
/// there were.
pub fn in_each_mode(work: impl Fn() -> usize) {
    for_each_mode(|mode| {
        let (made, seen) = counted(&work);
        assert_eq!(seen, if mode == Mode::All { made } else { 0 }, "{mode:?}");
    });
}

/// Does what makes one futex call, and holds that the hook saw it if it was to.
pub fn once<R>(mode: Mode, work: impl FnOnce() -> R) -> R {
    let (result, seen) = counted(work);
    assert_eq!(seen, usize::from(mode == Mode::All), "{mode:?}");
    result
}

/// The kernel's own answer, without any function between.
///
/// # Safety
/// As the system call.
pub unsafe fn direct(number: usize, arguments: [usize; 6]) -> isize {
    let result;
    // SAFETY: the caller's business.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

pub fn errno() -> i32 {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() }
}

pub fn set_errno(errno: i32) {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = errno }
}

/// What `errno` is before each call of [`call`]: no error of the kernel's.
pub const UNTOUCHED: i32 = 12_345;

/// A call through `syscall`, all arguments in full width. `errno` is held to be untouched unless
/// the result is -1.
///
/// # Safety
/// As the system call.
pub unsafe fn call(number: usize, arguments: [usize; 6]) -> Result<usize, i32> {
    let [a, b, c, d, e, f] = arguments;
    set_errno(UNTOUCHED);
    // SAFETY: the caller's business.
    let result = unsafe { libc::syscall(number as libc::c_long, a, b, c, d, e, f) };
    let errno = errno();
    if result == -1 {
        assert_ne!(errno, UNTOUCHED, "an error has a number");
        Err(errno)
    } else {
        assert_eq!(errno, UNTOUCHED, "errno is left alone by what succeeds");
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

/// A futex call through `syscall`.
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
    // SAFETY: what is pointed to outlives the call; the kernel changes words atomically.
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

/// How many threads wait for the word: as many as can be moved from it to itself.
pub fn waiting(word: &AtomicU32, scope: i32) -> usize {
    let address = word.as_ptr() as usize;
    // SAFETY: nothing is written; those who wait stay where they are.
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
    usize::try_from(moved).expect("a word can be asked for who waits")
}

pub fn until_waiting(word: &AtomicU32, scope: i32, threads: usize) {
    until("threads wait", || waiting(word, scope) == threads);
}

/// Fails, rather than hang, if that does not come about.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "until {what}");
        std::thread::yield_now();
    }
}

/// This thread's number.
pub fn thread_number() -> i32 {
    // SAFETY: has no arguments.
    unsafe { libc::gettid() }
}

/// Waits until that thread of this process sleeps.
pub fn until_asleep(thread: i32) {
    let path = format!("/proc/self/task/{thread}/stat");
    until("it sleeps", || {
        let stat = std::fs::read_to_string(&path).expect("the thread is there");
        let (_, after_name) = stat.rsplit_once(')').expect("the name is in brackets");
        after_name.trim_start().starts_with('S')
    });
}

/// A handler of a signal, until it is dropped.
pub struct Handled {
    signal: c_int,
    before: libc::sigaction,
}

pub type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

pub fn handle(signal: c_int, handler: Handler, flags: c_int) -> Handled {
    // SAFETY: of zeros, it has no flags and an empty mask.
    let (mut action, mut before): (libc::sigaction, libc::sigaction) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | flags;
    // SAFETY: the handlers of these tests call only what may be called in one.
    let done = unsafe { libc::sigaction(signal, &action, &mut before) };
    assert_eq!(done, 0);
    Handled { signal, before }
}

impl Drop for Handled {
    fn drop(&mut self) {
        // SAFETY: as it was before.
        unsafe { libc::sigaction(self.signal, &self.before, ptr::null_mut()) };
    }
}

/// Sends a signal to a thread of this process.
pub fn signal(thread: i32, signal: c_int) {
    // SAFETY: there is a handler.
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
