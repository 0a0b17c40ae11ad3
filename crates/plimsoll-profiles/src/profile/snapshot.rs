//! Profiles as records, for programs that evaluate them in code.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::delta::difference;
use super::reading::{Reading, Sample, Tag};
use super::{Error, Profile};
use plimsoll_core::label::Labels;
use plimsoll_core::stack;
use plimsoll_core::{internal_scope, overhead};

pub use super::reading::ValueType;

/// The records of a profile at one instant, or their changes between two instants. Like Go's
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
/// The memory of a snapshot is Plimsoll's own and appears in none of the program's statistics. The
/// memory of a clone is the program's.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) profile: Profile,
    pub(crate) reading: Reading,
}

/// A stack of a [`Snapshot`] with its values, like Go's `runtime.MemProfileRecord`,
/// `BlockProfileRecord` and `StackRecord`.
///
/// ```
/// use plimsoll::profile::Profile;
///
/// # fn main() -> Result<(), plimsoll::profile::Error> {
/// let jobs = Profile::new("my_crate.jobs")?;
/// let _job = jobs.add(0)?;
///
/// let snapshot = jobs.snapshot();
/// let record = snapshot.records().next().expect("an entry");
/// assert_eq!(record.value("my_crate.jobs"), Some(1));
/// println!("{} frames, {} labels", record.stack().len(), record.labels().count());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Record<'a> {
    sample: &'a Sample,
    value_types: &'static [ValueType],
}

impl Profile {
    /// Reads the records of all events up to now, without resolving function names. Does not stop
    /// the program.
    ///
    /// The values are those that [`Profile::write_to`] writes: estimates of the events, not counts
    /// of samples.
    pub fn snapshot(&self) -> Snapshot {
        let (_own, _time) = (internal_scope::scope(), overhead::measure());
        stack::refresh_modules();
        Snapshot {
            profile: *self,
            reading: self.source.read(),
        }
    }
}

/// Returns a snapshot of a reading of that profile.
pub fn snapshot(profile: Profile, reading: Reading) -> Snapshot {
    Snapshot { profile, reading }
}

impl Snapshot {
    /// Returns the profile that was read.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Returns the name and unit of each value of a record, in the order of [`Record::values`].
    pub fn value_types(&self) -> &'static [ValueType] {
        self.reading.sample_types
    }

    /// Returns the time at which the profile was read; for a difference, the time of the later
    /// reading.
    pub fn time(&self) -> SystemTime {
        UNIX_EPOCH + nanoseconds(self.reading.moment.since_1970)
    }

    /// Returns the time between the two readings of a difference; `None` for a snapshot of
    /// everything since the process began.
    pub fn duration(&self) -> Option<Duration> {
        (self.reading.duration_nanos != 0).then(|| nanoseconds(self.reading.duration_nanos))
    }

    /// Returns the records, in no particular order. Several may have the same stack: they differ in
    /// labels, in the size of objects, or in the kind of wait.
    ///
    /// Records of idle threads are included: see [`Profile::with_idle`].
    pub fn records(&self) -> impl ExactSizeIterator<Item = Record<'_>> {
        let value_types = self.value_types();
        let samples = self.reading.samples.iter();
        samples.map(move |sample| Record {
            sample,
            value_types,
        })
    }

    /// Returns the changes from `earlier` to this snapshot: each record less the earlier record
    /// with the same stack and labels. Records that did not change are omitted. Values that
    /// decreased, such as memory in use, are negative.
    ///
    /// # Errors
    /// [`Error::Incomparable`] if the snapshots are of different profiles, or of `peak`, which
    /// describes a single moment.
    pub fn since(&self, earlier: &Self) -> Result<Self, Error> {
        let names = [self.profile.name(), earlier.profile.name()];
        if names[0] != names[1] || names[0] == "peak" {
            return Err(Error::Incomparable(names[0], names[1]));
        }
        let (_own, _time) = (internal_scope::scope(), overhead::measure());
        Ok(Self {
            profile: self.profile,
            reading: difference(self.reading.clone(), &earlier.reading),
        })
    }
}

