//! Threads that begin, end, wait or block signals; labels and tasks.

use std::ffi::c_void;
use std::future::Future;
use std::mem::MaybeUninit;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::thread;

use plimsoll::label::{self, Labels};
use plimsoll::profile::{self, cpu};
use plimsoll::task::TrackExt;
use plimsoll_checks::relations::Until;
use plimsoll_testkit::child;

use super::{
    PERIOD, burns_here, cpu_of, decoded, in_some_attempt, is_cpu, record, thread_cpu, through,
};

#[test]
fn threads_from_before_the_profile_are_in_it() {
    child::run("threads_from_before_the_profile_are_in_it", "", || {
        in_some_attempt(|| {
            let (go, wait) = mpsc::channel::<()>();
            let worker = thread::spawn(move || {
                wait.recv().unwrap();
                burns_here(150_000_000);
            });
            let profile = record(|| {
                go.send(()).unwrap();
                worker.join().unwrap();
            });
            is_cpu(cpu_of(through(&profile, "burns_here")), 150_000_000, 1)
        });
    });
}

extern "C" fn burns_on_request(wanted: *mut c_void) -> *mut c_void {
    burns_here(wanted as u64);
    std::ptr::null_mut()
}

/// Starts a thread without the standard library, and joins it.
fn run_c_thread(nanoseconds: u64) {
    let mut thread = MaybeUninit::uninit();
    // SAFETY: the function accepts any pointer, and the thread is joined once.
    unsafe {
        let failed = libc::pthread_create(
            thread.as_mut_ptr(),
            std::ptr::null(),
            burns_on_request,
            nanoseconds as *mut c_void,
        );
        assert_eq!(failed, 0);
        libc::pthread_join(thread.assume_init(), std::ptr::null_mut());
    }
}

#[test]
fn threads_of_c_code_are_in_it() {
    child::run("threads_of_c_code_are_in_it", "", || {
        in_some_attempt(|| {
            let profile = record(|| {
                for _ in 0..4 {
                    run_c_thread(60_000_000);
                }
            });
            is_cpu(cpu_of(through(&profile, "burns_here")), 240_000_000, 4)
        });
    });
}

type CreateThread = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    extern "C" fn(*mut c_void) -> *mut c_void,
    *mut c_void,
) -> libc::c_int;

extern "C" fn burns_until_over(over: *mut c_void) -> *mut c_void {
    // SAFETY: the creator passes a flag that is never freed.
    let over = unsafe { &*over.cast::<AtomicBool>() };
    while !over.load(Ordering::Relaxed) {
        burns_here(1_000_000);
    }
    std::ptr::null_mut()
}

/// The C library's own function bypasses the hook, and the thread allocates nothing.
#[test]
#[cfg_attr(
    plimsoll_sanitized,
    ignore = "sanitizers abort at threads whose creation they did not see"
)]
fn threads_whose_creation_is_not_seen_are_found() {
    child::run("threads_whose_creation_is_not_seen_are_found", "", || {
        let over: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let mut thread = MaybeUninit::uninit();
        cpu::start().unwrap();
        // SAFETY: the function has this type, and the thread is joined below.
        unsafe {
            let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW);
            let function = libc::dlsym(library, c"pthread_create".as_ptr());
            assert!(!function.is_null());
            let create = std::mem::transmute::<*mut c_void, CreateThread>(function);
            let argument = std::ptr::from_ref(over).cast_mut().cast();
            let failed = create(
                thread.as_mut_ptr(),
                std::ptr::null(),
                burns_until_over,
                argument,
            );
            assert_eq!(failed, 0);
        }
        let found = || {
            let snapshot = profile::lookup("profile").unwrap().snapshot();
            cpu_of(through(&decoded(&snapshot), "burns_until_over"))
        };
        while found() < 100_000_000 {
            std::thread::yield_now();
        }
        over.store(true, Ordering::Relaxed);
        // SAFETY: the thread was created above.
        unsafe { libc::pthread_join(thread.assume_init(), std::ptr::null_mut()) };
        assert!(cpu::stop().is_some());
    });
}

#[test]
fn a_thread_that_blocks_the_signal_is_counted_without_a_stack() {
    child::run(
        "a_thread_that_blocks_the_signal_is_counted_without_a_stack",
        "",
        || {
            let used = AtomicU64::new(0);
            cpu::start().unwrap();
            let blocked = || {
                let sum = |profile: &plimsoll_testkit::pprof::Profile| {
                    let samples = profile.sample.iter();
                    cpu_of(samples.filter(|sample| {
                        profile.names(sample)[0] == "[the thread blocks the signal]"
                    }))
                };
                sum(&decoded(&profile::lookup("profile").unwrap().snapshot()))
            };
            thread::scope(|scope| {
                scope.spawn(|| {
                    // SAFETY: the set is initialized by `sigfillset`.
                    unsafe {
                        let mut all = MaybeUninit::uninit();
                        libc::sigfillset(all.as_mut_ptr());
                        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
                    }
                    while blocked() == 0 {
                        burns_here(10_000_000);
                    }
                    used.store(thread_cpu(), Ordering::Relaxed);
                });
            });
            assert!(blocked() <= used.load(Ordering::Relaxed) + super::PERIOD);
            assert!(cpu::stop().is_some());
        },
    );
}

async fn burns_in_task() {
    burns_here(120_000_000);
}

