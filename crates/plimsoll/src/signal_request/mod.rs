//! Signals that request work of Plimsoll: a dump, or profiles before the process ends. One file per kind of system with
//! the same items.

use std::fmt;

#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(plimsoll_portable_os))))]
mod other;

#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
pub(crate) use linux::*;
#[cfg(not(all(target_os = "linux", not(plimsoll_portable_os))))]
pub(crate) use other::*;

/// A signal that requests work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// `SIGQUIT`: the program continues after the work.
    Quit,
    /// `SIGTERM`: ends the process after the work.
    Terminate,
    /// `SIGINT`: ends the process after the work.
    Interrupt,
}

impl fmt::Display for Signal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Quit => "SIGQUIT",
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        })
    }
}
