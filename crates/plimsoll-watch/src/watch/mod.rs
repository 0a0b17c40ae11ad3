//! Follows a running program by its pages: figures, sites and their changes, without a view.

pub mod clean;
pub mod find;
pub mod history;
pub mod metrics;
pub mod model;
pub mod profiles;
pub mod readings;
pub mod sites;
pub mod source;
pub mod tree;

/// Panics if the environment requests it, for tests of the state that a panic leaves.
#[cfg(debug_assertions)]
pub fn panic_on_request(place: &str) {
    if std::env::var_os("PLIMSOLL_TOP_PANICS_IN").is_some_and(|wanted| wanted == place) {
        panic!("a panic in the {place} was requested");
    }
}

#[cfg(not(debug_assertions))]
pub fn panic_on_request(_: &str) {}
