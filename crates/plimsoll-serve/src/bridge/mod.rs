//! Plimsoll's metrics in other libraries' registries, for programs that have one already. Each
//! library has a feature of its name.
//!
//! All bridges have the metrics of the page `/metrics` (see [`mod@crate::http`]), under the same
//! names. `/gc/heap/allocs:bytes` is `plimsoll_gc_heap_allocs_bytes` everywhere, with the suffixes
//! of the library or its exporter. All values of a reading belong to one moment.

#[cfg(feature = "bridge-metrics")]
pub mod metrics;
#[cfg(feature = "bridge-opentelemetry")]
pub mod opentelemetry;
#[cfg(feature = "bridge-prometheus-client")]
pub mod prometheus_client;

use plimsoll_core::{internal_scope, overhead};
use plimsoll_profiles::export::prometheus::series::{self, Metric};
use plimsoll_profiles::metrics::Gathered;

/// Returns all metrics with their current values.
fn gather() -> Vec<Metric> {
    let (_own, _time) = (internal_scope::scope(), overhead::measure());
    series::all(&Gathered::default())
}
