//! A soft limit on memory: near it, memory is given back to the system, and the program is told, so
//! that it can give up what it can do without.
//!
//! A thread of Plimsoll's own looks every 100 ms, and every 10 ms when there is little left. So
//! nothing is ever called from inside an allocation, callbacks may allocate, lock and wait, and
//! there is never more than one at a time. Nothing is refused: an allocation beyond the limit goes
//! on as it would.

mod thresholds;
mod watch;

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::os::{cgroup, region::PAGE};
use crate::{own, settings};
use thresholds::Threshold;
pub(crate) use watch::{State, lock};

/// How much memory the program should keep to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryLimit {
    /// As much as it likes.
    #[default]
    Off,
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of what there is: of the limit of the process's control group, or of the
    /// machine's memory, if that is less or there is no such limit.
    Percent(u32),
    /// The limit of the process's control group.
    Cgroup,
}

/// Why there is no such limit.
#[derive(Debug)]
#[non_exhaustive]
pub enum MemoryLimitError {
    /// The control group of the process has no limit, or the system does not say.
    NoCgroupLimit,
    /// It does not say how much memory there is.
    UnknownMemory,
    /// There can be no thread that looks after it.
    NoThread(io::Error),
}

impl fmt::Display for MemoryLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCgroupLimit => {
                f.write_str("the control group of the process has no limit on memory")
            }
            Self::UnknownMemory => f.write_str("the system does not say how much memory there is"),
            Self::NoThread(error) => {
                write!(f, "no thread to look after the memory limit: {error}")
            }
        }
    }
}

impl std::error::Error for MemoryLimitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoThread(error) => Some(error),
            _ => None,
        }
    }
}

impl MemoryLimit {
    /// What it comes to, in bytes, at most `i64::MAX`; `None` for no limit.
    ///
    /// # Errors
    /// The first two of [`MemoryLimitError`].
    pub fn bytes(self) -> Result<Option<u64>, MemoryLimitError> {
        let _own = own::scope();
        let of_group = || cgroup::memory().and_then(|memory| memory.limit);
        let bytes = match self {
            Self::Off => return Ok(None),
            Self::Bytes(bytes) => bytes,
            Self::Cgroup => of_group().ok_or(MemoryLimitError::NoCgroupLimit)?,
            Self::Percent(percent) => {
                let both = [of_group(), machine()];
                let there = both.into_iter().flatten().min();
                let there = there.ok_or(MemoryLimitError::UnknownMemory)?;
                thresholds::share(there, percent)
            }
        };
        Ok(Some(bytes.min(i64::MAX as u64)))
    }

    /// As settings have it: `off`, `cgroup`, `80%`, `512m`.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        const WRONG: &str = "is none of off, cgroup, a share such as 80%, a size such as 512m";
        match (text, text.strip_suffix('%')) {
            ("off", _) => Ok(Self::Off),
            ("cgroup", _) => Ok(Self::Cgroup),
            (_, Some(share)) => match share.parse() {
                Ok(percent @ 1..=100) => Ok(Self::Percent(percent)),
                _ => Err("is not a share from 1% to 100%"),
            },
            _ => match settings::bytes(text) {
                Ok(bytes) if bytes > 0 => Ok(Self::Bytes(bytes as u64)),
                _ => Err(WRONG),
            },
        }
    }
}

/// How much memory the machine has, in bytes.
fn machine() -> Option<u64> {
    // SAFETY: always callable.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    let pages = u64::try_from(pages).ok().filter(|&pages| pages > 0)?;
    Some(pages * PAGE as u64)
}

