//! Signals and cancellation during a wait.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc;

use plimsoll_interpose::Mode;

use super::harness::{
    Fourth, PRIVATE, count, counted, errno, for_each_mode, futex, handle, set_errno, signal,
    thread_number, until, until_waiting, wait, wake,
};

extern "C" fn nothing(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {}

/// Starts a thread that waits in `call`; returns it with its id.
fn waiter<R: Send + 'static>(
    word: &AtomicU32,
    call: impl FnOnce() -> R + Send + 'static,
) -> (std::thread::JoinHandle<(R, usize)>, i32) {
    let (number, thread_numbers) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        number.send(thread_number()).expect("the receiver exists");
        counted(call)
    });
    let number = thread_numbers.recv().expect("the thread sends its number");
    until_waiting(word, PRIVATE, 1);
    (thread, number)
}

fn leaked(value: u32) -> &'static AtomicU32 {
    Box::leak(Box::new(AtomicU32::new(value)))
}

#[test]
fn a_handler_that_does_not_restart_ends_the_wait() {
    for_each_mode(|mode| {
        let _handled = handle(libc::SIGUSR1, nothing, 0);
        let word = leaked(0);
        let (thread, number) = waiter(word, || wait(word, 0));
        signal(number, libc::SIGUSR1);
        let (result, seen) = thread.join().expect("does not panic");
        assert_eq!(result, Err(libc::EINTR));
        assert_eq!(seen, usize::from(mode == Mode::All));
    });
}

/// The kernel moves the instruction pointer back to the system call, which must find its registers
/// unchanged.
#[test]
fn a_handler_that_restarts_leaves_the_wait_waiting() {
    static HANDLED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn handled(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }

    for_each_mode(|mode| {
        let _handled = handle(libc::SIGUSR1, handled, libc::SA_RESTART);
        let word = leaked(0);
        let bits = 1 << 9;
        let (thread, number) = waiter(word, move || {
            let operation = libc::FUTEX_WAIT_BITSET | PRIVATE;
            futex(word, operation, 0, Fourth::None, None, bits)
        });
        let before = HANDLED.load(Ordering::Relaxed);
        signal(number, libc::SIGUSR1);
        until("it is handled", || {
            HANDLED.load(Ordering::Relaxed) != before
        });
        until_waiting(word, PRIVATE, 1);
        let operation = libc::FUTEX_WAKE_BITSET | PRIVATE;
        assert_eq!(
            futex(word, operation, 1, Fourth::None, None, !bits),
            Ok(0),
            "the last argument is as it was"
        );
        assert_eq!(futex(word, operation, 1, Fourth::None, None, bits), Ok(1));
        let (result, seen) = thread.join().expect("does not panic");
        assert_eq!(result, Ok(0));
        assert_eq!(seen, usize::from(mode == Mode::All));
    });
}

/// The handler interrupts a wait of the hook and enters the hook again. A second signal interrupts
/// that wait.
#[test]
fn the_hook_can_be_entered_from_a_handler_that_interrupts_it() {
    static WORDS: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];
    static DEPTH: AtomicUsize = AtomicUsize::new(0);
    static ERRORS: [AtomicI32; 3] = [const { AtomicI32::new(0) }; 3];

    extern "C" fn waits(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
        let before = errno();
        let depth = DEPTH.fetch_add(1, Ordering::Relaxed) + 1;
        if let Err(error) = wait(&WORDS[depth], 0) {
            ERRORS[depth].store(error, Ordering::Relaxed);
        }
        set_errno(before);
    }

    for_each_mode(|mode| {
        let _handled = handle(libc::SIGUSR1, waits, libc::SA_NODEFER);
        DEPTH.store(0, Ordering::Relaxed);
        let (thread, number) = waiter(&WORDS[0], || wait(&WORDS[0], 0));
        signal(number, libc::SIGUSR1);
        until_waiting(&WORDS[1], PRIVATE, 1);
        signal(number, libc::SIGUSR1);
        until_waiting(&WORDS[2], PRIVATE, 1);
        assert_eq!(wake(&WORDS[2], 1), Ok(1));
        let (result, seen) = thread.join().expect("does not panic");
        assert_eq!(result, Err(libc::EINTR));
        let errors = ERRORS.each_ref().map(|error| error.load(Ordering::Relaxed));
        assert_eq!(errors, [0, libc::EINTR, 0]);
        assert_eq!(seen, if mode == Mode::All { 3 } else { 0 });
    });
}

