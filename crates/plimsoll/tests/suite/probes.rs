//! A tracer reads the samples of the heap profile at the probes `otel_memory`.
//!
//! Error probability: the estimates of six sizes, each the sum of at least 300 samples, are compared
//! with the exact bytes. Each is off by six standard errors less than once in 10^7 runs.

use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use plimsoll::profile;
use plimsoll_checks::profile::read_profile;
use plimsoll_testkit::child;
use plimsoll_testkit::os::linux::usdt::{self, Event};
use plimsoll_testkit::pprof::Values;

use crate::ALLOC;

/// Sizes in bytes, at which blocks count unchanged and which the test harness does not request: with
/// slots of two kinds, and large ones.
const SIZES: [usize; 6] = [776, 968, 21_760, 27_264, 40_009, 90_001];

/// The blocks of each size.
const BLOCKS: usize = 300;

/// A size of which a block is reallocated in vain.
const REFUSED: usize = 100_003;

/// A size with an alignment that no slot has.
const UNTRACKED: Layout = layout(888, 1 << 17);

const fn layout(size: usize, align: usize) -> Layout {
    match Layout::from_size_align(size, align) {
        Ok(layout) => layout,
        Err(_) => panic!("a valid layout"),
    }
}

/// The variable that names the file for the profile of the child.
const FILE: &str = "PLIMSOLL_TEST_PROBES";

/// Allocates, reallocates and frees blocks of each size on two threads; leaks some. Then writes the
/// values of the heap profile of each size, and the exact bytes, to a file.
fn allocate(rounds: usize) {
    let mut exact = [0; SIZES.len()];
    let mut kept = Vec::new();
    for _ in 0..rounds {
        for at in 0..SIZES.len() {
            let (old, new) = (SIZES[at], SIZES[(at + 1) % SIZES.len()]);
            let allocate = |_| {
                // SAFETY: the layout is valid.
                let block = unsafe { ALLOC.alloc(layout(old, 8)) };
                (block.expose_provenance(), old)
            };
            let mut blocks: Vec<(usize, usize)> = (0..BLOCKS).map(allocate).collect();
            for (block, size) in blocks.iter_mut().step_by(2) {
                let pointer = std::ptr::with_exposed_provenance_mut(*block);
                // SAFETY: the block has this layout.
                let moved = unsafe { ALLOC.realloc(pointer, layout(old, 8), new) };
                (*block, *size) = (moved.expose_provenance(), new);
            }
            exact[at] += BLOCKS * old;
            exact[(at + 1) % SIZES.len()] += BLOCKS / 2 * new;
            kept.extend(blocks.drain(..BLOCKS / 10));
            let free = move || {
                for (block, size) in blocks {
                    let pointer = std::ptr::with_exposed_provenance_mut(block);
                    // SAFETY: the block has this layout.
                    unsafe { ALLOC.dealloc(pointer, layout(size, 8)) };
                }
            };
            match at % 2 {
                0 => free(),
                _ => std::thread::spawn(free).join().expect("frees"),
            }
        }
    }
    // SAFETY: each block is freed with the layout that it has. No memory is as large as the refused
    // request.
    unsafe {
        let block = ALLOC.alloc(layout(REFUSED, 8));
        assert!(
            ALLOC
                .realloc(block, layout(REFUSED, 8), isize::MAX as usize - 7)
                .is_null()
        );
        ALLOC.dealloc(block, layout(REFUSED, 8));
        ALLOC.dealloc(ALLOC.alloc(UNTRACKED), UNTRACKED);
    }
    // The profile has all events: no block is sampled from here on.
    profile::set_heap_rate(0);
    let heap = read_profile("heap");
    let mut text = String::new();
    for (size, exact) in SIZES.into_iter().zip(exact) {
        let samples = heap.sample.iter();
        let of_size = samples.filter(|sample| heap.number(sample, "bytes") == Some(size as i64));
        let Values {
            alloc_objects,
            alloc_space,
            inuse_objects,
            inuse_space,
        } = heap.sum(of_size);
        text += &format!(
            "{size} {exact} {alloc_objects} {alloc_space} {inuse_objects} {inuse_space}\n"
        );
    }
    let lost = profile::lost_events();
    assert_eq!((lost.without_stack, lost.table_full), (0, 0), "{lost:?}");
    fs::write(std::env::var_os(FILE).expect("a file"), text).expect("written");
    assert!(!kept.is_empty());
}

