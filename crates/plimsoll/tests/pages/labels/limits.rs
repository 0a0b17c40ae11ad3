//! Limits on the number of label sets and on the memory for samples.

use plimsoll::label::{self, Labels, MAX_SETS};
use plimsoll::profile;
use plimsoll_checks::profile::read_profile;

use super::{by_label, child};

fn fill_the_table_of_label_sets() {
    let set = |number: usize| Labels::of([("number", number.to_string())]);
    // The empty set counts as one, and so does the set for further ones.
    for number in 1..MAX_SETS - 1 {
        assert_eq!(set(number).get("number"), Some(&*number.to_string()));
    }
    assert_eq!(profile::lost_events().labels, 0);
    let _last = label::set(set(MAX_SETS - 2));
    let before = label::current();
    {
        let _one_more = label::with([("tenant", "one more")]);
        let labels: Vec<_> = label::current().iter().collect();
        let expected = [("labels", "[other labels]")];
        assert_eq!(labels, expected, "not of the enclosing set");
        let _nested = label::with([("tenant", "another")]);
        assert_eq!(label::current().get("number"), None);
        assert_eq!(profile::lost_events().labels, 2);
    }
    assert_eq!(label::current(), before);
    assert_eq!(set(MAX_SETS).get("labels"), Some("[other labels]"));
    assert_eq!(profile::lost_events().labels, 3);
    // Existing sets still work.
    let _old = label::with([("number", "7")]);
    assert_eq!(label::current(), set(7));
    assert_eq!(profile::lost_events().labels, 3);
}

/// Returns the lines of Plimsoll on standard error.
fn warnings(stderr: &str) -> Vec<&str> {
    let lines = stderr.lines();
    lines
        .filter(|line| line.starts_with("plimsoll: "))
        .collect()
}

#[test]
fn work_under_a_set_of_labels_beyond_the_limit_is_charged_to_no_other() {
    let name = "limits::work_under_a_set_of_labels_beyond_the_limit_is_charged_to_no_other";
    if let Some(stderr) = child::stderr_of(name, "", fill_the_table_of_label_sets) {
        let warnings = warnings(&stderr);
        assert_eq!(warnings.len(), 1, "{stderr}");
        assert!(
            warnings[0].contains("further ones are [other labels]"),
            "{stderr}"
        );
    }
}

fn fill_the_texts_of_labels() {
    let text = "ä".repeat(4096);
    for number in 0..20_000 {
        let _labels = label::with([("request", format!("{number} {text}"))]);
        match label::current().get("request") {
            Some(value) => assert!((1000..=1024).contains(&value.len()), "{}", value.len()),
            None => assert_eq!(label::current().get("labels"), Some("[other labels]")),
        }
    }
    let kept = 20_000 - profile::lost_events().labels;
    // 16 MiB, of texts of about 1 KiB and 32 bytes each.
    assert!((15_000..=17_000).contains(&kept), "{kept}");
    let own = plimsoll::mem_stats().other_sys;
    assert!(own < 64 << 20, "{own}");
}

/// Labels with short texts take memory as well.
fn fill_the_memory_of_labels() {
    for number in 0..20_000 {
        let labels = (0..200).map(|at| (at.to_string(), (number + at).to_string()));
        let _labels = label::set(Labels::of(labels));
    }
    let kept = 20_000 - profile::lost_events().labels;
    // 16 MiB, of about 8 KiB each.
    assert!((1_500..=2_500).contains(&kept), "{kept}");
    let own = plimsoll::mem_stats().other_sys;
    assert!(own < 64 << 20, "{own}");
}

#[test]
fn the_number_of_labels_in_sets_is_bounded() {
    let name = "limits::the_number_of_labels_in_sets_is_bounded";
    if let Some(stderr) = child::stderr_of(name, "", fill_the_memory_of_labels) {
        assert_eq!(warnings(&stderr).len(), 1, "{stderr}");
    }
}

#[test]
fn the_bytes_of_labels_are_bounded() {
    let name = "limits::the_bytes_of_labels_are_bounded";
    if let Some(stderr) = child::stderr_of(name, "", fill_the_texts_of_labels) {
        assert_eq!(warnings(&stderr).len(), 1, "{stderr}");
    }
}

#[inline(never)]
fn allocates() -> Box<[u8; 56]> {
    Box::new(std::hint::black_box([1; 56]))
}

const TENANTS: usize = 12_000;

fn more_than_fit() {
    let early = || std::iter::once("early".to_owned());
    let many = (0..TENANTS).map(|tenant| tenant.to_string());
    let mut kept = vec![];
    for tenant in early().chain(many).chain(early()) {
        let _tenant = label::with([("tenant", tenant)]);
        kept.push(allocates());
    }
    assert!(profile::lost_events().table_full > 0);
    let live = plimsoll::heap_stats().live_objects() as i64;
    let profile = read_profile("heap");
    let of_size = profile
        .sample
        .iter()
        .filter(|sample| profile.number(sample, "bytes") == Some(56));
    let by_tenant = by_label(&profile, of_size, "tenant", 2);
    assert_eq!(by_tenant[&Some("early")], 2, "an existing set still counts");
    assert!(by_tenant.len() > 100 && by_tenant.len() < TENANTS);
    let (mut overflow, mut rest) = (0, 0);
    for sample in &profile.sample {
        match profile.names(sample)[..] {
            ["[the table of stacks is full]"] => {
                assert!(sample.label.is_empty(), "without labels, of no size");
                overflow += sample.value[2];
            }
            _ => rest += sample.value[2],
        }
    }
    assert!(overflow > 1000, "{overflow}");
    // Except for allocations before samples could be taken, or since the reading.
    assert!(
        (live - overflow - rest).abs() < 500,
        "{live} {overflow} {rest}"
    );
}

#[test]
fn samples_beyond_the_table_are_counted_without_labels() {
    child::run(
        "limits::samples_beyond_the_table_are_counted_without_labels",
        "heap_rate=1,table=1m",
        more_than_fit,
    );
}
