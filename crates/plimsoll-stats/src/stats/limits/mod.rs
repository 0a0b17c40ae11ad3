//! The limits at which the kernel kills: of the process's control groups and of the machine.

mod trend;

use std::fmt;
use std::time::Duration;

use plimsoll_core::fork::Order;
use plimsoll_core::internal_scope;
use plimsoll_process::cgroup;
use plimsoll_process::control_group::Machine;
pub use plimsoll_process::control_group::{ControlGroup, Stalled};
use plimsoll_sys::os::clock;
use plimsoll_sys::os::fork::ForkLock;

use trend::Trend;

/// Returns the memory of the process's control group and of the groups that contain it, from the inside out, as far as
/// the process sees them and they count memory. Empty on other systems than Linux. The figures of a group are read some
/// microseconds apart.
///
/// Reads up to nine files for each group: some hundred microseconds. Not for signal handlers, and not for hooks.
pub fn control_groups() -> Vec<ControlGroup> {
    let _own = internal_scope::scope();
    cgroup::groups()
}

/// The memory limit that the process reaches first.
///
/// Memory in use is what the kernel cannot take back: everything but cached files and caches of the kernel. So a program
/// that only reads or writes files reaches no limit, although `memory.current` of its group does.
///
/// ```
/// if let Some(nearest) = plimsoll::stats::nearest_limit() {
///     let owner = nearest.group.as_deref().unwrap_or("the machine");
///     println!("{} of {} bytes of {owner}", nearest.used, nearest.limit);
///     if let Some(time) = nearest.time_left {
///         println!("reached in {time:?}");
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NearestLimit {
    /// The path of the control group that has the limit; `None` for the machine.
    pub group: Option<String>,
    /// The limit, in bytes, with the swapped memory that is allowed.
    pub limit: u64,
    /// Bytes in use by all processes of the group or of the machine, swapped memory included.
    pub used: u64,
    /// The bytes that are left: `limit` less `used`; 0 if negative.
    pub left: u64,
    /// The growth of `used`, in bytes a second, over the last 8 to 60 seconds. Negative if it falls. `None` if it is not
    /// steady: if it differs by more than a quarter between two halves of that time. It needs the history, which reads the
    /// use each second: `None` without one, and in its first 8 seconds. Changes of less than 48 KiB a second that are not
    /// steady are 0.
    pub bytes_per_second: Option<f64>,
    /// The time in which the limit is reached at this growth. `None` if the growth is unknown or not positive.
    pub time_left: Option<Duration>,
}

/// The control groups of the process, and the limit that it reaches first, of one reading.
pub struct Limits {
    groups: Vec<ControlGroup>,
    /// The limit; `None` if the system reports none.
    pub nearest: Option<NearestLimit>,
}

impl Limits {
    /// Reads them.
    pub fn read() -> Self {
        let groups = control_groups();
        let nearest = nearest(&groups);
        Self { groups, nearest }
    }

    /// Returns a figure of the process's control group; 0 without one.
    pub fn of_group(&self, figure: fn(&ControlGroup) -> u64) -> u64 {
        self.groups.first().map_or(0, figure)
    }

    /// Returns a time for which that group waited for memory, in seconds; 0 if it is not known.
    pub fn stalled(&self, time: fn(Stalled) -> Duration) -> f64 {
        let stalled = self.groups.first().and_then(|group| group.stalled);
        stalled.map_or(0.0, |stalled| time(stalled).as_secs_f64())
    }

    /// Returns the least limit of the groups; 0 without one.
    pub fn least(&self) -> u64 {
        let limits = self.groups.iter().filter_map(|group| group.max);
        limits.min().unwrap_or(0)
    }
}

/// A limit, and the use of its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Use {
    group: Option<String>,
    limit: u64,
    used: u64,
}

type Past = Vec<(Option<String>, Trend)>;

/// The past of each limit. The child of a fork has none: its parent goes on to observe.
static PAST: ForkLock<Past> = ForkLock::with_reset(Order::Limits.rank(), Vec::new(), |past| {
    // Its memory stays: freeing it could call a hook.
    std::mem::forget(std::mem::take(past));
});

/// The maximum number of limits that are observed.
const MAX_LIMITS: usize = 16;

