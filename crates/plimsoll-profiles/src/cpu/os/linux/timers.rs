//! The timers of all threads.
//!
//! A lock-free table of fixed size. A thread takes an *entry* for itself ([`arm_own`]), or the
//! watching thread takes one for it ([`arm`]). Its `state` holds a *turn*, which every change of
//! hands increments, and one of:
//!
//! * 0: no timer;
//! * [`PENDING`]: the taker is making the timer;
//! * the number of the timer, plus [`FIRST_TIMER`].
//!
//! The one that moves `state` away from a timer deletes the timer. The taker stores its timer only
//! if `state` is still [`PENDING`] in its turn, and deletes it otherwise. The signal carries the
//! entry and its turn, so a signal of a deleted timer finds another turn and is ignored.
//!
//! Two takers may make timers for one thread at once. The handler, which runs on that thread, keeps
//! the first of which it sees a signal, and deletes the other.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem;

use plimsoll_process::wipe_on_fork::Forgotten;
use plimsoll_sys::os::syscall::{call, call3};
use plimsoll_sys::os::thread_end::Key;
use plimsoll_sys::os::{clock, random, thread_id};
use plimsoll_sys::primitives::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use super::super::super::{Missing, StartError, count_missing};
use super::{PERIOD, RECORDING, handler};
use plimsoll_core::internal_thread;
use plimsoll_core::label::{self, Labels};
use plimsoll_core::overhead;

/// Maximum number of threads that have a timer at once.
const PLACES: usize = 1 << 14;

pub(super) struct Entry {
    /// The system's number of the thread; 0 if the entry is free.
    thread: AtomicI32,
    /// The turn in the upper half; the timer in the lower half.
    state: AtomicU64,
    period_ns: AtomicU64,
    /// The end of the first period, on the thread's CPU clock.
    first_ns: AtomicU64,
    /// The number of ends of periods that were counted.
    counted: AtomicU64,
}

const TURN: u64 = 1 << 32;
const TIMER: u64 = TURN - 1;
const PENDING: u64 = 1;
const FIRST_TIMER: u64 = 2;

static ENTRIES: Forgotten<[Entry; PLACES]> = Forgotten::new(
    [const {
        Entry {
            thread: AtomicI32::new(0),
            state: AtomicU64::new(0),
            period_ns: AtomicU64::new(0),
            first_ns: AtomicU64::new(0),
            counted: AtomicU64::new(0),
        }
    }; PLACES],
);

/// The number of entries, from the first on, that were ever in use.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The number of threads that have no timer, because the table was full or the system refused: by the last look at all
/// threads, and of those that began since.
static UNWATCHED: AtomicU64 = AtomicU64::new(0);

/// The key whose destructor is [`ended`].
static KEY: Key = Key::new();

