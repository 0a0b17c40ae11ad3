//! `plimsoll diff` of profiles with `--fail-over` and `--markdown`.

use std::process::Output;

use crate::command::{Directory, failure_of, plimsoll, stdout_of};
use crate::proto::{Message, Writer};

const TYPES: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

/// Returns a heap profile of a sampling rate: a site and the blocks of 1,000 bytes that it allocated
/// and still holds.
fn heap(rate: i64, sites: &[(&[&str], i64, i64)]) -> Vec<u8> {
    let mut writer = Writer::new(&TYPES);
    for &(stack, allocated, held) in sites {
        writer.sample(stack, &[allocated, 1000 * allocated, held, 1000 * held]);
    }
    let (space, bytes) = (writer.string("space"), writer.string("bytes"));
    let period = Message::default().number(1, space).number(2, bytes);
    let period = Message::default().message(11, &period).number(12, rate);
    // Parts of a message may be in any order.
    [writer.finish(), period.0].concat()
}

fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn growth_beyond_a_limit_fails_with_its_sites() {
    let directory = Directory::new("limits");
    let before = directory.file(
        "before",
        &heap(
            1,
            &[(&["leaf", "main"], 10, 10), (&["other", "main"], 10, 0)],
        ),
    );
    let now = directory.file(
        "now",
        &heap(
            1,
            &[
                (&["leaf", "main"], 11, 10),
                (&["other", "main"], 9, 0),
                (&["new", "main"], 2, 1),
            ],
        ),
    );
    for (limits, status) in [
        (&["--fail-over", "0"][..], 3),
        (&["--fail-over", "9.9%"], 3),
        (&["--fail-over", "10%"], 0),
        (&["--fail-over", "999"], 3),
        (&["--fail-over", "1k"], 0),
        (&["--fail-over", "1000b"], 0),
        (&["--fail-over", "0", "--focus", "leaf"], 0),
        (&["--fail-over", "0", "--focus", "new"], 3),
        (&["--fail-over", "0", "--ignore", "new"], 0),
        (&["--fail-over", "alloc_objects=1"], 3),
        (&["--fail-over", "alloc_objects=2"], 0),
        (&["--fail-over", "10%", "--fail-over", "alloc_objects=1"], 3),
        (&["-t", "alloc_space", "--fail-over", "9%"], 3),
        (&["-t", "alloc_space", "--fail-over", "10%"], 0),
    ] {
        for form in ["--top", "--markdown", "--json"] {
            let arguments = [&["diff", &*before, &now, form], limits].concat();
            let output = plimsoll(&arguments);
            assert_eq!(
                output.status.code(),
                Some(status),
                "{limits:?}: {}",
                errors(&output)
            );
            assert!(!output.stdout.is_empty());
            assert_eq!(errors(&output).is_empty(), status == 0, "{limits:?}");
        }
    }
    let output = plimsoll(&[
        "diff",
        &before,
        &now,
        "-t",
        "alloc_space",
        "--fail-over",
        "5%",
    ]);
    assert_eq!(
        errors(&output),
        "plimsoll: --fail-over 5%: alloc_space grew by 2,000 B (+10.00 %), from 20,000 B to 22,000 B; \
         sites: +2,000 B new < main; +1,000 B leaf < main\n"
    );
    // A decrease exceeds no limit.
    let output = plimsoll(&["diff", &now, &before, "--fail-over", "0"]);
    assert_eq!((output.status.code(), &*errors(&output)), (Some(0), ""));
    // Any growth from nothing exceeds any share.
    let nothing = directory.file("nothing", &heap(1, &[(&["leaf", "main"], 1, 0)]));
    let output = plimsoll(&["diff", &nothing, &before, "--fail-over", "1000%"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        errors(&output).contains("(from 0), from 0 B to 10,000 B"),
        "{}",
        errors(&output)
    );
}

/// A block of 1,000 bytes is sampled once in 525 at this rate. Two profiles with 2,100 blocks each have
/// four samples on average.
#[test]
fn growth_within_the_sampling_error_does_not_fail() {
    let directory = Directory::new("limits-noise");
    let files = |rate: i64| {
        let profile = |blocks: i64| heap(rate, &[(&["leaf", "main"], blocks, blocks)]);
        let few = directory.file(&format!("few-{rate}"), &profile(2100));
        let more = directory.file(&format!("more-{rate}"), &profile(4200));
        let many = directory.file(&format!("many-{rate}"), &profile(210_000));
        [few, more, many]
    };
    let status = |before: &str, now: &str| {
        let output = plimsoll(&["diff", before, now, "--fail-over", "5%"]);
        (output.status.code(), errors(&output))
    };
    let [few, more, many] = files(512 << 10);
    assert_eq!(status(&few, &more), (Some(0), String::new()));
    let (code, errors) = status(&few, &many);
    assert_eq!(code, Some(3));
    assert!(errors.contains(" ±"), "{errors}");
    let markdown = stdout_of(&["diff", &few, &more, "--markdown"]);
    assert!(markdown.contains("within its error of ±"), "{markdown}");
    // The same numbers are exact if all blocks are sampled.
    let [few, more, _] = files(1);
    assert_eq!(status(&few, &more).0, Some(3));
}

#[test]
fn limits_of_profiles_are_checked() {
    let directory = Directory::new("limits-wrong");
    let file = directory.file("heap", &heap(1, &[(&["leaf"], 1, 1)]));
    let mut other = Writer::new(&[("delay", "nanoseconds")]);
    other.sample(&["leaf"], &[5]);
    let other = directory.file("delay", &other.finish());
    for (arguments, cause) in [
        (
            &[&*file, &file, "--fail-over", "speed=1%"][..],
            "no sample type speed; available: alloc_objects",
        ),
        (
            &[&*file, &file, "--fail-over", "5ms"],
            "the unit of inuse_space is bytes",
        ),
        (
            &[&*file, &file, "--fail-over", "x"],
            "the limit is not a share",
        ),
        (
            &[&*file, &other, "--fail-over", "0"],
            "no sample type delay",
        ),
    ] {
        let (line, code) = failure_of(&[&["diff"], arguments].concat());
        assert_eq!(code, 2, "{line}");
        assert!(line.contains(cause), "{line}");
    }
    for option in ["--markdown", "--fail-over=0"] {
        let output = plimsoll(&["diff", &file, &file, option, "--normalize"]);
        assert_eq!(output.status.code(), Some(2));
    }
    // Delays have no known error: they count as they are.
    let mut more = Writer::new(&[("delay", "nanoseconds")]);
    more.sample(&["leaf"], &[6]);
    let more = directory.file("more", &more.finish());
    let output = plimsoll(&["diff", &other, &more, "--fail-over", "0"]);
    assert_eq!(output.status.code(), Some(3));
    let output = plimsoll(&["diff", &other, &more, "--fail-over", "1ns"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
}

/// Names of functions are data: none ends a cell, becomes a link or mentions a person.
#[test]
fn hostile_function_names_are_code_in_markdown() {
    let directory = Directory::new("limits-hostile");
    let before = directory.file("before", &heap(1, &[(&["leaf"], 1, 1)]));
    let names = [
        "aPIPb",
        "``PIP``",
        "<img srcATTx>",
        "ATTsomeone",
        "\\",
        "x\\PIPy",
        "[link](http://example.com)",
        "\u{1b}[2J\nPIP row PIP",
        "&lt;",
        " ",
        "\u{202e}abc",
    ];
    let sites: Vec<[&str; 1]> = names.iter().map(|name| [*name]).collect();
    let sites: Vec<(&[&str], i64, i64)> = sites.iter().map(|stack| (&stack[..], 5, 5)).collect();
    // The writer of this test has separators, so these are put in later, in as many bytes.
    let mut profile = heap(1, &sites);
    for (from, to) in [(b"PIP", b"|||"), (b"ATT", b"@@@")] {
        for at in 0..profile.len() - 3 {
            if &profile[at..at + 3] == from {
                profile[at..at + 3].copy_from_slice(to);
            }
        }
    }
    let now = directory.file("now", &profile);
    let markdown = stdout_of(&["diff", &before, &now, "--markdown", "-n", "0"]);
    let rows: Vec<&str> = markdown
        .lines()
        .filter(|line| line.starts_with('|'))
        .collect();
    let [.., last] = rows[..] else {
        panic!("{markdown}")
    };
    assert!(last.contains("leaf"), "{markdown}");
    // Two heads, one figure, eleven sites, and one that is gone.
    assert_eq!(rows.len(), 2 + 1 + 2 + names.len() + 1, "{markdown}");
    for row in &rows {
        let cells = row.replace("\\|", "").matches('|').count();
        assert!(cells == 6 || cells == 4, "{row}");
        // Outside of code, nothing but the table remains.
        let mut rest = String::new();
        for (at, part) in row.split('`').enumerate() {
            rest.push_str(if at % 2 == 0 { part } else { "" });
        }
        while let Some((before, after)) = rest.clone().split_once("<code>") {
            let (code, after) = after.split_once("</code>").unwrap();
            assert!(
                !code.contains(['<', '>', '`', '|', '\\', '[', '@']),
                "{row}"
            );
            rest = format!("{before}{after}");
        }
        assert!(
            !rest.contains(['<', '@', '[', '\\', '\u{1b}', '\u{202e}']),
            "{row}"
        );
    }
    let output = plimsoll(&[
        "diff",
        &before,
        &now,
        "--fail-over",
        "0",
        "-o",
        &directory.path("out"),
    ]);
    assert_eq!(errors(&output).lines().count(), 1, "{}", errors(&output));
    assert!(!errors(&output).contains(['\u{1b}', '\u{202e}']));
}

/// Counts at the ends of their range do not overflow.
#[test]
fn huge_values_do_not_overflow() {
    let directory = Directory::new("limits-huge");
    let write = |name: &str, values: &[i64]| {
        let mut writer = Writer::new(&TYPES);
        for &value in values {
            writer.sample(&["leaf"], &[value, value, value, value]);
        }
        directory.file(name, &writer.finish())
    };
    let low = write("low", &[i64::MIN, i64::MIN]);
    let high = write("high", &[i64::MAX, i64::MAX]);
    for arguments in [[&low, &high], [&high, &low], [&high, &high]] {
        let expected = if arguments[0] == &low { 3 } else { 0 };
        for form in ["--markdown", "--top"] {
            let output = plimsoll(&["diff", arguments[0], arguments[1], form, "--fail-over", "0"]);
            assert_eq!(output.status.code(), Some(expected), "{}", errors(&output));
        }
    }
}
