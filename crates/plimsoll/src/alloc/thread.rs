//! What the allocator door keeps for each thread.
//!
//! All that the common path touches is a [`countdown`] and a [`Route`]: a limit, and a pointer to
//! where the thread counts. Countdown and limit can each send an operation to the slow path. They
//! start out so that a thread's first allocation and its first free both go the slow way, which
//! sets it up; and whatever else needs the slow path (no shard, an own scope, a thread in its last
//! moments) sets them that way again. So the common path has no other test.

use std::cell::Cell;

use super::{counts::HEAP, process};
use crate::ledger::Writer;
use crate::os::{self, rseq::Area};
use crate::sampler::{self, Sampler, Weight};
use crate::stack;
use crate::stats::{Backend, backend};
use crate::thread::stacks;

/// The countdown of a thread whose every allocation takes the slow path. A `Layout` holds at most
/// `isize::MAX` bytes, so subtracting one size leaves it negative and does not wrap around; and each
/// allocation on the slow path restores it before it calls anything. A lower value would wrap: a
/// refused request could leave the countdown positive beside a null area.
const ALWAYS_SLOW: i64 = -1;

const _: () = assert!(ALWAYS_SLOW.checked_sub(isize::MAX as i64).is_some());

/// How the common path goes.
#[repr(C)]
pub(super) struct Route {
    /// Blocks below this address may not be the inner allocator's; their frees go the slow way.
    pub(super) limit: Cell<usize>,
    /// Where the thread counts; null if every operation goes the slow way.
    pub(super) area: Cell<*mut Area>,
}

/// What only the slow path needs.
struct Cold {
    stage: Cell<Stage>,
    writer: Cell<Writer>,
    sampler: Sampler,
    /// The real countdown, while the one of the common path is [`ALWAYS_SLOW`].
    countdown: Cell<i64>,
    own_scopes: Cell<u32>,
    /// Whether the backend of the process knows of the thread.
    noticed: Cell<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Never seen.
    New,
    /// Set up.
    Enlisted,
    /// Ending: its shard is given back, and it counts where those do who have none.
    Departed,
}

#[cfg(not(feature = "preload"))]
thread_local! {
    static COUNTDOWN: Cell<i64> = const { Cell::new(ALWAYS_SLOW) };
    static ROUTE: Route = const {
        Route { limit: Cell::new(usize::MAX), area: Cell::new(std::ptr::null_mut()) }
    };
}

thread_local! {
    static COLD: Cold = const {
        Cold {
            stage: Cell::new(Stage::New),
            writer: Cell::new(Writer::Shared),
            sampler: Sampler::new(),
            countdown: Cell::new(0),
            own_scopes: Cell::new(0),
            noticed: Cell::new(false),
        }
    };
}

/// The calling thread's bytes to the next sample point; the operation that takes it below zero
/// goes the slow way.
#[cfg(not(feature = "preload"))]
#[inline(always)]
pub(super) fn countdown() -> *const Cell<i64> {
    // Nothing kept here has a destructor, so it can be used until the thread is gone.
    COUNTDOWN.with(std::ptr::from_ref)
}

/// The calling thread's route. Apart from the countdown, so that the compiler does not keep the
/// address of both across the call to the inner allocator.
#[cfg(not(feature = "preload"))]
#[inline(always)]
pub(super) fn route() -> *const Route {
    ROUTE.with(std::ptr::from_ref)
}

#[cfg(feature = "preload")]
pub(super) use preloaded::{countdown, inside, route};

/// The same for a shared library that the program is loaded with. Of such a library, rustc has the
/// address of a thread's storage looked up by a function; but one that is there from the start has
/// a fixed distance from the thread pointer, which the loader writes into a word: the model
/// `initial-exec`. That is two instructions.
#[cfg(feature = "preload")]
mod preloaded {
    use std::cell::Cell;

    use super::Route;

    std::arch::global_asm!(
        ".section .tdata.plimsoll_thread, \"awT\", @progbits",
        ".balign 8",
        ".hidden plimsoll_thread",
        ".globl plimsoll_thread",
        ".type plimsoll_thread, @object",
        ".size plimsoll_thread, 32",
        "plimsoll_thread:",
        ".quad {always_slow}",
        ".quad -1, 0, 0",
        ".text",
        always_slow = const super::ALWAYS_SLOW,
    );

    #[repr(C)]
    struct Storage {
        countdown: Cell<i64>,
        route: Route,
        inside: Cell<usize>,
    }

    const _: () = assert!(size_of::<Storage>() == 32);

