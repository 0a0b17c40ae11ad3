//! Running threads: each is interrupted once and reads its own stack.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::{self, JoinHandle};

use super::{alone, child, goroutine, is_thread_entry, within};

/// Threads that never wait.
pub struct Spinners {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Spinners {
    /// Starts `count` threads, each of which first calls `first`.
    pub fn start(count: usize, first: fn()) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let started = Arc::new(AtomicI32::new(0));
        let threads = (0..count)
            .map(|_| {
                let (over, started) = (Arc::clone(&over), Arc::clone(&started));
                thread::spawn(move || {
                    first();
                    started.fetch_add(1, Ordering::SeqCst);
                    drop(started);
                    calls_what_spins(&over);
                })
            })
            .collect();
        while started.load(Ordering::SeqCst) < count as i32 {
            thread::yield_now();
        }
        Self { over, threads }
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().expect("it ends on request");
        }
    }
}

#[inline(never)]
fn calls_what_spins(over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        spins_here(over);
    }
    black_box(());
}

#[inline(never)]
fn spins_here(over: &AtomicBool) {
    for turn in 0..100_000_000_u64 {
        if black_box(over).load(Ordering::Relaxed) {
            return;
        }
        black_box(turn);
    }
}

/// Returns the number of threads in `spins_here`, with their callers.
fn seen() -> i64 {
    let profile = goroutine();
    let samples = within(&profile, "spinning::calls_what_spins");
    let of_spinners = samples.into_iter().inspect(|sample| {
        let names = profile.names(sample);
        assert_eq!(profile.label(sample, "state"), Some("running"), "{names:?}");
        assert_eq!(profile.label(sample, "wait"), None);
        assert!(
            names.last().is_some_and(|name| is_thread_entry(name)),
            "{names:?}"
        );
    });
    of_spinners.map(|sample| sample.value[0]).sum()
}

#[test]
fn running_threads_are_interrupted_and_read_their_own_stacks() {
    let _alone = alone();
    let spinners = Spinners::start(3, || {});
    // On a busy machine, a thread may not get a processor in time.
    assert!((0..50).any(|_| seen() == 3));
    drop(spinners);
}

fn block_all_signals() {
    // SAFETY: the set is initialized; blocks all signals of the calling thread.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

/// Returns the reasons that the profile gives for threads without a stack.
fn reasons() -> Vec<String> {
    let profile = goroutine();
    let names = profile.sample.iter().map(|sample| profile.names(sample));
    names
        .filter(|names| names.len() == 1)
        .map(|names| names[0].to_owned())
        .collect()
}

#[test]
fn a_thread_that_blocks_the_signal_is_listed_without_a_stack() {
    let _alone = alone();
    let spinners = Spinners::start(2, block_all_signals);
    let blocking = "[it blocks the signal that it would be interrupted by]";
    let listed = (0..50).any(|_| {
        let profile = goroutine();
        let mut samples = profile.sample.iter();
        samples.any(|sample| profile.names(sample) == [blocking] && sample.value[0] == 2)
    });
    assert!(listed, "{:?}", reasons());
    drop(spinners);
}

/// Signals that the program's own handler received.
static CAME: AtomicI32 = AtomicI32::new(0);

extern "C" fn of_the_program(_: i32) {
    CAME.fetch_add(1, Ordering::SeqCst);
}

/// Returns the handler of a signal.
fn handler(signal: i32) -> usize {
    // SAFETY: only reads how the signal is handled.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action);
        action.sa_sigaction
    }
}

fn take(signal: i32) {
    // SAFETY: the handler has the right signature and only counts.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = of_the_program as extern "C" fn(i32) as usize;
        let taken = libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        assert_eq!(taken, 0);
    }
}

fn signals() -> impl Iterator<Item = i32> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}

/// Returns the signals that Plimsoll has taken.
fn taken_by_plimsoll() -> Vec<i32> {
    let program = of_the_program as extern "C" fn(i32) as usize;
    signals()
        .filter(|&signal| ![libc::SIG_DFL, program].contains(&handler(signal)))
        .collect()
}

fn all_signals_are_used_in_the_end() {
    let _plimsoll = plimsoll::start();
    let program = of_the_program as extern "C" fn(i32) as usize;
    let spinners = Spinners::start(1, || {});
    let until_seen = || assert!((0..100).any(|_| seen() == 1));
    // The signal that Plimsoll would take, and the one that was requested.
    take(libc::SIGRTMAX());
    take(libc::SIGRTMIN() + 1);
    assert!(taken_by_plimsoll().is_empty(), "before it is needed");
    until_seen();
    // Each time the program takes the signal in use, Plimsoll takes another.
    for _ in 0..3 {
        let taken = taken_by_plimsoll();
        assert_eq!(taken.len(), 1);
        take(taken[0]);
        until_seen();
    }
    for signal in signals() {
        take(signal);
    }
    assert_eq!(seen(), 0);
    let reasons = reasons();
    assert_eq!(reasons, ["[no signal is free to interrupt it]"]);
    assert!(signals().all(|signal| handler(signal) == program));
    assert_eq!(CAME.load(Ordering::SeqCst), 0, "none came to the program");
    drop(spinners);
}

#[test]
fn a_signal_that_the_program_uses_is_not_used() {
    child::run(
        "spinning::a_signal_that_the_program_uses_is_not_used",
        &format!("thread_signal={}", libc::SIGRTMIN() + 1),
        all_signals_are_used_in_the_end,
    );
}

fn the_signal_that_was_asked_for_is_used() {
    let _plimsoll = plimsoll::start();
    let spinners = Spinners::start(1, || {});
    assert!((0..100).any(|_| seen() == 1));
    assert_eq!(taken_by_plimsoll(), [libc::SIGRTMIN() + 5]);
    drop(spinners);
}

#[test]
fn the_signal_can_be_chosen() {
    child::run(
        "spinning::the_signal_can_be_chosen",
        &format!("thread_signal={}", libc::SIGRTMIN() + 5),
        the_signal_that_was_asked_for_is_used,
    );
}

/// The signal stacks that the standard library gives its threads have 8 KiB, of which the kernel
/// uses a part.
#[test]
fn a_small_signal_stack_is_large_enough() {
    const SIZE: usize = 8 << 10;
    static USED: AtomicI32 = AtomicI32::new(0);
    fn measured() {
        let memory: &'static mut [u8] = Box::leak(vec![0x5a; SIZE].into_boxed_slice());
        // SAFETY: the memory is leaked, so the stack outlives the thread.
        unsafe {
            let stack = libc::stack_t {
                ss_sp: memory.as_mut_ptr().cast(),
                ss_flags: 0,
                ss_size: SIZE,
            };
            assert_eq!(libc::sigaltstack(&raw const stack, std::ptr::null_mut()), 0);
        }
        MEMORY.store(memory.as_mut_ptr(), Ordering::SeqCst);
    }
    static MEMORY: std::sync::atomic::AtomicPtr<u8> =
        std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
    let _alone = alone();
    let spinners = Spinners::start(1, measured);
    assert!((0..100).any(|_| seen() == 1));
    drop(spinners);
    let memory = MEMORY.load(Ordering::SeqCst);
    // SAFETY: the memory is leaked, and no thread writes to it any more.
    let bytes = unsafe { std::slice::from_raw_parts(memory, SIZE) };
    let untouched = bytes.iter().take_while(|&&byte| byte == 0x5a).count();
    USED.store((SIZE - untouched) as i32, Ordering::SeqCst);
    println!("{} bytes of the signal's stack are used", SIZE - untouched);
    assert!(untouched >= 1024, "{untouched} bytes are left");
}
