//! A registry of `prometheus-client`, encoded by that crate and parsed strictly.

use std::collections::BTreeMap;

use plimsoll::bridge::prometheus_client::Bridge;
use plimsoll::http::Request;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use crate::bridges::{
    BYTES, CYCLES, METADATA, NAME, OBJECTS, SIZES, between, collector, no_count_falls,
};
use plimsoll_testkit::exposition::{Format, Page, parse};

fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Bridge));
    registry
}

fn read(registry: &Registry) -> Page {
    let mut page = String::new();
    encode(&mut page, registry).expect("it can be encoded");
    parse(&page, Format::OpenMetrics).unwrap_or_else(|error| panic!("{error}\n{page}"))
}

/// Returns the description of each family, without the values.
fn shape(page: &Page) -> Vec<(String, String, String, Vec<String>)> {
    let families = page.families.iter();
    let mut shape: Vec<_> = families
        .map(|family| {
            let samples = family.samples.iter();
            let mut samples: Vec<_> = samples
                .map(|sample| format!("{}{:?}", sample.name, sample.labels))
                .collect();
            samples.sort();
            let (name, kind) = (family.name.clone(), family.kind.clone());
            (name, kind, family.help.clone(), samples)
        })
        .collect();
    shape.sort();
    shape
}

#[test]
fn its_page_is_that_of_plimsoll() {
    // Registers a collector, whatever the other tests do.
    let _collector = collector();
    let accept = "application/openmetrics-text";
    let request = Request::new("GET", "/metrics", "").accept(accept);
    let text = String::from_utf8(request.answer().body).unwrap();
    let own = parse(&text, Format::OpenMetrics).expect("it is right");
    let theirs = read(&registry());
    let (own, theirs) = (shape(&own), shape(&theirs));
    assert_eq!(own.len(), theirs.len());
    for (own, theirs) in own.iter().zip(&theirs) {
        assert_eq!((&own.0, &own.1, &own.2), (&theirs.0, &theirs.1, &theirs.2));
        assert_eq!(own.3.len(), theirs.3.len(), "{}", own.0);
    }
}

#[test]
fn values_are_of_the_moment_of_the_encoding() {
    let mut registry = registry();
    let requests: Counter = Counter::default();
    registry.register("requests", "The program's own", requests.clone());
    requests.inc();
    let read = || read(&registry);
    between(read, |page, before, after| {
        let bytes = page.value(&format!("{BYTES}_total"), &[]) as u64;
        let objects = page.value(&format!("{OBJECTS}_total"), &[]) as u64;
        assert!((before[0]..=after[0]).contains(&bytes));
        assert!((before[1]..=after[1]).contains(&objects));
        assert_eq!(page.value("requests_total", &[]), 1.0);
        assert_eq!(page.family(BYTES).unwrap().unit, "bytes");
        assert!(page.value(&format!("{SIZES}_bucket"), &[("le", "64.0")]) > 0.0);
    });
}

#[test]
fn collectors_have_series_whatever_they_are_called() {
    let _collector = collector();
    let page = read(&registry());
    let labels = [("collector", NAME)];
    assert!(page.value(&format!("{CYCLES}_total"), &labels) >= 3.0);
    assert_eq!(page.value(METADATA, &labels), 0.0);
}

#[test]
fn its_counts_do_not_fall() {
    let registry = registry();
    no_count_falls(|| {
        let page = read(&registry);
        let families = page.families.iter();
        let counting = families.filter(|family| family.kind != "gauge");
        let samples = counting.flat_map(|family| &family.samples);
        let named = |sample: &plimsoll_testkit::exposition::Sample| match sample.labels.get("le") {
            Some(last) => format!("{}{last}", sample.name),
            None => sample.name.trim_end_matches("_total").to_owned(),
        };
        let values: BTreeMap<_, _> = samples
            .map(|sample| (named(sample), sample.value))
            .collect();
        values
    });
}
