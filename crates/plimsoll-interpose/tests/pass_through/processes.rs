//! Child processes, and calls before `main`.

use std::arch::global_asm;
use std::ffi::c_void;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use plimsoll_interpose::Mode;

use super::harness::{
    Fourth, PRIVATE, arch, call, count, for_each_mode, futex, once, set_hook, until, until_waiting,
    wait, waiting, wake,
};

/// The exit code of a child that found no error.
const FINE: i32 = 7;

/// Ends this process without running exit handlers.
fn exit(code: i32) -> ! {
    // SAFETY: `_exit` runs no handlers of the parent.
    unsafe { libc::_exit(code) }
}

/// Returns the exit code of the child.
fn outcome(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: the status is a local variable.
    let ended = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(ended, child);
    assert!(libc::WIFEXITED(status), "{status:#x}");
    libc::WEXITSTATUS(status)
}

/// Forks a child that runs `work` and exits. `work` must not allocate or lock: other threads of the
/// parent may hold any lock.
fn fork(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: `work` follows the rule above, so it needs no state of other threads.
    match unsafe { libc::fork() } {
        0 => exit(work()),
        child => {
            assert_ne!(child, -1);
            child
        }
    }
}

/// Maps memory that children share.
fn shared<T>() -> &'static T {
    // SAFETY: the mapping is new and zeroed, and zeros are valid for the types used here; it is
    // never unmapped.
    unsafe {
        let memory = libc::mmap(
            ptr::null_mut(),
            size_of::<T>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(memory, libc::MAP_FAILED);
        &*memory.cast()
    }
}

#[test]
fn processes_wait_for_each_other_over_shared_memory() {
    const ROUNDS: u32 = 200;
    /// Waits until the word has this value.
    fn until_it_is(word: &AtomicU32, value: u32) {
        loop {
            let current = word.load(Ordering::Acquire);
            if current == value {
                return;
            }
            let waited = futex(word, libc::FUTEX_WAIT, current, Fourth::None, None, 0);
            assert!(matches!(
                waited,
                Ok(0) | Err(libc::EAGAIN) | Err(libc::EINTR)
            ));
        }
    }
    fn set(word: &AtomicU32, value: u32) {
        word.store(value, Ordering::Release);
        let woken = futex(word, libc::FUTEX_WAKE, 1, Fourth::None, None, 0);
        assert!(matches!(woken, Ok(0 | 1)));
    }

    for_each_mode(|mode| {
        let [parents, childs]: &[AtomicU32; 2] = shared();
        let child = fork(|| {
            let before = count();
            for round in 1..=ROUNDS {
                until_it_is(parents, round);
                set(childs, round);
            }
            let seen = count() - before;
            let right = if mode == Mode::All {
                seen >= ROUNDS as usize
            } else {
                seen == 0
            };
            if right { FINE } else { 1 }
        });
        // The child certainly waits in the first round.
        until_waiting(parents, 0, 1);
        for round in 1..=ROUNDS {
            set(parents, round);
            until_it_is(childs, round);
        }
        assert_eq!(outcome(child), FINE);
    });
}

#[test]
fn a_child_made_by_clone_through_this_crate_runs_on() {
    for_each_mode(|mode| {
        let word = AtomicU32::new(0);
        let arguments = [libc::SIGCHLD as usize, 0, 0, 0, 0, 0];
        // SAFETY: the flags make this a fork; the child calls only async-signal-safe functions.
        let child =
            unsafe { call(libc::SYS_clone as usize, arguments) }.expect("a process can be created");
        if child == 0 {
            let before = count();
            let woken = wake(&word, 1);
            let seen = count() - before == usize::from(mode == Mode::All);
            exit(if woken == Ok(0) && seen { FINE } else { 1 });
        }
        let child = i32::try_from(child).expect("a process's number");
        assert_eq!(outcome(child), FINE);
    });
}

// A caller of `syscall` whose child shares the parent's memory. The child must not call anything,
// because its stack writes would overwrite the parent's return address.
global_asm!(
    r#"
    .text
    .globl plimsoll_test_vfork
    .hidden plimsoll_test_vfork
    .type plimsoll_test_vfork, %function
plimsoll_test_vfork:
    "#,
    arch::vfork!(),
    r#"
    .globl plimsoll_test_child
    .hidden plimsoll_test_child
    .type plimsoll_test_child, %function
plimsoll_test_child:
    "#,
    arch::child!(),
    fine = const FINE,
    exit_group = const libc::SYS_exit_group,
);

unsafe extern "C" {
    fn plimsoll_test_vfork(number: usize, first: usize, second: usize) -> isize;
    fn plimsoll_test_child();
}

#[test]
fn vfork_through_this_crate_returns_twice() {
    for_each_mode(|_| {
        let shares = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let vfork = arch::VFORK.map(|number| (number, 0));
        for (number, flags) in vfork.into_iter().chain([(libc::SYS_clone, shares)]) {
            // SAFETY: the child exits without writing to the stack.
            let child = unsafe { plimsoll_test_vfork(number as usize, flags as usize, 0) };
            assert_eq!(outcome(i32::try_from(child).expect("a number")), FINE);
        }
    });
}

