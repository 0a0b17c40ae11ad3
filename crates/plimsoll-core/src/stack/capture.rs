//! Captures the calling thread's stack, inside a hook.
//!
//! Unwinding needs a buffer, which a hook cannot allocate: a fixed pool of [`Slot`]s is made
//! beforehand. A capture takes a slot with one compare-and-swap and returns it. All slots may be
//! taken by threads that lost their processor during a capture, or by nested signal handlers. The
//! event is then counted without a stack.
//!
//! The module list is replaced as a whole when the loader has loaded or unloaded something. A slot
//! in use names the list it reads (a hazard pointer). The thread that replaces a list thus sees
//! when the old one is no longer read.

mod interpreted;
mod refresh;
mod walk_stacks;

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::AtomicPtr;

use plimsoll_interpreter::Buffers;
use plimsoll_process::deep_stacks::{Limit, root_frames};
use plimsoll_sys::os::fork::{ForkGuard, ForkLock, Table, join};
use plimsoll_sys::primitives::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use plimsoll_unwind::frame_pointers;
use plimsoll_unwind::modules::ModuleList;
use plimsoll_unwind::registers::{Registers, Start};
use plimsoll_unwind::unwind_tables::{self, Context};
use plimsoll_unwind::walk::{End, Frames, Walk};
use plimsoll_unwind::walk_cache::{self, Beginning, Remembered, StackName, Trail, WalkMethod};

use super::{DEEPEST, HIDDEN_FRAMES, unknown_code};
use crate::fork::Order;
use crate::internal_scope;
use plimsoll_ledger::postmortem_file;

pub use interpreted::find_interpreter;
pub(super) use refresh::with_modules;
pub use refresh::{observe_modules, refresh_modules};

/// The method of walking stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Unwinder {
    /// None yet: stacks are empty until [`prepare`] has run.
    None = 0,
    /// The chain of frame pointers.
    FramePointers = 1,
    /// The unwind tables.
    Tables = 2,
}

static UNWINDER: AtomicU32 = AtomicU32::new(Unwinder::None as u32);

/// Returns the current method of walking stacks.
pub fn unwinder() -> Unwinder {
    match UNWINDER.load(Ordering::Acquire) {
        1 => Unwinder::FramePointers,
        2 => Unwinder::Tables,
        _ => Unwinder::None,
    }
}

/// The state of one capture. All that a capture of a few dozen frames writes is at the beginning, within one
/// page: each page is a page fault in a forked child.
#[repr(C, align(2048))]
pub struct Slot {
    /// The thread pointer of the thread that uses it; 0 when free.
    owner: AtomicUsize,
    /// The module list that the owner may be reading.
    reading: AtomicPtr<ModuleList>,
    /// The memory for stacks with functions of an interpreter, once there is one. Never freed.
    interpreted: AtomicPtr<Buffers>,
    scratch: UnsafeCell<Scratch>,
}

// SAFETY: only the thread that owns the slot uses `scratch`; the other fields are atomic.
unsafe impl Sync for Slot {}

#[repr(C)]
struct Scratch {
    trail: Trail,
    frames: [usize; DEEPEST + HIDDEN_FRAMES],
    context: Context,
    /// The outermost frames of a stack that is deeper than its limit.
    ring: [usize; root_frames(DEEPEST)],
}

/// The pool, once made. It is never freed.
static POOL: AtomicPtr<&'static [Slot]> = AtomicPtr::new(ptr::null_mut());

/// The slots of [`slots_for_requests`], once made. They are never freed.
static REQUESTS: AtomicPtr<&'static [Slot]> = AtomicPtr::new(ptr::null_mut());

/// The current list.
static MODULES: AtomicPtr<ModuleList> = AtomicPtr::new(ptr::null_mut());

/// The lists that were replaced but may still be read. The lock is held while lists are replaced.
static RETIRED: ForkLock<Vec<RetiredList>> = ForkLock::new(Order::ModuleLists.rank(), Vec::new());

/// A list that was replaced: the address of a `ModuleList`, which may be freed when no slot names
/// it.
pub struct RetiredList(usize);

/// Events whose stack could not be captured because all slots were taken or none existed yet.
static WITHOUT_STACK: AtomicU64 = AtomicU64::new(0);

/// Events whose stack ends in code that could not be unwound.
static CUT_STACKS: AtomicU64 = AtomicU64::new(0);

/// Events whose stack is deeper than its limit.
static SHORTENED_STACKS: AtomicU64 = AtomicU64::new(0);

/// Returns the number of events that were recorded without a stack since the process began.
pub fn events_without_stack() -> u64 {
    WITHOUT_STACK.load(Ordering::Relaxed)
}

