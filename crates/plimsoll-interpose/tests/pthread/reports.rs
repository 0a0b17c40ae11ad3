//! Calls that the hooks report, and calls that they do not.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use plimsoll_interpose::pthread::{self, Function, Mode};

use super::harness::{Functions, Object, Seen, in_mode, seen};

#[test]
fn the_program_calls_this_crates_functions() {
    const { assert!(pthread::IN_FORCE) };
    assert!(pthread::is_linked());
    // Libraries that are loaded later also find these functions.
    for (name, address) in Functions::linked().addresses() {
        let symbol = std::ffi::CString::new(name).expect("a name");
        // SAFETY: `dlsym` only looks up a name.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) };
        assert_eq!(found as usize, address, "{name}");
    }
    for ((name, linked), (_, direct)) in Functions::linked()
        .addresses()
        .into_iter()
        .zip(Functions::direct().addresses())
    {
        assert_ne!(linked, direct, "{name}");
    }
}

#[test]
fn uncontended_calls_are_not_reported() {
    let Functions {
        lock,
        unlock,
        read,
        write,
        rw_unlock,
        signal,
        ..
    } = Functions::linked();
    let (mutex, rwlock, condition) = (Object::new(), Object::new(), Object::new());
    // SAFETY: each object is zeroed, a valid static initializer of its type.
    let all = || unsafe {
        assert_eq!(lock(mutex.at()), 0);
        assert_eq!(unlock(mutex.at()), 0);
        assert_eq!(read(rwlock.at()), 0);
        assert_eq!(rw_unlock(rwlock.at()), 0);
        assert_eq!(write(rwlock.at()), 0);
        assert_eq!(rw_unlock(rwlock.at()), 0);
        assert_eq!(signal(condition.at()), 0);
    };
    for mode in [Mode::Off, Mode::LockWaits] {
        let ((), seen) = in_mode(mode, true, || seen(all));
        assert_eq!(seen, [], "{mode:?}");
    }
    let ((), seen) = in_mode(Mode::All, false, || seen(all));
    let asked = [&mutex, &rwlock, &rwlock, &condition].map(|it| Seen::Asked(it.at() as usize));
    assert_eq!(seen, asked);
}

#[test]
fn a_release_with_waiters_is_reported() {
    let functions = Functions::linked();
    let mutex = Object::new();
    let address = mutex.at() as usize;
    let ((), seen) = in_mode(Mode::All, true, || {
        // SAFETY: the object is a mutex.
        seen(|| unsafe {
            assert_eq!((functions.lock)(mutex.at()), 0);
            assert_eq!((functions.unlock)(mutex.at()), 0);
        })
    });
    let [
        Seen::Asked(asked),
        Seen::Began(Function::MutexUnlock, arguments),
        Seen::Ended(Function::MutexUnlock, 0),
    ] = seen[..]
    else {
        panic!("{seen:?}");
    };
    assert_eq!((asked, arguments[0]), (address, address));
}

