//! Asking running threads for their stacks.
//!
//! Each thread of a batch gets a request, and a signal that names it. The handler, on that thread,
//! looks whether the request is still the one it was sent for, captures the stack into the memory
//! that belongs to it, and says that it is done; it neither allocates nor locks, and touches no
//! `errno`. A thread that does not answer in time has its request taken back: a signal that comes
//! later finds that, and does nothing.
//!
//! The handler may find itself on the program's stack for signals, which has hardly more room than
//! the kernel needs of it. So each request has a stack of its own as well, on which that is done.
//!
//! A request is *free*, then *asked* (by whoever takes it, in a generation of its own), then *in
//! the handler*, then *done*, and free again when its stack was read. If the one who asked gives up
//! while the handler is at it, it is *given up*, and the handler makes it free.

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use super::{Extent, State, Thread, signal};
use crate::label::Labels;
use crate::os::clock;
use crate::os::region::{self, PAGE};
use crate::os::syscall::{call, call3};
use crate::os::task_file::TaskDirectory;
use crate::primitives::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::stack::{self, End, Registers, Slot, Walk};
use crate::stats::TimeCounts;

/// How many threads are asked at once.
const BATCH: usize = 64;

/// How long there may be no answer at all, from any of the threads that are asked: where there are
/// few processors, they answer one after the other.
const PATIENCE: Duration = Duration::from_millis(100);

struct Request {
    /// A generation in the upper bits, a phase in the lowest three.
    phase: AtomicU64,
    /// How many frames were captured, and how that ended.
    frames: AtomicU32,
    end: AtomicU32,
}

const FREE: u64 = 0;
const ASKED: u64 = 1;
const IN_HANDLER: u64 = 2;
const DONE: u64 = 3;
const GIVEN_UP: u64 = 4;
const PHASE: u64 = 7;
/// What generations are counted in.
const GENERATION: u64 = PHASE + 1;

static REQUESTS: [Request; BATCH] = [const {
    Request {
        phase: AtomicU64::new(FREE),
        frames: AtomicU32::new(0),
        end: AtomicU32::new(0),
    }
}; BATCH];

/// The stacks of the requests, one behind the other; 0 until they are there.
static STACKS: AtomicUsize = AtomicUsize::new(0);

/// The size of each, with a page at the bottom that cannot be used.
const STACK: usize = 64 << 10;

