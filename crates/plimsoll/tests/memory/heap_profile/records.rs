//! The records of `heap`, read from code, and the profile written at a chosen level of detail.

use plimsoll::profile::{self, Detail, Format, Frame, Record, Snapshot, frames};
use plimsoll::{label, size_class};

use crate::heap_profile::boxes;
use plimsoll_testkit::child;
use plimsoll_testkit::pprof::Profile;

fn is_of(record: &Record<'_>, function: &str) -> bool {
    let names = |frame: &Frame| {
        let name = frame.function.as_deref();
        name.is_some_and(|name| name.ends_with(function))
    };
    frames(record.stack(), Detail::Names).iter().any(names)
}

/// Sums over the records of objects of 40 bytes that `boxes` allocated.
fn values_of_boxes(snapshot: &Snapshot) -> [i64; 4] {
    let class = Some(size_class::counted_size(48) as u64);
    let records = snapshot
        .records()
        .filter(|record| record.object_size() == class && is_of(record, "::boxes"));
    records.fold([0; 4], |mut sums, record| {
        for (sum, value) in sums.iter_mut().zip(record.values()) {
            *sum += value;
        }
        sums
    })
}

fn records_and_differences() {
    const COUNT: i64 = 500;
    let bytes = COUNT * size_class::counted_size(48) as i64;
    let heap = profile::lookup("heap").unwrap();
    let before = heap.snapshot();
    let kept = {
        let _tenant = label::with([("tenant", "acme")]);
        boxes(COUNT as usize)
    };
    let between = heap.snapshot();
    drop(kept);
    let after = heap.snapshot();

    let types = before.value_types().iter().map(|of| (of.name, of.unit));
    let expected = [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ];
    assert!(types.eq(expected));

    let made = between.since(&before).unwrap();
    assert_eq!(values_of_boxes(&made), [COUNT, bytes, COUNT, bytes]);
    let freed = after.since(&between).unwrap();
    assert_eq!(values_of_boxes(&freed), [0, 0, -COUNT, -bytes]);
    let neither = after.since(&before).unwrap();
    assert_eq!(values_of_boxes(&neither), [COUNT, bytes, 0, 0]);
    assert!(made.duration().is_some() && before.duration().is_none());
    assert_eq!(made.time(), between.time());

    let of_boxes = made
        .records()
        .find(|record| record.value("inuse_objects") == Some(COUNT) && is_of(record, "::boxes"));
    let record = of_boxes.expect("one record has all of them");
    assert!(record.labels().eq([("tenant", "acme")]));
    assert_eq!(record.value("delay"), None);
    assert_eq!(
        (record.delay(), record.kind(), record.name()),
        (None, None, None)
    );
    let full = frames(record.stack(), Detail::Full);
    let line = full.iter().find(|frame| {
        let function = frame.function.as_deref();
        function.is_some_and(|function| function.ends_with("::boxes"))
    });
    let line = line.expect("the function is in the stack");
    assert!(!line.is_inlined);
    if cfg!(feature = "symbolize") {
        assert!(
            line.file
                .as_ref()
                .unwrap()
                .ends_with("memory/heap_profile.rs")
        );
        assert!(line.line.is_some());
    }
    let bare = frames(&[1, 2], Detail::Addresses);
    assert_eq!(bare.len(), 2);
    assert_eq!((bare[1].address, &bare[1].function), (2, &None));

    let mut written = Vec::new();
    made.write_to(&mut written, Detail::Names).unwrap();
    let written = Profile::read(&written);
    let of_written = written.sample.iter().filter(|sample| {
        let names = written.names(sample);
        sample.value[2] == COUNT && names.iter().any(|name| name.ends_with("::boxes"))
    });
    assert_eq!(of_written.count(), 1);

    let mutex = profile::lookup("mutex").unwrap().snapshot();
    let error = mutex.since(&before).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot compute the difference from heap to mutex: these are different profiles"
    );
    let peak = profile::lookup("peak").unwrap().snapshot();
    let error = peak.since(&peak).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot compute the difference from peak to peak: this profile covers a single instant"
    );
}

#[test]
fn records_and_differences_have_the_values_of_written_profiles() {
    child::run(
        "records::records_and_differences_have_the_values_of_written_profiles",
        "heap_rate=1",
        records_and_differences,
    );
}

#[test]
fn a_file_has_the_requested_detail() {
    let path = std::env::temp_dir().join(format!("plimsoll-detail-{}", std::process::id()));
    let heap = profile::lookup("heap").unwrap();
    heap.write_to_file_with(&path, Format::Pprof, Detail::Addresses)
        .unwrap();
    let profile = Profile::read(&std::fs::read(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    assert!(
        profile
            .sample
            .iter()
            .all(|sample| profile.names(sample).is_empty())
    );
}
