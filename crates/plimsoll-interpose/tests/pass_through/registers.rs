//! The caller's registers as the hook receives them, their values after the call, and the unwinding
//! of the caller's stack.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use plimsoll_interpose::Mode;

use super::harness::arch::{PUSHED, RETURN_ADDRESS};
use super::harness::{
    FUTEX, PRIVATE, for_each_mode, in_mode, inspect_next, last, once, thread_number, until_waiting,
};
use super::known_caller::{Caller, FRAME_POINTER, Known, step, unwinds_to};

/// A system call's number and its arguments.
type Arguments = [usize; 7];

/// Returns the arguments of a wake without waiters.
fn wake(word: &AtomicU32) -> Arguments {
    let operation = (libc::FUTEX_WAKE | PRIVATE) as usize;
    [FUTEX, word.as_ptr() as usize, operation, 1, 0, 0, 0]
}

/// Returns the arguments of a wait that the kernel refuses.
fn refused(word: &AtomicU32) -> Arguments {
    let operation = (libc::FUTEX_WAIT | PRIVATE) as usize;
    let other = word.load(Ordering::Relaxed) as usize + 1;
    [FUTEX, word.as_ptr() as usize, operation, other, 0, 0, 0]
}

fn call(known: &mut Known, arguments: Arguments) -> isize {
    known.call(libc::syscall as *const (), &arguments)
}

#[test]
fn the_hook_receives_the_callers_registers() {
    in_mode(Mode::All, || {
        let word = AtomicU32::new(0);
        let mut known = Known::default();
        assert_eq!(once(Mode::All, || call(&mut known, wake(&word))), 0);
        let seen = last().call;
        assert_eq!(seen.return_address, known.return_address);
        assert_eq!(seen.stack_pointer, known.stack_pointer);
        assert_eq!(seen.frame_pointer, FRAME_POINTER);
        assert_eq!(seen.arguments, known.arguments[1..]);
    });
}

#[test]
fn the_caller_finds_its_registers_as_they_were() {
    for_each_mode(|mode| {
        let word = AtomicU32::new(0);
        for (arguments, result) in [(wake(&word), 0), (refused(&word), -1)] {
            // `Known::call` asserts the registers.
            let mut known = Known::default();
            assert_eq!(once(mode, || call(&mut known, arguments)), result);
        }
    });
}

#[test]
fn the_hook_is_entered_with_the_stack_aligned() {
    in_mode(Mode::All, || {
        let word = AtomicU32::new(0);
        assert_eq!(call(&mut Known::default(), wake(&word)), 0);
        assert_eq!((last().entry + PUSHED) % 16, 0);
    });
}

#[test]
fn the_hooks_stack_can_be_unwound_through_this_crate() {
    thread_local! {
        static FOUND: Cell<bool> = const { Cell::new(false) };
    }

    extern "C" fn inspect() {
        let seen = last().call;
        FOUND.set(unwinds_to(Caller {
            return_address: seen.return_address,
            stack_pointer: seen.stack_pointer,
        }));
    }

    in_mode(Mode::All, || {
        let word = AtomicU32::new(0);
        inspect_next(inspect);
        assert_eq!(call(&mut Known::default(), wake(&word)), 0);
        assert!(FOUND.get());
    });
}

/// A profiler, a debugger or a cancellation may interrupt any instruction.
#[test]
fn the_stack_can_be_unwound_from_each_instruction() {
    /// Returns the number of instructions of `syscall` that were executed.
    fn steps(arguments: Arguments) -> usize {
        step(libc::syscall as *const (), &arguments).1
    }

    for_each_mode(|mode| {
        let word = AtomicU32::new(0);
        let passed = steps(wake(&word));
        let failed = steps(refused(&word));
        // The path past the hook has at least eleven instructions; the path to the hook has more.
        assert!(
            passed >= if mode == Mode::Off { 11 } else { 20 },
            "{passed}"
        );
        assert!(failed > passed, "{failed}: sets errno");
    });
}

/// Of a blocked thread, another thread knows only the stack pointer and the instruction.
#[test]
fn the_return_address_of_a_blocked_thread_is_on_its_stack() {
    in_mode(Mode::Off, || {
        let word: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
        let (send, receive) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            send.send(thread_number()).expect("the receiver exists");
            let operation = (libc::FUTEX_WAIT | PRIVATE) as usize;
            let address = word.as_ptr() as usize;
            let mut known = Known::default();
            let result = call(&mut known, [FUTEX, address, operation, 0, 0, 0, 0]);
            (result, known.return_address)
        });
        let number = receive.recv().expect("the thread sends its number");
        until_waiting(word, PRIVATE, 1);
        // The number of the call, its arguments, the stack pointer, the instruction.
        let state = std::fs::read_to_string(format!("/proc/self/task/{number}/syscall"));
        let state = state.expect("this process may read it");
        let stack = state.split_whitespace().nth(7).expect("it is blocked");
        let stack = stack.strip_prefix("0x").expect("hexadecimal");
        let stack = usize::from_str_radix(stack, 16).expect("hexadecimal");
        // SAFETY: the thread does not leave its frames before it is woken.
        let found = unsafe { (stack as *const usize).add(RETURN_ADDRESS).read() };
        assert_eq!(super::harness::wake(word, 1), Ok(1));
        let (result, return_address) = thread.join().expect("does not panic");
        assert_eq!((result, found), (0, return_address));
    });
}
