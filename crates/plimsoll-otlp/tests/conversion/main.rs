//! Requests, decoded by implementations of other authors and compared with pprof's profiles.
//!
//! `PLIMSOLL_OTLP_PYTHON` names a Python with the package `opentelemetry-proto`; without that variable,
//! only the crate of that name decodes. Each module runs in a separate process.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

plimsoll_testkit::process_per_module!();

mod canonical;
mod crafted;
mod kinds;
mod python;

use plimsoll_pprof::{Limits, Profile};

/// Reads a profile, compressed or not.
fn read(bytes: &[u8]) -> Profile {
    plimsoll_pprof::read(bytes, Limits::default()).expect("a profile")
}

/// Returns the request of profiles of the service `shop`.
fn request(profiles: &[Profile]) -> Vec<u8> {
    let attributes = [("service.name", "shop"), ("host.name", "\u{1f6a2}")];
    let mut request = plimsoll_otlp::Request::new(attributes);
    for profile in profiles {
        request.add(profile);
    }
    request.finish()
}
