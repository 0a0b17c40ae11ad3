//! The heap profile compared with known allocations: at rate 1, it contains every object.

#[path = "generics/mod.rs"]
mod generics;

#[path = "heap_profile/records.rs"]
mod records;

#[path = "heap_profile/recursion.rs"]
mod recursion;

use plimsoll_checks::profile::read_profile;
use plimsoll_testkit::{child, pprof};
use std::any::Any;
use std::collections::HashMap;
use std::hint::black_box;

use plimsoll::profile::{self, Format};
use plimsoll::{heap_stats, size_class};
use pprof::{Profile, Values, is_thread_entry};

#[inline(never)]
fn boxes(count: usize) -> Vec<Box<dyn Any>> {
    let mut kept: Vec<Box<dyn Any>> = Vec::with_capacity(count);
    for _ in 0..count {
        kept.push(Box::new(black_box([7u8; 48])));
    }
    kept
}

#[inline(always)]
fn inlined(size: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(size))
}

#[inline(never)]
fn calls_inlined(count: usize) {
    for _ in 0..count {
        drop(inlined(black_box(80)));
    }
}

#[inline(never)]
fn generic<T: Clone>(value: T, count: usize) -> Vec<T> {
    vec![value; black_box(count)]
}

#[inline(never)]
fn grows() -> Vec<u64> {
    let mut grown = Vec::new();
    for number in 0..1000 {
        grown.push(black_box(number));
    }
    grown
}

#[inline(never)]
fn map_grows() -> HashMap<u64, u64> {
    let map = (0..1000).map(|number| (black_box(number), number));
    // Not a tail call, which would leave no frame.
    black_box(map.collect())
}

#[inline(never)]
fn formats() -> String {
    format!("{:>100}", black_box(1))
}

#[inline(never)]
fn large() -> Vec<u8> {
    Vec::with_capacity(black_box(100_001))
}

#[inline(never)]
fn zeroed() -> Vec<u8> {
    vec![0; black_box(889)]
}

fn everything_is_there() {
    let boxes_kept = boxes(100);
    drop(boxes(23));
    calls_inlined(50);
    let generics = (generic(1u8, 1024), generic(1u64, 512));
    let (grown, map, formatted) = (grows(), map_grows(), formats());
    let (large, zeroed) = (large(), zeroed());

    let profile = read_profile("heap");
    assert_eq!(
        profile.sample_types(),
        [
            ("alloc_objects", "count"),
            ("alloc_space", "bytes"),
            ("inuse_objects", "count"),
            ("inuse_space", "bytes")
        ]
    );
    assert_eq!(profile.period, 1);
    let period_type = profile.period_type.as_ref().unwrap();
    assert_eq!(
        (
            profile.text(period_type.name),
            profile.text(period_type.unit)
        ),
        ("space", "bytes")
    );

    // Objects, bytes, objects in use, bytes in use.
    let expect = |leaf: &str, size: i64, expected: [i64; 4]| {
        let samples = profile.at(leaf);
        let of_size = samples
            .iter()
            .copied()
            .filter(|sample| profile.number(sample, "bytes") == Some(size));
        let [alloc_objects, alloc_space, inuse_objects, inuse_space] = expected;
        let expected = Values {
            alloc_objects,
            alloc_space,
            inuse_objects,
            inuse_space,
        };
        assert_eq!(profile.sum(of_size), expected, "{leaf}, {size} bytes");
    };
    expect("boxes", 48, [123, 123 * 48, 100, 100 * 48]);
    expect("inlined", 80, [50, 50 * 80, 0, 0]);
    expect("large", 100_001, [1, 100_001, 1, 100_001]);
    expect("formats", 100, [0; 4]);
    let class = size_class::counted_size(889) as i64;
    expect("zeroed", class, [1, class, 1, class]);
    // Two instances of a function.
    for bytes in [1024, 4096] {
        let counted = size_class::counted_size(bytes) as i64;
        expect("generic", counted, [1, counted, 1, counted]);
    }

    // An inlined function is a separate frame in its caller's location.
    let inlined = profile.at("inlined");
    let names = profile.names(inlined[0]);
    assert!(names[1].ends_with("calls_inlined"), "{names:?}");
    assert!(names[2].ends_with("everything_is_there"), "{names:?}");

    // Growth is charged to the function that grows the vector, whatever functions lie in between.
    for (leaf, at_least) in [("grows", 8), ("formats", 1)] {
        let sum = profile.sum(profile.at(leaf));
        assert!(
            sum.alloc_objects >= at_least && sum.inuse_objects >= 1,
            "{leaf}: {sum:?}"
        );
    }
    let holding_map: Vec<_> = profile
        .sample
        .iter()
        .filter(|sample| {
            profile
                .names(sample)
                .iter()
                .any(|name| name.ends_with("map_grows"))
        })
        .collect();
    assert!(profile.sum(holding_map.iter().copied()).inuse_space >= 16 * 1000);
    for sample in &profile.sample {
        let leaf = profile.names(sample).first().copied().unwrap_or_default();
        for hidden in [
            "plimsoll_core::alloc",
            "alloc::raw_vec",
            "__rust_alloc",
            "hashbrown",
        ] {
            assert!(!leaf.contains(hidden), "{leaf} is shown");
        }
    }

    // Lines of this file.
    let (_, file, line, start) = profile.lines(profile.at("boxes")[0])[0];
    assert!(file.ends_with("memory/heap_profile.rs"), "{file}");
    assert!((start + 1..start + 6).contains(&line), "{line}, {start}");
    drop((boxes_kept, generics, grown, map, formatted, large, zeroed));

    // Everything was freed: the sites are the same, with nothing in use.
    let after = read_profile("heap");
    for leaf in ["boxes", "large", "zeroed", "generic", "grows", "formats"] {
        let sum = after.sum(after.at(leaf));
        assert!(sum.alloc_objects > 0, "{leaf}");
        assert_eq!((sum.inuse_objects, sum.inuse_space), (0, 0), "{leaf}");
    }
}

