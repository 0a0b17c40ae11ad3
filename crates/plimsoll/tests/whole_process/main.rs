//! Tests of a whole process: settings, forks, signals, libraries, and all of them at once.
//!
//! Each module runs in a separate process.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

plimsoll_testkit::process_per_module!();

mod coexistence;
#[cfg(not(plimsoll_sanitized))]
mod everything_at_once;
mod filters;
mod give_back;
mod limits;
mod pass_through;
mod process;
mod settings;
mod sigprof;
mod two_copies;
