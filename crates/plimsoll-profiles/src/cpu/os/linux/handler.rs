//! The handler of the timers' signal, which takes a sample on the thread that it interrupts.
//!
//! It neither allocates nor locks, and preserves `errno`. It works on a separate stack, because the
//! program's may be small. The action blocks all signals meanwhile.

use std::ffi::{c_int, c_void};

use plimsoll_process::handler_stacks::HandlerStacks;
use plimsoll_process::realtime_signal::RealtimeSignal;
use plimsoll_sys::arch::call_on_stack;
use plimsoll_sys::os::clock;
use plimsoll_sys::primitives::{AtomicBool, AtomicU64, Ordering};

use super::super::super::{StartError, count};
use super::timers::{self, Tick};
use plimsoll_core::histogram::TimeCounts;
use plimsoll_core::label;
use plimsoll_core::stack::{self, CPU_TABLE, Kind, Registers};
use plimsoll_tasks::task;

/// The number of handlers that can work at once. As many run as there are processors, and some may
/// have lost theirs.
const STACKS: usize = 64;

static STACK_POOL: HandlerStacks<STACKS> = HandlerStacks::new();
static TAKEN: [AtomicBool; STACKS] = [const { AtomicBool::new(false) }; STACKS];

static SIGNAL: RealtimeSignal = RealtimeSignal::new();

/// Durations of the handler, in which the thread does not continue.
pub static HANDLER_TIMES: TimeCounts<1> = TimeCounts::new();

/// Periods whose samples have no stack, because all stacks for handlers were taken.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Returns the number of periods since the process began whose samples have no stack, because too
/// many handlers worked at once.
pub fn lost_samples() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Makes everything that the handler needs, and installs it.
pub fn prepare() -> Result<(), StartError> {
    if !STACK_POOL.make() {
        return Err(StartError::NoMemory);
    }
    SIGNAL.ready(ticked).ok_or(StartError::NoSignal)?;
    Ok(())
}

/// Returns the signal of the timers.
pub(super) fn signal() -> Option<c_int> {
    SIGNAL.chosen()
}

/// Frees the stacks of handlers on other threads, which the child of a fork does not have.
pub(super) fn after_fork_in_child() {
    for taken in &TAKEN {
        taken.store(false, Ordering::Relaxed);
    }
}

/// A stack that this handler has taken.
struct HandlerStack {
    number: usize,
    top: usize,
}

impl HandlerStack {
    /// Takes a free stack. The search begins at one that differs between threads.
    fn take() -> Option<Self> {
        let first = plimsoll_sys::os::thread_place(STACKS);
        let mut numbers = (first..STACKS).chain(0..first);
        let number = numbers.find(|&number| !TAKEN[number].swap(true, Ordering::Acquire))?;
        let top = STACK_POOL.top(number)?;
        Some(Self { number, top })
    }
}

impl Drop for HandlerStack {
    fn drop(&mut self) {
        TAKEN[self.number].store(false, Ordering::Release);
    }
}

extern "C" fn ticked(_: c_int, information: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both, because the action has the flag `SA_SIGINFO`.
    let (information, context) = unsafe { (&*information, &*context.cast::<libc::ucontext_t>()) };
    if information.si_code != libc::SI_TIMER {
        return;
    }
    // SAFETY: the field exists in the `siginfo_t` of a timer.
    let carried = unsafe { information.si_value() }.sival_ptr as u64;
    let began = clock::now();
    let Some(tick) = timers::tick(carried) else {
        return;
    };
    let mut sample = Sample {
        tick,
        at: Registers::interrupted(context),
    };
    match HandlerStack::take() {
        // SAFETY: the stack belongs to this handler until it is dropped. No other handler runs on
        // this thread meanwhile, because the action blocks all signals.
        Some(stack) => unsafe {
            call_on_stack(stack.top, Sample::record, (&raw mut sample).cast());
        },
        None => sample.record_without_stack(),
    }
    HANDLER_TIMES.record(clock::now().saturating_sub(began) as i64);
}

/// The arguments of [`Sample::record`].
struct Sample {
    tick: Tick,
    at: Registers,
}

impl Sample {
    extern "C" fn record(this: *mut c_void) {
        // SAFETY: `this` is the `Sample` of the handler, which waits for this call.
        let Self { tick, at } = unsafe { &*this.cast::<Self>() };
        let task = task::polled_words().and_then(|words| CPU_TABLE.stack_name(&words));
        let task = task.map_or(0, |name| u64::from(name.0));
        let bucket = stack::cpu_site(task, label::current(), *at);
        count(bucket, tick.periods, tick.period_ns);
    }

    #[cold]
    fn record_without_stack(&self) {
        LOST.fetch_add(self.tick.periods, Ordering::Relaxed);
        let bucket = CPU_TABLE.bucket(Kind::Cpu, 0, label::current(), &[]);
        count(bucket, self.tick.periods, self.tick.period_ns);
    }
}
