//! `plimsoll top`, of fake programs and of a real one.
//!
//! Each module runs in a separate process, since one looks for pages among the sockets of its process.

plimsoll_testkit::process_per_module!();

mod fake;
mod live;
mod network;
mod once;
mod pane;
#[path = "../port/mod.rs"]
mod port;
mod process;
mod tmux;
mod token;
