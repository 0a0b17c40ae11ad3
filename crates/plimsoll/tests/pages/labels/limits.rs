//! Limits on the number of label sets and on the memory for samples.

use plimsoll::label::{self, Labels, MAX_SETS};
use plimsoll::profile;

use super::pprof::Profile;
use super::{by_label, child};

fn fill_the_table_of_label_sets() {
    let set = |number: usize| Labels::of([("number", number.to_string())]);
    // The empty set counts as one.
    for number in 1..MAX_SETS {
        assert_eq!(set(number).get("number"), Some(&*number.to_string()));
    }
    assert_eq!(profile::lost_events().labels, 0);
    let _last = label::set(set(MAX_SETS - 1));
    let before = label::current();
    {
        let _one_more = label::with([("tenant", "one more")]);
        assert_eq!(label::current(), before, "it is left as it was");
        assert_eq!(profile::lost_events().labels, 1);
    }
    assert_eq!(label::current(), before);
    assert_eq!(set(MAX_SETS), Labels::NONE);
    assert_eq!(profile::lost_events().labels, 2);
    // Existing sets still work.
    let _old = label::with([("number", "7")]);
    assert_eq!(label::current(), set(7));
    assert_eq!(profile::lost_events().labels, 2);
}

#[test]
fn a_set_of_labels_beyond_the_limit_changes_nothing() {
    child::run(
        "limits::a_set_of_labels_beyond_the_limit_changes_nothing",
        "",
        fill_the_table_of_label_sets,
    );
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
    let profile = Profile::of("heap");
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