#[test]
fn all_allocations_are_recorded_at_rate_one() {
    child::run(
        "all_allocations_are_recorded_at_rate_one",
        "heap_rate=1",
        everything_is_there,
    );
}

#[test]
fn all_allocations_are_recorded_at_rate_one_by_unwind_tables() {
    child::run(
        "all_allocations_are_recorded_at_rate_one_by_unwind_tables",
        "heap_rate=1,unwinder=tables",
        everything_is_there,
    );
}

/// At rate 1 the estimate is exact, from the first allocation before `main` on.
fn totals_agree() {
    let noise: Vec<_> = (0..4)
        .map(|thread| {
            std::thread::spawn(move || {
                let mut kept = Vec::new();
                for round in 0..5000usize {
                    kept.push(vec![0u8; (round * 37 + thread) % 3000 + 1]);
                    if round % 3 == 0 {
                        kept.swap_remove(round % kept.len());
                    }
                }
                kept.len()
            })
        })
        .collect();
    for thread in noise {
        thread.join().unwrap();
    }
    let profile = read_profile("allocs");
    assert_eq!(profile.text(profile.default_sample_type), "alloc_space");
    let sum = profile.sum(&profile.sample);
    assert!(sum.inuse_objects >= 0 && sum.inuse_objects <= sum.alloc_objects);
    let comments = profile.comments();
    let [bytes, objects] = [sum.alloc_space, sum.alloc_objects];
    assert!(objects > 20_000);
    let expected = format!(
        "plimsoll: allocated: {bytes} bytes in {objects} objects exactly; {bytes} bytes estimated \
         from {objects} samples, standard error 0 bytes"
    );
    assert!(comments.contains(&&expected[..]), "{expected} {comments:?}");
    assert!(
        comments
            .iter()
            .any(|comment| comment.starts_with("plimsoll: lost: 0 events without a stack, 0 ")),
        "{comments:?}"
    );
}

#[test]
fn at_rate_one_the_estimate_is_the_exact_total() {
    child::run(
        "at_rate_one_the_estimate_is_the_exact_total",
        "heap_rate=1",
        totals_agree,
    );
}

#[inline(never)]
fn down(levels: usize) -> Vec<u8> {
    if levels == 0 {
        black_box(Vec::with_capacity(19_500))
    } else {
        let mut block = down(levels - 1);
        block.truncate(levels);
        black_box(block)
    }
}

