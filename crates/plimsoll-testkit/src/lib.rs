//! Helpers that the tests of several crates share: child processes, readers of the formats that
//! Plimsoll writes, and checks of relations between statistics. Not published.

// Names and types suffice for helpers that only tests call.
#![allow(missing_docs)]

pub mod child;
pub mod client;
pub mod counts;
pub mod examples;
pub mod exposition;
pub mod groups;
pub mod hostile;
pub mod os;
pub mod page;
pub mod pages;
pub mod pprof;
pub mod relations;
pub mod skips;
