//! Pages, formats, labels, and the figures of collectors.
//!
//! Each module runs in a separate process.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

plimsoll_testkit::process_per_module!();

mod axum_router;
mod bridges;
mod browser;
mod collectors;
mod custom_profiles;
mod go_tool;
mod growth;
mod history;
mod http_server;
mod idle;
mod labels;
mod metrics;
mod prometheus;
#[cfg(feature = "push")]
mod push;
#[cfg(feature = "tracing")]
mod spans;
mod threads_page;
mod write_errors;