/// The profile keeps both ends of a stack, in exactly as many frames as requested, and of few frames the leaf end.
fn depths() {
    for depth in [1, 2, 10, 31, 32, 127, 128, 129, 1023, 1024, 5000, 0] {
        let before = profile::set_stack_depth(depth);
        assert!(before <= 1024);
        let kept = down(2000);
        let profile = read_profile("heap");
        let sizes = size_class::counted_size(19_500) as i64;
        let deepest = profile
            .sample
            .iter()
            .filter(|sample| profile.number(sample, "bytes") == Some(sizes))
            .filter(|sample| sample.value[2] > 0)
            .collect::<Vec<_>>();
        assert_eq!(deepest.len(), 1, "depth {depth}");
        let names = profile.names(deepest[0]);
        if depth == 0 {
            assert_eq!(names, ["[no stack]"]);
        } else {
            assert_eq!(deepest[0].location_id.len(), depth.min(1024), "{names:?}");
            let inner = depth.min(1024) - depth.min(1024) / 4 - 1;
            let (leaf, outer) = match depth {
                ..32 => (&names[..], &[][..]),
                _ => names.split_at(inner),
            };
            assert!(
                leaf.iter().all(|name| name.ends_with("::down")),
                "{names:?}"
            );
            assert_eq!(depth >= 32, outer.first() == Some(&"[frames left out]"));
            assert!(outer.last().is_none_or(|name| is_thread_entry(name)));
        }
        drop(kept);
    }
}

#[test]
fn stacks_have_the_requested_depth() {
    child::run("stacks_have_the_requested_depth", "heap_rate=1", depths);
}

#[inline(never)]
fn begins(levels: usize) -> Vec<u8> {
    black_box(down(levels))
}

/// Recursions of about 5,000 frames, each of another number, have one stack, which ends at the root.
fn recursions_have_one_root() {
    let recurses = || -> Vec<_> { (0..50).map(|more| begins(5000 + more)).collect() };
    let thread = std::thread::Builder::new().stack_size(64 << 20);
    let kept = thread.spawn(recurses).unwrap().join().unwrap();
    let profile = read_profile("heap");
    let size = size_class::counted_size(19_500) as i64;
    let samples = profile.sample.iter();
    let samples: Vec<_> = samples
        .filter(|sample| profile.number(sample, "bytes") == Some(size))
        .collect();
    assert_eq!(samples.len(), 1);
    assert_eq!(samples[0].value[3], 50 * size);
    let names = profile.names(samples[0]);
    assert!(
        names.iter().any(|name| name.ends_with("::begins")),
        "{names:?}"
    );
    assert!(is_thread_entry(names.last().unwrap()), "{names:?}");
    let text = all_text();
    let record = text
        .split("\n\n")
        .find(|record| record.contains("::begins+"));
    let record = record.expect("a record of the recursion");
    assert!(record.contains("\t[frames left out]+0x0\t:0\n"), "{record}");
    let record = profile::lookup("heap").unwrap().snapshot();
    let mut stacks = record.records().map(|record| record.stack());
    let deep = stacks
        .find(|stack| stack.len() > 128)
        .expect("a deep stack");
    let frames = profile::frames(deep, profile::Detail::Names);
    let left_out = |frame: &profile::Frame| frame.function.as_deref() == Some("[frames left out]");
    assert_eq!(frames.iter().filter(|frame| left_out(frame)).count(), 1);
    assert_eq!(profile::lost_events().cut_stacks, 0);
    assert!(profile::lost_events().shortened_stacks >= 50);
    drop(kept);
}

#[test]
fn recursions_of_any_depth_have_one_stack_with_their_root() {
    child::run(
        "recursions_of_any_depth_have_one_stack_with_their_root",
        "heap_rate=1",
        recursions_have_one_root,
    );
}

fn all_text() -> String {
    let mut text = Vec::new();
    let heap = profile::lookup("heap").unwrap();
    heap.write_to(&mut text, Format::Text).unwrap();
    String::from_utf8(text).unwrap()
}

