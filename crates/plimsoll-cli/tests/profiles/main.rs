//! Profiles that the command reads: their content, reports, differences, graphs, pages, and errors.

#[path = "../command/mod.rs"]
mod command;
#[path = "../proto/mod.rs"]
mod proto;
#[path = "../symbolize/scene.rs"]
mod scene;

mod bad_input;
mod flame;
mod go_tool;
mod http;
#[cfg(unix)]
mod large;
mod limits;
mod read;
mod report;
#[cfg(unix)]
mod stacks;
mod summary;
mod view;
