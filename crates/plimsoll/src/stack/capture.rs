//! Capturing the calling thread's stack, from inside a hook.
//!
//! Unwinding needs a buffer, which a hook cannot allocate: a fixed pool of [`Slot`]s is
//! made beforehand. A capture takes a slot with one compare-and-swap and gives it back; if all are
//! taken (threads that lost their processor in mid-capture, signal handlers on top of one another),
//! the event is counted without a stack.
//!
//! The module list is replaced whole when the loader has loaded or unloaded something. A slot in
//! use names the list it reads (a hazard pointer), so the one who replaces a list can tell when the
//! old one is no longer read.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::AtomicPtr;

use super::modules::ModuleList;
use super::registers::{Registers, Start};
use super::remembered::{self, Beginning, Remembered, Trail, Way};
use super::table::StackName;
use super::unwind_tables::{self, Context, End, Walk};
use super::{DEEPEST, HIDDEN_FRAMES, frame_pointers, unknown_code};
use crate::primitives::{AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, fence};
use crate::{own, postmortem};

/// How stacks are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Unwinder {
    /// Not yet: stacks are empty until [`prepare`] has run.
    None = 0,
    /// By the chain of frame pointers.
    FramePointers = 1,
    /// By the unwind tables.
    Tables = 2,
}

static UNWINDER: AtomicU32 = AtomicU32::new(Unwinder::None as u32);

/// How stacks are walked now.
pub(crate) fn unwinder() -> Unwinder {
    match UNWINDER.load(Ordering::Acquire) {
        1 => Unwinder::FramePointers,
        2 => Unwinder::Tables,
        _ => Unwinder::None,
    }
}

/// What one capture needs.
pub(crate) struct Slot {
    /// The thread pointer of the thread that uses it; 0 when free.
    owner: AtomicUsize,
    /// The module list that its user may be reading.
    reading: AtomicPtr<ModuleList>,
    scratch: UnsafeCell<Scratch>,
}

// SAFETY: `scratch` is only used by the thread that owns the slot; the rest is atomic.
unsafe impl Sync for Slot {}

struct Scratch {
    context: Context,
    trail: Trail,
    frames: [usize; DEEPEST + HIDDEN_FRAMES],
}

/// The pool, once made; it stays for good.
static POOL: AtomicPtr<&'static [Slot]> = AtomicPtr::new(ptr::null_mut());

/// The slots of [`slots_for_requests`], once made; they stay for good.
static REQUESTS: AtomicPtr<&'static [Slot]> = AtomicPtr::new(ptr::null_mut());

/// The list in use.
static MODULES: AtomicPtr<ModuleList> = AtomicPtr::new(ptr::null_mut());

/// Held while lists are replaced, with those that may still be read.
static RETIRED: Mutex<Vec<RetiredList>> = Mutex::new(Vec::new());

/// A list that was replaced: the address of a `ModuleList`, which may be freed when no slot names
/// it.
pub(crate) struct RetiredList(usize);

/// Events whose stack could not be captured because every slot was taken, or none was made yet.
static WITHOUT_STACK: AtomicU64 = AtomicU64::new(0);

/// Events whose stack ends in code that could not be unwound.
static CUT_STACKS: AtomicU64 = AtomicU64::new(0);

/// Events that were recorded without a stack since the process began.
pub(crate) fn events_without_stack() -> u64 {
    WITHOUT_STACK.load(Ordering::Relaxed)
}

/// Returns how many events, since the process began, were recorded with a stack that lacks its outer
/// frames because it leads through code that could not be unwound.
pub(crate) fn events_with_cut_stack() -> u64 {
    CUT_STACKS.load(Ordering::Relaxed)
}

/// Makes the pool and the first module list, and settles how to walk: `forced`, or else by frame
/// pointers if the program was built with them throughout, or else by tables. Not for hooks. Later
/// calls only apply `forced`.
pub(crate) fn prepare(forced: Option<Unwinder>) {
    let _own = own::scope();
    let mut retired = lock_lists();
    if POOL.load(Ordering::Acquire).is_null() {
        retired.reserve(64);
        let cpus = crate::os::cpus::possible().unwrap_or(1);
        let pool: Vec<Slot> = (0..(2 * cpus).clamp(8, 64)).map(|_| Slot::new()).collect();
        MODULES.store(
            Box::into_raw(Box::new(ModuleList::from_loader())),
            Ordering::Release,
        );
        POOL.store(Box::into_raw(Box::new(pool.leak())), Ordering::Release);
    }
    let chosen = forced.unwrap_or_else(|| match unwinder() {
        // SAFETY: lists are only freed under the lock, which is held.
        Unwinder::None if unsafe { (*MODULES.load(Ordering::Acquire)).has_frame_pointers() } => {
            Unwinder::FramePointers
        }
        Unwinder::None => Unwinder::Tables,
        settled => settled,
    });
    UNWINDER.store(chosen as u32, Ordering::Release);
}