/// Go's text form: a head line with the sum of all records, the records, and the memory statistics.
/// The records with the largest memory in use come first, each with its frames.
fn text_is_gos() {
    let kept = boxes(100);
    let text = all_text();
    let columns = |line: &str| -> Vec<i64> {
        line.split([':', '[', ']', ' ', '@'])
            .filter_map(|word| word.parse().ok())
            .collect()
    };
    let mut lines = text.lines();
    let head = lines.next().unwrap();
    assert!(
        head.starts_with("heap profile: ") && head.ends_with(" @ heap/2"),
        "{head}"
    );
    let (records, statistics) = text.split_once("\n\n# runtime.MemStats\n").unwrap();
    let mut sum = [0; 4];
    let mut last = i64::MAX;
    for line in records
        .lines()
        .skip(1)
        .filter(|line| line.contains(" @ 0x"))
    {
        let values = columns(line.split(" @ ").next().unwrap());
        assert_eq!(values.len(), 4, "{line}");
        assert!(values[1] <= last, "sorted by memory in use: {line}");
        last = values[1];
        for (sum, value) in sum.iter_mut().zip(&values) {
            *sum += value;
        }
    }
    let head = columns(head.split(" @ ").next().unwrap());
    // In a record without frees, the second number of bytes is one more.
    let without_stack = head[2] - sum[2];
    assert!((0..50).contains(&without_stack), "{head:?} {sum:?}");
    let boxes = records
        .split("\n\n")
        .flat_map(|record| record.split_inclusive('\n').collect::<Vec<_>>())
        .find(|line| line.starts_with("100: 4800 [100: 4801] @ 0x"));
    assert!(boxes.is_some(), "{text}");
    let frame = text
        .lines()
        .find(|line| line.starts_with("#\t0x") && line.contains("::boxes+0x"))
        .expect("a line for the function");
    assert_eq!(frame.split('\t').count(), 4, "{frame}");
    assert!(frame.contains("memory/heap_profile.rs:"), "{frame}");
    for field in ["Alloc", "TotalAlloc", "Sys", "HeapObjects", "BuckHashSys"] {
        assert!(
            statistics
                .lines()
                .any(|line| line.starts_with(&format!("# {field} = "))),
            "{statistics}"
        );
    }
    drop(kept);
}

#[test]
fn text_is_as_go_writes_it() {
    child::run("text_is_as_go_writes_it", "heap_rate=1", text_is_gos);
}

/// Making a profile adds nothing to the profile or to the program's allocations, and leaks nothing.
fn own_memory() {
    let kept: Vec<_> = (0..200).map(|levels| down(levels % 100)).collect();
    drop(read_profile("heap"));
    let mut bytes: Vec<u8> = Vec::with_capacity(32 << 20);
    let heap = profile::lookup("heap").unwrap();
    let (before, own_before) = (heap_stats(), plimsoll::mem_stats().other_sys);
    let mut peak = 0;
    for _ in 0..5 {
        bytes.clear();
        heap.write_to(&mut bytes, Format::Pprof).unwrap();
        heap.write_to(&mut bytes, Format::Text).unwrap();
        peak = peak.max(plimsoll::mem_stats().other_sys);
    }
    let (after, own_after) = (heap_stats(), plimsoll::mem_stats().other_sys);
    assert_eq!(after, before, "the program allocated nothing");
    assert!(
        own_after <= own_before + (1 << 20),
        "Plimsoll's own memory grew from {own_before} to {own_after} bytes"
    );
    const OWN: [&str; 5] = [
        "plimsoll_profiles::export",
        "plimsoll_profiles::symbol",
        "plimsoll_pprof::",
        "plimsoll_serve::http",
        "plimsoll_symbolize::",
    ];
    let profile = Profile::read(&{
        let mut bytes = Vec::new();
        heap.write_to(&mut bytes, Format::Pprof).unwrap();
        bytes
    });
    for sample in &profile.sample {
        for name in profile.names(sample) {
            // `Profile::write_with` calls the program's writer, whose memory counts as the
            // program's.
            let calls_the_writer =
                name.ends_with("Profile>::write_with") || name.ends_with("Profile>::write_to");
            for own in OWN {
                assert!(
                    calls_the_writer || !name.contains(own),
                    "{name} is in the profile"
                );
            }
        }
    }
    drop(kept);
}

#[test]
fn profiles_are_not_made_with_the_programs_memory() {
    child::run(
        "profiles_are_not_made_with_the_programs_memory",
        "heap_rate=1",
        own_memory,
    );
}

/// With a full table of stacks, totals stay correct and the profile reports the loss.
fn full_table() {
    let mut kept = Vec::new();
    for levels in 0..20_000 {
        kept.push(down(levels % 120));
        kept.push(Vec::with_capacity(33_000 + levels));
    }
    let lost = profile::lost_events();
    assert!(lost.table_full > 0, "{lost:?}");
    let exact = heap_stats();
    let profile = read_profile("heap");
    let sum = profile.sum(&profile.sample);
    assert!(
        sum.alloc_objects as u64 + 8 >= exact.mallocs,
        "{sum:?} {}",
        exact.mallocs
    );
    let overflowed = profile.at("[the table of stacks is full]");
    assert!(profile.sum(overflowed).inuse_objects > 0);
    assert!(profile.comments().iter().any(|comment| {
        comment.contains("because the table of stacks was full") && !comment.contains(", 0 because")
    }),);
    drop(kept);
    let after = read_profile("heap");
    let sum = after.sum(&after.sample);
    let [bytes, objects] = [sum.inuse_space, sum.inuse_objects];
    let expected = format!(
        "plimsoll: in use: {bytes} bytes in {objects} objects exactly; {bytes} bytes estimated \
         from {objects} samples, standard error 0 bytes"
    );
    assert!(
        after.comments().contains(&&expected[..]),
        "{expected} {:?}",
        after.comments()
    );
}

