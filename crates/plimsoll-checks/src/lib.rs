//! Readings of profiles and statistics in the process of a test, and checks of relations between
//! statistics. Apart from `plimsoll-testkit`, which does not contain Plimsoll: so the tests of a
//! lower crate are built without the higher ones. Not published.

// Names and types suffice for helpers that only tests call.
#![allow(missing_docs)]

pub mod counts;
pub mod pages;
pub mod profile;
pub mod relations;
