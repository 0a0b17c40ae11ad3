//! The pages over real connections: the promises to well-behaved clients, and the limits on others.
#![cfg(feature = "http")]

#[path = "http_server/access.rs"]
mod access;
#[path = "http_server/addresses.rs"]
mod addresses;
#[path = "http_server/descriptors.rs"]
mod descriptors;
#[path = "http_server/differences.rs"]
mod differences;
#[path = "http_server/harness.rs"]
mod harness;
#[path = "http_server/names.rs"]
mod names;
#[path = "http_server/own_contention.rs"]
mod own_contention;
#[path = "http_server/pages.rs"]
mod pages;
#[path = "http_server/places.rs"]
mod places;
#[path = "http_server/requests.rs"]
mod requests;
#[path = "http_server/shutdown.rs"]
mod shutdown;
#[path = "http_server/targets.rs"]
mod targets;
#[cfg(unix)]
#[path = "http_server/tokens.rs"]
mod tokens;