#[test]
fn samples_have_the_labels_of_thread_and_task() {
    child::run("samples_have_the_labels_of_thread_and_task", "", || {
        let mut profile = None;
        in_some_attempt(|| {
            let recorded = record(|| {
                let of_thread = label::with([("tenant", "acme")]);
                burns_here(120_000_000);
                drop(of_thread);
                let task = burns_in_task()
                    .tracked_as("worker")
                    .label("request", "search");
                let mut task = pin!(task);
                let poll = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(poll.is_ready());
                burns_here(50_000_000);
            });
            let with = |key: &str, value: &str| {
                let samples = recorded.sample.iter();
                cpu_of(samples.filter(|sample| recorded.label(sample, key) == Some(value)))
            };
            let labels = [
                ("tenant", "acme"),
                ("request", "search"),
                ("task", "worker"),
            ];
            let is_right = labels
                .iter()
                .all(|(key, value)| is_cpu(with(key, value), 120_000_000, 1));
            profile = Some(recorded);
            is_right
        });
        let profile = profile.expect("one was right");
        let of_task = through(&profile, "burns_here").into_iter();
        let spawned: Vec<_> = of_task
            .filter_map(|sample| profile.label(sample, "spawned"))
            .collect();
        assert!(!spawned.is_empty());
        let here = concat!(file!(), ":");
        assert!(
            spawned.iter().all(|place| place.starts_with(here)),
            "{spawned:?}"
        );
    });
}

/// Sets labels that belong together, until it is over.
fn changes_labels(racer: usize, over: &AtomicBool) {
    let racer = format!("r{racer}");
    let mut turn = 0;
    while !over.load(Ordering::Relaxed) {
        turn = (turn + 1) % 7;
        let number = format!("{turn}");
        let both = format!("{racer}.{number}");
        let before = label::set(Labels::of([("racer", &racer), ("both", &both)]));
        assert!(before.is_empty() || before.get("racer") == Some(&*racer));
        let _turn = label::with([("turn", &number)]);
    }
}

/// The signal of a sample may interrupt a thread while it changes its labels.
#[test]
fn labels_change_while_samples_are_taken() {
    const SAMPLES: i64 = 300;
    child::run("labels_change_while_samples_are_taken", "", || {
        assert_eq!(cpu::set_rate(cpu::MAX_RATE), Ok(0));
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _over = Until(&over);
            for racer in 0..4 {
                let over = &over;
                scope.spawn(move || changes_labels(racer, over));
            }
            let mut labelled = 0;
            while labelled < SAMPLES {
                let snapshot = profile::lookup("profile").unwrap().snapshot();
                labelled = 0;
                for record in snapshot.records() {
                    let of = |key: &str| record.labels().find(|&(name, _)| name == key);
                    let Some((_, both)) = of("both") else {
                        continue;
                    };
                    let (racer, turn) = both.split_once('.').unwrap();
                    assert_eq!(of("racer"), Some(("racer", racer)));
                    // The label `turn` is not set between the two changes.
                    assert!(of("turn").is_none_or(|(_, of)| of == turn), "{both}");
                    labelled += record.value("samples").unwrap();
                }
            }
        });
        assert_eq!(cpu::set_rate(0), Ok(cpu::MAX_RATE));
    });
}

/// Calls that a signal would end early, by threads that use hardly any CPU time, beside one that does.
#[test]
fn no_call_is_interrupted_without_a_sample_of_its_thread() {
    child::run(
        "no_call_is_interrupted_without_a_sample_of_its_thread",
        "",
        || {
            let interrupted = AtomicU64::new(0);
            let waiting = AtomicU64::new(0);
            let over = AtomicBool::new(false);
            let mut pipe = [0; 2];
            // SAFETY: `pipe` has room for two descriptors.
            assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
            let check = |result: i64| {
                let error = std::io::Error::last_os_error();
                if result < 0 && error.kind() == std::io::ErrorKind::Interrupted {
                    interrupted.fetch_add(1, Ordering::Relaxed);
                }
            };
            let profile = record(|| {
                thread::scope(|scope| {
                    for kind in 0..12 {
                        let (check, waiting, over) = (&check, &waiting, &over);
                        scope.spawn(move || {
                            waiting.fetch_add(1, Ordering::SeqCst);
                            // SAFETY: all pointers are valid, or null where that is allowed.
                            unsafe {
                                let mut entry = libc::pollfd {
                                    fd: pipe[0],
                                    events: libc::POLLIN,
                                    revents: 0,
                                };
                                let time = libc::timespec {
                                    tv_sec: 0,
                                    tv_nsec: 50_000_000,
                                };
                                while !over.load(Ordering::SeqCst) {
                                    let result = match kind % 3 {
                                        0 => libc::poll(&raw mut entry, 1, 50).into(),
                                        1 => libc::nanosleep(&raw const time, std::ptr::null_mut())
                                            .into(),
                                        _ => libc::syscall(
                                            libc::SYS_ppoll,
                                            &raw mut entry,
                                            1,
                                            &raw const time,
                                            0,
                                            0,
                                        ),
                                    };
                                    check(result);
                                }
                            }
                        });
                    }
                    while waiting.load(Ordering::SeqCst) < 12 {
                        thread::yield_now();
                    }
                    burns_here(600_000_000);
                    over.store(true, Ordering::SeqCst);
                });
            });
            let burned = cpu_of(through(&profile, "burns_here"));
            assert!(burned > 0);
            // A thread's period may end while it begins a call.
            let others = (cpu_of(&profile.sample) - burned) / PERIOD;
            let interrupted = interrupted.into_inner();
            assert!(interrupted <= others, "{interrupted} by {others} samples");
            // SAFETY: the descriptors are open, and no thread uses them any more.
            unsafe {
                libc::close(pipe[0]);
                libc::close(pipe[1]);
            }
        },
    );
}