/// Returns the number of events since the process began whose stack lacks its outer frames, because
/// code in it could not be unwound.
pub fn events_with_cut_stack() -> u64 {
    CUT_STACKS.load(Ordering::Relaxed)
}

/// Returns the number of events since the process began whose stack lacks frames, because it is deeper
/// than its limit.
pub fn events_with_shortened_stack() -> u64 {
    SHORTENED_STACKS.load(Ordering::Relaxed)
}

/// Makes the pool and the first module list, and selects the method of walking. `forced` has
/// precedence. Otherwise, frame pointers are used if the whole program was built with them, or else
/// tables. Later calls only apply `forced`. Not for hooks.
pub fn prepare(forced: Option<Unwinder>) {
    let _own = internal_scope::scope();
    join(&FORK);
    let mut retired = lock_lists();
    if POOL.load(Ordering::Acquire).is_null() {
        retired.reserve(64);
        let cpus = plimsoll_process::cpus::possible().unwrap_or(1);
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
                trail: Trail::new(),
                frames: [0; DEEPEST + HIDDEN_FRAMES],
                context: Context::new_in(),
                ring: [0; root_frames(DEEPEST)],
            }),
            interpreted: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

/// Calls `use_stack` with the return addresses of the calling thread's stack from `start` on, leaf
/// first, within `limit`. If the stack is unavailable, the slice has only the caller that `start`
/// names, or nothing.
pub fn with_stack<R>(start: Start, limit: Limit, use_stack: impl FnOnce(&[usize]) -> R) -> R {
    with_walk(start, limit, Remember::IfSlow, |frames, _, _| {
        use_stack(frames)
    })
}

/// Does the same as [`with_stack`] for the stack of a recorded event: counts a stack that lacks frames.
pub fn with_stack_of_event<R>(
    start: Start,
    limit: Limit,
    use_stack: impl FnOnce(&[usize]) -> R,
) -> R {
    let limit = limit.at_most(DEEPEST + HIDDEN_FRAMES);
    let first = match start {
        Start::Caller(registers) => registers.instruction as usize,
        Start::Here(_) | Start::Limited(..) => 0,
    };
    interpreted::with_functions(start, first, limit, use_stack).unwrap_or_else(|use_stack| {
        with_walk(start, limit, Remember::IfSlow, |frames, end, _| {
            count_if_cut(end, frames.len());
            use_stack(frames)
        })
    })
}

/// Calls `use_stack` with the stack of a recorded event: the calling thread's from the point at
/// which a signal interrupted it. The interrupted instruction is the first frame. For the signal's
/// handler.
pub(super) fn with_interrupted_stack<R>(
    at: Registers,
    limit: Limit,
    use_stack: impl FnOnce(&[usize]) -> R,
) -> R {
    // One past the instruction, like the return address of a call.
    let first = at.instruction as usize + 1;
    let use_stack = match interpreted::with_functions(Start::Here(at), first, limit, use_stack) {
        Ok(result) => return result,
        Err(use_stack) => use_stack,
    };
    let slot = (unwinder() != Unwinder::None).then(take_slot).flatten();
    let Some(slot) = slot else {
        count_without_stack();
        return use_stack(&[]);
    };
    // SAFETY: this thread owns the slot until it stores 0 in `owner`.
    let (walk, frames) = unsafe {
        let walk = slot.capture_interrupted(at, limit);
        (walk, slot.captured(walk.frames.min(limit.frames)))
    };
    count_if_cut(walk.end, frames.len());
    let result = use_stack(frames);
    slot.owner.store(0, Ordering::Release);
    result
}

fn count_without_stack() {
    WITHOUT_STACK.fetch_add(1, Ordering::Relaxed);
    postmortem_file::count_without_stack();
}

/// Counts a stack that lacks frames.
fn count_if_cut(end: End, frames: usize) {
    match end {
        End::Lost | End::Stale => {
            CUT_STACKS.fetch_add(1, Ordering::Relaxed);
            postmortem_file::count_cut_stack();
        }
        // A stack that was not walked has no frames, or the caller's alone.
        End::Full if frames > 1 => {
            SHORTENED_STACKS.fetch_add(1, Ordering::Relaxed);
            postmortem_file::count_shortened_stack();
        }
        End::Full | End::Outermost => {}
    }
}

