//! Replaces the module on systems on which functions of the C library are not interposed.

#![allow(missing_docs, reason = "documented in the counterpart")]

pub mod filters {
    pub fn start() {}
}

pub mod threads {
    pub fn start() {}
}

pub mod vfork {
    pub fn start() {}
}

pub fn start() {}

pub fn find_sites() {}

pub fn find_sites_if_wanted() {}

#[cfg(feature = "pthread")]
pub fn follow_rates() {}

pub fn learn() {}

pub fn refresh() {}