#[test]
fn a_wait_is_reported_with_its_object_and_outcome() {
    let functions = Functions::linked();
    let (mutex, rwlock, condition) = (Object::new(), Object::new(), Object::new());
    let over = libc::timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let time = &raw const over;
    let clock = libc::CLOCK_MONOTONIC;
    // SAFETY: each object is zeroed, a valid static initializer of its type.
    let ((), seen) = in_mode(Mode::All, false, || unsafe {
        assert_eq!((functions.lock)(mutex.at()), 0);
        assert_eq!((functions.write)(rwlock.at()), 0);
        let seen = seen(|| {
            let up = libc::ETIMEDOUT;
            assert_eq!((functions.timed_lock)(mutex.at(), time), up);
            assert_eq!((functions.clock_lock)(mutex.at(), clock, time), up);
            assert_eq!((functions.read)(rwlock.at()), libc::EDEADLK);
            assert_eq!((functions.write)(rwlock.at()), libc::EDEADLK);
            let (condition, mutex) = (condition.at(), mutex.at());
            assert_eq!((functions.timed_wait)(condition, mutex, time), up);
            assert_eq!((functions.clock_wait)(condition, mutex, clock, time), up);
        });
        assert_eq!((functions.unlock)(mutex.at()), 0);
        assert_eq!((functions.rw_unlock)(rwlock.at()), 0);
        seen
    });
    let time = time as usize;
    let (mutex, rwlock, condition) = (
        mutex.at() as usize,
        rwlock.at() as usize,
        condition.at() as usize,
    );
    let (up, deadlock, clock) = (libc::ETIMEDOUT, libc::EDEADLK, clock as usize);
    type Expected<'a> = (Function, &'a [usize], i32);
    let expected: [Expected<'_>; 6] = [
        (Function::MutexTimedLock, &[mutex, time], up),
        (Function::MutexClockLock, &[mutex, clock, time], up),
        (Function::RwLockRead, &[rwlock], deadlock),
        (Function::RwLockWrite, &[rwlock], deadlock),
        (Function::CondTimedWait, &[condition, mutex, time], up),
        (
            Function::CondClockWait,
            &[condition, mutex, clock, time],
            up,
        ),
    ];
    assert_eq!(seen.len(), 2 * expected.len(), "{seen:?}");
    for (seen, (function, arguments, result)) in seen.chunks(2).zip(expected) {
        let Seen::Began(began, passed) = seen[0] else {
            panic!("{seen:?}");
        };
        assert_eq!(began, function);
        // The clock is an integer, narrower than a register.
        let passed = passed.iter().zip(arguments).map(|(&passed, &argument)| {
            let is_clock = argument == clock;
            if is_clock {
                passed as u32 as usize
            } else {
                passed
            }
        });
        assert_eq!(passed.collect::<Vec<_>>(), arguments);
        assert_eq!(seen[1], Seen::Ended(function, result));
    }
}

/// Results of lock calls before `main`, before this crate could look up the C library's functions.
static EARLY: [AtomicI32; 4] = [const { AtomicI32::new(-1) }; 4];

extern "C" fn before_main() {
    let functions = Functions::linked();
    let mutex = Object::new();
    let results = [
        functions.lock,
        functions.unlock,
        functions.read,
        functions.rw_unlock,
    ];
    let other = Object::new();
    for (number, (function, place)) in results.into_iter().zip(&EARLY).enumerate() {
        let object = if number < 2 { &mutex } else { &other };
        // SAFETY: the first two functions receive a mutex, the others a readers-writer lock.
        place.store(unsafe { function(object.at()) }, Ordering::Relaxed);
    }
}

#[used]
#[unsafe(link_section = ".init_array.00101")]
static BEFORE_MAIN: extern "C" fn() = before_main;

#[test]
fn locks_work_before_main() {
    for result in &EARLY {
        assert_eq!(result.load(Ordering::Relaxed), 0);
    }
}

/// The mode may change at any time.
#[test]
fn locks_exclude_whatever_the_mode_is_changed_to() {
    let functions = Functions::linked();
    let mutex = Object::new();
    let address = AtomicUsize::new(mutex.at() as usize);
    let total = AtomicUsize::new(0);
    let turns = 20_000;
    in_mode(Mode::Off, false, || {
        std::thread::scope(|scope| {
            let threads = [(); 3].map(|()| {
                scope.spawn(|| {
                    let mutex = address.load(Ordering::Relaxed) as *mut std::ffi::c_void;
                    for turn in 0..turns {
                        // SAFETY: the object is a mutex.
                        unsafe {
                            assert_eq!((functions.lock)(mutex), 0);
                            let before = total.load(Ordering::Relaxed);
                            if turn % 64 == 0 {
                                std::thread::yield_now();
                            }
                            total.store(before + 1, Ordering::Relaxed);
                            assert_eq!((functions.unlock)(mutex), 0);
                        }
                    }
                })
            });
            let modes = [Mode::All, Mode::Off, Mode::LockWaits].into_iter().cycle();
            for mode in modes {
                pthread::set_mode(mode);
                if threads.iter().all(|thread| thread.is_finished()) {
                    break;
                }
            }
        });
    });
    assert_eq!(total.into_inner(), 3 * turns);
}