/// Returns the name of the calling thread's stack from `start` on, within `limit`. The name of a stack that
/// was met before is cached; otherwise `find_name` finds it.
pub(super) fn name_of(
    start: Start,
    limit: Limit,
    find_name: impl FnOnce(&[usize]) -> Option<StackName>,
) -> Option<StackName> {
    let way = match unwinder() {
        Unwinder::FramePointers => WalkMethod::Chain,
        Unwinder::None | Unwinder::Tables => WalkMethod::Tables,
    };
    let met = Beginning::new(start, way).and_then(|from| walk_cache::find(&from, |_, _| ()));
    let name = met.filter(|&(_, frames)| frames <= limit.frames);
    if let Some(name) = name.and_then(|(met, _)| met.name()) {
        return Some(name);
    }
    with_walk(start, limit, Remember::Always, |frames, end, met| {
        count_if_cut(end, frames.len());
        let name = find_name(frames)?;
        if let Some(met) = met {
            met.set_name(name);
        }
        Some(name)
    })
}

/// Selects the walks to be cached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Remember {
    /// Walks by tables. A walk by frame pointers takes no longer than a check of the cache.
    IfSlow,
    /// All walks, because the caller needs the stack's name.
    Always,
}

/// Does the same as [`with_stack`]. Also passes the reason why the walk ended, and its entry in the
/// cache. A stack that was not walked does not count as cut.
fn with_walk<R>(
    start: Start,
    limit: Limit,
    remember: Remember,
    use_stack: impl FnOnce(&[usize], End, Option<Remembered>) -> R,
) -> R {
    let Some(slot) = take_slot() else {
        count_without_stack();
        return match start {
            Start::Caller(registers) if limit.frames > 0 => {
                use_stack(&[registers.instruction as usize], End::Full, None)
            }
            _ => use_stack(&[], End::Full, None),
        };
    };
    // SAFETY: this thread owns the slot until it stores 0 in `owner`.
    let scratch = unsafe { &mut *slot.scratch.get() };
    let Scratch {
        context,
        trail,
        frames,
        ring,
    } = scratch;
    let frames = &mut frames[..limit.frames];
    let ring = &mut ring[..limit.root];
    let (captured, met) = match (unwinder(), frames.split_first_mut(), start) {
        (Unwinder::None, ..) | (_, None, _) => (NOT_WALKED, None),
        (_, Some((first, rest)), Start::Caller(registers)) => {
            *first = registers.instruction as usize;
            let rest = Frames::new(rest, ring);
            let (captured, met) = walk(start, slot, remember, context, trail, rest);
            let frames = 1 + captured.frames;
            (Walk { frames, ..captured }, met)
        }
        (_, Some(_), Start::Here(_) | Start::Limited(..)) => {
            let frames = Frames::new(frames, ring);
            walk(start, slot, remember, context, trail, frames)
        }
    };
    let result = use_stack(&frames[..captured.frames], captured.end, met);
    slot.owner.store(0, Ordering::Release);
    result
}

const NOT_WALKED: Walk = Walk {
    frames: 0,
    end: End::Full,
};

fn walk(
    start: Start,
    slot: &Slot,
    remember: Remember,
    context: &mut Context,
    trail: &mut Trail,
    frames: Frames<'_>,
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
            let from = Beginning::new(start, WalkMethod::Chain);
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
    mut frames: Frames<'_>,
) -> (Walk, Option<Remembered>) {
    let from = Beginning::new(start, WalkMethod::Tables);
    if let Some(from) = &from {
        let leaf_end = frames.leaf_end_mut();
        let keep = |at: usize, frame| {
            if let Some(place) = leaf_end.get_mut(at) {
                *place = frame;
            }
        };
        match walk_cache::find(from, keep) {
            Some((met, captured)) if captured <= leaf_end.len() => {
                let whole = Walk {
                    frames: captured,
                    end: End::Outermost,
                };
                return (whole, Some(met));
            }
            _ => {}
        }
    }
    let walk = walk_stacks::with_room(slot.number(), || {
        slot.with_list(|list| unwind_tables::walk(start, list, context, trail, frames))
    });
    let Some(walk) = walk else {
        count_without_stack();
        return (NOT_WALKED, None);
    };
    let Some(walk) = walk else {
        return (NOT_WALKED, None);
    };
    if let Some(address) = trail.unknown_code() {
        unknown_code::met_at(address);
    }
    (walk, remembered_if_whole(from, &walk, trail))
}

/// The number of walks that are not cached yet.
static UNCACHED: AtomicU32 = AtomicU32::new(0);

/// Does without the cache for the next walks, in the child of a fork that may be short: most of its stacks
/// occur once, and each new entry is two page faults. The entries of its parent stay.
pub fn cache_later() {
    UNCACHED.store(16, Ordering::Relaxed);
}

