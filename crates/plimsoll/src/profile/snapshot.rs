//! Profiles as records, for programs that evaluate them in code.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::delta::difference;
use super::reading::{Reading, Sample, Tag};
use super::{Error, Profile, release};
use crate::label::Labels;
use crate::symbol::Detail;
use crate::{export, keeper, own, own_time};

pub use super::reading::ValueType;

/// The records of a profile at one instant, or what changed between two instants: what Go has as
/// `runtime.MemProfile`, `BlockProfile`, `MutexProfile`, `ThreadCreateProfile` and
/// `GoroutineProfile`.
///
/// ```
/// # #[global_allocator]
/// # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// use plimsoll::profile::{self, Detail, frames};
///
/// # fn main() -> Result<(), profile::Error> {
/// # profile::set_heap_rate(1);
/// let allocs = profile::lookup("allocs").expect("built in");
/// let before = allocs.snapshot();
/// let block = std::hint::black_box(vec![0u8; 1 << 20]);
/// let delta = allocs.snapshot().since(&before)?;
///
/// let largest = delta
///     .records()
///     .max_by_key(|record| record.value("alloc_space"))
///     .expect("the block was sampled");
/// assert_eq!(largest.value("alloc_space"), Some(1 << 20));
/// for frame in frames(largest.stack(), Detail::Names) {
///     println!("{:#x} {}", frame.address, frame.function.unwrap_or_default());
/// }
/// # drop(block);
/// # Ok(())
/// # }
/// ```
///
/// The memory of a snapshot is Plimsoll's own, and in none of the program's statistics; that of a
/// clone is the program's.
#[derive(Clone)]
pub struct Snapshot {
    profile: Profile,
    reading: Reading,
}

/// A stack of a [`Snapshot`] with its values: what Go has as `runtime.MemProfileRecord`,
/// `BlockProfileRecord` and `StackRecord`.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    sample: &'a Sample,
    value_types: &'static [ValueType],
}

impl Profile {
    /// Reads the records of everything up to now, without finding the names of functions. The
    /// program is not stopped.
    ///
    /// The values are those that [`Profile::write_to`] writes: estimates of what happened, not
    /// counts of samples.
    pub fn snapshot(&self) -> Snapshot {
        let (_own, _time) = (own::scope(), own_time::measure());
        keeper::look();
        Snapshot {
            profile: *self,
            reading: self.read(),
        }
    }
}

impl Snapshot {
    /// The profile that was read.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// What the values of each record count, in the order of [`Record::values`].
    pub fn value_types(&self) -> &'static [ValueType] {
        self.reading.sample_types
    }

    /// When the profile was read; of a difference, when the later one was.
    pub fn time(&self) -> SystemTime {
        UNIX_EPOCH + nanoseconds(self.reading.time_nanos)
    }

    /// The time between the two readings of a difference; `None` for a snapshot of everything
    /// since the process began.
    pub fn duration(&self) -> Option<Duration> {
        (self.reading.duration_nanos != 0).then(|| nanoseconds(self.reading.duration_nanos))
    }

    /// The records, in no particular order. Several may have the same stack: they differ in their
    /// labels, in the size of objects, or in the kind of wait.
    ///
    /// Those of idle threads are among them: see [`Profile::with_idle`].
    pub fn records(&self) -> impl ExactSizeIterator<Item = Record<'_>> {
        let value_types = self.value_types();
        let samples = self.reading.samples.iter();
        samples.map(move |sample| Record {
            sample,
            value_types,
        })
    }

    /// What changed from `earlier` to this snapshot: each record less the one of the same stack
    /// and labels. Records that did not change are left out. Values are negative where there is
    /// less than before, such as memory in use.
    ///
    /// # Errors
    /// [`Error::Incomparable`] if the snapshots are of different profiles, or of `peak`, which is
    /// of one moment.
    pub fn since(&self, earlier: &Self) -> Result<Self, Error> {
        let names = [self.profile.name(), earlier.profile.name()];
        if names[0] != names[1] || names[0] == "peak" {
            return Err(Error::Incomparable(names[0], names[1]));
        }
        let (_own, _time) = (own::scope(), own_time::measure());
        Ok(Self {
            profile: self.profile,
            reading: difference(self.reading.clone(), &earlier.reading),
        })
    }

    /// Writes the snapshot as [`Format::Pprof`](super::Format::Pprof). Takes as long as
    /// [`Profile::write_to`].
    ///
    /// # Errors
    /// The first error of `writer`, unchanged.
    pub fn write_to(&self, writer: &mut dyn Write, detail: Detail) -> io::Result<()> {
        let bytes = {
            let (_own, _time) = (own::scope(), own_time::measure());
            export::pprof(&self.reading, self.profile.extent(detail))
        };
        // The writer is the program's: it is called outside the scope.
        let result = writer.write_all(&bytes);
        release(bytes);
        result
    }
}