thread_local! {
    /// The calling thread's entry, as [`Entry::name`]; 0 for none.
    static OWN: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of threads that have no timer.
pub fn unwatched_threads() -> u64 {
    UNWATCHED.load(Ordering::Relaxed)
}

/// Makes a timer that never expires, and deletes it.
///
/// # Errors
/// [`StartError::NoTimer`] if the system refuses it, as it would refuse those of a recording.
pub(super) fn try_one() -> Result<(), StartError> {
    let timer = handler::signal()
        .and_then(|signal| create(libc::CLOCK_THREAD_CPUTIME_ID, thread_id(), signal, 0));
    let timer = timer.ok_or(StartError::NoTimer)?;
    delete(u64::from(timer) + FIRST_TIMER);
    Ok(())
}

/// Notes how many threads have no timer.
pub(super) fn note_unwatched(threads: u64) {
    UNWATCHED.store(threads, Ordering::Relaxed);
}

pub fn prepare() {
    ENTRIES.prepare();
    KEY.prepare(ended);
}

/// Makes a timer for the calling thread, unless it has one. For hooks.
pub(super) fn arm_own() {
    if PERIOD.load(Ordering::Relaxed) == 0 {
        return;
    }
    let me = thread_id();
    if own().is_some_and(|(entry, turn)| entry.belongs_to(me, turn)) || internal_thread::is_own(me)
    {
        return;
    }
    let Some((entry, turn)) = Entry::take(me, true) else {
        UNWATCHED.fetch_add(1, Ordering::Relaxed);
        return;
    };
    OWN.set(entry.name(turn));
    if entry.start(turn, libc::CLOCK_THREAD_CPUTIME_ID, clock::thread_cpu()) {
        // Without a key, the watching thread finds the timer instead.
        // SAFETY: the value is a `&'static Entry`, as the key's destructor expects.
        let _ = unsafe { KEY.set(std::ptr::from_ref(entry).cast()) };
    } else if PERIOD.load(Ordering::Relaxed) != 0 {
        UNWATCHED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Makes a timer for a thread other than the calling one, unless it has one. Returns false if the thread lives
/// without a timer.
pub(super) fn arm(thread: i32) -> bool {
    let Some((entry, turn)) = Entry::take(thread, false) else {
        // The thread has made one, or the table is full.
        return all()
            .iter()
            .any(|entry| entry.thread.load(Ordering::Relaxed) == thread);
    };
    match cpu_time(thread) {
        Some(now) => entry.start(turn, clock_of(thread), now),
        // The thread has ended.
        None => {
            entry.release(turn);
            true
        }
    }
}

/// The kernel's number of the clock of a thread's CPU time.
fn clock_of(thread: i32) -> libc::clockid_t {
    const PER_THREAD: i32 = 4;
    const SCHEDULED_TIME: i32 = 2;
    !thread << 3 | PER_THREAD | SCHEDULED_TIME
}

/// Returns the CPU time of a thread in nanoseconds; `None` if it has ended.
fn cpu_time(thread: i32) -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is writable.
    let result = unsafe {
        call3(
            libc::SYS_clock_gettime,
            clock_of(thread) as usize,
            &raw mut time as usize,
            0,
        )
    };
    (result == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Returns the calling thread's entry and its turn, if it had one.
fn own() -> Option<(&'static Entry, u64)> {
    Entry::of_name(OWN.get())
}

/// Removes all timers, and counts the periods whose signals the kernel has not sent.
pub(super) fn remove_all() {
    for entry in all() {
        let state = entry.state.load(Ordering::Relaxed);
        let thread = entry.thread.load(Ordering::Acquire);
        if thread != 0 && entry.lag(thread) > 0 && !entry.is_dead() {
            entry.count_rest(thread, Missing::Stopped, Labels::NONE);
        }
        if thread != 0 || state & TIMER != 0 {
            entry.change_hands(0);
            entry.thread.store(0, Ordering::Release);
        }
    }
}

fn all() -> &'static [Entry] {
    &ENTRIES[..USED.load(Ordering::Acquire).min(PLACES)]
}

/// Calls `visit` with the number of each thread that has an entry.
pub(super) fn for_each(mut visit: impl FnMut(i32, &'static Entry)) {
    for entry in all() {
        let thread = entry.thread.load(Ordering::Acquire);
        if thread > 0 {
            visit(thread, entry);
        }
    }
}

/// Replaces all timers in the child of a fork by one for the calling thread, if samples are
/// recorded.
pub(super) fn after_fork_in_child() {
    if !ENTRIES.is_forgotten() {
        for entry in all() {
            // The child has none of the timers.
            let turn = entry.state.load(Ordering::Relaxed) & !TIMER;
            entry
                .state
                .store(turn.wrapping_add(TURN), Ordering::Relaxed);
            entry.thread.store(0, Ordering::Relaxed);
        }
    }
    OWN.set(0);
    arm_own();
}

unsafe extern "C" fn ended(entry: *mut c_void) {
    // SAFETY: `arm_own` has set the value to a `&'static Entry`.
    let entry = unsafe { &*entry.cast::<Entry>() };
    let Some((own, turn)) = own().filter(|(own, _)| std::ptr::eq(*own, entry)) else {
        return;
    };
    if own.belongs_to(thread_id(), turn) {
        let rest = own.count_ends(clock::thread_cpu());
        let period_ns = own.period_ns.load(Ordering::Relaxed);
        own.release(turn);
        if rest > 0 && !internal_thread::is_own(thread_id()) {
            count_missing(Missing::Ended, label::current(), rest, period_ns);
        }
    }
    OWN.set(0);
}

/// A signal's entry: the ends of periods for which it stands.
pub(super) struct Tick {
    pub(super) periods: u64,
    pub(super) period_ns: u64,
}

/// Returns what a signal with this value stands for; `None` if it stands for nothing. For the
/// handler.
pub(super) fn tick(carried: u64) -> Option<Tick> {
    let (entry, turn) = Entry::of_name(carried)?;
    let me = thread_id();
    if !entry.belongs_to(me, turn) {
        return None;
    }
    let is_second =
        || OWN.get() != carried && own().is_some_and(|(own, turn)| own.belongs_to(me, turn));
    // The timer may be older than the thread's registration as one of Plimsoll's.
    if is_second() || internal_thread::is_own(me) {
        entry.release(turn);
        return None;
    }
    OWN.set(carried);
    let periods = entry.count_ends(clock::thread_cpu());
    let period_ns = entry.period_ns.load(Ordering::Relaxed);
    // Plimsoll's work on a thread of the program is not the program's.
    let is_of_program = periods > 0 && !overhead::is_measured();
    is_of_program.then_some(Tick { periods, period_ns })
}

impl Entry {
    /// The mark of a signal's value, which distinguishes it from other libraries' timers.
    const MARK: u64 = 0x50 << 56;

    /// Returns the value that the signal carries: the number of the entry, and the lower bits of its
    /// turn.
    fn name(&self, turn: u64) -> u64 {
        let offset = std::ptr::from_ref(self) as usize - ENTRIES.as_ptr() as usize;
        let number = (offset / size_of::<Self>()) as u64;
        Self::MARK | turn >> 32 << 16 & 0xff_ffff_ffff_0000 | number
    }

    /// Returns the entry and turn of a signal's value; `None` if the entry has another turn now.
    fn of_name(name: u64) -> Option<(&'static Self, u64)> {
        let entry = all().get(name as u16 as usize)?;
        let turn = entry.state.load(Ordering::Acquire) & !TIMER;
        (entry.name(turn) == name).then_some((entry, turn))
    }

    fn belongs_to(&self, thread: i32, turn: u64) -> bool {
        self.thread.load(Ordering::Relaxed) == thread
            && self.state.load(Ordering::Relaxed) & !TIMER == turn
    }

    /// Takes an entry for a thread, and returns it with its turn. If the thread has an entry, an
    /// owner takes that, because the thread that had this number before may have left it; others
    /// fail.
    fn take(thread: i32, is_owner: bool) -> Option<(&'static Self, u64)> {
        let mut found = None;
        for entry in all() {
            match entry.thread.load(Ordering::Acquire) {
                there if there == thread && is_owner => found = Some(entry),
                there if there == thread => return None,
                _ => {}
            }
        }
        let entry = found.or_else(|| {
            let free = |entry: &&Self| {
                entry.thread.load(Ordering::Relaxed) == 0
                    && entry
                        .thread
                        .compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed)
                        .is_ok()
            };
            let at = ENTRIES.iter().position(|entry| free(&entry))?;
            USED.fetch_max(at + 1, Ordering::Release);
            Some(&ENTRIES[at])
        })?;
        Some((entry, entry.change_hands(PENDING)))
    }

    /// Begins a new turn, and deletes the timer of the former one. Returns the new turn.
    fn change_hands(&self, timer: u64) -> u64 {
        let next = |state: u64| (state & !TIMER).wrapping_add(TURN) | timer;
        let before = self
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |state| {
                Some(next(state))
            });
        let before = before.unwrap_or_else(|state| state);
        delete(before & TIMER);
        next(before) & !TIMER
    }

    /// Makes and starts the timer of a turn. Returns false if there is none.
    fn start(&self, turn: u64, clock: libc::clockid_t, now_ns: u64) -> bool {
        let recording = RECORDING.load(Ordering::SeqCst);
        let period_ns = PERIOD.load(Ordering::SeqCst);
        let Some(signal) = handler::signal().filter(|_| period_ns != 0) else {
            self.release(turn);
            return false;
        };
        let initial = 1 + random::seed() % period_ns;
        self.period_ns.store(period_ns, Ordering::Relaxed);
        self.first_ns.store(now_ns + initial, Ordering::Relaxed);
        self.counted.store(0, Ordering::Relaxed);
        let thread = self.thread.load(Ordering::Relaxed);
        let Some(timer) = create(clock, thread, signal, self.name(turn)) else {
            self.release(turn);
            return false;
        };
        let named = u64::from(timer) + FIRST_TIMER;
        settle(timer, initial, period_ns);
        // A signal may have arrived already: its turn is this one.
        let stored = self.state.compare_exchange(
            turn | PENDING,
            turn | named,
            Ordering::SeqCst,
            Ordering::Relaxed,
        );
        if stored.is_err() {
            delete(named);
            return false;
        }
        if RECORDING.load(Ordering::SeqCst) != recording {
            // The recording ended meanwhile, perhaps after all timers were removed.
            self.release(turn);
            return false;
        }
        true
    }

    /// Ends a turn: deletes its timer and frees the entry. Does nothing if the turn has ended.
    pub(super) fn release(&self, turn: u64) {
        let end = |state: u64| (state & !TIMER == turn).then(|| turn.wrapping_add(TURN));
        let ended = self
            .state
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, end);
        if let Ok(before) = ended {
            delete(before & TIMER);
            self.thread.store(0, Ordering::Release);
        }
    }

    /// Returns the present turn.
    pub(super) fn turn(&self) -> u64 {
        self.state.load(Ordering::Acquire) & !TIMER
    }

    /// Returns the number of ends of periods up to a time on the thread's clock that were not
    /// counted before, and counts them.
    fn count_ends(&self, now_ns: u64) -> u64 {
        let ends = self.ends(now_ns);
        ends.saturating_sub(self.counted.fetch_max(ends, Ordering::Relaxed))
    }

    fn ends(&self, now_ns: u64) -> u64 {
        let since = now_ns.checked_sub(self.first_ns.load(Ordering::Relaxed));
        let period_ns = self.period_ns.load(Ordering::Relaxed).max(1);
        since.map_or(0, |since| 1 + since / period_ns)
    }

    /// Returns the periods of CPU time that the thread has used without a sample.
    pub(super) fn lag(&self, thread: i32) -> u64 {
        if self.state.load(Ordering::Acquire) & TIMER < FIRST_TIMER {
            // The other fields may still be those of the former turn.
            return 0;
        }
        let ends = cpu_time(thread).map_or(0, |now| self.ends(now));
        ends.saturating_sub(self.counted.load(Ordering::Relaxed))
    }

    /// Counts all ends of periods up to now that were not counted before, without a stack.
    pub(super) fn count_rest(&self, thread: i32, missing: Missing, labels: Labels) {
        let periods = cpu_time(thread).map_or(0, |now| self.count_ends(now));
        if periods > 0 && !internal_thread::is_own(thread) {
            let period_ns = self.period_ns.load(Ordering::Relaxed);
            count_missing(missing, labels, periods, period_ns);
        }
    }

    /// Returns whether the thread for which the timer was made has ended. Another thread may have
    /// its number now.
    pub(super) fn is_dead(&self) -> bool {
        let timer = self.state.load(Ordering::Relaxed) & TIMER;
        let Some(timer) = timer.checked_sub(FIRST_TIMER) else {
            return false;
        };
        // SAFETY: all zeros is a valid `itimerspec`, which the call fills.
        let mut left: libc::itimerspec = unsafe { mem::zeroed() };
        // SAFETY: `left` is writable.
        let result = unsafe {
            call3(
                libc::SYS_timer_gettime,
                timer as usize,
                &raw mut left as usize,
                0,
            )
        };
        // The system reports no remaining time for a thread that has ended.
        result == 0 && left.it_value.tv_sec == 0 && left.it_value.tv_nsec == 0
    }
}

/// Creates a timer that sends `signal` to a thread.
fn create(clock: libc::clockid_t, thread: i32, signal: i32, carried: u64) -> Option<u32> {
    // SAFETY: all zeros is a valid `sigevent`.
    let mut event: libc::sigevent = unsafe { mem::zeroed() };
    event.sigev_value = libc::sigval {
        sival_ptr: carried as *mut c_void,
    };
    event.sigev_signo = signal;
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_notify_thread_id = thread;
    let mut timer: i32 = 0;
    // SAFETY: both are valid for the call, which reads the one and writes the other.
    let result = unsafe {
        call3(
            libc::SYS_timer_create,
            clock as usize,
            &raw const event as usize,
            &raw mut timer as usize,
        )
    };
    (result == 0).then_some(timer as u32)
}

/// Sets the times of a timer. Fails only if the thread has ended.
fn settle(timer: u32, initial_ns: u64, period_ns: u64) {
    let time = |nanoseconds: u64| libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as _,
        tv_nsec: (nanoseconds % 1_000_000_000) as _,
    };
    let times = libc::itimerspec {
        it_interval: time(period_ns),
        it_value: time(initial_ns),
    };
    let arguments = [timer as usize, 0, &raw const times as usize, 0, 0, 0];
    // SAFETY: `times` is readable, and the former times are not requested.
    unsafe { call(libc::SYS_timer_settime, arguments) };
}

/// Deletes the timer that a `state` names, if any.
fn delete(timer: u64) {
    if let Some(timer) = timer.checked_sub(FIRST_TIMER) {
        // SAFETY: the caller has removed the timer from its entry, so it alone deletes it.
        unsafe { call3(libc::SYS_timer_delete, timer as usize, 0, 0) };
    }
}