/// Notes the use of all limits, for the growth. Called each second, by the history.
pub fn observe() {
    let _own = internal_scope::scope();
    let now = clock::since_boot();
    let uses = uses(&cgroup::groups(), cgroup::machine());
    let mut past = PAST.lock();
    // The process may move to another group.
    past.retain(|(group, _)| uses.iter().any(|one| one.group == *group));
    for one in uses {
        let has_room = past.len() < MAX_LIMITS;
        let found = past.iter_mut().find(|(group, _)| *group == one.group);
        match found {
            Some((_, trend)) => trend.note(now, one.used),
            None if has_room => {
                let mut trend = Trend::default();
                trend.note(now, one.used);
                past.push((one.group, trend));
            }
            None => {}
        }
    }
}

/// Returns the limit that is reached first at the present growth; if none is, the one with the least memory left. One whose
/// growth is unknown precedes those with more memory left. `None` if the system reports none.
///
/// Reads up to nine files for each control group. Not for signal handlers, and not for hooks.
pub fn nearest_limit() -> Option<NearestLimit> {
    let _own = internal_scope::scope();
    nearest(&cgroup::groups())
}

/// Returns the limit that is reached first, of these groups and of the machine.
pub(crate) fn nearest(groups: &[ControlGroup]) -> Option<NearestLimit> {
    let _own = internal_scope::scope();
    let now = clock::since_boot();
    let uses = uses(groups, cgroup::machine());
    let past = PAST.lock();
    let limits = uses.into_iter().map(|one| {
        let found = past.iter().find(|(group, _)| *group == one.group);
        let growth = found.and_then(|(_, trend)| trend.bytes_per_second(now));
        NearestLimit::new(one, growth)
    });
    first(limits.collect())
}

/// Returns the limit that is reached first; if none is, the one with the least memory left. A limit of unknown growth may be
/// reached before all that have more memory left, so it precedes these.
fn first(limits: Vec<NearestLimit>) -> Option<NearestLimit> {
    let time = |limit: &NearestLimit| limit.time_left.unwrap_or(Duration::MAX);
    let (known, unknown): (Vec<_>, Vec<_>) =
        (limits.into_iter()).partition(|limit| limit.bytes_per_second.is_some());
    let known = known
        .into_iter()
        .min_by_key(|limit| (time(limit), limit.left));
    let unknown = unknown.into_iter().min_by_key(|limit| limit.left);
    match (known, unknown) {
        (Some(known), Some(unknown)) if unknown.left < known.left => Some(unknown),
        (Some(known), _) => Some(known),
        (None, unknown) => unknown,
    }
}

impl NearestLimit {
    fn new(one: Use, growth: Option<f64>) -> Self {
        let left = one.limit.saturating_sub(one.used);
        let seconds = growth
            .filter(|&growth| growth > 0.0)
            .map(|growth| left as f64 / growth);
        Self {
            group: one.group,
            limit: one.limit,
            used: one.used,
            left,
            bytes_per_second: growth,
            time_left: seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        }
    }
}

impl fmt::Display for NearestLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, left, .. } = self;
        write!(f, "nearest limit: {left} of {limit} bytes are left to ")?;
        match &self.group {
            Some(group) => write!(f, "the control group {group:?}")?,
            None => f.write_str("the machine")?,
        }
        match (self.bytes_per_second, self.time_left) {
            (Some(growth), Some(time)) => {
                write!(
                    f,
                    ", for {} s at {growth:.0} bytes a second",
                    time.as_secs()
                )
            }
            (Some(_), None) => f.write_str(", and its use does not grow"),
            (None, _) => f.write_str("; its growth is not known"),
        }
    }
}

