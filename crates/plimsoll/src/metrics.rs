//! All metrics, by name: the counterpart of Go's `runtime/metrics`.
//!
//! ```
//! use plimsoll::metrics::{self, Sample, Value};
//!
//! let mut samples = [
//!     Sample::new("/gc/heap/allocs:objects"),
//!     Sample::new("/gc/heap/frees:objects"),
//!     Sample::new("/no/such:thing"),
//! ];
//! metrics::read(&mut samples);
//! let [Value::Uint64(allocs), Value::Uint64(frees), Value::Bad] = samples.map(|sample| sample.value)
//! else {
//!     panic!("kinds never change")
//! };
//! assert!(frees <= allocs);
//! ```
//!
//! A name states the quantity and its unit, `/path/of/words:unit`; [`all`] returns the names with
//! their descriptions. Names that do not begin with `/plimsoll/` are Go's, with Go's meanings as
//! far as these apply to a program without Go's runtime. Goroutines are threads of the program and
//! [tracked tasks](crate::task). Collectors are those that [report to Plimsoll](crate::gc). Go's
//! metrics without a meaning here are missing: calls of C functions, a limiter of collections,
//! settings that are not the default.

pub use plimsoll_profiles::metrics::{Description, Histogram, Kind, Sample, Value, all, read};
