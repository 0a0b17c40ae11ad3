//! The pages below `/internal` in the servers of web frameworks, for clients on the same machine. The
//! guide `docs/guides/servers.md` shows these files.
//!
//! Each module has the server of one framework, as `serve`.

pub mod actix_web;
pub mod axum;
pub mod hyper;
#[cfg(feature = "pingora")]
pub mod pingora;
pub mod poem;
pub mod rocket;
pub mod tonic;
pub mod warp;