impl Slot {
    fn new() -> Self {
        Self {
            owner: AtomicUsize::new(0),
            reading: AtomicPtr::new(ptr::null_mut()),
            scratch: UnsafeCell::new(Scratch {
                context: Context::new_in(),
                trail: Trail::new(),
                frames: [0; DEEPEST + HIDDEN_FRAMES],
            }),
        }
    }
}

/// Calls `use_stack` with the return addresses of the calling thread's stack from `start` on, leaf
/// first, at most `limit`. Empty if they cannot be had.
pub(crate) fn with_stack<R>(
    start: Start,
    limit: usize,
    use_stack: impl FnOnce(&[usize]) -> R,
) -> R {
    with_walk(start, limit, Remember::IfSlow, |frames, _, _| {
        use_stack(frames)
    })
}

/// The same for a stack that an event is recorded with: counts one that is cut.
pub(crate) fn with_stack_of_event<R>(
    start: Start,
    limit: usize,
    use_stack: impl FnOnce(&[usize]) -> R,
) -> R {
    with_walk(start, limit, Remember::IfSlow, |frames, end, _| {
        count_if_cut(end);
        use_stack(frames)
    })
}

fn count_if_cut(end: End) {
    if matches!(end, End::Lost | End::Stale) {
        CUT_STACKS.fetch_add(1, Ordering::Relaxed);
        postmortem::count_cut_stack();
    }
}

/// What the stack of the calling thread from `start` on is called, with at most `limit` frames;
/// `find_name` finds that out. Names of stacks that were met before are known.
pub(super) fn name_of(
    start: Start,
    limit: usize,
    find_name: impl FnOnce(&[usize]) -> Option<StackName>,
) -> Option<StackName> {
    let way = match unwinder() {
        Unwinder::FramePointers => Way::Chain,
        Unwinder::None | Unwinder::Tables => Way::Tables,
    };
    let met = Beginning::of(start, way).and_then(|from| remembered::find(&from, |_, _| ()));
    let name = met.filter(|&(_, frames)| frames <= limit);
    if let Some(name) = name.and_then(|(met, _)| met.name()) {
        return Some(name);
    }
    with_walk(start, limit, Remember::Always, |frames, end, met| {
        count_if_cut(end);
        let name = find_name(frames)?;
        if let Some(met) = met {
            met.set_name(name);
        }
        Some(name)
    })
}

/// Which walks are to be remembered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Remember {
    /// Those by tables. By frame pointers, a walk takes no longer than to see that it would be the
    /// same.
    IfSlow,
    /// All: it matters what the stack is called.
    Always,
}

/// As [`with_stack`]; also passes on why the walk ended, and what is remembered of it. A stack that
/// was not walked is not cut.
fn with_walk<R>(
    start: Start,
    limit: usize,
    remember: Remember,
    use_stack: impl FnOnce(&[usize], End, Option<Remembered>) -> R,
) -> R {
    let Some(slot) = take_slot() else {
        WITHOUT_STACK.fetch_add(1, Ordering::Relaxed);
        postmortem::count_without_stack();
        return use_stack(&[], End::Room, None);
    };
    // SAFETY: this thread owns the slot until it stores 0 in `owner`.
    let scratch = unsafe { &mut *slot.scratch.get() };
    let Scratch {
        context,
        trail,
        frames,
    } = scratch;
    let frames = &mut frames[..limit.min(DEEPEST + HIDDEN_FRAMES)];
    let (captured, met) = match (unwinder(), frames.split_first_mut(), start) {
        (Unwinder::None, ..) | (_, None, _) => (NOT_WALKED, None),
        (_, Some((first, rest)), Start::Caller(registers)) => {
            *first = registers.instruction as usize;
            let (captured, met) = walk(start, slot, remember, context, trail, rest);
            let frames = 1 + captured.frames;
            (Walk { frames, ..captured }, met)
        }
        (_, Some(_), Start::Here(_) | Start::Below(..)) => {
            walk(start, slot, remember, context, trail, frames)
        }
    };
    let result = use_stack(&frames[..captured.frames], captured.end, met);
    slot.owner.store(0, Ordering::Release);
    result
}