    #[inline(always)]
    fn storage() -> *const Storage {
        let storage;
        // SAFETY: reads a word that the loader has written, and the thread pointer, which the ABI
        // keeps at %fs:0; both are the same whenever a thread looks.
        unsafe {
            std::arch::asm!(
                "mov {0}, qword ptr [rip + plimsoll_thread@GOTTPOFF]",
                "add {0}, qword ptr fs:[0]",
                out(reg) storage,
                options(pure, nomem, nostack),
            );
        }
        storage
    }

    #[inline(always)]
    pub(in super::super) fn countdown() -> *const Cell<i64> {
        // SAFETY: the storage lasts as long as the thread.
        unsafe { &raw const (*storage()).countdown }
    }

    #[inline(always)]
    pub(in super::super) fn route() -> *const Route {
        // SAFETY: as above.
        unsafe { &raw const (*storage()).route }
    }

    /// Whether the thread is in the allocator below, for one that calls its own functions by their
    /// names: 1 or 0.
    #[inline(always)]
    pub(in super::super) fn inside() -> *const Cell<usize> {
        // SAFETY: as above.
        unsafe { &raw const (*storage()).inside }
    }
}

/// The calling thread on the slow path.
#[derive(Clone, Copy)]
pub(super) struct Thread {
    countdown: &'static Cell<i64>,
    route: &'static Route,
    cold: &'static Cold,
}

impl Thread {
    /// For an operation of the program's: sets the thread up if this is its first.
    pub(super) fn current() -> Self {
        let thread = Self::here();
        thread.enlist_if_new();
        thread
    }

    /// The same for an allocation of `size` bytes that left the fast path. Undoes what the fast path
    /// subtracted, before the set-up writes the countdown: [`Thread::charge`] then charges every
    /// allocation alike, a thread's first one too.
    pub(super) fn allocating(size: usize) -> Self {
        let thread = Self::here();
        let before = if thread.is_fast() {
            thread.countdown.get().wrapping_add(size as i64)
        } else {
            ALWAYS_SLOW
        };
        thread.countdown.set(before);
        thread.enlist_if_new();
        thread
    }

    /// For what is no operation. The process is set up by that, which may have another allocator,
    /// and the thread is not: its first operation has to go the slow way, where the allocator's
    /// backend gets to know of it.
    fn as_it_is() -> Self {
        let thread = Self::here();
        if thread.cold.stage.get() == Stage::New {
            process::open();
        }
        thread
    }

    fn here() -> Self {
        // SAFETY: thread-local storage without destructors lasts as long as the thread, and a
        // `Thread` stays on it: it is not `Send`.
        let (countdown, route, cold) =
            unsafe { (&*countdown(), &*route(), &*COLD.with(std::ptr::from_ref)) };
        Self {
            countdown,
            route,
            cold,
        }
    }

    fn enlist_if_new(self) {
        if self.cold.stage.get() == Stage::New {
            self.enlist();
        }
    }

    fn enlist(self) {
        let is_open = process::open();
        if !self.cold.sampler.has_started() {
            let distance = self.cold.sampler.start(os::random::seed(), sampler::rate());
            self.set_distance(distance);
        }
        if !is_open {
            // Another thread opens the process. Meanwhile this thread counts in the shared shard,
            // and `LostEvents` counts its samples: the memory for samples may not be there.
            return;
        }
        let distance = self.distance();
        let writer = HEAP.enlist();
        self.cold.writer.set(writer);
        self.cold.stage.set(Stage::Enlisted);
        self.route.area.set(HEAP.area(writer));
        self.set_distance(distance);
        if !self.route.area.get().is_null() {
            self.route.limit.set(process::own_range_end());
        }
        if matches!(writer, Writer::Shard(_) | Writer::FencedShard(_)) {
            process::at_thread_exit();
        }
        stacks::enter();
    }

    /// Gives the thread's shard back; from here on it counts in the shared one.
    pub(super) fn depart(self) {
        if self.cold.stage.get() != Stage::Enlisted {
            return;
        }
        let distance = self.distance();
        let writer = self.cold.writer.replace(Writer::Shared);
        self.cold.stage.set(Stage::Departed);
        self.route.area.set(std::ptr::null_mut());
        self.route.limit.set(usize::MAX);
        self.set_distance(distance);
        HEAP.retire(writer);
    }

    /// Tells the process of the backend that the thread is about to allocate with, and the backend
    /// of the thread.
    pub(super) fn notice(self, backend: &'static dyn Backend) {
        if !self.cold.noticed.get() && backend::notice(backend) {
            self.cold.noticed.set(true);
        }
    }

    /// How this thread counts.
    #[inline]
    pub(super) fn writer(self) -> Writer {
        self.cold.writer.get()
    }

    /// Whether what it allocates is Plimsoll's own.
    pub(super) fn in_own_scope(self) -> bool {
        self.cold.own_scopes.get() > 0
    }

