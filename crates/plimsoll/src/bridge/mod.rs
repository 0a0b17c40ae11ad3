//! Plimsoll's metrics in other libraries' registries, for programs that have one already: each
//! behind a feature of its name.
//!
//! All of them have what the page `/metrics` has (see [`mod@crate::http`]), under the same names:
//! `/gc/heap/allocs:bytes` is `plimsoll_gc_heap_allocs_bytes` everywhere, with what the library, or
//! its exporter, puts behind it. What is in them at once is of one moment.

#[cfg(feature = "bridge-metrics")]
pub mod metrics;
#[cfg(feature = "bridge-opentelemetry")]
pub mod opentelemetry;
#[cfg(feature = "bridge-prometheus-client")]
pub mod prometheus_client;

use crate::export::prometheus::series::{self, Metric};
use crate::metrics::Gathered;
use crate::{own, own_time};

/// All metrics, as they are now.
fn gather() -> Vec<Metric> {
    let (_own, _time) = (own::scope(), own_time::measure());
    series::all(&Gathered::default())
}
