//! A limit on memory, as a setting.

use std::{fmt, io};

use plimsoll_process::cgroup;
use plimsoll_sys::os::pages::of_machine;

use crate::internal_scope;

/// The amount of memory that the program should not exceed.
///
/// ```
/// use plimsoll::{MemoryLimit, set_memory_limit};
///
/// set_memory_limit(MemoryLimit::Percent(80)).expect("the memory of the machine is known");
/// let before = set_memory_limit(MemoryLimit::Off).expect("nothing is needed for that");
/// assert!(before.is_some());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryLimit {
    /// No limit.
    #[default]
    Off,
    /// This many bytes.
    Bytes(u64),
    /// This percentage of the limit of the process's control group, or of the machine's memory if
    /// that is less or the group has no limit.
    Percent(u32),
    /// The limit of the process's control group.
    Cgroup,
}

/// The reason why a limit cannot be set.
///
/// ```
/// use plimsoll::{MemoryLimit, MemoryLimitError, set_memory_limit};
///
/// match set_memory_limit(MemoryLimit::Cgroup) {
///     Ok(_) => println!("as in the container"),
///     Err(MemoryLimitError::NoCgroupLimit) => println!("no container, or one without a limit"),
///     Err(error) => println!("no limit: {error}"),
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum MemoryLimitError {
    /// The control group of the process has no limit, or the system does not report it.
    NoCgroupLimit,
    /// The system does not report the amount of memory.
    UnknownMemory,
    /// The thread that monitors the limit cannot be created.
    NoThread(io::Error),
}

impl fmt::Display for MemoryLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCgroupLimit => {
                f.write_str("the control group of the process has no memory limit")
            }
            Self::UnknownMemory => f.write_str("the system does not report the amount of memory"),
            Self::NoThread(error) => {
                write!(f, "cannot create a thread for the memory limit: {error}")
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
    /// Returns the limit in bytes, at most `i64::MAX`; `None` for no limit.
    ///
    /// # Errors
    /// The first two of [`MemoryLimitError`].
    pub fn bytes(self) -> Result<Option<u64>, MemoryLimitError> {
        Ok(resolve(self)?.map(|limit| limit.bytes))
    }

    /// Parses a limit in the form of settings: `off`, `cgroup`, `80%`, `512m`.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        Ok(match plimsoll_settings::memory_limit(text)? {
            plimsoll_settings::MemoryLimit::Off => Self::Off,
            plimsoll_settings::MemoryLimit::Bytes(bytes) => Self::Bytes(bytes),
            plimsoll_settings::MemoryLimit::Percent(percent) => Self::Percent(percent),
            plimsoll_settings::MemoryLimit::Cgroup => Self::Cgroup,
        })
    }
}

/// A limit in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolvedLimit {
    /// At most `i64::MAX`.
    pub bytes: u64,
    /// Whether it is the limit of a control group, or a part of that.
    pub is_of_group: bool,
}

/// Returns what a setting stands for now; `None` for no limit.
///
/// # Errors
/// The first two of [`MemoryLimitError`].
pub fn resolve(limit: MemoryLimit) -> Result<Option<ResolvedLimit>, MemoryLimitError> {
    let _own = internal_scope::scope();
    let (bytes, is_of_group) = match limit {
        MemoryLimit::Off => return Ok(None),
        MemoryLimit::Bytes(bytes) => (bytes, false),
        MemoryLimit::Cgroup => {
            let limit = cgroup::limit().ok_or(MemoryLimitError::NoCgroupLimit)?;
            (limit, true)
        }
        MemoryLimit::Percent(percent) => {
            let (group, machine) = (cgroup::limit(), of_machine());
            let least = [group, machine].into_iter().flatten().min();
            let least = least.ok_or(MemoryLimitError::UnknownMemory)?;
            (share(least, percent), group == Some(least))
        }
    };
    let bytes = bytes.min(i64::MAX as u64);
    Ok(Some(ResolvedLimit { bytes, is_of_group }))
}

/// Returns a percentage of a limit.
pub fn share(limit: u64, percent: u32) -> u64 {
    (u128::from(limit) * u128::from(percent) / 100) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_no_more_than_the_machine() {
        let half = MemoryLimit::Percent(50).bytes().unwrap().unwrap();
        assert!(half > 0 && half <= of_machine().unwrap() / 2);
        assert_eq!(MemoryLimit::Off.bytes().unwrap(), None);
        let most = MemoryLimit::Bytes(u64::MAX).bytes().unwrap();
        assert_eq!(most, Some(i64::MAX as u64));
    }
}