    /// Whether the common path may be used: then its countdown is the real one.
    fn is_fast(self) -> bool {
        !self.route.area.get().is_null() && !self.in_own_scope()
    }

    /// Bytes to the next sample point, or to where the sampler is asked again.
    fn distance(self) -> i64 {
        if self.is_fast() {
            self.countdown.get()
        } else {
            self.cold.countdown.get()
        }
    }

    fn set_distance(self, distance: i64) {
        if self.is_fast() {
            self.countdown.set(distance);
        } else {
            self.cold.countdown.set(distance);
            self.countdown.set(ALWAYS_SLOW);
        }
    }

    /// Charges an allocation of `size` bytes to the distance and decides whether it is sampled.
    /// [`Thread::allocating`] has undone the subtraction of the fast path.
    pub(super) fn charge(self, size: usize) -> Option<Weight> {
        let before = self.distance();
        let left = before.saturating_sub(i64::try_from(size).unwrap_or(i64::MAX));
        if left >= 0 {
            self.set_distance(left);
            return None;
        }
        let decision = self.cold.sampler.decide(before, size, sampler::rate());
        self.set_distance(decision.countdown);
        if self.cold.stage.get() == Stage::New && decision.weight.is_some() {
            stack::TABLE.drop_event();
            return None;
        }
        decision.weight
    }

    /// Draws a new distance with the rate in force, so that this thread need not use up its present
    /// one.
    fn redraw(self) {
        let decision = self
            .cold
            .sampler
            .decide(self.distance(), 0, sampler::rate());
        self.set_distance(decision.countdown);
    }
}

/// Makes this thread take up a new rate at once. Not for hooks.
pub(crate) fn take_up_rate() {
    let thread = Thread::as_it_is();
    if thread.cold.stage.get() != Stage::New {
        thread.redraw();
    }
}

/// Whether the calling thread is in a scope whose memory is Plimsoll's own.
pub(crate) fn in_own_scope() -> bool {
    Thread::as_it_is().in_own_scope()
}

/// As [`in_own_scope`], for hooks: reads the thread's storage, and sets nothing up.
pub(crate) fn peek_own_scope() -> bool {
    Thread::here().in_own_scope()
}

/// See [`crate::own::scope`].
pub(crate) fn enter_own_scope() {
    let thread = Thread::as_it_is();
    let distance = thread.distance();
    thread.cold.own_scopes.set(thread.cold.own_scopes.get() + 1);
    thread.set_distance(distance);
}

/// See [`crate::own::scope`].
pub(crate) fn leave_own_scope() {
    let thread = Thread::as_it_is();
    let distance = thread.distance();
    thread.cold.own_scopes.set(thread.cold.own_scopes.get() - 1);
    thread.set_distance(distance);
}

/// Does what is not Plimsoll's own, out of all own scopes.
pub(crate) fn outside_own_scopes<R>(work: impl FnOnce() -> R) -> R {
    let thread = Thread::current();
    let set = |scopes| {
        let distance = thread.distance();
        let before = thread.cold.own_scopes.replace(scopes);
        thread.set_distance(distance);
        before
    };
    let scopes = set(0);
    let result = work();
    set(scopes);
    result
}

/// Takes the calling thread out of all own scopes, for it will not leave them: in a signal handler
/// that ends the process. Returns whether it was in one.
#[cfg(feature = "preload")]
pub(crate) fn leave_all_own_scopes() -> bool {
    let thread = Thread::as_it_is();
    let distance = thread.distance();
    let was_inside = thread.cold.own_scopes.replace(0) > 0;
    thread.set_distance(distance);
    was_inside
}

/// How the calling thread counts.
pub(crate) fn writer() -> Writer {
    Thread::as_it_is().writer()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that stays as it was created: another thread opens the process.
    #[test]
    fn samples_of_a_thread_that_is_not_set_up_are_counted_as_lost() {
        let thread = Thread {
            countdown: Box::leak(Box::new(Cell::new(ALWAYS_SLOW))),
            route: Box::leak(Box::new(Route {
                limit: Cell::new(usize::MAX),
                area: Cell::new(std::ptr::null_mut()),
            })),
            cold: Box::leak(Box::new(Cold {
                stage: Cell::new(Stage::New),
                writer: Cell::new(Writer::Shared),
                sampler: Sampler::new(),
                countdown: Cell::new(0),
                own_scopes: Cell::new(0),
                noticed: Cell::new(false),
            })),
        };
        let distance = thread.cold.sampler.start(7, 1);
        thread.set_distance(distance);
        let before = stack::TABLE.overflowed();
        for _ in 0..10 {
            assert_eq!(thread.charge(isize::MAX as usize), None);
            assert_eq!(thread.countdown.get(), ALWAYS_SLOW);
        }
        assert!(stack::TABLE.overflowed() >= before + 10);
    }
}
