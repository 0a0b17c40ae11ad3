//! The HTTP server of Plimsoll's pages. The library, the launcher and `plimsoll view` serve their
//! pages by it, so one set of rules protects all of them.
//!
//! | module | rules |
//! |---|---|
//! | [`access`] | hosts that a request may name; requests that a page of another site sent |
//! | [`token`] | the token that a client must send |
//! | [`query`] | parameters, of which none that has a meaning is ignored |
//! | [`head`] | the length and the form of a request's head |
//! | [`serving`] | limits on clients, time and memory |
//!
//! A server implements [`Pages`](pages::Pages). It also decides how threads are started: those of the
//! library are Plimsoll's own.
//!
//! All items of this crate may change in any version: the crates of Plimsoll require each other in exactly one version.

pub mod access;
pub mod answer;
pub mod head;
pub mod pages;
pub mod query;
mod quoted;
#[cfg(unix)]
pub mod serving;
pub mod token;