/// Returns the limits of groups, which are ordered from the inside out, and of the machine.
fn uses(groups: &[ControlGroup], machine: Option<Machine>) -> Vec<Use> {
    // What may still be swapped out: as far as the machine has room, and this group and all around it allow.
    let mut swap_left = machine.map_or(0, |machine| machine.swap_free);
    let mut uses = Vec::new();
    for group in groups.iter().rev() {
        let swapped = group.swapped.unwrap_or(0);
        if let Some(most) = group.swap_max {
            swap_left = swap_left.min(most.saturating_sub(swapped));
        }
        let Some(max) = group.max else { continue };
        // A group that does not count swapped memory may not report that it has none.
        let swap_left = group.swapped.map_or(0, |_| swap_left);
        uses.push(Use {
            group: Some(group.path.clone()),
            limit: max.saturating_add(swapped).saturating_add(swap_left),
            used: group.held().saturating_add(swapped),
        });
    }
    uses.reverse();
    let of_machine = machine.map(|machine| {
        let limit = machine.total.saturating_add(machine.swap);
        let free = machine.available.saturating_add(machine.swap_free);
        Use {
            group: None,
            limit,
            used: limit.saturating_sub(free),
        }
    });
    uses.extend(of_machine);
    uses
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn group(path: &str, held: u64, max: Option<u64>) -> ControlGroup {
        let mut group = ControlGroup::default();
        path.clone_into(&mut group.path);
        (group.current, group.anonymous, group.max) = (held, held, max);
        group
    }

    fn machine(available: u64) -> Machine {
        Machine {
            total: 1000 * MIB,
            available,
            swap: 50 * MIB,
            swap_free: 40 * MIB,
        }
    }

    #[test]
    fn limits_include_the_memory_that_may_be_swapped() {
        let mut inner = group("/a/b", 70 * MIB, Some(100 * MIB));
        (inner.swapped, inner.swap_max) = (Some(5 * MIB), Some(15 * MIB));
        let mut outer = group("/a", 90 * MIB, Some(200 * MIB));
        // Cached files can be taken back.
        (outer.current, outer.reclaimable) = (190 * MIB, 100 * MIB);
        outer.swapped = Some(5 * MIB);
        let unlimited = group("/", 95 * MIB, None);
        let found = uses(&[inner, outer, unlimited], Some(machine(800 * MIB)));
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.group.as_deref(), one.limit / MIB, one.used / MIB))
            .collect();
        let expected = [
            (Some("/a/b"), 115, 75),
            (Some("/a"), 245, 95),
            (None, 1050, 210),
        ];
        assert_eq!(found, expected);
        assert_eq!(uses(&[], None), []);
        // The limit of an outer group holds for those inside it.
        let mut inner = group("/a/b", 70 * MIB, Some(100 * MIB));
        inner.swapped = Some(0);
        let mut outer = group("/a", 90 * MIB, None);
        (outer.swapped, outer.swap_max) = (Some(0), Some(0));
        let found = uses(&[inner, outer], Some(machine(800 * MIB)));
        assert_eq!(found[0].limit, 100 * MIB);
    }

    #[test]
    fn the_limit_that_is_reached_first_is_found() {
        let limit = |name: &str, left: u64, growth: Option<f64>| {
            let one = Use {
                group: Some(name.to_owned()),
                limit: 1000 * MIB,
                used: (1000 - left) * MIB,
            };
            NearestLimit::new(one, growth)
        };
        let mib = MIB as f64;
        let nearest = |limits: &[NearestLimit]| first(limits.to_vec()).unwrap();
        let (small, large) = (
            limit("small", 100, Some(mib)),
            limit("large", 300, Some(4.0 * mib)),
        );
        assert_eq!(small.time_left, Some(Duration::from_secs(100)));
        assert_eq!(nearest(&[small.clone(), large.clone()]), large);
        // A limit that is never reached is behind all others, whatever is left.
        let shrinks = limit("shrinks", 1, Some(-mib));
        assert_eq!(shrinks.time_left, None);
        assert_eq!(nearest(&[shrinks.clone(), small.clone()]), small);
        let unknown = limit("unknown", 2, None);
        assert_eq!(nearest(&[unknown.clone(), shrinks.clone()]), shrinks);
        // It may be reached before the one that is known to be reached later.
        assert_eq!(nearest(&[small.clone(), unknown.clone()]), unknown);
        let roomy = limit("roomy", 900, None);
        assert_eq!(nearest(&[small.clone(), roomy]), small);
        assert_eq!(limit("full", 0, Some(1.0)).time_left, Some(Duration::ZERO));
        assert_eq!(
            limit("slow", 300, Some(1e-30)).time_left,
            None,
            "in no time that can be stated"
        );
    }

    #[test]
    fn a_limit_is_found_on_this_machine() {
        observe();
        let nearest = nearest_limit();
        if cfg!(all(target_os = "linux", not(plimsoll_portable_os))) {
            let nearest = nearest.expect("the machine has memory");
            assert!(nearest.left <= nearest.limit, "{nearest:?}");
        }
    }
}