/// Sets how much memory the program should keep to, and returns what was set before, in bytes;
/// `None` for no limit. Go's `debug.SetMemoryLimit`.
///
/// What is limited is the larger of two figures:
/// * what Go limits: `sys - heap_released` of [`MemStats`](crate::MemStats), beside that of stacks
///   only what has been touched, and with what [accounts](crate::stats::Account) have committed,
///   touched or not;
/// * what the process has in memory that is in no file and not shared (`RssAnon`): with what an
///   allocator holds beside its blocks and does not tell of, as the C library's, and with what the
///   program maps by itself. That is what makes the kernel kill it at a control group's limit.
///   Pages that were given back by `MADV_FREE` are in it until the kernel takes them.
///
/// Other processes of a control group are in neither.
///
/// From 90 % of the limit on, memory that the allocator holds is given back to the system
/// ([`free_os_memory`](crate::free_os_memory)), at most once a second; and so before any callback
/// of [`on_memory_threshold`], unless that was done just now, and after callbacks, if they freed
/// something. It takes at most about a tenth of the time of a thread of Plimsoll's own; while that
/// rests, for a second at most, only the first figure is told. Collectors are told the limit: it
/// becomes [`gc::memory_limit`](crate::gc::memory_limit), which it is up to them to follow.
///
/// Every threshold can be crossed anew. In the child of a fork, the limit is looked after again
/// once it is set there.
///
/// # Errors
/// See [`MemoryLimitError`]: nothing has changed.
pub fn set_memory_limit(limit: MemoryLimit) -> Result<Option<u64>, MemoryLimitError> {
    let bytes = limit.bytes()?;
    if bytes.is_none() {
        return Ok(watch::set(None));
    }
    // First what can fail.
    watch::wake().map_err(MemoryLimitError::NoThread)?;
    let before = watch::set(bytes);
    watch::wake().map_err(MemoryLimitError::NoThread)?;
    Ok(before)
}

/// What a callback is told: how it was a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPressure {
    /// The limit, in bytes.
    pub limit: u64,
    /// What is in use of what is limited, in bytes, after memory was given back: the larger of the
    /// figures that [`set_memory_limit`] names.
    pub used: u64,
    /// The threshold that was crossed, in hundredths of the limit.
    pub percent: u32,
}

/// A callback at a threshold, until this is dropped. One that is being called then goes on to its
/// end.
#[derive(Debug)]
#[must_use = "dropping it ends the callback"]
pub struct MemoryThreshold {
    number: u64,
}

/// Has `callback` called when so many hundredths of the [memory limit](set_memory_limit) are in
/// use, once each time that this is crossed: there has to be less than 5 hundredths below it before
/// it can be crossed again. Several that are crossed at once are called from the lowest up, each
/// with what is in use then.
///
/// Callbacks are called one at a time, by a thread of Plimsoll's own, never from inside an
/// allocation: they may do what any thread may, and should not take longer than the program can
/// wait for the next. A panic of one is its end, and nothing else's.
///
/// ```
/// use plimsoll::{MemoryLimit, on_memory_threshold, set_memory_limit};
///
/// set_memory_limit(MemoryLimit::Bytes(1 << 30)).expect("there can be a thread");
/// let _shrinks = on_memory_threshold(80, |pressure| {
///     println!("{} of {} bytes in use: the cache is cleared", pressure.used, pressure.limit);
/// });
/// ```
pub fn on_memory_threshold(
    percent: u32,
    callback: impl Fn(&MemoryPressure) + Send + Sync + 'static,
) -> MemoryThreshold {
    let callback: thresholds::Callback = Arc::new(callback);
    let number = {
        let _own = own::scope();
        let mut state = lock();
        let number = state.next_number;
        state.next_number += 1;
        state.thresholds.push(Threshold {
            number,
            percent,
            callback,
            above: false,
        });
        number
    };
    MemoryThreshold { number }
}

impl Drop for MemoryThreshold {
    fn drop(&mut self) {
        let mut state = lock();
        let mut thresholds = state.thresholds.iter();
        let at = thresholds.position(|threshold| threshold.number == self.number);
        let removed = at.map(|at| state.thresholds.swap_remove(at));
        // What the callback holds is dropped without the lock.
        drop(state);
        drop(removed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_a_word_a_share_or_a_size() {
        let right = [
            ("off", MemoryLimit::Off),
            ("cgroup", MemoryLimit::Cgroup),
            ("80%", MemoryLimit::Percent(80)),
            ("512m", MemoryLimit::Bytes(512 << 20)),
        ];
        for (text, limit) in right {
            assert_eq!(MemoryLimit::parse(text), Ok(limit));
        }
        for wrong in ["", "%", "0%", "101%", "-1%", "0", "x", "80 %", "none"] {
            assert!(MemoryLimit::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_share_is_of_no_more_than_the_machine() {
        let half = MemoryLimit::Percent(50).bytes().unwrap().unwrap();
        assert!(half > 0 && half <= machine().unwrap() / 2);
        assert_eq!(MemoryLimit::Off.bytes().unwrap(), None);
        let most = MemoryLimit::Bytes(u64::MAX).bytes().unwrap();
        assert_eq!(most, Some(i64::MAX as u64));
    }
}
