//! A collector for a registry of the crate `prometheus-client`.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    CounterValueEncoder, DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue,
    GaugeValueEncoder, MetricEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Unit;

use super::gather;
use plimsoll_profiles::export::prometheus::exposition::Number;
use plimsoll_profiles::export::prometheus::series::{Kind, Metric, Reading};

/// Adds all metrics to the registry that contains it, with their values at the time of encoding.
///
/// ```
/// use plimsoll::bridge::prometheus_client::Bridge;
/// use prometheus_client::registry::Registry;
///
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(Bridge));
///
/// let mut page = String::new();
/// prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
/// assert!(page.contains("plimsoll_gc_heap_allocs_bytes_total "));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bridge;

impl Collector for Bridge {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in gather() {
            encode(&mut encoder, &metric)?;
        }
        Ok(())
    }
}

fn encode(encoder: &mut DescriptorEncoder<'_>, metric: &Metric) -> fmt::Result {
    let kind = match metric.kind {
        Kind::WholeCounter | Kind::FloatCounter => MetricType::Counter,
        Kind::WholeGauge | Kind::FloatGauge => MetricType::Gauge,
        Kind::Histogram { .. } => MetricType::Histogram,
    };
    if metric.points.is_empty() {
        return Ok(());
    }
    // The encoder appends the unit to the name.
    let (family, unit) = (&*metric.name.family, &*metric.name.unit);
    let bare = family.strip_suffix(unit);
    let bare = bare.and_then(|name| name.strip_suffix('_'));
    let (name, unit) = match bare {
        Some(name) => (name, Some(Unit::Other(unit.into()))),
        None => (family, None),
    };
    let mut encoder = encoder.encode_descriptor(name, &metric.help, unit.as_ref(), kind)?;
    for point in &metric.points {
        if point.labels.is_empty() {
            // A metric without labels has a single point.
            return encode_value(encoder, kind, &point.value);
        }
        let labels: Vec<(&str, &str)> = (point.labels.iter())
            .map(|(name, value)| (*name, &**value))
            .collect();
        encode_value(encoder.encode_family(&labels)?, kind, &point.value)?;
    }
    Ok(())
}

fn encode_value(mut encoder: MetricEncoder<'_>, kind: MetricType, value: &Reading) -> fmt::Result {
    const NONE: Option<&Exemplar<[(&str, &str); 0], f64>> = None;
    match value {
        Reading::Number(number) if matches!(kind, MetricType::Counter) => {
            encoder.encode_counter(&Encoded(*number), NONE)
        }
        Reading::Number(number) => encoder.encode_gauge(&Encoded(*number)),
        Reading::Buckets { buckets, sum } => {
            // The encoder sums the counts up.
            let mut before = 0;
            let alone: Vec<(f64, u64)> = buckets
                .up_to
                .iter()
                .map(|&(up_to, count)| {
                    let alone = (up_to, count - before);
                    before = count;
                    alone
                })
                .collect();
            encoder.encode_histogram::<[(&str, &str); 0]>(
                (*sum).into(),
                buckets.count(),
                &alone,
                None,
            )
        }
    }
}

/// A value in the form of the library.
#[derive(Debug)]
struct Encoded(Number);

impl EncodeCounterValue for Encoded {
    fn encode(&self, encoder: &mut CounterValueEncoder<'_>) -> fmt::Result {
        match &self.0 {
            Number::Whole(value) => EncodeCounterValue::encode(value, encoder),
            Number::Float(value) => EncodeCounterValue::encode(value, encoder),
        }
    }
}

impl EncodeGaugeValue for Encoded {
    fn encode(&self, encoder: &mut GaugeValueEncoder<'_>) -> fmt::Result {
        match &self.0 {
            Number::Whole(value) => EncodeGaugeValue::encode(value, encoder),
            Number::Float(value) => EncodeGaugeValue::encode(value, encoder),
        }
    }
}
