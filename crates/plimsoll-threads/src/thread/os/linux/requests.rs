//! Requests to running threads for their stacks.
//!
//! Each thread of a batch gets a request and a signal that names it. The handler runs on that
//! thread. It checks that the request is still the one of the signal. It then captures the stack
//! into the request's memory and marks the request as done. It neither allocates nor locks, and
//! preserves `errno`. If a thread does not respond in time, the requester takes the request back. A
//! signal that arrives later finds no request, and the handler returns.
//!
//! The handler may run on the program's signal stack, which is hardly larger than the kernel
//! requires. Each request therefore also has a separate stack, on which the handler captures.
//!
//! A request is *free*, then *asked* (by the thread that takes it, in a new generation), then *in
//! the handler*, then *done*. It is free again when its stack has been read. If the requester gives
//! up while the handler is at work, the request is *given up*, and the handler frees it.

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use plimsoll_process::deep_stacks::{Limit, kept};
use plimsoll_process::handler_stacks::HandlerStacks;
use plimsoll_process::realtime_signal::RealtimeSignal;
use plimsoll_process::task_file::TaskDirectory;
use plimsoll_sys::arch::call_on_stack;
use plimsoll_sys::os::clock;
use plimsoll_sys::os::fork::{Table, join};
use plimsoll_sys::os::process_id;
use plimsoll_sys::os::syscall::{call, call3};
use plimsoll_sys::primitives::{AtomicU32, AtomicU64, Ordering};

use super::status::Status;
use crate::thread::{Extent, State, Thread};
use plimsoll_core::fork::Order;
use plimsoll_core::histogram::TimeCounts;
use plimsoll_core::label::Labels;
use plimsoll_core::stack::{self, End, Registers, Slot, Walk};

/// The signal that interrupts running threads.
pub(crate) static SIGNAL: RealtimeSignal = RealtimeSignal::new();

/// Maximum number of threads that are interrupted at once.
const BATCH: usize = 64;

/// The time after which the requester gives up if no thread of the batch responds. On machines with
/// few processors, threads respond one after the other.
const PATIENCE: Duration = Duration::from_millis(100);

struct Request {
    /// A generation in the upper bits, a phase in the lowest three.
    phase: AtomicU64,
    /// The number of captured frames, and the reason why the walk ended.
    frames: AtomicU32,
    end: AtomicU32,
}

const FREE: u64 = 0;
const ASKED: u64 = 1;
const IN_HANDLER: u64 = 2;
const DONE: u64 = 3;
const GIVEN_UP: u64 = 4;
const PHASE: u64 = 7;
/// The increment of the generation.
const GENERATION: u64 = PHASE + 1;

static REQUESTS: [Request; BATCH] = [const {
    Request {
        phase: AtomicU64::new(FREE),
        frames: AtomicU32::new(0),
        end: AtomicU32::new(0),
    }
}; BATCH];

/// The stacks of the requests.
static STACKS: HandlerStacks<BATCH> = HandlerStacks::new();

/// The number of responses, a futex word on which requesters wait.
static ANSWERS: AtomicU32 = AtomicU32::new(0);

/// The upper bits of a signal's value, which distinguish it from other libraries' signals.
const MARK: u64 = 0x504c << 48;
/// The bits of the generation in a signal's value, above the number of the request.
const CARRIED: u64 = (1 << 40) - 1;

static FORK: Table = Table::new(Order::Requests.rank(), after_fork_in_child);

/// Frees all requests in the child of a fork.
fn after_fork_in_child() {
    for request in &REQUESTS {
        let phase = request.phase.load(Ordering::Relaxed);
        // A read does not copy an untouched page.
        if phase & PHASE != FREE {
            request
                .phase
                .store((phase & !PHASE) | FREE, Ordering::Relaxed);
        }
    }
}

/// Interrupts these threads, which then read their own stacks. `seen_running` means that all were
/// seen running; otherwise their states are unknown.
pub(super) fn interrupt(
    tasks: &TaskDirectory,
    threads: &[i32],
    seen_running: bool,
    depth: usize,
) -> Vec<Thread> {
    let mut found = Vec::with_capacity(threads.len());
    if threads.is_empty() {
        return found;
    }
    join(&FORK);
    let signal = SIGNAL.ready(interrupted);
    for batch in threads.chunks(BATCH) {
        let asked = batch.iter().map(|&id| {
            // Read before the signal, which may wake the thread.
            let status = Status::new(tasks, id);
            let state = match &status {
                _ if seen_running => State::Running,
                Some(status) => status.state(),
                None => State::Unknown,
            };
            let asked = match (signal, &status) {
                (_, Some(status)) if status.has_ended() => Err(Refusal::Ended),
                (None, _) => Err(Refusal::NoSignal),
                (Some(signal), Some(status)) if status.blocks(signal) => Err(Refusal::Blocked),
                (Some(signal), _) => ask(id, signal),
            };
            (id, state, asked)
        });
        let asked: Vec<_> = asked.collect();
        let mut patience = Patience::begin();
        for (id, state, asked) in asked {
            let thread = |frames, extent| Thread {
                id,
                name: String::new(),
                state,
                frames,
                extent,
                waited: None,
                creator: None,
                labels: Labels::NONE,
            };
            match asked.and_then(|asked| asked.answer(&mut patience, depth)) {
                Ok((frames, extent)) => found.push(thread(frames, extent)),
                Err(Refusal::Ended) => {}
                Err(refusal) => found.push(thread([].into(), Extent::None(refusal.reason()))),
            }
        }
    }
    found
}