impl<'a> Record<'a> {
    /// The call stack as return addresses, leaf first, for [`frames`](super::frames()). Empty if it
    /// is not known.
    ///
    /// At the leaf it includes the functions of the allocator or the lock, which written profiles
    /// hide.
    pub fn stack(&self) -> &'a [usize] {
        self.sample.stack.frames()
    }

    /// As many as there are [`Snapshot::value_types`], in their order.
    pub fn values(&self) -> &'a [i64] {
        &self.sample.values[..self.value_types.len()]
    }

    /// The value of the type of that name; `None` if the profile has no such type.
    ///
    /// `heap` and `allocs` have `alloc_objects` and `inuse_objects`, which are counts, and
    /// `alloc_space` and `inuse_space` in bytes. `block` and `mutex` have `contentions`, a count,
    /// and `delay` in nanoseconds. `goroutine` and `threadcreate` have a count of their own name.
    pub fn value(&self, name: &str) -> Option<i64> {
        let at = self.value_types.iter().position(|of| of.name == name)?;
        Some(self.sample.values[at])
    }

    /// How long the waits or polls of this record took together; `None` for a profile without
    /// `delay`. An estimate if the profile is sampled.
    pub fn delay(&self) -> Option<Duration> {
        self.value("delay").map(nanoseconds)
    }

    /// The labels that the program gave, sorted by key.
    #[expect(clippy::map_identity, reason = "it shortens the lifetime")]
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let (set, of_activity) = match &self.sample.tag {
            Tag::Labels(labels)
            | Tag::Bytes(_, labels)
            | Tag::Lifetime(_, labels)
            | Tag::Wait(_, labels)
            | Tag::Task(_, labels) => (*labels, &[][..]),
            Tag::Activity(activity) => (Labels::NONE, &activity.labels[..]),
        };
        let of_activity = of_activity.iter();
        set.iter()
            .map(|(key, value)| (key, value))
            .chain(of_activity.map(|(key, value)| (&**key, &**value)))
    }

    /// The size of each object in bytes, rounded up to its size class; `None` for other profiles
    /// than those of memory, and where sizes are mixed.
    pub fn object_size(&self) -> Option<u64> {
        match self.sample.tag {
            Tag::Bytes(bytes, _) => u64::try_from(bytes).ok().filter(|&bytes| bytes != 0),
            _ => None,
        }
    }

    /// What was waited for: `mutex`, `rwlock read`, `condvar` and so on; `None` for other profiles
    /// than those of waits. Written profiles tell more kinds apart, by the names of functions.
    pub fn kind(&self) -> Option<&'static str> {
        match self.sample.tag {
            Tag::Wait(kind, _) => Some(kind.name()),
            _ => None,
        }
    }

    /// The name of the thread or task; `None` if it has none, and for profiles of other things.
    pub fn name(&self) -> Option<&'a str> {
        let name = match &self.sample.tag {
            Tag::Task(name, _) => *name,
            Tag::Activity(activity) => &activity.name,
            _ => "",
        };
        (!name.is_empty()).then_some(name)
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot")
            .field("profile", &self.profile.name())
            .field("time", &self.time())
            .field("duration", &self.duration())
            .field("records", &self.reading.samples.len())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut record = f.debug_struct("Record");
        record.field("stack", &self.stack());
        for (of, value) in self.value_types.iter().zip(self.values()) {
            record.field(of.name, value);
        }
        record.finish_non_exhaustive()
    }
}

/// Of a count of nanoseconds that is not negative.
fn nanoseconds(count: i64) -> Duration {
    Duration::from_nanos(u64::try_from(count).unwrap_or(0))
}
