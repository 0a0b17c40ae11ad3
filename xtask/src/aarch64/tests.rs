//! Tests of the console protocol, of the archive and of the reader of cargo's messages.

use super::archive::Archive;
use super::protocol::{Expected, Line, Summary, Transcript, Verdict};

fn transcript(lines: &str) -> Transcript {
    let expected = ["first", "second"].map(|name| Expected {
        name: name.into(),
        limit_seconds: 60,
    });
    let mut transcript = Transcript::new(&expected);
    for line in lines.lines() {
        transcript.add(&Line::parse(line));
    }
    transcript
}

fn verdicts(transcript: &Transcript) -> Vec<Verdict> {
    let outcomes = transcript.outcomes().iter();
    outcomes.map(|outcome| outcome.verdict.clone()).collect()
}

#[test]
fn markers_are_parsed_and_other_lines_are_text() {
    let end = Line::End {
        name: "a",
        status: 101,
        seconds: 7,
    };
    for (line, expected) in [
        ("@plimsoll ready", Line::Ready),
        ("@plimsoll begin a\r", Line::Begin("a")),
        ("@plimsoll end a 101 7\r\n", end),
        ("@plimsoll file a.txt\r", Line::File("a.txt")),
        ("@plimsoll end-of-file", Line::EndOfFile),
        ("@plimsoll finished", Line::Finished),
        ("test x ... @plimsoll begin a", Line::Begin("a")),
        (
            "@plimsoll end a 101",
            Line::Malformed("@plimsoll end a 101"),
        ),
        (
            "@plimsoll end a x 7",
            Line::Malformed("@plimsoll end a x 7"),
        ),
        ("plimsoll ready", Line::Text("plimsoll ready")),
        ("", Line::Text("")),
        (
            "[    9.1] Kernel panic - not syncing: Attempted to kill init!",
            Line::Panic("Kernel panic - not syncing: Attempted to kill init!"),
        ),
    ] {
        assert_eq!(Line::parse(line), expected, "{line:?}");
    }
}

#[test]
fn a_clean_run_has_no_faults() {
    let transcript = transcript(
        "[    0.0] Linux version 6\n\
         @plimsoll ready\n\
         @plimsoll begin first\n\
         test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.2s\n\
         test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.2s\n\
         @plimsoll end first 0 2\n\
         @plimsoll begin second\n\
         test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n\
         @plimsoll end second 101 5\n\
         @plimsoll finished",
    );
    assert_eq!(transcript.faults(), [""; 0]);
    assert_eq!(
        verdicts(&transcript),
        [Verdict::Passed, Verdict::Failed(101)]
    );
    let summary = |passed, failed, ignored| Summary {
        passed,
        failed,
        ignored,
    };
    assert_eq!(transcript.outcomes()[0].summary, summary(7, 0, 1));
    assert_eq!(transcript.outcomes()[1].summary, summary(1, 2, 0));
    assert_eq!(transcript.outcomes()[1].seconds, 5);
}

#[test]
fn a_kill_is_a_time_out_only_at_the_limit() {
    let transcript = transcript(
        "@plimsoll ready\n@plimsoll begin first\n@plimsoll end first 137 60\n\
         @plimsoll begin second\n@plimsoll end second 137 3\n@plimsoll finished",
    );
    assert_eq!(
        verdicts(&transcript),
        [Verdict::TimedOut, Verdict::Failed(137)]
    );
    assert_eq!(transcript.faults(), [""; 0]);
}

#[test]
fn a_panic_leaves_the_binary_unfinished_and_is_reported() {
    let transcript = transcript(
        "@plimsoll ready\n@plimsoll begin first\n[    9.1] Kernel panic - not syncing: sysrq\n",
    );
    assert_eq!(
        verdicts(&transcript),
        [Verdict::Unfinished, Verdict::NotStarted]
    );
    assert_eq!(
        transcript.faults(),
        [
            "Kernel panic - not syncing: sysrq",
            "the machine ended early: no marker `finished`"
        ]
    );
}

#[test]
fn files_between_markers_are_kept_apart_from_results() {
    let transcript = transcript(
        "@plimsoll ready\n@plimsoll begin first\ntest result: ok. 1 passed\n\
         @plimsoll end first 0 1\n@plimsoll file a.txt\nSGVs\nbG8=\n@plimsoll end-of-file\n\
         @plimsoll begin second\n@plimsoll end second 0 1\n@plimsoll finished",
    );
    assert_eq!(transcript.faults(), [""; 0]);
    let file = ("a.txt".to_owned(), "SGVs\nbG8=\n".to_owned());
    assert_eq!(transcript.files(), [file]);
    assert!(!transcript.is_in_file());
}

#[test]
fn a_machine_without_output_is_reported() {
    let transcript = transcript("[    0.0] Booting Linux");
    assert!(!transcript.is_ready());
    assert_eq!(
        transcript.faults(),
        ["the init script did not start: no marker `ready`"]
    );
}

#[test]
fn markers_out_of_order_are_faults() {
    for (lines, fault) in [
        (
            "@plimsoll ready\n@plimsoll begin third\n@plimsoll finished",
            "unexpected start of third",
        ),
        (
            "@plimsoll ready\n@plimsoll end first 0 1\n@plimsoll finished",
            "unexpected end of first",
        ),
        (
            "@plimsoll ready\n@plimsoll begin first\n@plimsoll begin second\n@plimsoll finished",
            "unexpected start of second",
        ),
        (
            "@plimsoll ready\n@plimsoll begin first\n@plimsoll end second 0 1\n@plimsoll finished",
            "unexpected end of second",
        ),
        (
            "@plimsoll ready\n@plimsoll start first\n@plimsoll finished",
            "malformed marker: @plimsoll start first",
        ),
    ] {
        assert_eq!(transcript(lines).faults(), [fault]);
    }
}

#[test]
fn an_archive_has_aligned_entries_and_a_trailer() {
    let mut archive = Archive::new(Vec::new());
    archive.folder("bin").unwrap();
    archive.file("bin/x", 0o755, b"12345").unwrap();
    let bytes = archive.finish().unwrap();
    assert_eq!(bytes.len() % 4, 0);
    assert!(bytes.starts_with(b"070701"));
    // A header of 110 bytes, the name with its terminator, padding to 4.
    let file = 110 + 4 + 2;
    assert_eq!(&bytes[file..file + 6], b"070701");
    assert_eq!(&bytes[file + 110..file + 116], b"bin/x\0");
    assert_eq!(&bytes[file + 116..file + 121], b"12345");
    assert!(bytes.windows(10).any(|name| name == b"TRAILER!!!"));
}

#[test]
fn executables_are_read_from_the_messages_of_cargo() {
    let library = r#"{"reason":"compiler-artifact","package_id":"path+file:///p#0.1.0","manifest_path":"/p/Cargo.toml","target":{"kind":["lib"],"crate_types":["lib"],"name":"p","src_path":"/p/src/lib.rs"},"profile":{"test":true},"executable":"/t/deps/p-1"}"#;
    let test = r#"{"reason":"compiler-artifact","target":{"kind":["test"],"crate_types":["bin"],"name":"memory"},"executable":"/t/deps/memory-2"}"#;
    let dependency = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"libc"},"executable":null}"#;
    let messages = format!("{library}\n{dependency}\n{test}\n");
    assert_eq!(
        super::build::executables(&messages),
        [
            (super::suites::Target::Lib, "/t/deps/p-1".into()),
            (
                super::suites::Target::Test("memory"),
                "/t/deps/memory-2".into()
            ),
        ]
    );
}
