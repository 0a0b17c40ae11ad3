//! A program that handles SIGSEGV and goes on, as garbage collectors and databases do: its handler makes the page
//! accessible at which the program failed. Meanwhile Plimsoll samples allocations and CPU time and reads the stacks
//! of all threads.

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;

use plimsoll::profile::{self, Detail, cpu};
use plimsoll_checks::profile::{read_profile, read_with_idle};
use plimsoll_checks::relations::Until;
use plimsoll_testkit::child;
use plimsoll_testkit::client::wait_for;
use plimsoll_testkit::pprof::is_thread_entry;

use super::{decoded, within};

const THREADS: usize = 2;

/// The size of the memory that one thread protects: a multiple of the size of a page.
const UNIT: usize = 64 << 10;

/// The size of a signal stack.
const STACK: usize = 256 << 10;

/// The address of the memory that the threads protect.
static MEMORY: AtomicUsize = AtomicUsize::new(0);

/// The number of faults that the handler received.
static HANDLED: AtomicU64 = AtomicU64::new(0);

fn map(bytes: usize) -> *mut c_void {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let memory = unsafe { libc::mmap(null_mut(), bytes, access, flags, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    memory
}

/// Uses CPU time in the handler, so that samples interrupt it.
#[inline(never)]
fn handles_here() {
    for turn in 0..20_000 {
        black_box(turn);
    }
}

/// Makes the memory accessible at which the program failed. For a fault anywhere else, restores the default action,
/// which ends the process when the instruction is executed again.
extern "C" fn on_fault(signal: c_int, information: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel fills the structure, with the address of the fault for this signal.
    let address = unsafe { (*information).si_addr() } as usize;
    let memory = MEMORY.load(Ordering::Relaxed);
    if !(memory..memory + THREADS * UNIT).contains(&address) {
        // SAFETY: the default action needs no code.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    handles_here();
    let unit = address - (address - memory) % UNIT;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the unit is part of the mapping. `errno` is the interrupted code's, which finds it unchanged.
    unsafe {
        let errno = *libc::__errno_location();
        libc::mprotect(unit as *mut c_void, UNIT, access);
        *libc::__errno_location() = errno;
    }
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

fn install_handler() {
    // SAFETY: all zeros are a valid value; the handler has the type that the flags state, and only calls functions
    // that handlers may call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        let failed = libc::sigaction(libc::SIGSEGV, &raw const action, null_mut());
        assert_eq!(failed, 0);
    }
}

/// Returns the handler of SIGSEGV.
fn handler() -> usize {
    // SAFETY: all zeros are a valid value, which the call fills.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(
            libc::sigaction(libc::SIGSEGV, std::ptr::null(), &raw mut action),
            0
        );
        action.sa_sigaction
    }
}

/// Sets the signal stack of the calling thread. Returns the one before.
fn set_signal_stack(stack: libc::stack_t) -> libc::stack_t {
    // SAFETY: all zeros are a valid value, which the call fills. The stack is mapped until the end of the process,
    // or was the thread's before.
    unsafe {
        let mut before: libc::stack_t = std::mem::zeroed();
        assert_eq!(libc::sigaltstack(&raw const stack, &raw mut before), 0);
        before
    }
}

#[inline(never)]
fn fails_here(unit: *mut u8) {
    // SAFETY: the unit is mapped. It is not accessible, which the handler changes before the instruction is
    // repeated.
    unsafe { unit.write_volatile(1) };
    black_box(unit);
}

/// Fails and goes on until `over`. Returns the number of faults.
#[inline(never)]
fn recovers_here(unit: usize, over: &AtomicBool) -> u64 {
    let before = set_signal_stack(libc::stack_t {
        ss_sp: map(STACK),
        ss_flags: 0,
        ss_size: STACK,
    });
    let mut faults = 0;
    while !over.load(Ordering::Relaxed) {
        // SAFETY: the unit is mapped, and only this thread accesses it.
        let failed = unsafe { libc::mprotect(unit as *mut c_void, UNIT, libc::PROT_NONE) };
        assert_eq!(failed, 0);
        fails_here(unit as *mut u8);
        faults += 1;
        drop(black_box(vec![1_u8; 1000]));
    }
    set_signal_stack(before);
    faults
}

/// Returns whether CPU samples are in the failing function and in the handler, which the kernel calls on another
/// stack. The stack of such a sample reaches the function that failed.
fn has_cpu_samples() -> bool {
    let profile = decoded(&profile::lookup("profile").expect("built in").snapshot());
    let of_handler = within(&profile, "handles_here");
    let mut of_handler = of_handler.into_iter().map(|sample| profile.names(sample));
    let is_on_both_stacks = of_handler.any(|names| {
        names.iter().any(|name| name.ends_with("fails_here"))
            && names.last().is_some_and(|name| is_thread_entry(name))
    });
    is_on_both_stacks && !within(&profile, "recovers_here").is_empty()
}

/// Returns whether a profile of threads has all threads that fail, with their stacks.
fn has_all_threads() -> bool {
    let profile = read_with_idle("goroutine", Detail::Names);
    let samples = within(&profile, "recovers_here");
    samples.iter().map(|sample| sample.value[0]).sum::<i64>() == THREADS as i64
}

fn recovers_from_faults() {
    let _plimsoll = plimsoll::start();
    let memory = map(THREADS * UNIT) as usize;
    MEMORY.store(memory, Ordering::Relaxed);
    install_handler();
    assert_eq!(cpu::set_rate(cpu::MAX_RATE), Ok(0));
    let over = AtomicBool::new(false);
    let faults: u64 = thread::scope(|scope| {
        let until = Until(&over);
        let over = &over;
        let threads: Vec<_> = (0..THREADS)
            .map(|at| scope.spawn(move || recovers_here(memory + at * UNIT, over)))
            .collect();
        wait_for(
            "CPU samples of the program and of its handler",
            has_cpu_samples,
        );
        wait_for("all threads in one profile", has_all_threads);
        wait_for("a thousand faults", || {
            HANDLED.load(Ordering::Relaxed) >= 1000
        });
        let heap = read_profile("allocs");
        assert!(!within(&heap, "recovers_here").is_empty());
        drop(until);
        let faults = threads.into_iter().map(|thread| thread.join());
        faults
            .map(|faults| faults.expect("a thread goes on"))
            .sum::<u64>()
    });
    assert_eq!(HANDLED.load(Ordering::Relaxed), faults);
    assert_eq!(
        handler(),
        on_fault as *const () as usize,
        "the handler is the program's"
    );
    assert_eq!(cpu::set_rate(0), Ok(cpu::MAX_RATE));
}

/// A fault of Plimsoll would end the process: at another address by the default action, and in a handler by the
/// kernel, since Plimsoll's handlers block all signals.
#[test]
fn a_program_that_handles_its_faults_receives_each_and_no_other() {
    child::run(
        "a_program_that_handles_its_faults_receives_each_and_no_other",
        "heap_rate=4k",
        recovers_from_faults,
    );
}