const NOT_WALKED: Walk = Walk {
    frames: 0,
    end: End::Room,
};

fn walk(
    start: Start,
    slot: &Slot,
    remember: Remember,
    context: &mut Context,
    trail: &mut Trail,
    frames: &mut [usize],
) -> (Walk, Option<Remembered>) {
    match unwinder() {
        Unwinder::None => (NOT_WALKED, None),
        Unwinder::FramePointers if remember == Remember::IfSlow => {
            let captured = frame_pointers::walk(start.registers(), start.limit(), frames);
            (captured, None)
        }
        Unwinder::FramePointers => {
            let at = start.registers();
            let walk = frame_pointers::walk_noted(at, start.limit(), frames, trail);
            let from = Beginning::of(start, Way::Chain);
            (walk, remembered_if_whole(from, &walk, trail))
        }
        Unwinder::Tables => walk_by_tables(start, slot, context, trail, frames),
    }
}

fn walk_by_tables(
    start: Start,
    slot: &Slot,
    context: &mut Context,
    trail: &mut Trail,
    frames: &mut [usize],
) -> (Walk, Option<Remembered>) {
    let from = Beginning::of(start, Way::Tables);
    if let Some(from) = &from {
        let keep = |at: usize, frame| {
            if let Some(place) = frames.get_mut(at) {
                *place = frame;
            }
        };
        match remembered::find(from, keep) {
            Some((met, captured)) if captured <= frames.len() => {
                let whole = Walk {
                    frames: captured,
                    end: End::Outermost,
                };
                return (whole, Some(met));
            }
            _ => {}
        }
    }
    let walk = slot.with_list(|list| unwind_tables::walk(start, list, context, trail, frames));
    let Some(walk) = walk else {
        return (NOT_WALKED, None);
    };
    if walk.end == End::Stale {
        let met = match (frames[..walk.frames].last(), start) {
            (Some(return_address), _) => return_address - 1,
            (None, Start::Caller(registers)) => registers.instruction as usize - 1,
            (None, Start::Here(registers) | Start::Below(registers, _)) => {
                registers.instruction as usize
            }
        };
        unknown_code::met_at(met);
    }
    (walk, remembered_if_whole(from, &walk, trail))
}

/// Remembers a walk that went as far as there is anything.
fn remembered_if_whole(from: Option<Beginning>, walk: &Walk, trail: &Trail) -> Option<Remembered> {
    let from = from.filter(|_| walk.end == End::Outermost)?;
    remembered::remember(&from, trail)
}

fn pool() -> &'static [Slot] {
    slots_at(&POOL)
}

fn slots_at(slots: &AtomicPtr<&'static [Slot]>) -> &'static [Slot] {
    let pool = slots.load(Ordering::Acquire);
    if pool.is_null() {
        return &[];
    }
    // SAFETY: once set, it points to a leaked slice.
    unsafe { *pool }
}

/// Takes a free slot, starting at one that differs from thread to thread.
fn take_slot() -> Option<&'static Slot> {
    let pool = pool();
    let thread = crate::os::thread_pointer();
    let first = (thread >> 12).wrapping_mul(0x9e37_79b9) >> 7;
    (0..pool.len())
        .map(|offset| &pool[(first + offset) % pool.len()])
        .find(|slot| {
            slot.owner
                .compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        })
}

/// Replaces the module list if the loader has changed something, or if a walk met code that the list
/// does not know. Returns whether it did. Allocates and takes locks: not for hooks.
pub(crate) fn refresh_modules() -> bool {
    let current = MODULES.load(Ordering::Acquire);
    if current.is_null() {
        return false;
    }
    let _own = own::scope();
    let mut retired = lock_lists();
    let current = MODULES.load(Ordering::Acquire);
    let unknown = unknown_code::take();
    // SAFETY: lists are replaced and freed under the lock, which is held.
    let successor = unsafe { (*current).successor(unknown) };
    let replaced = successor.is_some();
    if let Some(list) = successor {
        let old = MODULES.swap(Box::into_raw(Box::new(list)), Ordering::AcqRel);
        retired.push(RetiredList(old as usize));
    }
    // Replaced first, names looked at after: the counterpart of `walk_by_tables`.
    fence(Ordering::SeqCst);
    retired.retain(|list| {
        let list = list.0 as *mut ModuleList;
        let read = pool()
            .iter()
            .chain(slots_at(&REQUESTS))
            .any(|slot| slot.reading.load(Ordering::Acquire) == list);
        if !read {
            // SAFETY: made by `Box::into_raw`, no longer in `MODULES`, and no slot names it.
            drop(unsafe { Box::from_raw(list) });
        }
        read
    });
    replaced
}