/// The reason why a thread's stack is unavailable.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    NoSignal,
    Blocked,
    NotSent,
    NoRequest,
    NoAnswer,
    Ended,
}

impl Refusal {
    fn reason(self) -> &'static str {
        match self {
            Self::NoSignal => "[no signal is free to interrupt it]",
            Self::Blocked => "[it blocks the signal that it would be interrupted by]",
            Self::NotSent => "[the system did not take the signal to interrupt it]",
            Self::NoRequest => "[too many others are being interrupted]",
            Self::NoAnswer => "[it did not answer in time]",
            Self::Ended => "[it has ended]",
        }
    }
}

/// The time since the last response of any thread.
struct Patience {
    answers: u32,
    since: Instant,
}

impl Patience {
    fn begin() -> Self {
        Self {
            answers: ANSWERS.load(Ordering::Relaxed),
            since: Instant::now(),
        }
    }

    /// Returns the remaining time, given the current number of responses.
    fn left(&mut self, answers: u32) -> Duration {
        if answers != self.answers {
            *self = Self {
                answers,
                since: Instant::now(),
            };
        }
        PATIENCE.saturating_sub(self.since.elapsed())
    }
}

/// A request in use.
struct Asked {
    number: usize,
    /// The generation, in its bits of the phase.
    generation: u64,
    slot: &'static Slot,
}

