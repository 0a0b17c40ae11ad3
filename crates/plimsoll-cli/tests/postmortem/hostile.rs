//! Files that are cut off, damaged, or crafted to do harm.

use std::fs;
use std::process::Command;

use plimsoll_command::profile::{Limits, parse};
use plimsoll_symbolize::Detail;

use crate::Process;
use crate::command::{Directory, failure_of, file_of_command, stdout_of};

/// Returns the file of a process that leaked and exited, with a small table.
pub fn file(directory: &Directory) -> Vec<u8> {
    let file = directory.path("whole");
    let (ended, said) = Process::start(
        "leak and exit",
        &file,
        "heap_rate=16k,table=1m,history=256k",
    )
    .ends();
    assert_eq!(ended.code(), Some(7), "{said}");
    fs::read(&file).unwrap()
}

/// Returns whether the file can be shown. Asserts that it yields a profile, or else an error of one
/// line. Uses the functions of the command: running the command for so many files would be too
/// slow.
pub fn is_shown(bytes: &[u8], directory: &Directory) -> bool {
    let path = directory.file("damaged", bytes);
    let file = fs::File::open(&path).unwrap();
    match plimsoll_postmortem::read(&file) {
        Ok(left) => {
            let profile = parse(&left.to_pprof(Detail::Addresses), Limits::default());
            profile.unwrap_or_else(|error| panic!("{error}"));
            true
        }
        Err(error) => {
            let why = error.to_string();
            assert!(!why.is_empty() && !why.contains('\n'), "{why}");
            false
        }
    }
}

/// Returns the offset of a part, by its word in the header.
pub fn part(bytes: &[u8], word: usize) -> usize {
    u64::from_ne_bytes(bytes[8 * word..][..8].try_into().unwrap()) as usize
}

#[test]
fn a_file_that_is_cut_off_is_shown_as_far_as_it_goes() {
    let directory = Directory::new("postmortem-cut");
    let bytes = file(&directory);
    let table = part(&bytes, 8);
    for length in [0, 1, 7, 8, 4095] {
        let path = directory.file("cut", &bytes[..length]);
        let (said, code) = failure_of(&["report", &path]);
        assert_eq!(code, 1, "{said}");
    }
    for length in [
        4096,
        4097,
        20_000,
        table - 1,
        table,
        table + 100,
        table + 70_000,
    ] {
        assert!(is_shown(&bytes[..length], &directory));
        let path = directory.path("damaged");
        let comments = stdout_of(&["report", &path, "--comments"]);
        assert!(
            comments.contains("damaged or cut off"),
            "{length}: {comments}"
        );
    }
}

#[test]
fn bytes_that_make_no_sense_do_no_harm() {
    let directory = Directory::new("postmortem-random");
    let whole = file(&directory);
    let (notes, table) = (part(&whole, 6), part(&whole, 8));
    let mut random = 7_u64;
    let mut next = |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    // The header without its first words, its description of the parts, and the used parts of notes
    // and table.
    let description = 8 * plimsoll_postmortem::layout::word::LAYOUT;
    let regions = [
        (24, 220),
        (description, 1500),
        (notes, 3000),
        (table, 300),
        (table, 60_000),
    ];
    let mut shown = 0;
    for round in 0..2500 {
        let mut bytes = whole.clone();
        let (from, length) = regions[round % 5];
        for _ in 0..=next(20) {
            let at = from + next(length);
            let value = [0, 0xff, 0x80, next(256) as u8][next(4)];
            bytes[at] = value;
        }
        shown += u32::from(is_shown(&bytes, &directory));
    }
    assert!(shown > 1000, "{shown} of 2500 are shown in part");
    for round in 0..50 {
        let mut bytes: Vec<u8> = (0..100_000).map(|_| next(256) as u8).collect();
        if round % 2 == 0 {
            bytes[..24].copy_from_slice(&whole[..24]);
        }
        is_shown(&bytes, &directory);
    }
}

/// Sets words of the header and of the table's head to values that lead out of the file or in
/// circles.
#[test]
fn words_that_lead_astray_are_not_followed() {
    let directory = Directory::new("postmortem-astray");
    let whole = file(&directory);
    let table = part(&whole, 8);
    // Two words and the overflow buckets of ten kinds of events precede the newest bucket's name.
    let newest = u32::from_ne_bytes(whole[table + 56..][..4].try_into().unwrap());
    let overflow = u32::from_ne_bytes(whole[table + 52..][..4].try_into().unwrap());
    assert!(
        newest > overflow && overflow != 0,
        "the newest bucket's name is where this test takes it to be"
    );
    // A bucket that is its own predecessor: an endless chain.
    let mut bytes = whole.clone();
    let entry = table + newest as usize * 16;
    bytes[entry + 12..][..4].copy_from_slice(&newest.to_ne_bytes());
    assert!(is_shown(&bytes, &directory));
    let comments = stdout_of(&["report", &directory.path("damaged"), "--comments"]);
    assert!(comments.contains("damaged"), "{comments}");
    // A stack outside the table, a bucket in place of a stack, and an unknown set of labels.
    for (at, value) in [
        (entry + 16, u32::MAX),
        (entry + 16, newest),
        (entry + 20, u32::MAX),
    ] {
        let mut bytes = whole.clone();
        bytes[at..][..4].copy_from_slice(&value.to_ne_bytes());
        assert!(is_shown(&bytes, &directory));
    }
    for word in 3..32 {
        for value in [0, 1, 4095, 1 << 31, 1 << 40, u64::MAX, u64::MAX - 4095] {
            let mut bytes = whole.clone();
            bytes[8 * word..][..8].copy_from_slice(&value.to_ne_bytes());
            is_shown(&bytes, &directory);
        }
    }
    let mut piped = Command::new(file_of_command());
    let from = fs::File::open(directory.path("whole")).unwrap();
    let output = piped.args(["report", "-"]).stdin(from).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("a post-mortem file; give the file"), "{said}");
    let mut bytes = whole;
    bytes[8] = 99;
    fs::write(directory.path("version"), &bytes).unwrap();
    let (said, _) = failure_of(&["report", &directory.path("version")]);
    assert!(said.contains("another version of Plimsoll"), "{said}");
}