/// The sums of the events of one size.
#[derive(Debug, Default)]
struct Sums {
    allocs: i64,
    weight: i64,
    live: i64,
    live_weight: i64,
}

/// Runs the test `name` in a traced process. Returns the lines of its file, and its events. Asserts that
/// each block is allocated before it is freed, and freed before it is allocated again.
fn traced(name: &str, settings: &str) -> (Vec<Vec<i64>>, Vec<Event>, BTreeMap<u64, Sums>) {
    let program = std::env::current_exe().expect("the test has a path");
    usdt::assert_probes(&program);
    let file: PathBuf = std::env::temp_dir().join(format!(
        "plimsoll-probes-{}-{}",
        std::process::id(),
        name.replace("::", "-")
    ));
    let mut command = child::command(name, settings);
    command.env(FILE, &file).stdout(Stdio::null());
    let (status, events) = usdt::trace(&mut command, |path| path == program);
    assert!(status.success(), "{status}");
    let text = fs::read_to_string(&file).expect("the file of the child");
    fs::remove_file(&file).expect("the file is this test's");
    let numbers = text.lines().map(|line| {
        let words = line.split(' ').map(|word| word.parse().expect("a number"));
        words.collect()
    });
    assert_eq!(events.len(), 1, "one process has probes");
    let events = events.into_values().next().expect("one process");
    let mut live = BTreeMap::new();
    let mut sums: BTreeMap<u64, Sums> = BTreeMap::new();
    for &event in &events {
        match event {
            Event::Alloc {
                block,
                size,
                weight,
            } => {
                let before = live.insert(block, (size, weight));
                assert_eq!(before, None, "{event:x?} is allocated twice");
                let sums = sums.entry(size).or_default();
                sums.allocs += 1;
                sums.weight += weight as i64;
                sums.live += 1;
                sums.live_weight += weight as i64;
            }
            Event::Free { block } => {
                let (size, weight) = live.remove(&block).expect("an allocated block");
                let sums = sums.entry(size).or_default();
                sums.live -= 1;
                sums.live_weight -= weight as i64;
            }
        }
    }
    (numbers.collect(), events, sums)
}

/// The tool of the field finds the same probes.
#[test]
fn readelf_shows_the_probes() {
    let program = std::env::current_exe().expect("the test has a path");
    let readelf = Command::new("readelf").arg("-n").arg(&program).output();
    let Ok(readelf) = readelf else {
        return plimsoll_testkit::skip!("readelf is not installed");
    };
    let shown = String::from_utf8_lossy(&readelf.stdout);
    for probe in usdt::probes(&program) {
        let name = format!("Provider: otel_memory\n    Name: {}\n", probe.name);
        let after = shown.split(&name).nth(1).expect("the probe is shown");
        for fact in [
            format!("Location: {:#018x}, ", probe.address),
            format!("Arguments: {}", probe.arguments),
        ] {
            assert!(after.contains(&fact), "{fact} in {shown}");
        }
    }
}