/// Caches a walk that reached the outermost frame.
fn remembered_if_whole(from: Option<Beginning>, walk: &Walk, trail: &Trail) -> Option<Remembered> {
    let from = from.filter(|_| walk.end == End::Outermost)?;
    // Threads that walk at the same time may count as one.
    let uncached = UNCACHED.load(Ordering::Relaxed);
    if uncached > 0 {
        UNCACHED.store(uncached - 1, Ordering::Relaxed);
        return None;
    }
    walk_cache::remember(&from, trail)
}

fn pool() -> &'static [Slot] {
    slots_at(&POOL)
}

fn slots_at(slots: &AtomicPtr<&'static [Slot]>) -> &'static [Slot] {
    let pool = slots.load(Ordering::Acquire);
    if pool.is_null() {
        return &[];
    }
    // SAFETY: a non-null pointer refers to a leaked slice.
    unsafe { *pool }
}

/// Takes a free slot. The search begins at a slot that differs between threads.
fn take_slot() -> Option<&'static Slot> {
    let pool = pool();
    let thread = plimsoll_sys::os::thread_pointer();
    let first = (thread >> 12).wrapping_mul(0x9e37_79b9) >> 7;
    (0..pool.len())
        .map(|offset| &pool[(first + offset) % pool.len()])
        .find(|slot| {
            slot.owner
                .compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        })
}

/// Returns the `count` slots for stacks that signal handlers read. Makes them at the first call;
/// all calls must pass the same `count`. The caller assigns the slots.
pub fn slots_for_requests(count: usize) -> &'static [Slot] {
    let _own = internal_scope::scope();
    let _alone = lock_lists();
    if REQUESTS.load(Ordering::Acquire).is_null() {
        let slots: Vec<Slot> = (0..count).map(|_| Slot::new()).collect();
        REQUESTS.store(Box::into_raw(Box::new(slots.leak())), Ordering::Release);
    }
    slots_for_requests_made()
}

/// Returns the same slots; none before they were made. For signal handlers.
pub fn slots_for_requests_made() -> &'static [Slot] {
    slots_at(&REQUESTS)
}

impl Slot {
    /// Returns the number of a slot of the pool.
    fn number(&self) -> usize {
        let offset = (&raw const *self as usize).wrapping_sub(pool().as_ptr() as usize);
        offset / size_of::<Self>()
    }

    /// Captures the calling thread's stack from the point of interruption. For the signal's
    /// handler. The interrupted instruction is the first frame. Captures at least one frame, and all
    /// within `limit`.
    ///
    /// # Safety
    /// No other thread uses this slot.
    pub unsafe fn capture_interrupted(&self, at: Registers, limit: Limit) -> Walk {
        // SAFETY: no other thread uses this slot, by this function's contract.
        let Scratch {
            context,
            trail,
            frames,
            ring,
        } = unsafe { &mut *self.scratch.get() };
        let [first, rest @ ..] = frames;
        let rest = &mut rest[..limit.frames.saturating_sub(1)];
        let rest = Frames::new(rest, &mut ring[..limit.root]);
        // One past the instruction, like the return address of a call.
        *first = at.instruction as usize + 1;
        let start = Start::Here(at);
        let walk = self.with_list(|list| unwind_tables::walk(start, list, context, trail, rest));
        if let Some(address) = walk.and_then(|_| trail.unknown_code()) {
            unknown_code::met_at(address);
        }
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

    /// Returns the frames that [`Slot::capture_interrupted`] captured.
    ///
    /// # Safety
    /// No other thread uses this slot.
    pub unsafe fn captured(&self, frames: usize) -> &[usize] {
        // SAFETY: no other thread uses this slot, by this function's contract.
        unsafe { &(&(*self.scratch.get()).frames)[..frames] }
    }

    /// Calls `work` with the current list, and names the list meanwhile. May be called anywhere.
    /// Returns `None` if there is no list yet.
    fn with_list<R>(&self, work: impl FnOnce(&ModuleList) -> R) -> Option<R> {
        // Name the list before using it, then check that it is still current: `refresh_modules`
        // replaces it first and reads the names afterwards.
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

/// Blocks [`prepare`] and [`refresh_modules`] until the guard is dropped.
fn lock_lists() -> ForkGuard<Vec<RetiredList>> {
    RETIRED.lock()
}

static FORK: Table = Table::new(Order::CaptureSlots.rank(), forget_vanished_threads);

/// Frees the slots of threads that no longer exist, in the child of a fork.
fn forget_vanished_threads() {
    let survivor = plimsoll_sys::os::thread_pointer();
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
