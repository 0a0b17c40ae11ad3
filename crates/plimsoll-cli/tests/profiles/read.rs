//! The content of profiles is read correctly.

use crate::proto::{Writer, gzip};
use plimsoll_command::profile::{FunctionTotals, Limits, Profile, function_totals, parse};

const HEAP: &[(&str, &str)] = &[("inuse_objects", "count"), ("inuse_space", "bytes")];

fn read(bytes: &[u8]) -> Profile {
    parse(bytes, Limits::default()).unwrap()
}

fn small(ids: (u64, u64)) -> Vec<u8> {
    let mut writer = Writer::new(HEAP);
    writer.ids = ids;
    writer.labelled(
        &["leaf@3", "inlined@7|outer@9", "main@1"],
        &[2, 100],
        &[("tenant", "acme")],
        &[("bytes", 50, "bytes")],
    );
    writer.sample(&["outer@9", "main@2"], &[1, 10]);
    writer.sample(&["main@2", "leaf@3", "main@2"], &[-1, -4]);
    writer.finish()
}

fn check_small(profile: &Profile) {
    let types: Vec<_> = profile
        .sample_types()
        .iter()
        .map(|t| (&*t.name, &*t.unit))
        .collect();
    assert_eq!(types, HEAP);
    let samples: Vec<_> = profile.samples().collect();
    assert_eq!(samples.len(), 3);
    let lines = |sample: usize| -> Vec<(String, u32)> {
        samples[sample]
            .locations()
            .flat_map(|id| profile.location(id).lines)
            .map(|line| {
                let name = profile.function_name(line.function.unwrap());
                (name.to_owned(), line.line)
            })
            .collect()
    };
    let expected = [("leaf", 3), ("inlined", 7), ("outer", 9), ("main", 1)];
    assert_eq!(
        lines(0),
        expected.map(|(name, line)| (name.to_owned(), line))
    );
    assert_eq!(lines(2).len(), 3);
    assert_eq!(samples[0].values().collect::<Vec<_>>(), [2, 100]);
    assert_eq!(samples[2].values().collect::<Vec<_>>(), [-1, -4]);
    let labels: Vec<_> = samples[0]
        .labels()
        .map(|label| {
            (
                profile.string(label.key),
                profile.string(label.text),
                label.number,
            )
        })
        .collect();
    assert_eq!(labels, [("tenant", "acme", 0), ("bytes", "", 50)]);
    let mapping = profile
        .location(samples[0].locations().next().unwrap())
        .mapping
        .unwrap();
    let mapping = profile.mapping(mapping);
    assert_eq!(profile.string(mapping.file), "/usr/bin/program");
    assert_eq!(profile.string(mapping.build_id), "abcdef");
}

#[test]
fn a_profile_is_read_compressed_or_not() {
    let bytes = small((1, 1));
    check_small(&read(&bytes));
    check_small(&read(&gzip(&bytes)));
    // Two gzip members, as some compressors write them.
    let (one, other) = bytes.split_at(bytes.len() / 2);
    check_small(&read(&[gzip(one), gzip(other)].concat()));
}

#[test]
fn ids_may_be_any_numbers() {
    for ids in [(0x7f00_0000_1234, 1 << 33), (7, 1), (1, 3)] {
        check_small(&read(&small(ids)));
    }
}

#[test]
fn a_function_has_flat_and_cumulative_values() {
    let profile = read(&small((1, 1)));
    assert_eq!(
        profile.default_sample_type(),
        1,
        "the last type is the default"
    );
    let totals = function_totals(&profile, 1).unwrap();
    assert_eq!(totals.total, 114);
    let row = |name: &str, flat, cum| FunctionTotals {
        name: name.to_owned(),
        flat,
        cum,
    };
    assert_eq!(
        totals.functions,
        [
            row("leaf", 100, 96),
            row("outer", 10, 110),
            row("main", -4, 106),
            row("inlined", 0, 100),
        ]
    );
}