#[test]
fn a_full_table_keeps_the_totals() {
    child::run(
        "a_full_table_keeps_the_totals",
        "heap_rate=1,table=1m",
        full_table,
    );
}

#[inline(never)]
fn many(rounds: usize, size: usize, keep: &mut Vec<Vec<u8>>) {
    for round in 0..rounds {
        let block = Vec::with_capacity(black_box(size));
        if round % 4 == 0 {
            keep.push(block);
        }
    }
}

/// With the real allocator and a change of rate in between, estimates lie within seven standard
/// errors of the true values. Each estimate has at least 300 samples, of which a fourth stays in
/// use. With fewer, the errors would not be nearly normal, and seven standard errors would be
/// exceeded more than once in millions of runs.
fn estimates() {
    for (rounds, size, rates) in [
        (400_000, 16, [4 << 10, 16 << 10]),
        (40_000, 208, [16 << 10, 4 << 10]),
        (40_000, 1024, [16 << 10, 128 << 10]),
        (40_000, 30_000, [512 << 10, 4 << 10]),
        (40_000, 70_000, [64 << 10, 512 << 10]),
    ] {
        let mut keep = Vec::with_capacity(rounds);
        let sums = |profile: &Profile| {
            let samples: Vec<_> = profile.at("many");
            let counted = size_class::counted_size(size) as i64;
            profile.sum(
                samples
                    .into_iter()
                    .filter(|sample| profile.number(sample, "bytes") == Some(counted)),
            )
        };
        for rate in rates {
            profile::set_heap_rate(rate);
            many(rounds, size, &mut keep);
        }
        let sum = sums(&read_profile("heap"));
        let counted = size_class::counted_size(size) as f64;
        let mut variance = 0.0;
        for rate in rates {
            let probability = -(-counted / rate as f64).exp_m1();
            variance += rounds as f64 * (1.0 - probability) / probability;
        }
        let objects = (2 * rounds) as f64;
        let sigma = variance.sqrt().max(1.0);
        let off = (sum.alloc_objects as f64 - objects) / sigma;
        assert!(
            off.abs() < 7.0,
            "{size} bytes: {sum:?} for {objects} objects, {off:.1} standard errors"
        );
        let in_use = (sum.inuse_objects as f64 - objects / 4.0) / (sigma / 2.0).max(1.0);
        assert!(
            in_use.abs() < 7.0,
            "{size} bytes: {sum:?}, {in_use:.1} standard errors in use"
        );
        drop(keep);
        let after = sums(&read_profile("heap"));
        assert_eq!(
            (after.inuse_objects, after.inuse_space),
            (0, 0),
            "{size} bytes"
        );
    }
}

#[test]
fn estimates_are_right_through_changes_of_rate() {
    child::run(
        "estimates_are_right_through_changes_of_rate",
        "heap_rate=64k",
        estimates,
    );
}

/// Serving pages over HTTP does not count as allocations of the program.
fn answers_are_free() {
    use std::io::{Read, Write};
    let plimsoll = plimsoll::config().http("127.0.0.1:0").start();
    let address = plimsoll.http_address().unwrap();
    let mut buffer = [0; 4096];
    let mut get = |page: &str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let mut request = [0; 64];
        let length = {
            let mut left = &mut request[..];
            write!(left, "GET /debug/pprof/{page} HTTP/1.1\r\n\r\n").unwrap();
            64 - left.len()
        };
        stream.write_all(&request[..length]).unwrap();
        let mut answer = 0;
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            answer += read;
        }
        assert!(answer > 100, "{page}");
    };
    // Makes the allocations that the test itself needs only once.
    get("heap");
    let before = heap_stats();
    for page in [
        "heap",
        "heap?debug=1",
        "",
        "cmdline",
        "heap?seconds=1",
        "nothing",
    ] {
        get(page);
    }
    assert_eq!(heap_stats(), before);
}

#[test]
fn answers_are_not_made_with_the_programs_memory() {
    child::run(
        "answers_are_not_made_with_the_programs_memory",
        "heap_rate=1",
        answers_are_free,
    );
}
