//! Forks, other profilers and signals.

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use plimsoll::profile::{self, cpu};
use plimsoll_checks::relations::Until;
use plimsoll_testkit::{child, pprof::is_thread_entry};

use super::{burns_here, cpu_of, decoded, in_some_attempt, is_cpu, record, through};

fn burned() -> u64 {
    let snapshot = profile::lookup("profile").unwrap().snapshot();
    cpu_of(through(&decoded(&snapshot), "burns_here"))
}

/// Runs `work` in the child of a fork, which succeeds if it returns true.
fn in_fork(work: impl FnOnce() -> bool) {
    // SAFETY: the child exits without returning to the test harness.
    match unsafe { libc::fork() } {
        -1 => panic!("cannot fork"),
        0 => {
            let right = work();
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!right)) }
        }
        id => {
            let status = plimsoll_testkit::child::wait(id);
            assert_eq!(status, 0, "in the child of a fork");
        }
    }
}

#[test]
fn a_forks_child_continues_continuous_samples_and_has_no_profile_running() {
    child::run(
        "a_forks_child_continues_continuous_samples_and_has_no_profile_running",
        "cpu_rate=100",
        || {
            let _plimsoll = plimsoll::start();
            burns_here(50_000_000);
            in_fork(|| {
                in_some_attempt(|| {
                    let before = burned();
                    burns_here(150_000_000);
                    let more = burned() - before;
                    let own = std::thread::spawn(|| burns_here(50_000_000));
                    own.join().is_ok() && more >= 130_000_000 && burned() > before + more
                });
                true
            });
            cpu::set_rate(0).unwrap();
            cpu::start().unwrap();
            in_fork(|| cpu::stop().is_none() && cpu::start().is_ok() && cpu::stop().is_some());
            assert!(cpu::stop().is_some());
            assert!(cpu::stop().is_none());
        },
    );
}

static PROF_SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_prof(_: libc::c_int) {
    PROF_SIGNALS.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_profiler_with_its_own_sigprof_keeps_its_signals() {
    child::run(
        "a_profiler_with_its_own_sigprof_keeps_its_signals",
        "",
        || {
            // SAFETY: the handler only adds to an atomic number.
            unsafe {
                let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
                action.sa_sigaction = on_prof as *const () as usize;
                action.sa_flags = libc::SA_RESTART;
                assert_eq!(
                    libc::sigaction(libc::SIGPROF, &raw const action, std::ptr::null_mut()),
                    0
                );
                let each = libc::timeval {
                    tv_sec: 0,
                    tv_usec: 5_000,
                };
                let timer = libc::itimerval {
                    it_interval: each,
                    it_value: each,
                };
                assert_eq!(
                    libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut()),
                    0
                );
            }
            in_some_attempt(|| {
                let profile = record(|| burns_here(400_000_000));
                is_cpu(cpu_of(through(&profile, "burns_here")), 400_000_000, 1)
            });
            assert!(PROF_SIGNALS.load(Ordering::Relaxed) > 10);
        },
    );
}

