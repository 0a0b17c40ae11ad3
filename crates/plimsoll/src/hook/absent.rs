//! Replaces the module on systems on which functions of the C library are not interposed.

pub(crate) mod filters {
    pub(crate) fn start() {}
}

pub(crate) mod threads {
    pub(crate) fn start() {}
}

pub(crate) mod vfork {
    pub(crate) fn start() {}
}

pub(crate) fn start() {}

pub(crate) fn find_sites() {}

pub(crate) fn find_sites_if_wanted() {}

#[cfg(feature = "pthread")]
pub(crate) fn follow_rates() {}

pub(crate) fn learn() {}

pub(crate) fn refresh() {}
