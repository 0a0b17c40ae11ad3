//! Per-thread state of the allocator's fast path, and the scopes in which a thread's allocations are
//! Plimsoll's own.
//!
//! The fast path touches only a [`countdown`] and a [`Route`]: a limit, and a pointer to the
//! counters of the thread. Countdown and limit can each send an operation to the cold path. Both
//! start with values that send a thread's first allocation and its first free to the cold path,
//! which sets the thread up. A thread without a shard, a thread in a scope and a thread that ends
//! return to the same values. So the fast path has no other test.
//!
//! The state is a leaf of the module graph, because hooks of every layer call [`is_inside`] and the
//! crate's own code opens scopes at every layer.

#[cfg(feature = "preload")]
mod arch;

use std::cell::Cell;

use plimsoll_sys::os::rseq::Area;

/// The countdown of a thread whose every allocation takes the cold path. A `Layout` holds at most
/// `isize::MAX` bytes, so subtracting one size leaves it negative and does not wrap around. Each
/// allocation on the cold path restores it before it calls other code. A lower value would wrap: a
/// refused request could leave the countdown positive beside a null area.
pub const ALWAYS_SLOW: i64 = -1;

const _: () = assert!(ALWAYS_SLOW.checked_sub(isize::MAX as i64).is_some());

/// The state of the fast path besides the countdown.
#[repr(C)]
pub struct Route {
    /// Blocks below this address may not be the inner allocator's; their frees take the cold path.
    pub limit: Cell<usize>,
    /// The thread's counters; null if every operation takes the cold path.
    pub area: Cell<*mut Area>,
}

/// State that only the cold path reads.
struct Saved {
    /// The actual countdown, while the one of the fast path is [`ALWAYS_SLOW`].
    countdown: Cell<i64>,
    /// The thread's counters while it is measured; otherwise null.
    measured_area: Cell<*mut Area>,
    scopes: Cell<u32>,
    /// Whether allocations within scopes go to the inner allocator, and are not counted.
    is_uncounted: Cell<bool>,
}