/// Without an unused real-time signal, the error says so. A signal that becomes free suffices.
#[test]
fn a_profile_needs_a_signal_that_the_program_does_not_use() {
    child::run(
        "a_profile_needs_a_signal_that_the_program_does_not_use",
        "",
        || {
            for signal in libc::SIGRTMIN()..=libc::SIGRTMAX() {
                // SAFETY: ignoring a signal installs no code.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            }
            assert_eq!(cpu::start(), Err(cpu::StartError::NoSignal));
            // SAFETY: as above; the default action is installed for an unused signal.
            unsafe { libc::signal(libc::SIGRTMIN() + 3, libc::SIG_DFL) };
            in_some_attempt(|| {
                let profile = record(|| burns_here(100_000_000));
                is_cpu(cpu_of(through(&profile, "burns_here")), 100_000_000, 1)
            });
        },
    );
}

const SIGNAL_STACK: usize = 64 << 10;

/// Maps a new signal stack.
fn map_signal_stack() -> libc::stack_t {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let anywhere = std::ptr::null_mut();
    // SAFETY: a new mapping at an address that the kernel chooses.
    let memory = unsafe { libc::mmap(anywhere, SIGNAL_STACK, access, flags, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    libc::stack_t {
        ss_sp: memory,
        ss_flags: 0,
        ss_size: SIGNAL_STACK,
    }
}

/// Sets the signal stack of the calling thread. Returns the one before.
fn set_signal_stack(stack: libc::stack_t) -> libc::stack_t {
    let mut before = MaybeUninit::uninit();
    // SAFETY: the stack is mapped, or was the thread's before; the call fills `before` if it succeeds.
    unsafe {
        let failed = libc::sigaltstack(&raw const stack, before.as_mut_ptr());
        assert_eq!(failed, 0);
        before.assume_init()
    }
}

/// Replaces the signal stack of the calling thread until it is over. Each is protected, and later unmapped, once the
/// next is set: an access to it would end the process.
fn replaces_its_signal_stack(over: &AtomicBool) {
    let mut current = map_signal_stack();
    let first = set_signal_stack(current);
    while !over.load(Ordering::Relaxed) {
        burns_here(2_000_000);
        let next = map_signal_stack();
        assert_eq!(set_signal_stack(next).ss_sp, current.ss_sp);
        // SAFETY: no thread has the mapping as its signal stack.
        let failed = unsafe { libc::mprotect(current.ss_sp, SIGNAL_STACK, libc::PROT_NONE) };
        assert_eq!(failed, 0);
        burns_here(2_000_000);
        // SAFETY: as above.
        let failed = unsafe { libc::munmap(current.ss_sp, SIGNAL_STACK) };
        assert_eq!(failed, 0);
        current = next;
    }
    set_signal_stack(first);
    // SAFETY: as above.
    let failed = unsafe { libc::munmap(current.ss_sp, SIGNAL_STACK) };
    assert_eq!(failed, 0);
}

#[test]
fn a_signal_stack_may_be_replaced_and_taken_away() {
    child::run("a_signal_stack_may_be_replaced_and_taken_away", "", || {
        assert_eq!(cpu::set_rate(cpu::MAX_RATE), Ok(0));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = Until(&over);
            scope.spawn(|| replaces_its_signal_stack(&over));
            while burned() < 300_000_000 {
                std::thread::yield_now();
            }
        });
        assert_eq!(cpu::set_rate(0), Ok(cpu::MAX_RATE));
    });
}

#[inline(never)]
fn descends(depth: u32) -> u64 {
    if depth == 0 {
        burns_here(60_000_000);
        return 0;
    }
    black_box(descends(depth - 1)) + 1
}

#[test]
fn deep_stacks_have_both_ends_within_the_depth() {
    child::run(
        "deep_stacks_have_both_ends_within_the_depth",
        "stack_depth=40",
        || {
            let _plimsoll = plimsoll::start();
            in_some_attempt(|| {
                let profile = record(|| assert_eq!(descends(5_000), 5_000));
                let depths = profile.sample.iter().map(|sample| sample.location_id.len());
                let deepest = depths.max();
                assert!(deepest <= Some(40), "{deepest:?}");
                let deep = profile
                    .sample
                    .iter()
                    .filter(|sample| sample.location_id.len() == 40);
                for names in deep.map(|sample| profile.names(sample)) {
                    assert_eq!(
                        names
                            .iter()
                            .filter(|&&name| name == "[frames left out]")
                            .count(),
                        1
                    );
                    assert!(is_thread_entry(names.last().unwrap()), "{names:?}");
                }
                let sampled = cpu_of(through(&profile, "descends"));
                deepest == Some(40) && is_cpu(sampled, 60_000_000, 1)
            });
        },
    );
}
