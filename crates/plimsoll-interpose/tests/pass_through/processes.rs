//! Other processes, and what is there before `main`.

use std::arch::global_asm;
use std::ffi::c_void;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use plimsoll_interpose::Mode;

use super::harness::{
    Fourth, PRIVATE, call, count, for_each_mode, futex, once, set_hook, until, until_waiting, wait,
    waiting, wake,
};

/// What a child that has found nothing wrong exits with.
const FINE: i32 = 7;

/// Ends this process at once.
fn exit(code: i32) -> ! {
    // SAFETY: runs nothing of the parent's that was copied.
    unsafe { libc::_exit(code) }
}

/// What the child exited with.
fn outcome(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: the status is this function's.
    let ended = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(ended, child);
    assert!(libc::WIFEXITED(status), "{status:#x}");
    libc::WEXITSTATUS(status)
}

/// A child that does this, and exits. It allocates nothing and locks nothing: other threads may
/// have been anywhere.
fn fork(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: as above.
    match unsafe { libc::fork() } {
        0 => exit(work()),
        child => {
            assert_ne!(child, -1);
            child
        }
    }
}

/// Memory that children share.
fn shared<T>() -> &'static T {
    // SAFETY: new memory, of zeros, which the types that are asked for here may be; it is never
    // given back.
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
    /// Waits until the word has that value.
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
        // At first it certainly waits.
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
        // SAFETY: as a fork; the child does what may be done then.
        let child = unsafe { call(libc::SYS_clone as usize, arguments) }.expect("there is room");
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

// Callers of `syscall` whose child shares the parent's memory: it may not call anything, since
// what it wrote to the stack would be the parent's return address.
global_asm!(
    r#"
    .text
    .globl plimsoll_test_vfork
    .hidden plimsoll_test_vfork
    .type plimsoll_test_vfork, @function
plimsoll_test_vfork:
    .cfi_startproc
    sub rsp, 8
    .cfi_adjust_cfa_offset 8
    call syscall@PLT
    test rax, rax
    jz 2f
    add rsp, 8
    .cfi_adjust_cfa_offset -8
    ret
2:
    .cfi_endproc
    .globl plimsoll_test_child
    .hidden plimsoll_test_child
    .type plimsoll_test_child, @function
plimsoll_test_child:
    mov edi, {fine}
    mov eax, {exit_group}
    syscall
    ud2
    "#,
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
        for (number, flags) in [(libc::SYS_vfork, 0), (libc::SYS_clone, shares)] {
            // SAFETY: the child exits without touching the stack.
            let child = unsafe { plimsoll_test_vfork(number as usize, flags as usize, 0) };
            assert_eq!(outcome(i32::try_from(child).expect("a number")), FINE);
        }
    });
}

/// It finds its way on the stack that it is given, and nothing is written to that.
#[test]
fn a_child_with_a_stack_of_its_own_returns_onto_it() {
    for_each_mode(|_| {
        let mut stack = [0_usize; 64];
        let top = stack.len() - 2;
        stack[top] = plimsoll_test_child as *const () as usize;
        let expected = stack;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let start = &raw mut stack[top];
        // SAFETY: this thread waits until the child, which has that stack, has exited.
        let child = unsafe {
            plimsoll_test_vfork(libc::SYS_clone as usize, flags as usize, start as usize)
        };
        assert_eq!(outcome(i32::try_from(child).expect("a number")), FINE);
        assert_eq!(stack, expected);
    });
}

#[test]
fn forks_leave_alone_who_waits() {
    for_each_mode(|mode| {
        let word: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
        let waiters = [(); 3].map(|()| std::thread::spawn(move || once(mode, || wait(word, 0))));
        until_waiting(word, PRIVATE, 3);
        for _ in 0..50 {
            let child = fork(|| {
                // Those who wait are not in the child.
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
                    let mut total = lock.lock().expect("nobody panics");
                    *total += 1;
                    turns += 1;
                    // Somebody else finds it locked.
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
                // SAFETY: does nothing; but with it, the child is made by fork.
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
            .map(|thread| thread.join().expect("nobody panics"))
            .sum();
        assert_eq!(*lock.lock().expect("nobody panics"), turns);
    });
}

/// A thread that waits from before `main` on.
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
            // SAFETY: as it was passed below.
            let early = unsafe { &*early.cast::<Early>() };
            let result = wait(&early.word, 0);
            early.seen.store(count(), Ordering::Relaxed);
            early
                .result
                .store(result.unwrap_or(usize::MAX), Ordering::Relaxed);
            ptr::null_mut()
        }

        let mut thread: libc::pthread_t = 0;
        let this = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: what the thread is given is never freed.
        unsafe { libc::pthread_create(&mut thread, ptr::null(), waits, this) };
        self.thread.store(thread as usize, Ordering::Relaxed);
        until_waiting(&self.word, PRIVATE, 1);
    }

    /// Wakes it; what its wait returned, and how many calls the hook has seen of it.
    fn end(&self) -> (usize, usize) {
        assert_eq!(wake(&self.word, 1), Ok(1));
        let thread = self.thread.load(Ordering::Relaxed) as libc::pthread_t;
        // SAFETY: it is joined once.
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
