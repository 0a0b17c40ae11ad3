//! Converts profiles of pprof's format to an export request of OTLP, the protocol of OpenTelemetry.
//!
//! ```
//! # fn main() -> Result<(), plimsoll_pprof::Error> {
//! # let pprof = b"\x0a\x04\x08\x01\x10\x02\x32\0\x32\x05space\x32\x05bytes";
//! let profile = plimsoll_pprof::read(&pprof[..], plimsoll_pprof::Limits::default())?;
//! let mut request = plimsoll_otlp::Request::new([("service.name", "shop")]);
//! request.add(&profile);
//! let body = request.finish();
//! # assert!(!body.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! The result is the body of `POST /v1development/profiles` with the content type
//! `application/x-protobuf`: an `ExportProfilesServiceRequest` of
//! `opentelemetry.proto.collector.profiles.v1development`, as in version [`PROTOCOL`]. These messages
//! are in development, so a later version may not be compatible.
//!
//! # Mapping
//! | pprof | OTLP |
//! |---|---|
//! | profile | a `ScopeProfiles`, with one `Profile` for each sample type |
//! | sample | a `Sample` with one value in each `Profile`; samples of value 0 are omitted, and those with equal stacks and labels are added up |
//! | text label | an attribute of the sample |
//! | numeric label | an integer attribute with its unit; the label `bytes` has the unit `bytes` if pprof states none |
//! | inlined calls | several lines of a location, innermost first |
//! | build id | the attribute `process.executable.build_id.gnu` of the mapping if it has only hexadecimal digits, otherwise `process.executable.build_id.go` |
//! | default sample type | the attribute `pprof.scope.default_sample_type` of the scope |
//! | comments, frames to drop and to keep | the attributes `pprof.profile.comment`, `pprof.profile.drop_frames` and `pprof.profile.keep_frames` of each `Profile` |
//! | time, duration, period | the same |
//!
//! OTLP allows each key once in a sample. Of several labels with one key, the first becomes an
//! attribute, and the others are counted in `dropped_attributes_count`. Samples have no links to
//! traces.
//!
//! Each table of the dictionary begins with the required zero entry, has each entry once, and has only
//! entries that the request uses.

mod attribute;
mod dictionary;
mod field;
mod profile;
mod request;
mod table;

pub use request::{PROTOCOL, Request};
