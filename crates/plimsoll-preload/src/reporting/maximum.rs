//! The account of the resident memory at its maximum, by owner.
//!
//! The maintenance thread reads the resident memory periodically. In a process of one thread, which
//! has no maintenance thread, that thread reads it after sampled allocations, and before it frees or
//! unmaps a large piece of memory. A reading that is clearly above the last account leads to a new
//! account.
//!
//! # Cost
//! An account that took some CPU time delays the next one by [`SHARE`] times as much. So all accounts but
//! the last take at most 0.5 % of a processor. Readings add one to ten microseconds each. A maximum within the
//! delay has no account. The report shows the difference to the kernel's maximum.
//!
//! # Concurrency
//! One thread writes [`ACCOUNT`]: the only thread of the process, and the maintenance thread after
//! that was created. It writes to the copy that is not in use, and stores the number of accounts after
//! that (release). A reader loads this number before and after the copy (acquire), and repeats the
//! reading after a change. Nothing waits for a reader, which may be the handler of a signal.

use std::time::Duration;

use plimsoll_postmortem::layout::maximum::{HIGHEST, Maximum, OWNERS, WORDS, WRITTEN, copy};
use plimsoll_process::residency;
use plimsoll_sys::os::signals::BlockedSignals;
use plimsoll_sys::os::{clock, peak_resident_bytes};
use plimsoll_sys::primitives::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use super::{is_alone, report, reports};
use plimsoll_core::{internal_heap, internal_scope, overhead, wakeup};
use plimsoll_ledger::postmortem_file;
use plimsoll_profiles::maintenance::{self, PeriodicCheck};
use plimsoll_profiles::profile::memory::{self, ByOwner};

/// The account, in the form of the post-mortem file.
static ACCOUNT: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// The resident bytes from which a new account is made.
static NEXT_BYTES: AtomicU64 = AtomicU64::new(0);

/// The kernel's maximum of the resident bytes at the beginning. It may be from a program that the process
/// executed before.
static FIRST_PEAK: AtomicU64 = AtomicU64::new(0);

/// The time since the start of the process from which a new account is made, in nanoseconds.
static NEXT_ACCOUNT: AtomicU64 = AtomicU64::new(0);

/// The time since the start of the process at which an only thread last read the memory.
static LAST_READING: AtomicU64 = AtomicU64::new(0);

/// Whether this process makes accounts.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// An address above the frames of the first thread.
static FIRST_STACK: AtomicUsize = AtomicUsize::new(0);

/// The time between two accounts, as a multiple of the CPU time of the first.
const SHARE: u64 = 200;

/// The age of a process at its first account, in nanoseconds: a shorter one would spend more than its
/// share.
const FIRST_ACCOUNT: u64 = 100_000_000;

/// The least growth of the resident memory between two accounts: in bytes, and as a part of it.
const MIN_GROWTH: u64 = 1 << 20;
const MIN_GROWTH_PART: u64 = 50;

/// The least time from a reading to the next one by an only thread, in nanoseconds: after a sample, and
/// before a release. Memory may be highest before a release.
const INTERVAL_OF_SAMPLES: u64 = 5_000_000;
const INTERVAL_OF_RELEASES: u64 = 2_000_000;

/// The shortest and the longest time between two readings by the maintenance thread, in nanoseconds,
/// and the part of the process's age that lies between.
const SHORTEST_INTERVAL: u64 = 10_000_000;
const LONGEST_INTERVAL: u64 = 250_000_000;
const INTERVAL_PART: u64 = 16;

/// The largest part of the first thread's stack in which it makes accounts, in bytes. The part is at most
/// half of the limit, so that an account has space.
const LARGEST_STACK_PART: usize = 4 << 20;

/// The part of the first thread's stack in which it makes accounts, in bytes.
static STACK_PART: AtomicUsize = AtomicUsize::new(0);

/// More memory in bytes than an account takes.
const ACCOUNT_HEAP: usize = 1 << 20;

/// More than the size of the loader's frames in bytes, which lie below the frames of `main`.
const LOADER_PART: usize = 256 << 10;

/// Begins to make accounts. For the first thread, before `main`.
pub(super) fn begin() {
    let here = 0_u8;
    let above = (&raw const here as usize).saturating_add(LOADER_PART);
    FIRST_STACK.store(above, Ordering::Relaxed);
    let part = usize::try_from(stack_limit() / 2).unwrap_or(usize::MAX);
    STACK_PART.store(part.min(LARGEST_STACK_PART), Ordering::Relaxed);
    NEXT_ACCOUNT.store(FIRST_ACCOUNT, Ordering::Relaxed);
    FIRST_PEAK.store(peak_resident_bytes(), Ordering::Relaxed);
    IS_ON.store(true, Ordering::Relaxed);
    wakeup::call_before_releases(before_release);
    static CHECK: PeriodicCheck = PeriodicCheck {
        period: time_to_reading,
        check,
    };
    maintenance::check_periodically(&CHECK);
}

/// Returns the limit of the first thread's stack in bytes; 0 if it is unknown.
fn stack_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is writable for the call.
    unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) };
    limit.rlim_cur
}

/// Ends all accounts in the child of a fork: most of its memory is its parent's.
pub(super) fn end_in_child() {
    IS_ON.store(false, Ordering::Relaxed);
    ACCOUNT[WRITTEN].store(0, Ordering::Relaxed);
}

/// Returns the time to the next reading by the maintenance thread.
fn time_to_reading() -> Option<Duration> {
    let age = report::age();
    let interval = (age / INTERVAL_PART).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
    let is_on = IS_ON.load(Ordering::Relaxed);
    is_on.then(|| Duration::from_nanos(interval))
}