/// Calls `work` with the list in use, which stays so meanwhile. Not for hooks. `None` if there is
/// none yet.
pub(super) fn with_modules<R>(work: impl FnOnce(&ModuleList) -> R) -> Option<R> {
    let _stays = lock_lists();
    let list = MODULES.load(Ordering::Acquire);
    // SAFETY: lists are only freed under the lock, which is held.
    (!list.is_null()).then(|| work(unsafe { &*list }))
}

/// Slots for stacks that signal handlers are asked for, made when they are first wanted; `count` of
/// them, the same for each call. Who uses one for what is the caller's affair.
pub(crate) fn slots_for_requests(count: usize) -> &'static [Slot] {
    let _own = own::scope();
    let _alone = lock_lists();
    if REQUESTS.load(Ordering::Acquire).is_null() {
        let slots: Vec<Slot> = (0..count).map(|_| Slot::new()).collect();
        REQUESTS.store(Box::into_raw(Box::new(slots.leak())), Ordering::Release);
    }
    slots_for_requests_made()
}

/// The same, of which there are none until they were made. For signal handlers.
pub(crate) fn slots_for_requests_made() -> &'static [Slot] {
    slots_at(&REQUESTS)
}

impl Slot {
    /// Captures the calling thread's stack from where it was interrupted; to be called in the
    /// signal's handler. The instruction itself is the first frame.
    ///
    /// # Safety
    /// Nobody else uses this slot.
    pub(crate) unsafe fn capture_interrupted(&self, at: Registers) -> Walk {
        // SAFETY: the caller's.
        let Scratch {
            context,
            trail,
            frames,
        } = unsafe { &mut *self.scratch.get() };
        let (first, rest) = frames.split_first_mut().expect("it has room");
        // One past it, as if it had called.
        *first = at.instruction as usize + 1;
        let start = Start::Here(at);
        let walk = self.with_list(|list| unwind_tables::walk(start, list, context, trail, rest));
        walk.map_or(
            Walk {
                frames: 1,
                end: End::Lost,
            },
            |walk| Walk {
                frames: walk.frames + 1,
                ..walk
            },
        )
    }

    /// What [`Slot::capture_interrupted`] captured.
    ///
    /// # Safety
    /// Nobody else uses this slot.
    pub(crate) unsafe fn captured(&self, frames: usize) -> &[usize] {
        // SAFETY: the caller's.
        unsafe { &(&(*self.scratch.get()).frames)[..frames] }
    }

    /// Calls `work` with the list in use, from anywhere, and names it meanwhile. `None` if there
    /// is none yet.
    fn with_list<R>(&self, work: impl FnOnce(&ModuleList) -> R) -> Option<R> {
        // Name the list before using it, and look whether it is still the one in use:
        // `refresh_modules` replaces it first and looks at the names after.
        let mut list = MODULES.load(Ordering::Acquire);
        loop {
            self.reading.store(list, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let now = MODULES.load(Ordering::Acquire);
            if now == list {
                break;
            }
            list = now;
        }
        // SAFETY: a list is not freed while a slot names it.
        let result = (!list.is_null()).then(|| work(unsafe { &*list }));
        self.reading.store(ptr::null_mut(), Ordering::Release);
        result
    }
}

/// Keeps [`prepare`] and [`refresh_modules`] out until the guard is dropped: for a fork.
pub(crate) fn lock_lists() -> std::sync::MutexGuard<'static, Vec<RetiredList>> {
    RETIRED
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// In the child of a fork: gives back the slots of threads that are not there any more.
pub(crate) fn forget_vanished_threads() {
    let survivor = crate::os::thread_pointer();
    for slot in pool() {
        let owner = slot.owner.load(Ordering::Relaxed);
        if owner != 0 && owner != survivor {
            slot.reading.store(ptr::null_mut(), Ordering::Relaxed);
            slot.owner.store(0, Ordering::Release);
        }
    }
    for slot in slots_at(&REQUESTS) {
        slot.reading.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