#[cfg(not(feature = "preload"))]
thread_local! {
    static COUNTDOWN: Cell<i64> = const { Cell::new(ALWAYS_SLOW) };
    static ROUTE: Route = const {
        Route { limit: Cell::new(usize::MAX), area: Cell::new(std::ptr::null_mut()) }
    };
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

thread_local! {
    static SAVED: Saved = const {
        Saved {
            countdown: Cell::new(0),
            measured_area: Cell::new(std::ptr::null_mut()),
            scopes: Cell::new(0),
            is_uncounted: Cell::new(false),
        }
    };
}

/// Returns the calling thread's bytes to the next sample point. The operation that makes it
/// negative takes the cold path.
#[cfg(not(feature = "preload"))]
#[inline(always)]
pub fn countdown() -> *const Cell<i64> {
    // The storage has no destructor, so it is valid until the thread ends.
    COUNTDOWN.with(std::ptr::from_ref)
}

/// Returns the flag of whether the thread is in the allocator under an interposed `malloc`: 1 or 0. Only the library that
/// is preloaded sets it.
#[cfg(not(feature = "preload"))]
#[inline(always)]
pub fn inside() -> *const Cell<usize> {
    INSIDE.with(std::ptr::from_ref)
}

/// Returns the calling thread's route. It is separate from the countdown, so that the compiler does
/// not keep the address of both across the call to the inner allocator.
#[cfg(not(feature = "preload"))]
#[inline(always)]
pub fn route() -> *const Route {
    ROUTE.with(std::ptr::from_ref)
}

#[cfg(feature = "preload")]
pub use preloaded::{countdown, inside, route};

/// The same for a shared library that is loaded with the program. In shared libraries, rustc calls
/// a function for the address of thread-local storage. A library that is loaded at the start lies
/// at a fixed distance from the thread pointer, which the loader writes into a word: the model
/// `initial-exec`. This access takes a few instructions.
#[cfg(feature = "preload")]
mod preloaded {
    use std::cell::Cell;

    use super::Route;

    std::arch::global_asm!(
        ".section .tdata.plimsoll_thread, \"awT\", %progbits",
        ".balign 8",
        ".hidden plimsoll_thread",
        ".globl plimsoll_thread",
        ".type plimsoll_thread, %object",
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
        super::arch::thread_storage().cast()
    }

    /// Returns the place of the bytes to the thread's next sample.
    #[inline(always)]
    pub fn countdown() -> *const Cell<i64> {
        // SAFETY: the storage lasts as long as the thread.
        unsafe { &raw const (*storage()).countdown }
    }

    /// Returns the place of the way of the thread's fast path.
    #[inline(always)]
    pub fn route() -> *const Route {
        // SAFETY: the storage lasts as long as the thread.
        unsafe { &raw const (*storage()).route }
    }

    /// Returns the flag of whether the thread is in the underlying allocator, which may call its
    /// own functions by their interposed names: 1 or 0.
    #[inline(always)]
    pub fn inside() -> *const Cell<usize> {
        // SAFETY: the storage lasts as long as the thread.
        unsafe { &raw const (*storage()).inside }
    }
}

/// The calling thread's state.
#[derive(Clone, Copy)]
pub struct State {
    /// The bytes to the next sample.
    pub countdown: &'static Cell<i64>,
    /// The way of the allocator's fast path.
    pub route: &'static Route,
    saved: &'static Saved,
}

impl State {
    /// Returns the state of the calling thread.
    pub fn current() -> Self {
        // SAFETY: thread-local storage without destructors lasts as long as the thread, and a
        // `State` stays on its thread: it is not `Send`.
        unsafe {
            Self {
                countdown: &*countdown(),
                route: &*route(),
                saved: &*SAVED.with(std::ptr::from_ref),
            }
        }
    }

    /// Returns the state of a thread that is not set up, for tests.
    #[cfg(test)]
    pub fn of_new_thread() -> Self {
        Self {
            countdown: Box::leak(Box::new(Cell::new(ALWAYS_SLOW))),
            route: Box::leak(Box::new(Route {
                limit: Cell::new(usize::MAX),
                area: Cell::new(std::ptr::null_mut()),
            })),
            saved: Box::leak(Box::new(Saved {
                countdown: Cell::new(0),
                measured_area: Cell::new(std::ptr::null_mut()),
                scopes: Cell::new(0),
                is_uncounted: Cell::new(false),
            })),
        }
    }

    /// Returns whether the thread's allocations are Plimsoll's own.
    pub fn is_inside(self) -> bool {
        self.saved.scopes.get() > 0
    }

    /// Returns whether an allocation of the thread, which is Plimsoll's own, goes to the inner allocator: see
    /// [`uncounted`].
    pub fn is_uncounted(self) -> bool {
        self.saved.is_uncounted.get()
    }

    /// Returns whether the fast path may be used. If so, its countdown is the actual one.
    pub fn is_fast(self) -> bool {
        !self.route.area.get().is_null() && !self.is_inside()
    }

    /// Returns the bytes to the next sample point, or to the next call of the sampler.
    pub fn distance(self) -> i64 {
        if self.is_fast() {
            self.countdown.get()
        } else {
            self.saved.countdown.get()
        }
    }

    /// Sets the bytes to the next sample point.
    pub fn set_distance(self, distance: i64) {
        if self.is_fast() {
            self.countdown.set(distance);
        } else {
            self.saved.countdown.set(distance);
            self.countdown.set(ALWAYS_SLOW);
        }
    }

    /// Sets the thread's counters for the time while it is measured; null afterwards.
    pub fn set_measured_area(self, area: *mut Area) {
        self.saved.measured_area.set(area);
    }

    /// Closes the fast path of a thread that is measured from now on.
    pub fn begin_measured(self) {
        self.move_area(&self.route.area, &self.saved.measured_area, usize::MAX);
    }

    /// Opens the fast path again, with this limit.
    pub fn end_measured(self, limit: usize) {
        self.move_area(&self.saved.measured_area, &self.route.area, limit);
    }

    fn move_area(self, from: &Cell<*mut Area>, to: &Cell<*mut Area>, limit: usize) {
        let area = from.get();
        if !area.is_null() {
            let distance = self.distance();
            from.set(std::ptr::null_mut());
            to.set(area);
            self.route.limit.set(limit);
            self.set_distance(distance);
        }
    }

    /// Replaces the number of open scopes and returns the previous one.
    fn replace_scopes(self, scopes: u32) -> u32 {
        let distance = self.distance();
        let before = self.saved.scopes.replace(scopes);
        self.set_distance(distance);
        before
    }
}

/// Returns the counters of the calling thread if it is measured; otherwise null.
#[inline]
pub fn measured_area() -> *mut Area {
    SAVED.with(|saved| saved.measured_area.get())
}

/// Charges an allocation of `size` bytes that left the fast path, if the calling thread is measured,
/// the allocation is not Plimsoll's own, and no sample is due. Returns the thread's counters then;
/// otherwise null, and changes nothing.
#[inline]
pub fn charge_measured(size: usize) -> *mut Area {
    SAVED.with(|saved| {
        let area = saved.measured_area.get();
        let left = saved.countdown.get().wrapping_sub(size as i64);
        if area.is_null() || saved.scopes.get() > 0 || left < 0 {
            return std::ptr::null_mut();
        }
        saved.countdown.set(left);
        // SAFETY: the countdown is the thread's own storage, which lasts as long as the thread.
        unsafe { (*countdown()).set(ALWAYS_SLOW) };
        area
    })
}

/// Makes the allocations of its thread Plimsoll's own until it is dropped. Scopes nest.
///
/// Code of the user runs [`outside`]: its allocations are the program's.
pub struct Scope(());

/// Opens a [`Scope`]. Not for hooks: code within a scope allocates.
pub fn scope() -> Scope {
    let state = State::current();
    state.replace_scopes(state.saved.scopes.get() + 1);
    Scope(())
}

impl Drop for Scope {
    fn drop(&mut self) {
        let state = State::current();
        state.replace_scopes(state.saved.scopes.get() - 1);
    }
}

/// Returns whether the calling thread is in a [`Scope`]. For hooks: reads the thread's storage only.
#[inline]
pub fn is_inside() -> bool {
    State::current().is_inside()
}

/// Calls `work` outside of all scopes of the calling thread, which it is in again when `work` returns or panics.
pub fn outside<R>(work: impl FnOnce() -> R) -> R {
    let state = State::current();
    let _outside = Outside {
        state,
        scopes: state.replace_scopes(0),
    };
    work()
}

/// Calls `allocate`, whose allocation goes to the inner allocator and is neither counted nor sampled. It must not free
/// such a block, nor panic.
pub fn uncounted<R>(allocate: impl FnOnce() -> R) -> R {
    let _own = scope();
    let state = State::current();
    state.saved.is_uncounted.set(true);
    let result = allocate();
    state.saved.is_uncounted.set(false);
    result
}

/// The scopes that the thread has left until this is dropped.
struct Outside {
    state: State,
    scopes: u32,
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.state.replace_scopes(self.scopes);
    }
}

/// Closes all scopes of the calling thread permanently, for a signal handler that ends the process.
/// Returns whether one was open.
pub fn leave_all() -> bool {
    State::current().replace_scopes(0) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_outside_of_scopes_ends_inside_again() {
        let _own = scope();
        let panicked = std::panic::catch_unwind(|| {
            outside(|| {
                assert!(!is_inside());
                std::panic::resume_unwind(Box::new(()))
            })
        });
        assert!(panicked.is_err() && is_inside());
    }
}