impl<'a> Record<'a> {
    /// Returns the call stack as return addresses, leaf first, for [`frames`](super::frames()).
    /// Empty if it is unknown.
    ///
    /// The leaf includes functions of the allocator or the lock, which written profiles hide.
    pub fn stack(&self) -> &'a [usize] {
        self.sample.stack.frames()
    }

    /// Returns the categories of the record, outermost first. They stand for the
    /// callers of all functions of the stack. Only `memory` has them: `[heap]`, `[thread stacks]`.
    pub fn categories(&self) -> impl Iterator<Item = &'a str> {
        self.sample.stack.categories().iter().map(|name| &**name)
    }

    /// Returns the values, in the order of [`Snapshot::value_types`].
    pub fn values(&self) -> &'a [i64] {
        &self.sample.values[..self.value_types.len()]
    }

    /// Returns the value of the type with that name; `None` if the profile has no such type.
    ///
    /// `heap` and `allocs` have `alloc_objects` and `inuse_objects`, which are counts, and
    /// `alloc_space` and `inuse_space` in bytes. `block` and `mutex` have `contentions`, a count,
    /// and `delay` in nanoseconds. `goroutine` and `threadcreate` have a count of the same name.
    pub fn value(&self, name: &str) -> Option<i64> {
        let at = self.value_types.iter().position(|of| of.name == name)?;
        Some(self.sample.values[at])
    }

    /// Returns the total duration of the waits or polls of this record; `None` for a profile
    /// without `delay`. An estimate if the profile is sampled.
    pub fn delay(&self) -> Option<Duration> {
        self.value("delay").map(nanoseconds)
    }

    /// Returns the labels that the program set, sorted by key.
    #[expect(clippy::map_identity, reason = "it shortens the lifetime")]
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let (set, of_activity) = match &self.sample.tag {
            Tag::Labels(labels)
            | Tag::Bytes(_, labels)
            | Tag::Lifetime(_, labels)
            | Tag::Wait(_, labels)
            | Tag::Task(_, labels) => (*labels, &[][..]),
            Tag::Polled(polled) => (polled.labels, &[][..]),
            Tag::Activity(activity) | Tag::Wall(activity) => (Labels::NONE, &activity.labels[..]),
        };
        let of_activity = of_activity.iter();
        set.iter()
            .map(|(key, value)| (key, value))
            .chain(of_activity.map(|(key, value)| (&**key, &**value)))
    }

    /// Returns the size of each object in bytes, rounded up to its size class. `None` for profiles
    /// of anything but memory, and for mixed sizes.
    pub fn object_size(&self) -> Option<u64> {
        match self.sample.tag {
            Tag::Bytes(bytes, _) => u64::try_from(bytes).ok().filter(|&bytes| bytes != 0),
            _ => None,
        }
    }

    /// Returns the kind of the wait: `mutex`, `rwlock read`, `condvar` and so on. `None` for
    /// profiles without waits. Written profiles distinguish more kinds, by function names.
    pub fn kind(&self) -> Option<&'static str> {
        match self.sample.tag {
            Tag::Wait(kind, _) => Some(kind.name()),
            _ => None,
        }
    }

    /// Returns the name of the thread or task; `None` if it is unnamed, and for other profiles.
    pub fn name(&self) -> Option<&'a str> {
        let name = match &self.sample.tag {
            Tag::Task(name, _) => *name,
            Tag::Polled(polled) => polled.name,
            Tag::Activity(activity) | Tag::Wall(activity) => &activity.name,
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

/// Converts a count of nanoseconds; negative counts become zero.
fn nanoseconds(count: i64) -> Duration {
    Duration::from_nanos(u64::try_from(count).unwrap_or(0))
}
