//! The control word of a slot: the counts and flags on which the release of the slot depends.
//!
//! [`Control`] is the atomic word, and has one method for each transition. [`ControlSnapshot`] is
//! the word at one moment, and has one method for each fact about it. No other code knows the bits.
//!
//! | transition | expected before | by |
//! |---|---|---|
//! | [`open_as_task`](Control::open_as_task) | unused | the creator of the task |
//! | [`open_as_auxiliary`](Control::open_as_auxiliary) | unused | the creator of the auxiliary slot |
//! | [`mark_nested`](Control::mark_nested), [`mark_unmanaged`](Control::mark_unmanaged), [`mark_done`](Control::mark_done) | held | the poller, or a borrower of its waker |
//! | [`mark_dropping`](Control::mark_dropping) | held | the owner of the future |
//! | [`release_future`](Control::release_future) | held, dropping | the owner of the future |
//! | [`add_first_registration`](Control::add_first_registration) | held, without registrations | the poller |
//! | [`try_add_registration`](Control::try_add_registration) | any | the owner of a waker |
//! | [`try_release_registration`](Control::try_release_registration) | with registrations | the owner of the registration |
//! | [`try_add_auxiliary`](Control::try_add_auxiliary) | held | the poller, or a borrower of its waker |
//! | [`cancel_auxiliary`](Control::cancel_auxiliary) | held, with auxiliaries | the same |
//! | [`release_auxiliary`](Control::release_auxiliary) | with auxiliaries | the last owner of the auxiliary slot |
//! | [`count_wake`](Control::count_wake) | in use | a waker |
//!
//! Both counts are bounded where they are raised, by a compare-and-swap, so that neither overflows
//! into its neighbour or wraps to zero. A registration above [`MAX_REGISTRATIONS`] aborts the
//! process, as [`Arc`](std::sync::Arc) does. Safe code can reach that number by leaking wakers, and
//! with one more, the executor's waker would be freed while others still use it. An auxiliary slot
//! above [`MAX_AUXILIARIES`] is refused, and the executor's own waker is used.

use std::fmt;

use plimsoll_sys::primitives::{AtomicU64, Ordering};

/// One registration: an existing waker that points to the slot. In the lower 32 bits.
const REGISTRATION: u64 = 1;
const REGISTRATIONS: u64 = (1 << 32) - 1;
/// Half of the range of 32 bits, as for an `Arc`.
pub(in crate::task) const MAX_REGISTRATIONS: u32 = i32::MAX as u32;
/// One auxiliary slot in use for this one. In 8 bits.
const AUXILIARY: u64 = 1 << 32;
const AUXILIARIES: u64 = 0xff << 32;
/// Half of the range of 8 bits.
const MAX_AUXILIARIES: u64 = 0x7f << 32;
/// The future exists.
const HELD: u64 = 1 << 40;
/// The future has completed.
const DONE: u64 = 1 << 41;
/// The future is being dropped.
const DROPPING: u64 = 1 << 42;
/// The task was polled without having been woken, or has a waker that does nothing, so the events
/// that resume it are unknown.
const UNMANAGED: u64 = 1 << 43;
/// The task was polled by another task.
const NESTED: u64 = 1 << 44;
/// The slot is not a task, but holds another waker for one.
const IS_AUXILIARY: u64 = 1 << 45;
/// One completed wake. Counted in the upper 16 bits: fewer wakes than that are in progress at once.
const WAKE: u64 = 1 << 48;

/// The control word. See the module documentation.
pub(in crate::task) struct Control(AtomicU64);

/// The control word at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::task) struct ControlSnapshot(u64);

/// Aborts the process, which has [`MAX_REGISTRATIONS`] wakers of one task.
#[cold]
#[inline(never)]
fn too_many_registrations() -> ! {
    std::process::abort()
}

impl Control {
    #[cfg(loom)]
    pub(super) fn unused() -> Self {
        Self(AtomicU64::new(0))
    }

    #[inline]
    pub(super) fn load(&self, ordering: Ordering) -> ControlSnapshot {
        ControlSnapshot(self.0.load(ordering))
    }

