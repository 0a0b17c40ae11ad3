//! What the parts of the command `plimsoll` share.
//!
//! All items of this crate may change in any version: the crates of Plimsoll require each other in exactly one version.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the pages of this crate are for its maintainers, who read them with private items"
)]

pub mod failure;
pub mod file_size;
pub mod files;
pub mod graph;
pub mod growth;
pub mod http;
pub mod input;
pub mod page;
pub mod plain_text;
pub mod profile;
pub mod program;
pub mod progress;
pub mod report;
pub mod server_thread;
pub mod sockets;
pub mod time;
