//! Sends profiles to a server in intervals, for stores that do not scrape.
//!
//! ```no_run
//! # fn main() -> Result<(), plimsoll::push::Error> {
//! let _pushing = plimsoll::push::pyroscope("http://pyroscope:4040", "shop")
//!     .label("region", "eu")
//!     .start()?;
//! # Ok(())
//! # }
//! ```
//!
//! A thread of Plimsoll sends each profile every 15 seconds, until the [`Pushing`] is dropped. Values
//! that add up events, such as `alloc_space`, `contentions` and `cpu`, are those of the interval; values
//! of a state, such as `inuse_space`, are those at its end. A profile without samples is not sent.
//!
//! # Profiles
//! The default is `profile`, `heap`, `block` and `mutex`. `profile`, of CPU time, uses the samples that
//! are recorded [all the time](plimsoll_profiles::profile::cpu::set_rate): if there are none, [`Push::start`] switches
//! these on at the default rate. `block` and `mutex` have samples only with the settings `block_rate` and
//! `mutex_fraction`.
//!
//! # Failures
//! Each request takes at most 10 s. A server that is away or busy gets a request up to 3 times within the
//! interval; then that profile of that interval is dropped and [counted](Pushing::counts). The first
//! failure is a warning on standard error. Nothing is queued, so the memory for this is that of one
//! encoded profile and of one reading of each. All of it is Plimsoll's own.
//!
//! # Limits
//! Only `http://`, since Plimsoll contains no implementation of TLS: an agent or a collector beside the
//! program can forward profiles to a server elsewhere. Redirects are not followed. The child of a fork
//! pushes nothing, unless it calls [`Push::start`] itself. Resolving the name of the server may take
//! longer than the time limit of a request.

mod address;
mod client;
mod multipart;
#[cfg(feature = "otlp")]
mod otlp;
mod pyroscope;
mod settings;
mod worker;

#[cfg(feature = "otlp")]
pub use otlp::otlp;
pub use pyroscope::pyroscope;
pub use settings::{Error, Push};
pub use worker::{Counts, Pushing};
