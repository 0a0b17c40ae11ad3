//! Profiles that a push sends. No real store is used: a server of some lines records the bytes of each
//! request, which are compared with the protocols as Pyroscope's `/ingest` handler and the
//! specification of OTLP over HTTP define them.

#[path = "push/failures.rs"]
mod failures;
#[path = "push/forks.rs"]
mod forks;
#[path = "push/requests.rs"]
mod requests;
#[path = "push/server.rs"]
mod server;

use std::time::Duration;

use plimsoll::push::{Push, pyroscope};
use server::Server;

/// An interval that ends in no test: the push sends when it is dropped.
const LONG: Duration = Duration::from_secs(3600);

/// The shortest interval.
const SHORT: Duration = Duration::from_millis(100);

/// A push of the profile `goroutine`, which always has samples.
fn threads(server: &Server) -> Push {
    pyroscope(server.url(), "shop").profiles(["goroutine"])
}