    /// Publishes the slot as a task, whose future exists. No other thread uses the slot.
    pub(super) fn open_as_task(&self) {
        self.open(HELD);
    }

    /// Publishes the slot as an auxiliary slot with one registration. No other thread uses the
    /// slot.
    pub(super) fn open_as_auxiliary(&self) {
        self.open(IS_AUXILIARY | REGISTRATION);
    }

    fn open(&self, state: u64) {
        debug_assert!(self.load(Ordering::Relaxed).is_unused());
        self.0.store(state, Ordering::Release);
    }

    /// Notes that another task polled the task.
    #[inline]
    pub(in crate::task) fn mark_nested(&self) {
        self.mark(NESTED);
    }

    /// Notes that the events that resume the task are unknown.
    #[inline]
    pub(in crate::task) fn mark_unmanaged(&self) {
        self.mark(UNMANAGED);
    }

    /// Notes that the drop of the future has begun.
    #[inline]
    pub(in crate::task) fn mark_dropping(&self) {
        self.mark(DROPPING);
    }

    /// Sets a flag of a task, unless it is set already.
    #[inline]
    fn mark(&self, flag: u64) {
        let current = self.load(Ordering::Relaxed);
        debug_assert!(current.is_held(), "{current:?}");
        if !current.has(flag) {
            self.0.fetch_or(flag, Ordering::Relaxed);
        }
    }

    /// Notes that the future has completed. A future that is polled again may complete again.
    #[inline]
    pub(super) fn mark_done(&self) {
        let before = ControlSnapshot(self.0.fetch_or(DONE, Ordering::Relaxed));
        debug_assert!(before.is_held(), "{before:?}");
    }

    /// Notes that the future is dropped. Returns the state afterwards.
    pub(super) fn release_future(&self) -> ControlSnapshot {
        let before = ControlSnapshot(self.0.fetch_and(!HELD, Ordering::AcqRel));
        debug_assert!(before.is_held() && before.is_dropping(), "{before:?}");
        ControlSnapshot(before.0 & !HELD)
    }

    /// Counts the first registration. Publishes the executor's waker, which is in place.
    #[inline]
    pub(super) fn add_first_registration(&self) {
        let before = ControlSnapshot(self.0.fetch_add(REGISTRATION, Ordering::Release));
        debug_assert!(
            before.is_held() && before.registrations() == 0,
            "{before:?}"
        );
    }

    /// Counts one more registration. Returns false, and counts nothing, if there is none or
    /// `accepts` rejects the state. Aborts the process above [`MAX_REGISTRATIONS`].
    #[inline]
    pub(super) fn try_add_registration(&self, accepts: impl Fn(ControlSnapshot) -> bool) -> bool {
        let mut current = self.load(Ordering::Acquire);
        loop {
            // One comparison for both bounds: a count of 0 wraps to the maximum.
            if current.registrations().wrapping_sub(1) >= MAX_REGISTRATIONS - 1 {
                if current.registrations() == 0 {
                    return false;
                }
                too_many_registrations();
            }
            if !accepts(current) {
                return false;
            }
            match self.0.compare_exchange_weak(
                current.0,
                current.0 + REGISTRATION,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(other) => current = ControlSnapshot(other),
            }
        }
    }

    /// Releases a registration if the state is still `current`, and counts a wake through it if
    /// `woke` is true. Returns the state afterwards, or the state that it found instead.
    #[inline]
    pub(super) fn try_release_registration(
        &self,
        current: ControlSnapshot,
        woke: bool,
    ) -> Result<ControlSnapshot, ControlSnapshot> {
        debug_assert!(current.registrations() > 0, "{current:?}");
        debug_assert!(!(woke && current.is_auxiliary()), "{current:?}");
        // The carry of the count of wakes is lost, because no field is above it.
        let next = (current.0 - REGISTRATION).wrapping_add(if woke { WAKE } else { 0 });
        match self
            .0
            .compare_exchange_weak(current.0, next, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => Ok(ControlSnapshot(next)),
            Err(other) => Err(ControlSnapshot(other)),
        }
    }

