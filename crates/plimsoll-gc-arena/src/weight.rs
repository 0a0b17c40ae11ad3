//! The size of an object, reported at marking.

use std::cell::Cell;
use std::fmt;

use gc_arena::Collect;
use gc_arena::collect::Trace;

/// The size of the header that gc-arena keeps before each value: two words.
const HEADER: usize = 2 * size_of::<usize>();

thread_local! {
    /// The current marking on this thread.
    static MARKING: Cell<Marking> = const { Cell::new(Marking::NONE) };
}

/// The objects that the current step has marked on this thread.
#[derive(Clone, Copy)]
struct Marking {
    /// The arena's number for the cycle; 0 outside of marking.
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

/// The number and size of marked objects with a weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marked {
    pub objects: u64,
    pub bytes: u64,
}

/// The size of an object in bytes, as a field of the object, from which [`Arena`](crate::Arena)
/// computes live bytes.
///
/// gc-arena itself does not know sizes. When it marks an object, it traces the object's fields, and
/// so counts this one. It counts only once in each cycle, however often the object is traced. So
/// the count is exactly the size of the objects that survive the cycle; objects with only weak
/// pointers to them are excluded.
///
/// An object with a weight is traced even without pointers. The weight takes eight bytes. After a
/// move of its value to another arena, a weight must be created anew.
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
    /// The last cycle in which the weight was counted.
    counted_in: Cell<u32>,
}

impl Weight {
    /// Creates a weight for an object of this many bytes. More than 4 GiB count as 4 GiB.
    pub fn new(bytes: usize) -> Self {
        Self {
            bytes: Cell::new(saturated(bytes)),
            counted_in: Cell::new(0),
        }
    }

    /// Creates a weight for an object with a value of this type in a `Gc`. It includes the header,
    /// but no other memory that the value owns.
    pub fn of<T>() -> Self {
        Self::new(HEADER + size_of::<T>())
    }

    /// Adds bytes for other memory that the object owns.
    #[must_use]
    pub fn and(self, bytes: usize) -> Self {
        self.set(self.bytes().saturating_add(bytes));
        self
    }

    /// Changes the size of an object that has grown or shrunk, from the next marking on.
    pub fn set(&self, bytes: usize) {
        self.bytes.set(saturated(bytes));
    }

    /// Returns the size in bytes.
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

// SAFETY: the type contains no pointers that need tracing.
unsafe impl<'gc> Collect<'gc> for Weight {
    const NEEDS_TRACE: bool = true;

    fn trace<T: Trace<'gc>>(&self, _: &mut T) {
        // At the end of a thread, its marking no longer exists, and nothing is counted.
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

/// Counts the objects that this thread marks for an arena's cycle, until dropped. It adds the count
/// also in a panic, since these objects are not counted again.
pub(crate) struct Counting<'a> {
    into: &'a mut Marked,
    before: Marking,
}

impl<'a> Counting<'a> {
    /// Begins counting. `cycle` must not be 0, nor the number of the arena's previous cycle.
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
