//! The profile `memory`: all resident memory by holder.

use plimsoll_checks::profile::read_profile;
use plimsoll_testkit::child;
use plimsoll_testkit::pprof::Profile;
use std::hint::black_box;
use std::sync::Barrier;

use plimsoll::profile::{self, Format};
use plimsoll::reconcile;

const MIB: i64 = 1 << 20;

/// Returns the sum of the samples that have all of these functions.
fn sum(profile: &Profile, functions: &[&str]) -> i64 {
    let has = |names: &[&str], function: &str| names.iter().any(|name| name.ends_with(function));
    let samples = profile.sample.iter().filter(|sample| {
        let names = profile.names(sample);
        functions.iter().all(|function| has(&names, function))
    });
    samples.map(|sample| sample.value[0]).sum()
}

/// Returns the number before `word` in the first comment.
fn commented(profile: &Profile, word: &str) -> i64 {
    let comments = profile.comments();
    let words: Vec<&str> = comments[0].split_whitespace().collect();
    let at = words
        .iter()
        .position(|part| part.trim_end_matches([',', ':']) == word);
    words[at.unwrap_or_else(|| panic!("{word}: {comments:?}")) - 1]
        .parse()
        .unwrap()
}

#[track_caller]
fn assert_near(found: i64, expected: i64, tolerance: i64) {
    assert!(
        (found - expected).abs() < tolerance,
        "{found} is not near {expected}"
    );
}

#[inline(never)]
fn three_quarters() -> Vec<Vec<u8>> {
    black_box((0..30_000).map(|_| vec![1; 1000]).collect())
}

#[inline(never)]
fn one_quarter() -> Vec<Vec<u8>> {
    black_box((0..10_000).map(|_| vec![1; 1000]).collect())
}

#[inline(never)]
fn deep(kib: usize) -> usize {
    let mut room = [0u8; 1024];
    black_box(&mut room)[0] = kib as u8;
    let below = if kib > 1 { deep(kib - 1) } else { 0 };
    below + usize::from(black_box(&room)[0])
}

#[inline(never)]
fn touches_its_stack(barrier: &Barrier) {
    deep(1000);
    barrier.wait();
    barrier.wait();
}

fn holders() {
    let blocks = (three_quarters(), one_quarter());
    let barrier = Barrier::new(3);
    let profile = std::thread::scope(|scope| {
        for name in ["first", "second"] {
            let thread = std::thread::Builder::new().name(name.to_owned());
            thread
                .spawn_scoped(scope, || touches_its_stack(&barrier))
                .unwrap();
        }
        barrier.wait();
        let profile = read_profile("memory");
        barrier.wait();
        profile
    });
    assert_eq!(profile.sample_types(), [("memory_space", "bytes")]);
    let all: i64 = profile.sample.iter().map(|sample| sample.value[0]).sum();
    let parts = ["exact", "estimated", "unexplained"].map(|part| commented(&profile, part));
    assert_eq!(
        all,
        commented(&profile, "bytes"),
        "{:?}",
        profile.comments()
    );
    assert_eq!(all, parts.iter().sum::<i64>(), "{:?}", profile.comments());
    assert!(profile.sample.iter().all(|sample| sample.value[0] > 0));
    let kernel = reconcile().kernel.unwrap().resident as i64;
    assert_near(all, kernel, 8 * MIB);
    // Each outermost frame is a category.
    for sample in &profile.sample {
        let names = profile.names(sample);
        let outermost = names.last().unwrap();
        assert!(
            outermost.starts_with('[') && outermost.ends_with(']'),
            "{names:?}"
        );
    }
    let blocks_in_use = "[heap: blocks in use]";
    let of = |site: &str| sum(&profile, &["[heap]", blocks_in_use, site]);
    let list = 24 * 10_000;
    assert_near(
        of("memory_profile::three_quarters"),
        30_000_000 + 3 * list,
        3 * MIB,
    );
    assert_near(
        of("memory_profile::one_quarter"),
        10_000_000 + list,
        2 * MIB,
    );
    // A header of 8 bytes and 0 bytes of padding for each block.
    let slack = sum(
        &profile,
        &["[heap: slack of blocks]", "memory_profile::three_quarters"],
    );
    assert_near(slack, 30_000 * 8, 24_000);
    for name in ["first", "second"] {
        let thread = format!("[thread {name}]");
        let stack = sum(&profile, &["[thread stacks]", &thread]);
        // A frame takes a little more than a KiB.
        assert!((MIB..2 * MIB).contains(&stack), "{stack}");
        let start = profile.sample.iter().find_map(|sample| {
            let names = profile.names(sample);
            names.contains(&&*thread).then_some(names)
        });
        let start = start.unwrap();
        assert!(start[0].contains("memory_profile::holders"), "{start:?}");
    }
    assert!(sum(&profile, &["[files]", "[files: code and constants]"]) > MIB / 2);
    assert!(sum(&profile, &["[plimsoll]"]) > 0);
    let unexplained = sum(&profile, &["[unexplained]"]);
    assert_eq!(unexplained, parts[2]);
    assert!(unexplained * 50 <= all, "{unexplained} of {all}");
    drop(blocks);
}

