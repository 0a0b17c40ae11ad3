//! How large an object is, told to whoever marks it.

use std::cell::Cell;
use std::fmt;

use gc_arena::Collect;
use gc_arena::collect::Trace;

/// What gc-arena keeps before each value: two words.
const HEADER: usize = 2 * size_of::<usize>();

thread_local! {
    /// The cycle that is marking on this thread.
    static MARKING: Cell<Marking> = const { Cell::new(Marking::NONE) };
}

/// What was marked on this thread by the step that is under way.
#[derive(Clone, Copy)]
struct Marking {
    /// The arena's number for its cycle; 0 outside of marking.
    cycle: u32,
    marked: Marked,
}

impl Marking {
    const NONE: Self = Self {
        cycle: 0,
        marked: Marked {
            objects: 0,
            bytes: 0,
        },
    };
}

/// Objects with a weight that were marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marked {
    pub objects: u64,
    pub bytes: u64,
}

/// How many bytes an object is: a field of it, by which [`Arena`](crate::Arena) knows how much is
/// live.
///
/// gc-arena does not know. When it marks an object, it has its fields traced, and this one is
/// then counted, once in each cycle, however often the object is traced. So what is counted is
/// exactly what survives the cycle; what only weak pointers are left to does not.
///
/// An object that has one is traced even if it has no pointers. It takes eight bytes. A value
/// that moves to another arena takes its weight along, which has to be made anew.
///
/// ```
/// # use gc_arena::Collect;
/// use plimsoll_gc_arena::Weight;
///
/// #[derive(Collect)]
/// #[collect(no_drop)]
/// struct Text {
///     text: String,
///     weight: Weight,
/// }
///
/// let text = "abc".to_owned();
/// let weight = Weight::of::<Text>().and(text.capacity());
/// let text = Text { text, weight };
/// ```
pub struct Weight {
    bytes: Cell<u32>,
    /// The last cycle that it was counted in.
    counted_in: Cell<u32>,
}

impl Weight {
    /// Of an object of this many bytes. More than 4 GiB count as 4 GiB.
    pub fn new(bytes: usize) -> Self {
        Self {
            bytes: Cell::new(saturated(bytes)),
            counted_in: Cell::new(0),
        }
    }

    /// Of an object with a value of this type in a `Gc`, header included, without what else it
    /// owns.
    pub fn of<T>() -> Self {
        Self::new(HEADER + size_of::<T>())
    }

    /// With this many bytes more, for what else the object owns.
    #[must_use]
    pub fn and(self, bytes: usize) -> Self {
        self.set(self.bytes().saturating_add(bytes));
        self
    }

    /// Changes it, for an object that has grown or shrunk. Counts from the next marking on.
    pub fn set(&self, bytes: usize) {
        self.bytes.set(saturated(bytes));
    }

    /// In bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.get() as usize
    }
}

fn saturated(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl fmt::Debug for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Weight").field(&self.bytes()).finish()
    }
}

// SAFETY: there are no pointers in it.
unsafe impl<'gc> Collect<'gc> for Weight {
    const NEEDS_TRACE: bool = true;

    fn trace<T: Trace<'gc>>(&self, _: &mut T) {
        // At the end of a thread, nothing is counted any more.
        let _ = MARKING.try_with(|marking| {
            let mut now = marking.get();
            if now.cycle == 0 || self.counted_in.replace(now.cycle) == now.cycle {
                return;
            }
            now.marked.objects += 1;
            now.marked.bytes += u64::from(self.bytes.get());
            marking.set(now);
        });
    }
}

/// Counts what this thread marks, for an arena's cycle, until it is dropped: also in a panic, since
/// what was counted is not counted again.
pub(crate) struct Counting<'a> {
    into: &'a mut Marked,
    before: Marking,
}

impl<'a> Counting<'a> {
    /// The number of the cycle is not 0, and not that of the arena's cycle before.
    pub fn new(cycle: u32, into: &'a mut Marked) -> Self {
        let marking = Marking {
            cycle,
            ..Marking::NONE
        };
        let before = MARKING.try_with(|now| now.replace(marking));
        Self {
            into,
            before: before.unwrap_or(Marking::NONE),
        }
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        let counted = MARKING.try_with(|now| now.replace(self.before));
        let counted = counted.unwrap_or(Marking::NONE).marked;
        self.into.objects += counted.objects;
        self.into.bytes += counted.bytes;
    }
}