/// A tracer from elsewhere reads the same events.
#[test]
fn bpftrace_reads_the_probes() {
    if child::is_child() {
        return allocate(1);
    }
    let name = "bpftrace_reads_the_probes";
    let program = std::env::current_exe().expect("the test has a path");
    let file = format!("plimsoll-bpftrace-{}", std::process::id());
    let file = std::env::temp_dir().join(file);
    let child = child::command(name, "heap_rate=1");
    let of = program.display();
    let script = format!(
        "usdt:{of}:otel_memory:alloc {{ @live[arg0] = arg1; @allocs[arg1] = count(); @weights[arg1] = sum(arg2); }}
         usdt:{of}:otel_memory:free {{ @frees[@live[arg0]] = count(); delete(@live[arg0]); }}"
    );
    let arguments = child.get_args().map(|word| word.to_str().expect("a word"));
    let words: Vec<&str> = std::iter::once(program.to_str().expect("a path"))
        .chain(arguments)
        .collect();
    let variables = child.get_envs();
    let traced = Command::new("bpftrace")
        .args(["-q", "-f", "json", "-e", &script, "-c", &words.join(" ")])
        .envs(variables.filter_map(|(name, value)| Some((name, value?))))
        // Its default is smaller than the number of blocks.
        .env("BPFTRACE_MAP_KEYS_MAX", "65536")
        .env(FILE, &file)
        .output();
    let Ok(traced) = traced else {
        return plimsoll_testkit::skip!("bpftrace is not installed");
    };
    let says = String::from_utf8_lossy(&traced.stderr);
    let Ok(text) = fs::read_to_string(&file) else {
        // It starts the program only if it may trace it.
        assert!(!traced.status.success(), "{traced:?}");
        return plimsoll_testkit::skip!("bpftrace may not trace here: {says}");
    };
    fs::remove_file(&file).expect("the file is this test's");
    let shown = String::from_utf8_lossy(&traced.stdout);
    // A line for each map: `{"type": "map", "data": {"@allocs": {"776": 300, ...}}}`.
    let map = |name: &str| -> BTreeMap<i64, i64> {
        let start = format!("\"{name}\": {{");
        let line = shown.lines().find_map(|line| line.split_once(&start));
        let (_, entries) = line.unwrap_or_else(|| panic!("no {name}: {shown} {says}"));
        let entries = entries.split('}').next().unwrap_or_default().split(", ");
        let entry = |entry: &str| {
            let (key, value) = entry.split_once(": ").expect("a key and a value");
            let key = key.trim_matches('"').parse().expect("a size");
            (key, value.parse().expect("a number"))
        };
        entries.map(entry).collect()
    };
    let (allocs, weights, frees) = (map("@allocs"), map("@weights"), map("@frees"));
    for line in text.lines() {
        let numbers = line.split(' ').map(|word| word.parse().expect("a number"));
        let numbers: Vec<i64> = numbers.collect();
        let [size, exact, alloc_objects, _, inuse_objects, _] = numbers[..] else {
            panic!("six numbers: {line}")
        };
        assert_eq!(weights[&size], exact, "{size}: {shown} {says}");
        assert_eq!(allocs[&size], alloc_objects, "{size}");
        assert_eq!(allocs[&size] - frees[&size], inuse_objects, "{size}");
    }
}

#[test]
fn at_rate_one_the_probes_are_the_allocations() {
    if child::is_child() {
        return allocate(1);
    }
    let (lines, events, sums) = traced("at_rate_one_the_probes_are_the_allocations", "heap_rate=1");
    for line in lines {
        let [
            size,
            exact,
            alloc_objects,
            alloc_space,
            inuse_objects,
            inuse_space,
        ] = line[..]
        else {
            panic!("six numbers: {line:?}")
        };
        let sums = &sums[&(size as u64)];
        assert_eq!(sums.weight, exact, "{size}");
        assert_eq!((sums.allocs, sums.weight), (alloc_objects, alloc_space));
        assert_eq!((sums.live, sums.live_weight), (inuse_objects, inuse_space));
        assert!(sums.live > 0);
    }
    let of_size = |wanted: usize| {
        let mut of_size = events.iter().filter_map(move |event| match *event {
            Event::Alloc { block, size, .. } => (size == wanted as u64).then_some(block),
            Event::Free { .. } => None,
        });
        let block = of_size.next().expect("a block of that size");
        let allocs = 1 + of_size.filter(|&other| other == block).count();
        let free = Event::Free { block };
        (allocs, events.contains(&free))
    };
    // The free precedes the reallocation, which is then refused.
    assert_eq!(of_size(REFUSED), (2, true));
    assert_eq!(sums[&(REFUSED as u64)].live, 0);
    assert_eq!(of_size(UNTRACKED.size()), (1, true));
    assert_eq!(sums[&(UNTRACKED.size() as u64)].live, 0);
}

#[test]
fn the_weights_of_samples_sum_to_the_allocated_bytes() {
    const RATE: f64 = 16384.0;
    if child::is_child() {
        return allocate(20);
    }
    let (lines, _, sums) = traced(
        "the_weights_of_samples_sum_to_the_allocated_bytes",
        "heap_rate=16k",
    );
    for line in lines {
        let [size, exact, _, alloc_space, _, inuse_space] = line[..] else {
            panic!("six numbers: {line:?}")
        };
        let sums = &sums[&(size as u64)];
        assert!(sums.allocs >= 300, "{size}: {sums:?}");
        assert_eq!(sums.weight, alloc_space, "{size}");
        assert_eq!(sums.live_weight, inuse_space, "{size}");
        let probability = -(-size as f64 / RATE).exp_m1();
        let variance = exact as f64 * size as f64 * (1.0 - probability) / probability;
        // Weights are cut to whole bytes.
        let limit = 6.0 * variance.sqrt() + sums.allocs as f64;
        let off = (sums.weight - exact) as f64;
        assert!(off.abs() <= limit, "{size}: {off} of {exact}");
    }
}