/// Reads the memory. For the maintenance thread.
fn check() {
    if reports() {
        let _time = overhead::measure();
        read_at(report::age());
    }
}

/// Reads the memory after a sample in a process of one thread.
pub(super) fn after_sample() {
    check_if_alone(INTERVAL_OF_SAMPLES);
}

/// Reads the memory before a release in a process of one thread.
fn before_release() {
    check_if_alone(INTERVAL_OF_RELEASES);
}

/// Reads the memory if the process has one thread, on that thread, and if the last reading is so many
/// nanoseconds ago. Keeps `errno`. The caller has no lock, and has deferred signals that end the process.
fn check_if_alone(interval: u64) {
    let here = 0_u8;
    let depth = FIRST_STACK
        .load(Ordering::Relaxed)
        .wrapping_sub(&raw const here as usize);
    // Stacks of coroutines and signal handlers may be too small for an account.
    if depth > STACK_PART.load(Ordering::Relaxed)
        || !IS_ON.load(Ordering::Relaxed)
        || internal_scope::is_inside()
    {
        return;
    }
    let age = report::age();
    let last = LAST_READING.load(Ordering::Relaxed);
    if age < last + interval || !is_alone() || !reports() {
        return;
    }
    LAST_READING.store(age, Ordering::Relaxed);
    let _blocked = BlockedSignals::new();
    // SAFETY: `errno` is the thread's own variable.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: `errno` is the address of the thread's own variable.
    let before = unsafe { *errno };
    read_at(age);
    // SAFETY: `errno` is the address of the thread's own variable.
    unsafe { *errno = before };
}

/// Reads the memory of a process of this age in nanoseconds, and makes an account if the memory is
/// clearly higher than at the last one, and the last one is long enough ago.
///
/// The kernel's maximum is at least the current value, and takes less time to read. In most cases it shows
/// that no account is due. It counts only if it is from this program.
fn read_at(age: u64) {
    let _own = internal_scope::scope();
    let peak = peak_resident_bytes();
    let is_of_this_program = peak > FIRST_PEAK.load(Ordering::Relaxed);
    if is_of_this_program {
        has_been(peak);
        if !is_account_due(peak, age) {
            return;
        }
    }
    let Some(bytes) = residency::total() else {
        return;
    };
    has_been(bytes);
    if !is_account_due(bytes, age) {
        return;
    }
    let began = clock::thread_cpu();
    if let Some(account) = internal_heap::has_room(ACCOUNT_HEAP)
        .then(memory::by_owner)
        .flatten()
    {
        let maximum = maximum(&account, age);
        store_if_highest(&maximum);
        // The kernel's counter may differ from the sum of the parts.
        let level = bytes.max(maximum.bytes());
        let growth = MIN_GROWTH.max(level / MIN_GROWTH_PART);
        NEXT_BYTES.store(level + growth, Ordering::Relaxed);
    }
    let took = clock::thread_cpu().saturating_sub(began);
    let next = report::age().saturating_add(SHARE * took);
    NEXT_ACCOUNT.store(next, Ordering::Relaxed);
}

/// Records that so many bytes have been resident.
fn has_been(bytes: u64) {
    each_place(|words| {
        words[HIGHEST].fetch_max(bytes, Ordering::Relaxed);
    });
}

/// Returns whether a process of this age in nanoseconds makes an account if so many bytes are resident.
fn is_account_due(bytes: u64, age: u64) -> bool {
    bytes >= NEXT_BYTES.load(Ordering::Relaxed) && age >= NEXT_ACCOUNT.load(Ordering::Relaxed)
}

/// Converts an account of a process of this age in nanoseconds.
fn maximum(account: &ByOwner, age: u64) -> Maximum {
    let part = |owner| account.get(owner).copied().unwrap_or(0);
    Maximum {
        after_ns: age,
        parts: OWNERS.map(part),
    }
}

/// Stores an account if it is the highest.
fn store_if_highest(maximum: &Maximum) {
    if load().is_some_and(|highest| highest.bytes() >= maximum.bytes()) {
        return;
    }
    let words = maximum.words();
    each_place(|place| {
        let number = place[WRITTEN].load(Ordering::Relaxed) + 1;
        // A reader that sees a word of this copy also sees the number before.
        fence(Ordering::Release);
        for (to, word) in place[copy(number)..].iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        place[WRITTEN].store(number, Ordering::Release);
    });
}

/// Calls `with` with each place of the account: this process's memory, and its post-mortem file.
fn each_place(with: impl Fn(&[AtomicU64])) {
    with(&ACCOUNT);
    if let Some(words) = postmortem_file::maximum() {
        with(words);
    }
}

/// Returns the highest account so far.
fn load() -> Option<Maximum> {
    loop {
        let written = ACCOUNT[WRITTEN].load(Ordering::Acquire);
        let mut words = [0; WORDS];
        for (to, from) in words.iter_mut().zip(&ACCOUNT) {
            *to = from.load(Ordering::Relaxed);
        }
        fence(Ordering::Acquire);
        if ACCOUNT[WRITTEN].load(Ordering::Relaxed) == written {
            words[WRITTEN] = written;
            return Maximum::from_words(&words);
        }
    }
}

/// Returns the highest account of a process that ends. `at_exit` is the account at its exit, if one was
/// made.
pub(super) fn highest(at_exit: Option<&ByOwner>) -> Option<Maximum> {
    if !IS_ON.load(Ordering::Relaxed) {
        return None;
    }
    let at_exit = at_exit.map(|account| maximum(account, report::age()));
    [at_exit, load()]
        .into_iter()
        .flatten()
        .max_by_key(Maximum::bytes)
}
