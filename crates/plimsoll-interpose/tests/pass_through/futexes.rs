//! Futex operations between threads.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use plimsoll_interpose::Mode;

use super::harness::{
    FUTEX, Fourth, PRIVATE, call, for_each_mode, futex, once, thread_number, until, until_waiting,
    wait, waiting, wake,
};

/// Allocates the words of a test. They are never freed: after a failure, a thread that was not
/// woken still uses them.
fn words<const N: usize>() -> [&'static AtomicU32; N] {
    std::array::from_fn(|_| &*Box::leak(Box::new(AtomicU32::new(0))))
}

/// Starts a thread that makes one futex call.
fn thread<R: Send + 'static>(
    mode: Mode,
    call: impl FnOnce() -> R + Send + 'static,
) -> JoinHandle<R> {
    std::thread::spawn(move || once(mode, call))
}

fn join<R>(thread: JoinHandle<R>) -> R {
    thread
        .join()
        .expect("its call is intercepted according to the mode")
}

#[test]
fn a_wake_ends_the_requested_number_of_waits() {
    for_each_mode(|mode| {
        let [word] = words();
        let waiters = [(); 3].map(|()| thread(mode, || wait(word, 0)));
        until_waiting(word, PRIVATE, 3);
        assert_eq!(once(mode, || wake(word, 2)), Ok(2));
        assert_eq!(waiting(word, PRIVATE), 1);
        assert_eq!(once(mode, || wake(word, u32::MAX >> 1)), Ok(1));
        for waiter in waiters {
            assert_eq!(join(waiter), Ok(0));
        }
    });
}

#[test]
fn bitsets_select_the_woken_waiters() {
    for_each_mode(|mode| {
        let [word] = words();
        let wait_for = move |bits| {
            let operation = libc::FUTEX_WAIT_BITSET | PRIVATE;
            futex(word, operation, 0, Fourth::None, None, bits)
        };
        let wake_those = |bits| {
            let operation = libc::FUTEX_WAKE_BITSET | PRIVATE;
            once(mode, || {
                futex(word, operation, 10, Fourth::None, None, bits)
            })
        };
        assert_eq!(once(mode, || wait_for(0)), Err(libc::EINVAL));

        let low = thread(mode, move || wait_for(0b01));
        let high = thread(mode, move || wait_for(1 << 31));
        until_waiting(word, PRIVATE, 2);
        assert_eq!(wake_those(0b10), Ok(0));
        assert_eq!(wake_those(1 << 31), Ok(1));
        assert_eq!(join(high), Ok(0));
        assert_eq!(wake_those(0b11), Ok(1));
        assert_eq!(join(low), Ok(0));
    });
}

#[test]
fn requeue_moves_the_waiters_that_are_not_woken() {
    for_each_mode(|mode| {
        let [from, to] = words();
        let waiters = [(); 3].map(|()| thread(mode, || wait(from, 0)));
        until_waiting(from, PRIVATE, 3);
        let operation = libc::FUTEX_REQUEUE | PRIVATE;
        let woken = once(mode, || {
            futex(from, operation, 1, Fourth::Number(1), Some(to), 0)
        });
        assert_eq!(woken, Ok(2), "one, and one that is moved");
        assert_eq!((waiting(from, PRIVATE), waiting(to, PRIVATE)), (1, 1));
        assert_eq!(once(mode, || wake(from, 1)), Ok(1));
        assert_eq!(once(mode, || wake(to, 1)), Ok(1));
        for waiter in waiters {
            assert_eq!(join(waiter), Ok(0));
        }
    });
}

