//! Helpers that the tests of several crates share: child processes, and readers of the formats that
//! Plimsoll writes. Not published.

// Names and types suffice for helpers that only tests call.
#![allow(missing_docs)]

pub mod child;
pub mod client;
pub mod control_group;
pub mod examples;
pub mod exposition;
pub mod groups;
pub mod hostile;
pub mod os;
pub mod page;
pub mod pprof;
pub mod skips;
pub mod tools;