#[test]
fn frames_that_a_profile_drops_are_dropped() {
    let mut writer = Writer::new(&[("delay", "nanoseconds")]);
    writer.text(7, "runtime::.*|lock");
    writer.text(8, "runtime::kept");
    // A matching frame is dropped with its callees; arguments are not part of the name.
    writer.sample(&["syscall", "runtime::wait(int)", "work", "main"], &[1]);
    // Here only the frame that is inlined into another is dropped, with its callees.
    writer.sample(&["syscall", "lock|guard", "main"], &[20]);
    writer.sample(&["leaf", "runtime::kept", "main"], &[300]);
    // A stack that consists of such functions keeps all frames.
    writer.sample(&["lock", "runtime::start"], &[4000]);
    let totals = function_totals(&read(&writer.finish()), 0).unwrap();
    let mut rows: Vec<_> = totals
        .functions
        .iter()
        .map(|row| (&*row.name, row.flat, row.cum))
        .collect();
    rows.sort();
    assert_eq!(
        rows,
        [
            ("guard", 20, 20),
            ("leaf", 300, 300),
            ("lock", 4000, 4000),
            ("main", 0, 321),
            ("runtime::kept", 0, 300),
            ("runtime::start", 0, 4000),
            ("work", 1, 1),
        ]
    );
}

#[test]
fn the_profile_selects_the_sample_type() {
    let mut writer = Writer::new(HEAP);
    writer.text(14, "inuse_objects");
    writer.sample(&["main"], &[1, 2]);
    let profile = read(&writer.finish());
    assert_eq!(profile.default_sample_type(), 0);
    assert_eq!(profile.sample_type("inuse_space"), Some(1));
    assert_eq!(profile.sample_type("nothing"), None);
    // Old heap profiles use these names.
    let mut writer = Writer::new(&[("objects", "count"), ("space", "bytes")]);
    writer.sample(&["main"], &[1, 2]);
    assert_eq!(read(&writer.finish()).sample_type("inuse_space"), Some(1));
}

#[test]
fn a_dump_of_jemalloc_is_scaled_to_its_estimate() {
    let dump = "heap_v2/524288\n  t*: 15: 532768 [0: 0]\n  t0: 15: 532768 [0: 0]\n\
        @ 0x401235 0x7f0000000101 0x99\n  t*: 13: 8480 [0: 0]\n  t0: 13: 8480 [0: 0]\n\
        @ 0x401300\n  t*: 1: 524288 [0: 0]\n  t0: 1: 524288 [0: 0]\n\n\
        MAPPED_LIBRARIES:\n\
        00400000-00500000 r-xp 00002000 08:01 1234                       /usr/bin/a program\n\
        00600000-00700000 rw-p 00002000 08:01 1234                       /usr/bin/a program\n\
        7f0000000000-7f0000001000 r-xp 00000000 08:01 99 /lib/libc.so.6\n";
    let profile = read(dump.as_bytes());
    let types: Vec<_> = profile.sample_types().iter().map(|t| &*t.name).collect();
    assert_eq!(types, ["inuse_objects", "inuse_space"]);
    let values: Vec<Vec<i64>> = profile
        .samples()
        .map(|sample| sample.values().collect())
        .collect();
    let scale = |objects: f64, bytes: f64| {
        let factor = 1.0 / (1.0 - (-(bytes / objects) / 524_288.0).exp());
        vec![
            (objects * factor).round() as i64,
            (bytes * factor).round() as i64,
        ]
    };
    assert_eq!(values, [scale(13.0, 8480.0), scale(1.0, 524_288.0)]);
    assert!(values[0][1] > 6_000_000, "{values:?}");
    let totals = function_totals(&profile, 1).unwrap();
    let names: Vec<_> = totals.functions.iter().map(|row| &*row.name).collect();
    for name in ["a program+0x3234", "libc.so.6+0x100", "0x98"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let first = profile
        .samples()
        .next()
        .unwrap()
        .locations()
        .next()
        .unwrap();
    let mapping = profile.mapping(profile.location(first).mapping.unwrap());
    assert_eq!(
        (mapping.start, mapping.limit, mapping.offset),
        (0x40_0000, 0x50_0000, 0x2000)
    );
    // The same dump, with totals of all allocations.
    let accumulated = dump.replace("13: 8480 [0: 0]", "13: 8480 [26: 16960]");
    let profile = read(accumulated.as_bytes());
    let types: Vec<_> = profile.sample_types().iter().map(|t| &*t.name).collect();
    assert_eq!(
        types,
        [
            "inuse_objects",
            "inuse_space",
            "alloc_objects",
            "alloc_space"
        ]
    );
    assert_eq!(profile.default_sample_type(), 1);
    let first: Vec<i64> = profile.samples().next().unwrap().values().collect();
    assert_eq!(first[2], 2 * first[0]);
}