#[test]
fn samples_sum_to_the_resident_memory() {
    child::run(
        "samples_sum_to_the_resident_memory",
        "heap_rate=16k",
        holders,
    );
}

/// Maps memory without the C library's function, which Plimsoll would see.
fn map_unseen(bytes: usize) {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, which is written to within its length.
    unsafe {
        let memory = libc::syscall(libc::SYS_mmap, 0, bytes, access, flags, -1, 0);
        assert!(memory > 0);
        (memory as *mut u8).write_bytes(7, bytes);
    }
}

static ARENA: plimsoll::stats::Account = plimsoll::stats::Account::new("arena");

fn accounts() {
    let profile = profile::lookup("memory").unwrap();
    let read = || read_profile("memory");
    let account = "[account arena]";
    let before = sum(&read(), &["[unexplained]"]);
    map_unseen(30 << 20);
    assert_near(sum(&read(), &["[unexplained]"]) - before, 30 * MIB, MIB);
    ARENA.reserve(60 << 20);
    ARENA.commit(20 << 20);
    let known = read();
    assert_eq!(sum(&known, &["[accounts]", account]), 20 * MIB);
    assert_near(sum(&known, &["[unexplained]"]) - before, 10 * MIB, MIB);
    // The account reports more than is resident: no sample is negative, and the sum stays right.
    ARENA.commit(30 << 20);
    let excess = read();
    assert_eq!(sum(&excess, &["[unexplained]"]), 0);
    assert_near(
        sum(&excess, &["[accounts]", account]),
        30 * MIB + before,
        MIB,
    );
    let all: i64 = excess.sample.iter().map(|sample| sample.value[0]).sum();
    assert_eq!(all, commented(&excess, "bytes"));
    // The text and the records show the categories too.
    let mut text = Vec::new();
    profile.write_to(&mut text, Format::Text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("memory profile: "), "{text}");
    assert!(
        text.contains("#\t[account arena]\n#\t[accounts]\n"),
        "{text}"
    );
    assert!(text.contains("\n# plimsoll: resident: "), "{text}");
    let snapshot = profile.snapshot();
    let of_account = snapshot.records().find(|record| {
        let categories: Vec<&str> = record.categories().collect();
        categories == ["[accounts]", account]
    });
    assert!(of_account.unwrap().value("memory_space").unwrap() > 29 * MIB);
}

#[test]
fn an_account_explains_at_most_the_rest() {
    child::run("an_account_explains_at_most_the_rest", "", accounts);
}

#[inline(never)]
fn never_touched() -> Vec<u8> {
    black_box(vec![0; 2 << 30])
}

#[inline(never)]
fn half_touched() -> Vec<u8> {
    let mut block = vec![0; 64 << 20];
    block[..32 << 20].fill(1);
    black_box(block)
}

#[inline(never)]
fn all_touched() -> Vec<Vec<u8>> {
    black_box((0..20).map(|_| vec![1; 2 << 20]).collect())
}

/// A site has the resident part of its large blocks, not the part of them in all blocks. Free memory stays free
/// memory, although more blocks are in use than memory is resident.
fn untouched_blocks() {
    let blocks = (never_touched(), half_touched(), all_touched());
    let mut holes: Vec<Vec<u8>> = (0..20_000).map(|_| vec![1; 1000]).collect();
    let mut number = 0;
    holes.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    let reconciliation = reconcile();
    let profile = read_profile("memory");
    let of = |site: &str| sum(&profile, &["[heap: blocks in use]", site]);
    // A huge page may contain more than was touched.
    assert_near(of("memory_profile::never_touched"), 0, 3 * MIB);
    assert_near(of("memory_profile::half_touched"), 32 * MIB, 3 * MIB);
    assert_near(of("memory_profile::all_touched"), 40 * MIB, 3 * MIB);
    let row = |name: &str| {
        let mut rows = reconciliation.rows.iter();
        rows.find(|row| row.name == name).unwrap().resident as i64
    };
    let in_use = row("heap: blocks in use") + row("heap: sampled blocks");
    assert_near(in_use, 72 * MIB + 10_000_000, 4 * MIB);
    assert_near(row("heap: held or fragmented"), 10_000_000, 3 * MIB);
    let free = sum(&profile, &["[heap: free, held by the allocator]"]);
    assert_near(free, 10_000_000, 3 * MIB);
    drop((blocks, holes));
}

// The samples of the small blocks have an error of 1 %; those of large ones have none.
#[test]
fn sites_of_untouched_blocks_have_their_resident_part() {
    child::run(
        "sites_of_untouched_blocks_have_their_resident_part",
        "heap_rate=16k",
        untouched_blocks,
    );
}
