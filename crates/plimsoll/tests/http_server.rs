//! The pages over real connections: what is promised to clients that behave, and what those that do
//! not cannot bring about.
#![cfg(feature = "http")]

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

mod child;
mod client;
mod page;

#[path = "http_server/access.rs"]
mod access;
#[path = "http_server/addresses.rs"]
mod addresses;
#[path = "http_server/descriptors.rs"]
mod descriptors;
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
#[path = "http_server/targets.rs"]
mod targets;