/// The child returns through its own stack, to which `syscall` writes nothing, or through a register.
#[test]
fn a_child_with_a_stack_of_its_own_returns_onto_it() {
    #[repr(align(16))]
    struct Stack([usize; 64]);

    for_each_mode(|_| {
        let Stack(mut stack) = Stack([0; 64]);
        let top = stack.len() - 2;
        stack[top] = plimsoll_test_child as *const () as usize;
        let expected = stack;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let start = &raw mut stack[top];
        // SAFETY: this thread waits until the child that uses the stack has exited.
        let child = unsafe {
            plimsoll_test_vfork(libc::SYS_clone as usize, flags as usize, start as usize)
        };
        assert_eq!(outcome(i32::try_from(child).expect("a number")), FINE);
        assert_eq!(stack, expected);
    });
}

#[test]
fn forks_leave_waiters_alone() {
    for_each_mode(|mode| {
        let word: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
        let waiters = [(); 3].map(|()| std::thread::spawn(move || once(mode, || wait(word, 0))));
        until_waiting(word, PRIVATE, 3);
        for _ in 0..50 {
            let child = fork(|| {
                // The waiting threads do not exist in the child.
                let before = count();
                let woken = wake(word, 10);
                let refused = wait(word, 1);
                let seen = count() - before == if mode == Mode::All { 2 } else { 0 };
                let right = woken == Ok(0) && refused == Err(libc::EAGAIN) && seen;
                if right { FINE } else { 1 }
            });
            assert_eq!(outcome(child), FINE);
        }
        assert_eq!(waiting(word, PRIVATE), 3);
        assert_eq!(once(mode, || wake(word, 10)), Ok(3));
        for waiter in waiters {
            assert_eq!(waiter.join().expect("its call is seen"), Ok(0));
        }
    });
}

#[test]
fn programs_start_while_threads_contend() {
    for_each_mode(|mode| {
        let lock = Arc::new(Mutex::new(0_u64));
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(AtomicUsize::new(0));
        let threads = [(); 3].map(|()| {
            let (lock, stop, seen) = (Arc::clone(&lock), Arc::clone(&stop), Arc::clone(&seen));
            std::thread::spawn(move || {
                let mut turns = 0;
                while !stop.load(Ordering::Relaxed) {
                    let mut total = lock.lock().expect("no holder panics");
                    *total += 1;
                    turns += 1;
                    // Lets another thread find the lock held.
                    std::thread::yield_now();
                    seen.fetch_max(count(), Ordering::Relaxed);
                }
                turns
            })
        });
        for direct in [true, false].into_iter().cycle().take(10) {
            let mut command = Command::new(std::env::current_exe().expect("Linux knows it"));
            command.arg("--list");
            if !direct {
                // SAFETY: the closure does nothing; its presence makes the standard library use
                // `fork`.
                unsafe { command.pre_exec(|| Ok(())) };
            }
            let output = command.output().expect("it starts");
            assert!(output.status.success(), "{output:?}");
            let listed = String::from_utf8(output.stdout).expect("text");
            assert!(listed.contains("programs_start_while_threads_contend"));
        }
        until("they are seen", || {
            mode == Mode::Off || seen.load(Ordering::Relaxed) != 0
        });
        stop.store(true, Ordering::Relaxed);
        let turns: u64 = threads
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"))
            .sum();
        assert_eq!(*lock.lock().expect("no holder panics"), turns);
    });
}

/// A thread that waits since before `main`.
struct Early {
    word: AtomicU32,
    thread: AtomicUsize,
    seen: AtomicUsize,
    result: AtomicUsize,
}

impl Early {
    const fn new() -> Self {
        Self {
            word: AtomicU32::new(0),
            thread: AtomicUsize::new(0),
            seen: AtomicUsize::new(0),
            result: AtomicUsize::new(usize::MAX),
        }
    }

    fn start(&'static self) {
        extern "C" fn waits(early: *mut c_void) -> *mut c_void {
            // SAFETY: `start` passes a pointer to a static `Early`.
            let early = unsafe { &*early.cast::<Early>() };
            let result = wait(&early.word, 0);
            early.seen.store(count(), Ordering::Relaxed);
            early
                .result
                .store(result.unwrap_or(usize::MAX), Ordering::Relaxed);
            ptr::null_mut()
        }

        // SAFETY: zero is a value of this type, a number or a pointer.
        let mut thread: libc::pthread_t = unsafe { std::mem::zeroed() };
        let this = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the thread's argument is never freed.
        unsafe { libc::pthread_create(&mut thread, ptr::null(), waits, this) };
        self.thread.store(thread as usize, Ordering::Relaxed);
        until_waiting(&self.word, PRIVATE, 1);
    }

    /// Wakes the thread. Returns the result of its wait and the number of its calls that the hook
    /// saw.
    fn end(&self) -> (usize, usize) {
        assert_eq!(wake(&self.word, 1), Ok(1));
        let thread = self.thread.load(Ordering::Relaxed) as libc::pthread_t;
        // SAFETY: the thread is joined once.
        assert_eq!(unsafe { libc::pthread_join(thread, ptr::null_mut()) }, 0);
        (
            self.result.load(Ordering::Relaxed),
            self.seen.load(Ordering::Relaxed),
        )
    }
}

static EARLY_UNSEEN: Early = Early::new();
static EARLY_SEEN: Early = Early::new();

extern "C" fn before_main() {
    EARLY_UNSEEN.start();
    set_hook();
    plimsoll_interpose::set_mode(Mode::All);
    EARLY_SEEN.start();
    plimsoll_interpose::set_mode(Mode::Off);
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

#[test]
fn threads_started_before_main_wait_like_any_other() {
    assert_eq!(EARLY_UNSEEN.end(), (0, 0));
    assert_eq!(EARLY_SEEN.end(), (0, 1));
}