#[test]
fn requeue_compares_with_the_seventh_argument() {
    for_each_mode(|mode| {
        let [from, to] = words();
        let waiters = [(); 2].map(|()| thread(mode, || wait(from, 0)));
        until_waiting(from, PRIVATE, 2);
        from.store(5, Ordering::Relaxed);
        let operation = libc::FUTEX_CMP_REQUEUE | PRIVATE;
        let requeue = |expected| {
            once(mode, || {
                futex(from, operation, 1, Fourth::Number(1), Some(to), expected)
            })
        };
        assert_eq!(requeue(4), Err(libc::EAGAIN));
        assert_eq!(waiting(from, PRIVATE), 2);
        assert_eq!(requeue(5), Ok(2), "woken and moved");
        assert_eq!((waiting(from, PRIVATE), waiting(to, PRIVATE)), (0, 1));
        assert_eq!(once(mode, || wake(to, 1)), Ok(1));
        for waiter in waiters {
            assert_eq!(join(waiter), Ok(0));
        }
    });
}

#[test]
fn wake_op_follows_the_seventh_argument() {
    for_each_mode(|mode| {
        let [first, second] = words();
        second.store(3, Ordering::Relaxed);
        let at_first = thread(mode, || wait(first, 0));
        let at_second = thread(mode, || wait(second, 3));
        until_waiting(first, PRIVATE, 1);
        until_waiting(second, PRIVATE, 1);
        // Adds 4 to the second word, and wakes its waiters if its old value was 3.
        let add_if_equal = ((libc::FUTEX_OP_ADD as u32) << 28)
            | ((libc::FUTEX_OP_CMP_EQ as u32) << 24)
            | (4 << 12)
            | 3;
        let operation = libc::FUTEX_WAKE_OP | PRIVATE;
        let wake_op = || {
            once(mode, || {
                futex(
                    first,
                    operation,
                    1,
                    Fourth::Number(1),
                    Some(second),
                    add_if_equal,
                )
            })
        };
        assert_eq!(wake_op(), Ok(2));
        assert_eq!(second.load(Ordering::Relaxed), 7);
        assert_eq!((join(at_first), join(at_second)), (Ok(0), Ok(0)));
        assert_eq!(wake_op(), Ok(0));
        assert_eq!(second.load(Ordering::Relaxed), 11);
    });
}

fn own(thread_number: i32) -> u32 {
    u32::try_from(thread_number).expect("positive")
}

#[test]
fn locks_with_priority_inheritance_change_hands() {
    let on = |word, operation: i32| futex(word, operation | PRIVATE, 0, Fourth::None, None, 0);
    for_each_mode(|mode| {
        let [word] = words();
        let here = own(thread_number());
        assert_eq!(once(mode, || on(word, libc::FUTEX_TRYLOCK_PI)), Ok(0));
        assert_eq!(word.load(Ordering::Relaxed), here);
        assert_eq!(
            once(mode, || on(word, libc::FUTEX_LOCK_PI)),
            Err(libc::EDEADLK)
        );
        let other = thread(mode, move || on(word, libc::FUTEX_TRYLOCK_PI));
        assert_eq!(join(other), Err(libc::EAGAIN));
        let other = thread(mode, move || on(word, libc::FUTEX_UNLOCK_PI));
        assert_eq!(join(other), Err(libc::EPERM));
        // The kernel has recorded a waiter that gave up.
        assert_eq!(once(mode, || on(word, libc::FUTEX_UNLOCK_PI)), Ok(0));
        assert_eq!(word.load(Ordering::Relaxed), 0);

        assert_eq!(once(mode, || on(word, libc::FUTEX_LOCK_PI)), Ok(0));
        let next = std::thread::spawn(move || {
            let locked = once(mode, || on(word, libc::FUTEX_LOCK_PI));
            let owner = word.load(Ordering::Relaxed) & libc::FUTEX_TID_MASK;
            let unlocked = once(mode, || on(word, libc::FUTEX_UNLOCK_PI));
            (locked, owner == own(thread_number()), unlocked)
        });
        until("it waits", || {
            word.load(Ordering::Relaxed) & libc::FUTEX_WAITERS != 0
        });
        assert_eq!(once(mode, || on(word, libc::FUTEX_UNLOCK_PI)), Ok(0));
        let outcome = next
            .join()
            .expect("its calls are intercepted according to the mode");
        assert_eq!(outcome, (Ok(0), true, Ok(0)));
        assert_eq!(word.load(Ordering::Relaxed), 0);
    });
}