fn ask(thread: i32, signal: c_int) -> Result<Asked, Refusal> {
    let slots = stack::slots_for_requests(BATCH);
    if !STACKS.make() {
        return Err(Refusal::NoRequest);
    }
    let asked = (0..BATCH).find_map(|number| {
        let phase = &REQUESTS[number].phase;
        let before = phase.load(Ordering::Relaxed);
        if before & PHASE != FREE {
            return None;
        }
        let generation = (before & !PHASE).wrapping_add(GENERATION);
        phase
            .compare_exchange(
                before,
                generation | ASKED,
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .ok()?;
        Some(Asked {
            number,
            generation,
            slot: &slots[number],
        })
    });
    let asked = asked.ok_or(Refusal::NoRequest)?;
    asked.slot.prepare_for_functions();
    match send(thread, signal, asked.carried()) {
        0 => Ok(asked),
        error => {
            asked.give_up();
            Err(if error == libc::ESRCH {
                Refusal::Ended
            } else {
                Refusal::NotSent
            })
        }
    }
}

impl Asked {
    /// Returns the value of the signal.
    fn carried(&self) -> u64 {
        let generation = (self.generation / GENERATION) & CARRIED;
        MARK | generation << 8 | self.number as u64
    }

    fn phase(&self) -> &'static AtomicU64 {
        &REQUESTS[self.number].phase
    }

    /// Waits for the stack and returns it, of at most `depth` frames.
    fn answer(
        self,
        patience: &mut Patience,
        depth: usize,
    ) -> Result<(std::sync::Arc<[usize]>, Extent), Refusal> {
        let done = self.generation | DONE;
        loop {
            let answers = ANSWERS.load(Ordering::Acquire);
            if self.phase().load(Ordering::Acquire) == done {
                break;
            }
            let left = patience.left(answers);
            if left.is_zero() {
                self.give_up();
                return Err(Refusal::NoAnswer);
            }
            wait_for_more_than(answers, left);
        }
        let request = &REQUESTS[self.number];
        let count = request.frames.load(Ordering::Relaxed) as usize;
        let end = End::from_number(request.end.load(Ordering::Relaxed));
        // SAFETY: the handler is done, and no other thread takes the request before it is free.
        let frames = unsafe { self.slot.captured(count) };
        let result = (kept(frames, depth).collect(), Extent::from_end(end));
        self.phase()
            .store(self.generation | FREE, Ordering::Release);
        Ok(result)
    }

    /// Abandons the request.
    fn give_up(&self) {
        let generation = self.generation;
        for (from, to) in [(ASKED, FREE), (IN_HANDLER, GIVEN_UP), (DONE, FREE)] {
            let phase = self.phase();
            let changed = phase.compare_exchange(
                generation | from,
                generation | to,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            if changed.is_ok() {
                return;
            }
        }
    }
}

/// Sends a thread the signal with a value. Returns 0, or the system's error number.
fn send(thread: i32, signal: c_int, carried: u64) -> c_int {
    let process = process_id();
    let mut information = [0u32; 32];
    information[0] = signal as u32;
    information[2] = libc::SI_QUEUE as u32;
    information[4] = process;
    // SAFETY: `getuid` has no preconditions.
    information[5] = unsafe { call3(libc::SYS_getuid, 0, 0, 0) } as u32;
    information[6] = carried as u32;
    information[7] = (carried >> 32) as u32;
    let arguments = [
        process as usize,
        thread as usize,
        signal as usize,
        information.as_ptr() as usize,
        0,
        0,
    ];
    // SAFETY: `information` has the layout and size of the kernel's `siginfo_t`.
    -unsafe { call(libc::SYS_rt_tgsigqueueinfo, arguments) } as c_int
}

/// Waits until the number of responses differs from `answers`, or the time is up.
fn wait_for_more_than(answers: u32, patience: Duration) {
    let time = libc::timespec {
        tv_sec: patience.as_secs() as _,
        tv_nsec: patience.subsec_nanos().into(),
    };
    let arguments = [
        &raw const ANSWERS as usize,
        (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize,
        answers as usize,
        &raw const time as usize,
        0,
        0,
    ];
    // SAFETY: the futex word is static, and `time` outlives the call.
    unsafe { call(libc::SYS_futex, arguments) };
}

/// Durations of the interruptions of threads: the only pauses of the program that Plimsoll causes.
pub static INTERRUPTIONS: TimeCounts<1> = TimeCounts::new();

/// Handles the signal on the interrupted thread.
extern "C" fn interrupted(_: c_int, information: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both, because the action has the flag `SA_SIGINFO`.
    let (information, context) = unsafe { (&*information, &*context.cast::<libc::ucontext_t>()) };
    // SAFETY: the field exists in every `siginfo_t`. Its value is used only if the signal was
    // queued, as checked below.
    let carried = unsafe { information.si_value() }.sival_ptr as u64;
    // SAFETY: `getpid` has no preconditions; a queued signal has a sender's number.
    let from_here = information.si_code == libc::SI_QUEUE
        && unsafe { information.si_pid() as u32 == process_id() };
    let number = (carried & 0xff) as usize;
    if !from_here || carried >> 48 != MARK >> 48 || number >= BATCH {
        return;
    }
    let request = &REQUESTS[number];
    let phase = request.phase.load(Ordering::Relaxed);
    if (phase / GENERATION) & CARRIED != carried >> 8 & CARRIED || phase & PHASE != ASKED {
        return;
    }
    // The stacks exist, because the requester made them before it sent the signal.
    let Some(top) = STACKS.top(number) else {
        return;
    };
    let generation = phase & !PHASE;
    let entered = request.phase.compare_exchange(
        phase,
        generation | IN_HANDLER,
        Ordering::Acquire,
        Ordering::Relaxed,
    );
    if entered.is_err() {
        return;
    }
    let began = clock::now();
    let at = Registers::interrupted(context);
    let mut capture = Capture {
        number,
        at,
        walk: Walk {
            frames: 0,
            end: End::Lost,
        },
    };
    // SAFETY: the stack belongs to this request, and the request to this handler until it is done.
    // No other handler runs meanwhile, because the action blocks all signals.
    unsafe { call_on_stack(top, Capture::fill, (&raw mut capture).cast()) };
    let Walk { frames, end } = capture.walk;
    request.frames.store(frames as u32, Ordering::Relaxed);
    request.end.store(end as u32, Ordering::Relaxed);
    INTERRUPTIONS.record(clock::now().saturating_sub(began) as i64);
    let done = request.phase.compare_exchange(
        generation | IN_HANDLER,
        generation | DONE,
        Ordering::Release,
        Ordering::Relaxed,
    );
    if done.is_err() {
        // The requester has given up.
        return request.phase.store(generation | FREE, Ordering::Release);
    }
    ANSWERS.fetch_add(1, Ordering::Release);
    let wake = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: the futex word is static.
    unsafe {
        call3(
            libc::SYS_futex,
            &raw const ANSWERS as usize,
            wake,
            i32::MAX as usize,
        )
    };
}

/// The arguments and result of the capture on the request's stack.
struct Capture {
    number: usize,
    at: Registers,
    walk: Walk,
}

impl Capture {
    extern "C" fn fill(this: *mut c_void) {
        // SAFETY: `this` is the `Capture` of the handler, which waits for this call.
        let this = unsafe { &mut *this.cast::<Self>() };
        let slot = &stack::slots_for_requests_made()[this.number];
        let limit = Limit::new(stack::DEEPEST);
        // SAFETY: the request belongs to this handler until it is done.
        this.walk = unsafe { slot.capture_interrupted_functions(this.at, limit) };
    }
}