    /// Counts one more auxiliary slot. Returns false, and counts nothing, at [`MAX_AUXILIARIES`].
    pub(super) fn try_add_auxiliary(&self) -> bool {
        let one_more = |current| {
            let state = ControlSnapshot(current);
            debug_assert!(state.is_held(), "{state:?}");
            (current & AUXILIARIES < MAX_AUXILIARIES).then_some(current + AUXILIARY)
        };
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .is_ok()
    }

    /// Takes back the count of an auxiliary slot that could not be created.
    pub(super) fn cancel_auxiliary(&self) {
        let before = ControlSnapshot(self.0.fetch_sub(AUXILIARY, Ordering::Relaxed));
        debug_assert!(before.is_held() && before.has_auxiliaries(), "{before:?}");
    }

    /// Notes that an auxiliary slot was released. Returns the state afterwards.
    pub(super) fn release_auxiliary(&self) -> ControlSnapshot {
        let before = ControlSnapshot(self.0.fetch_sub(AUXILIARY, Ordering::AcqRel));
        debug_assert!(before.has_auxiliaries(), "{before:?}");
        ControlSnapshot(before.0 - AUXILIARY)
    }

    /// Counts a wake. The executor was notified, by a thread that keeps the slot in use.
    pub(super) fn count_wake(&self) {
        // The carry is lost, because no field is above this count.
        let before = ControlSnapshot(self.0.fetch_add(WAKE, Ordering::Release));
        debug_assert!(!before.is_unused() && !before.is_auxiliary(), "{before:?}");
    }

    /// Sets the count of registrations, and returns the previous one.
    #[cfg(all(test, not(loom)))]
    pub(in crate::task) fn set_registrations(&self, count: u32) -> u32 {
        let current = self.load(Ordering::Relaxed);
        let changed = current.0 & !REGISTRATIONS | u64::from(count);
        self.0.store(changed, Ordering::Relaxed);
        current.registrations()
    }
}

impl ControlSnapshot {
    #[inline]
    fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    /// Returns the number of wakers that point to the slot.
    #[inline]
    pub(super) fn registrations(self) -> u32 {
        (self.0 & REGISTRATIONS) as u32
    }

    /// Returns whether auxiliary slots are in use for this one.
    #[inline]
    pub(super) fn has_auxiliaries(self) -> bool {
        self.has(AUXILIARIES)
    }

    /// Returns whether the slot is a task whose future exists.
    #[inline]
    pub(super) fn is_held(self) -> bool {
        self.has(HELD)
    }

    /// Returns whether the slot is a task whose future exists and has not completed.
    #[inline]
    pub(super) fn is_live(self) -> bool {
        self.0 & (HELD | DONE) == HELD
    }

    /// Returns whether the drop of the future has begun.
    #[inline]
    pub(super) fn is_dropping(self) -> bool {
        self.has(DROPPING)
    }

    /// Returns whether the task may be polled without a known event that resumes it.
    #[inline]
    pub(super) fn is_unmanaged(self) -> bool {
        self.has(UNMANAGED)
    }

    /// Returns whether another task polled the task.
    #[inline]
    pub(super) fn is_nested(self) -> bool {
        self.has(NESTED)
    }

    /// Returns whether the slot is an auxiliary slot of another one.
    #[inline]
    pub(super) fn is_auxiliary(self) -> bool {
        self.has(IS_AUXILIARY)
    }

    /// Returns whether neither a future, nor a registration, nor an auxiliary slot uses the slot.
    #[inline]
    pub(super) fn is_unused(self) -> bool {
        !self.has(HELD | REGISTRATIONS | AUXILIARIES)
    }

    /// Returns the number of completed wakes, modulo 2^16.
    #[inline]
    pub(super) fn wakes(self) -> u32 {
        (self.0 >> 48) as u32
    }
}

impl fmt::Debug for ControlSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ControlSnapshot({:#018x})", self.0)
    }
}