/// Makes the stacks if they are not there yet; false if there is no memory.
fn make_stacks() -> bool {
    if STACKS.load(Ordering::Acquire) != 0 {
        return true;
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let Some(stacks) = region::map(BATCH * STACK, 0, access) else {
        return false;
    };
    for number in 0..BATCH {
        let bottom = stacks + number * STACK;
        // SAFETY: a page of what was just mapped. If it stays as it is, nothing is worse.
        unsafe { call3(libc::SYS_mprotect, bottom, PAGE, libc::PROT_NONE as usize) };
    }
    let made = STACKS.compare_exchange(0, stacks, Ordering::AcqRel, Ordering::Acquire);
    if made.is_err() {
        // SAFETY: nobody else knows of it.
        unsafe { call3(libc::SYS_munmap, stacks, BATCH * STACK, 0) };
    } else {
        region::note(stacks, BATCH * STACK);
    }
    true
}

/// Counts answers, to be waited for.
static ANSWERS: AtomicU32 = AtomicU32::new(0);

/// In what a signal carries, to tell it from somebody else's.
const MARK: u64 = 0x504c << 48;
/// The part of it that is a generation, above the number of the request.
const CARRIED: u64 = (1 << 40) - 1;

/// In the child of a fork: nobody asks, and nobody answers.
pub(crate) fn after_fork_in_child() {
    for request in &REQUESTS {
        let phase = request.phase.load(Ordering::Relaxed);
        request
            .phase
            .store((phase & !PHASE) | FREE, Ordering::Relaxed);
    }
}

/// Interrupts these threads and has them read their stacks. `seen_running` if they were; otherwise
/// nothing is known of what they do.
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
    let signal = signal::ready(interrupted);
    for batch in threads.chunks(BATCH) {
        let asked = batch.iter().map(|&id| {
            // Before it is asked, which may wake it.
            let status = Status::of(tasks, id);
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

/// Why a thread's stack cannot be had.
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

/// How long there was no answer.
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

    /// How much there is left, when there were so many answers by now.
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

/// A request that is under way.
struct Asked {
    number: usize,
    /// The generation, in place.
    generation: u64,
    slot: &'static Slot,
}

fn ask(thread: i32, signal: c_int) -> Result<Asked, Refusal> {
    let slots = stack::slots_for_requests(BATCH);
    if !make_stacks() {
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
    /// What the signal carries.
    fn carried(&self) -> u64 {
        let generation = (self.generation / GENERATION) & CARRIED;
        MARK | generation << 8 | self.number as u64
    }

    fn phase(&self) -> &'static AtomicU64 {
        &REQUESTS[self.number].phase
    }

    /// The stack, when it is there, of at most `depth` frames.
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
        // SAFETY: the handler is done, and nobody else takes the request before it is free.
        let frames = unsafe { self.slot.captured(count.min(depth)) };
        let result = (frames.into(), Extent::of(end));
        self.phase()
            .store(self.generation | FREE, Ordering::Release);
        Ok(result)
    }

    /// Has nothing more to do with the request.
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

/// What the system says of a thread to anybody.
struct Status {
    /// A letter for its state.
    letter: char,
    /// A bit for each signal that it has blocked.
    blocked: u64,
}

impl Status {
    /// `None` if the system does not say.
    fn of(tasks: &TaskDirectory, thread: i32) -> Option<Self> {
        let mut buffer = [0; 4096];
        let text = tasks.file(thread, "status").ok()?;
        let text = String::from_utf8_lossy(text.read(&mut buffer).ok()?);
        let field = |name| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::trim)
        };
        Some(Self {
            letter: field("State:")?.chars().next()?,
            blocked: u64::from_str_radix(field("SigBlk:")?, 16).ok()?,
        })
    }

    fn blocks(&self, signal: c_int) -> bool {
        self.blocked >> (signal - 1) & 1 != 0
    }

    /// Whether it has ended, and nobody has taken notice yet: so it is with the first thread.
    fn has_ended(&self) -> bool {
        matches!(self.letter, 'Z' | 'X')
    }

    fn state(&self) -> State {
        match self.letter {
            'R' => State::Running,
            'S' | 'D' => State::Asleep,
            _ => State::Unknown,
        }
    }
}

/// Sends a thread the signal with something to carry; 0, or the system's error number.
fn send(thread: i32, signal: c_int, carried: u64) -> c_int {
    let process = std::process::id();
    let mut information = [0u32; 32];
    information[0] = signal as u32;
    information[2] = libc::SI_QUEUE as u32;
    information[4] = process;
    // SAFETY: always callable.
    information[5] = unsafe { libc::getuid() };
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
    // SAFETY: the layout of the kernel's `siginfo_t`.
    -unsafe { call(libc::SYS_rt_tgsigqueueinfo, arguments) } as c_int
}

/// Waits for an answer after the first `answers`, or until the time is up.
fn wait_for_more_than(answers: u32, patience: Duration) {
    let time = libc::timespec {
        tv_sec: patience.as_secs() as libc::time_t,
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
    // SAFETY: waits on a word that stays.
    unsafe { call(libc::SYS_futex, arguments) };
}

/// For how long threads were interrupted: the only pauses of the program that Plimsoll makes.
pub(crate) static INTERRUPTIONS: TimeCounts<1> = TimeCounts::new();

/// The handler.
extern "C" fn interrupted(_: c_int, information: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both, as the flags of the action say.
    let (information, context) = unsafe { (&*information, &*context.cast::<libc::ucontext_t>()) };
    // SAFETY: of a signal that was queued, that is what it carries; any other has no such code.
    let carried = unsafe { information.si_value() }.sival_ptr as u64;
    // SAFETY: always callable; and as above.
    let from_here = information.si_code == libc::SI_QUEUE
        && unsafe { information.si_pid() as isize == call3(libc::SYS_getpid, 0, 0, 0) };
    let number = (carried & 0xff) as usize;
    if !from_here || carried >> 48 != MARK >> 48 || number >= BATCH {
        return;
    }
    let request = &REQUESTS[number];
    let phase = request.phase.load(Ordering::Relaxed);
    if (phase / GENERATION) & CARRIED != carried >> 8 & CARRIED || phase & PHASE != ASKED {
        return;
    }
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
    let registers = &context.uc_mcontext.gregs;
    let at = Registers {
        instruction: registers[libc::REG_RIP as usize] as u64,
        stack: registers[libc::REG_RSP as usize] as u64,
        frame: registers[libc::REG_RBP as usize] as u64,
    };
    let mut capture = Capture {
        number,
        at,
        walk: Walk {
            frames: 0,
            end: End::Lost,
        },
    };
    let top = STACKS.load(Ordering::Acquire) + (number + 1) * STACK;
    // SAFETY: the stack is this request's, which is this handler's until it is done; no signal is
    // handled meanwhile, since this one's action blocks all.
    unsafe { on_stack(top, Capture::fill, (&raw mut capture).cast()) };
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
        // Nobody wants it any more.
        return request.phase.store(generation | FREE, Ordering::Release);
    }
    ANSWERS.fetch_add(1, Ordering::Release);
    let wake = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: wakes who waits on a word.
    unsafe {
        call3(
            libc::SYS_futex,
            &raw const ANSWERS as usize,
            wake,
            i32::MAX as usize,
        )
    };
}

/// What is done on the request's stack.
struct Capture {
    number: usize,
    at: Registers,
    walk: Walk,
}

impl Capture {
    extern "C" fn fill(this: *mut c_void) {
        // SAFETY: the handler's, which waits for this.
        let this = unsafe { &mut *this.cast::<Self>() };
        let slot = &stack::slots_for_requests_made()[this.number];
        // SAFETY: the request is this handler's until it is done.
        this.walk = unsafe { slot.capture_interrupted(this.at) };
    }
}

/// Calls a function on another stack.
///
/// # Safety
/// `top` is the end of memory that nobody else uses, and `argument` is what the function takes. It
/// does not unwind.
unsafe fn on_stack(top: usize, function: extern "C" fn(*mut c_void), argument: *mut c_void) {
    // SAFETY: the stack pointer is put back; r12 is kept by the function called.
    unsafe {
        std::arch::asm!(
            "xchg rsp, r12",
            "call {function}",
            "mov rsp, r12",
            function = in(reg) function,
            inout("r12") top => _,
            in("rdi") argument,
            clobber_abi("C"),
        );
    }
}