/// The same as [`the_hook_can_be_entered_from_a_handler_that_interrupts_it`], with the handler on
/// an alternate stack.
#[test]
fn the_hook_can_be_entered_on_an_alternate_stack() {
    const SIZE: usize = 64 << 10;
    static WORD: AtomicU32 = AtomicU32::new(0);
    static ON_IT: AtomicBool = AtomicBool::new(false);

    extern "C" fn wakes(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
        // SAFETY: an all-zero `stack_t` is valid; the call only reads the current stack.
        let flags = unsafe {
            let mut stack: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(ptr::null(), &mut stack);
            stack.ss_flags
        };
        ON_IT.store(flags & libc::SS_ONSTACK != 0, Ordering::Relaxed);
        let before = errno();
        let woken = wake(&WORD, 1);
        assert_eq!(woken, Ok(0));
        set_errno(before);
    }

    for_each_mode(|mode| {
        let _handled = handle(libc::SIGUSR1, wakes, libc::SA_ONSTACK);
        let word = leaked(0);
        let (thread, number) = waiter(word, || {
            let mut room = vec![0_u8; SIZE];
            let on = libc::stack_t {
                ss_sp: room.as_mut_ptr().cast(),
                ss_flags: 0,
                ss_size: SIZE,
            };
            // SAFETY: an all-zero `stack_t` is valid; the previous stack is restored before the
            // memory is freed.
            unsafe {
                let mut before: libc::stack_t = std::mem::zeroed();
                assert_eq!(libc::sigaltstack(&on, &mut before), 0);
                let result = wait(word, 0);
                assert_eq!(libc::sigaltstack(&before, ptr::null_mut()), 0);
                result
            }
        });
        signal(number, libc::SIGUSR1);
        let (result, seen) = thread.join().expect("does not panic");
        assert_eq!(result, Err(libc::EINTR));
        assert!(ON_IT.swap(false, Ordering::Relaxed));
        assert_eq!(seen, if mode == Mode::All { 2 } else { 0 });
    });
}

unsafe extern "C" {
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

/// Cancellation unwinds from the interrupted instruction through the hook and this crate.
#[test]
fn a_thread_that_waits_can_be_cancelled() {
    const PTHREAD_CANCEL_ASYNCHRONOUS: c_int = 1;
    const PTHREAD_CANCELED: usize = usize::MAX;
    /// The number of calls that the hook saw of the last cancelled thread.
    static SEEN: AtomicUsize = AtomicUsize::new(0);

    #[repr(C)]
    struct Given {
        word: *mut u32,
        key: libc::pthread_key_t,
    }

    extern "C" fn in_its_last_moments(_: *mut c_void) {
        SEEN.store(count(), Ordering::Relaxed);
    }

    // This function must have nothing to drop and must not panic: a foreign exception that meets a
    // Rust frame with cleanup aborts the process.
    extern "C" fn waits(given: *mut c_void) -> *mut c_void {
        let given = given as *const Given;
        // SAFETY: `given` outlives the thread, which is joined below.
        unsafe {
            libc::pthread_setspecific((*given).key, given as *const c_void);
            pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, ptr::null_mut());
            libc::syscall(
                libc::SYS_futex,
                (*given).word,
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                0,
                0_usize,
            );
        }
        ptr::null_mut()
    }

    for_each_mode(|mode| {
        let word = AtomicU32::new(0);
        let mut given = Given {
            word: word.as_ptr(),
            key: 0,
        };
        // SAFETY: zero is a value of this type, a number or a pointer.
        let mut thread: libc::pthread_t = unsafe { std::mem::zeroed() };
        let mut result = ptr::null_mut();
        SEEN.store(usize::MAX, Ordering::Relaxed);
        // SAFETY: the thread is joined before `given` and `word` are dropped.
        unsafe {
            let key = libc::pthread_key_create(&mut given.key, Some(in_its_last_moments));
            assert_eq!(key, 0);
            let given = (&raw mut given).cast();
            let started = libc::pthread_create(&mut thread, ptr::null(), waits, given);
            assert_eq!(started, 0);
            until_waiting(&word, PRIVATE, 1);
            assert_eq!(libc::pthread_cancel(thread), 0);
            assert_eq!(libc::pthread_join(thread, &mut result), 0);
        }
        // SAFETY: the only thread that used the key has ended.
        unsafe { libc::pthread_key_delete(given.key) };
        assert_eq!(result as usize, PTHREAD_CANCELED);
        let seen = SEEN.load(Ordering::Relaxed);
        assert_eq!(seen, usize::from(mode == Mode::All));
    });
}
