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

/// Panics if the environment requests it and the program is not optimized, for tests of the state that a panic leaves.
pub fn panic_on_request(place: &str) {
    if cfg!(debug_assertions)
        && std::env::var_os("PLIMSOLL_TOP_PANICS_IN").is_some_and(|wanted| wanted == place)
    {
        panic!("a panic in the {place} was requested");
    }
}