/// A lock in the list that the kernel walks when a thread ends.
#[repr(C)]
struct Robust {
    /// The list's head and its only entry refer to each other.
    head: *const *const Robust,
    offset_of_word: usize,
    pending: usize,
    entry: *const Robust,
    word: AtomicU32,
}

#[test]
fn a_thread_that_dies_holding_a_robust_lock_is_reported() {
    for_each_mode(|mode| {
        let robust = Box::leak(Box::new(Robust {
            head: ptr::null(),
            offset_of_word: std::mem::offset_of!(Robust, word)
                - std::mem::offset_of!(Robust, entry),
            pending: 0,
            entry: ptr::null(),
            word: AtomicU32::new(0),
        }));
        robust.head = &raw const robust.entry;
        robust.entry = robust;
        let address = ptr::from_mut(robust) as usize;
        let word: &'static AtomicU32 = &robust.word;

        let (held, is_held) = std::sync::mpsc::channel();
        let (die, may_die) = std::sync::mpsc::channel();
        let holder = std::thread::spawn(move || {
            word.store(own(thread_number()), Ordering::Relaxed);
            let size = 3 * size_of::<usize>();
            // SAFETY: the list has the layout that the kernel expects, and is never freed.
            let set = unsafe {
                call(
                    libc::SYS_set_robust_list as usize,
                    [address, size, 0, 0, 0, 0],
                )
            };
            held.send(set).expect("the receiver exists");
            let () = may_die.recv().expect("the sender exists");
        });
        assert_eq!(is_held.recv().expect("the thread has begun"), Ok(0));
        let waiters = word.fetch_or(libc::FUTEX_WAITERS, Ordering::Relaxed) | libc::FUTEX_WAITERS;
        // Not private: the kernel wakes waiters for a dead thread's lock by a shared wake.
        let operation = libc::FUTEX_WAIT;
        let waiter = thread(mode, move || {
            futex(word, operation, waiters, Fourth::None, None, 0)
        });
        until_waiting(word, 0, 1);
        die.send(()).expect("the thread is there");
        assert_eq!(join(waiter), Ok(0));
        assert_ne!(word.load(Ordering::Relaxed) & libc::FUTEX_OWNER_DIED, 0);
        holder.join().expect("ends as it should");
    });
}

/// A call in progress when the mode changes is either unseen or seen until it returns.
#[test]
fn a_change_of_mode_leaves_calls_under_way_alone() {
    super::harness::in_mode(Mode::Off, || {
        let [before, after] = words();
        let unseen = thread(Mode::Off, || wait(before, 0));
        until_waiting(before, PRIVATE, 1);
        plimsoll_interpose::set_mode(Mode::All);
        let seen = thread(Mode::All, || wait(after, 0));
        until_waiting(after, PRIVATE, 1);
        assert_eq!(once(Mode::All, || wake(before, 1)), Ok(1));
        plimsoll_interpose::set_mode(Mode::Off);
        assert_eq!(once(Mode::Off, || wake(after, 1)), Ok(1));
        assert_eq!((join(unseen), join(seen)), (Ok(0), Ok(0)));
    });
}

/// Newer futex calls have separate numbers; `syscall` passes them to the kernel.
#[test]
fn other_futex_calls_pass() {
    const FUTEX_WAITV: usize = 449;
    super::harness::in_each_mode(|| {
        // SAFETY: the list of words is empty.
        let result = unsafe { call(FUTEX_WAITV, [0; 6]) };
        assert!(
            matches!(result, Err(libc::EINVAL | libc::ENOSYS)),
            "{result:?}"
        );
        assert_ne!(FUTEX, FUTEX_WAITV);
        0
    });
}
