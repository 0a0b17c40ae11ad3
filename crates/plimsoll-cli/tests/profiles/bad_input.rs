//! Files that are not profiles, and broken profiles, are refused in one line that names the file
//! and the reason.

use crate::command::{Directory, failure_of, plimsoll};
use crate::proto::{Message, Writer, gzip};
use plimsoll_command::profile::{Limits, parse};

fn small() -> Writer {
    let mut writer = Writer::new(&[("inuse_space", "bytes")]);
    writer.sample(&["leaf", "main"], &[7]);
    writer
}

/// Asserts that each of these inputs is refused with its reason in the line.
fn refused(test: &str, cases: &[(&str, Vec<u8>, &str)]) {
    let directory = Directory::new(test);
    for (name, bytes, why) in cases {
        let file = directory.file(name, bytes);
        let (line, code) = failure_of(&["report", &file]);
        assert_eq!(code, 1, "{line}");
        assert!(line.starts_with(&format!("plimsoll: {file}: ")), "{line}");
        assert!(line.contains(why), "{line}");
        // As the base of a comparison, the input is refused in the same way.
        let good = directory.file("good", &small().finish());
        let (line, code) = failure_of(&["diff", &file, &good]);
        assert!(code == 1 && line.contains(why), "{line}");
    }
}

#[test]
fn inputs_other_than_profiles_are_refused() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_plimsoll")).unwrap();
    refused(
        "no-profile",
        &[
            ("empty", Vec::new(), "not a profile: the input is empty"),
            ("empty.gz", gzip(b""), "not a profile: the input is empty"),
            ("text", b"hello, world\n".to_vec(), "not a profile"),
            (
                "zeros",
                vec![0; 1 << 20],
                "not a profile: invalid field at byte 0",
            ),
            ("ones", vec![0xff; 1 << 20], "not a profile"),
            ("page", b"<html>".to_vec(), "not a profile: a web page"),
            ("program", program, "not a profile: a program"),
            (
                "debug",
                b"heap profile: 1: 2 [3: 4] @ heap/1".to_vec(),
                "debug=1",
            ),
            (
                "twice.gz",
                gzip(&gzip(&small().finish())),
                "compressed twice",
            ),
        ],
    );
}

#[test]
fn truncated_profiles_are_refused() {
    let whole = small().finish();
    let compressed = gzip(&whole);
    let mut broken = compressed.clone();
    // A byte of the checksum.
    broken[compressed.len() - 8] ^= 0x55;
    refused(
        "cut-off",
        &[
            (
                "plain",
                whole[..whole.len() - 3].to_vec(),
                "ends in the middle",
            ),
            (
                "short.gz",
                compressed[..compressed.len() / 2].to_vec(),
                "truncated",
            ),
            (
                "no-sum.gz",
                compressed[..compressed.len() - 4].to_vec(),
                "truncated",
            ),
            ("head.gz", compressed[..5].to_vec(), "truncated"),
            ("broken.gz", broken, "the gzip data is damaged"),
        ],
    );
}

#[test]
fn dangling_references_are_refused() {
    // Appended bytes add one more part.
    let with = |part: Message| [small().finish(), part.0].concat();
    let sample = |id| Message::default().packed(1, [id]).packed(2, [1]);
    let part = |field, message: &Message| with(Message::default().message(field, message));
    let number = Message::default;
    refused(
        "dangling",
        &[
            (
                "location",
                part(2, &sample(99)),
                "a sample refers to the undefined location 99",
            ),
            (
                "location-0",
                part(2, &sample(0)),
                "a sample has a location of id 0",
            ),
            (
                "location-huge",
                part(2, &sample(-1)),
                "a sample refers to the undefined location 18446744073709551615",
            ),
            (
                "function",
                part(
                    4,
                    &number().number(1, 3).message(4, &number().number(1, 77)),
                ),
                "a line refers to the undefined function 77",
            ),
            (
                "mapping",
                part(4, &number().number(1, 3).number(2, 5)),
                "a location refers to the undefined mapping 5",
            ),
            (
                "string",
                part(5, &number().number(1, 3).number(2, 1000)),
                "string 1000 is undefined: the string table has",
            ),
            (
                "string-below-zero",
                part(5, &number().number(1, 3).number(2, -1)),
                "string 18446744073709551615 is undefined",
            ),
            (
                "drop",
                with(number().number(7, 500)),
                "string 500 is undefined",
            ),
            (
                "comment",
                with(number().packed(13, [1, 600])),
                "string 600 is undefined",
            ),
            (
                "default",
                with(number().number(14, 700)),
                "string 700 is undefined",
            ),
            (
                "label",
                part(
                    2,
                    &sample(1).message(3, &number().number(1, 800).number(2, 1)),
                ),
                "string 800 is undefined",
            ),
            (
                "two-functions",
                part(5, &number().number(1, 1)),
                "two functions with id 1",
            ),
            (
                "two-locations",
                part(4, &number().number(1, 1)),
                "two locations with id 1",
            ),
            (
                "two-mappings",
                part(3, &number().number(1, 1)),
                "two mappings with id 1",
            ),
            (
                "values",
                part(2, &number().packed(1, [1]).packed(2, [1, 2, 3])),
                "a sample has 3 values, but the profile has 1 sample types",
            ),
            (
                "no-values",
                part(2, &number().packed(1, [1])),
                "a sample has 0 values",
            ),
        ],
    );
}

#[test]
fn malformed_fields_are_refused() {
    let no_types = Message::default()
        .message(2, &Message::default().packed(1, [1]))
        .bytes(6, b"");
    // A length beyond any input, of a known and of an unknown field.
    let absurd = |field: u64| {
        let mut message = Message(small().finish());
        message.varint(field << 3 | 2);
        message.varint(u64::MAX >> 1);
        message.0
    };
    let mut endless = small().finish();
    endless.extend([0xff; 64]);
    refused(
        "no-sense",
        &[
            ("no-types", no_types.0, "the profile has no sample types"),
            ("absurd", absurd(6), "has 9223372036854775807 bytes"),
            ("absurd-unknown", absurd(1000), "ends in the middle"),
            ("endless", endless, "ends in the middle"),
            (
                "type-3",
                [small().finish(), vec![0x13]].concat(),
                "field of type 3",
            ),
            (
                "rate",
                b"heap_v2/often\n".to_vec(),
                "the sampling rate is not a number",
            ),
            (
                "address",
                b"heap_v2/1\n@ 0x1 nowhere\n".to_vec(),
                "line 2: nowhere is not an address",
            ),
            (
                "count",
                b"heap_v2/1\n@ 0x1\n t*: -5: 7 [0: 0]\n".to_vec(),
                "line 3: -5 is not a count",
            ),
        ],
    );
}

#[test]
fn missing_files_and_bad_urls_are_refused() {
    let directory = Directory::new("no-file");
    let here = directory.path("");
    let missing = directory.path("missing");
    for (name, why) in [
        (&*here, "it is a directory"),
        (&*missing, "no such file"),
        ("https://localhost/", "https is not supported"),
        ("http://", "the URL contains no host"),
        ("http://a b/", "blanks"),
        ("http://localhost:99999/", "99999 is not a port"),
    ] {
        let (line, code) = failure_of(&["report", name]);
        assert!(code == 1 && line.contains(why), "{line}");
    }
}

#[cfg(unix)]
#[test]
fn unreadable_files_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = Directory::new("permission");
    let file = directory.file("secret", &small().finish());
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o000)).unwrap();
    if std::fs::read(&file).is_ok() {
        plimsoll_testkit::skip!("this user can read every file");
        return;
    }
    let (line, code) = failure_of(&["report", &file]);
    assert!(code == 1 && line.contains("permission denied"), "{line}");
}

#[test]
fn drop_frames_must_be_a_regular_expression() {
    let directory = Directory::new("dropped");
    let mut writer = small();
    writer.text(7, "(unclosed");
    let file = directory.file("drop", &writer.finish());
    let (line, code) = failure_of(&["report", &file]);
    assert!(
        code == 1 && line.contains("not a regular expression: (unclosed"),
        "{line}"
    );
}

#[test]
fn a_bomb_is_refused_where_the_limit_is() {
    let limits = Limits {
        read_bytes: 8 << 20,
        kept_bytes: 1 << 20,
    };
    let number = Message::default;
    let sample = number().packed(1, [1; 100]).packed(2, [1]);
    let mib = 1 << 20;
    // Each input is the beginning of a profile, followed by many repetitions of one part.
    for (part, why) in [
        (vec![0; 16], "invalid field"),
        (
            number().bytes(6, &[b'x'; 1000]).0,
            "more than 1 MiB of memory",
        ),
        (number().bytes(6, b"").0, "more than 1 MiB of memory"),
        (number().message(2, &sample).0, "more than 1 MiB of memory"),
        (
            number().packed(13, [1; 1000]).0,
            "more than 1 MiB of memory",
        ),
        (
            number().bytes(99, &[b'x'; 1000]).0,
            "too large when decompressed",
        ),
    ] {
        let bytes = [small().finish(), part.repeat(10 * mib / part.len())].concat();
        for bytes in [gzip(&bytes), bytes] {
            let error = parse(&bytes, limits).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
    // Stacks with counts, stacks without, and names of libraries.
    let addresses = |line: usize| (0..20).map(move |at| format!(" {:x}", 20 * line + at));
    let library = format!("MAPPED_LIBRARIES:\n1-2 r-xp 0 0 0 /{}\n", "x".repeat(1000));
    for dump in [
        "@ 0x1 0x2 0x3\n t*: 1: 2 [3: 4]\n".repeat(1 << 17),
        (0..1 << 14).fold(String::new(), |dump, line| {
            dump + "@" + &addresses(line).collect::<String>() + "\n"
        }),
        library.repeat(1 << 12),
    ] {
        let error = parse(format!("heap_v2/1\n{dump}").as_bytes(), limits).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("needs more than 1 MiB of memory"), "{error}");
    }
    let endless = [&b"heap_v2/1\n@"[..], &vec![b' '; 2 * mib]].concat();
    let error = parse(&endless, limits).unwrap_err();
    assert!(error.to_string().contains("line 2 is too long"), "{error}");
}

#[test]
fn unusual_profiles_are_shown() {
    let directory = Directory::new("odd");
    // Valid edge cases: no samples, no stack, values at the ends of their range, unknown fields.
    let none = Writer::new(&[("inuse_space", "bytes")]).finish();
    let mut ends = Writer::new(&[("inuse_space", "bytes")]);
    ends.sample(&["low", "main"], &[i64::MIN]);
    ends.sample(&["high", "main"], &[i64::MAX]);
    ends.sample(&[], &[1]);
    let unknown = Message(small().finish())
        .number(99, 5)
        .bytes(1234, b"more")
        .0;
    let deep: Vec<String> = (0..20_000).map(|frame| format!("f{}", frame % 3)).collect();
    let deep: Vec<&str> = deep.iter().map(|frame| &**frame).collect();
    let mut recursive = Writer::new(&[("inuse_space", "bytes")]);
    recursive.sample(&deep, &[5]);
    for (name, bytes) in [
        ("none", none),
        ("ends", ends.finish()),
        ("unknown", unknown),
        ("recursive", recursive.finish()),
    ] {
        let file = directory.file(name, &bytes);
        for view in [
            &["--top"][..],
            &["--tree"],
            &["--folded"],
            &["--json"],
            &["--svg", "-"],
            &["--html", "-"],
            &["--comments"],
            &["--base", &file],
            &["--base", &file, "--normalize", "--tree"],
            &["--base", &file, "--html", "-"],
        ] {
            let output = plimsoll(&[&["report", &*file], view].concat());
            let complained = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name} {view:?}: {complained}");
            assert_eq!(complained, "");
        }
    }
}

#[test]
fn an_unread_failure_still_fails() {
    for (arguments, code) in [
        (&["report", "/nonexistent"][..], 1),
        (&["run", "--", "/nonexistent"], 127),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(arguments)
            .stderr(writer)
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_is_read_if_it_has_a_writer() {
    let directory = Directory::new("named-pipe");
    let file = directory.file("heap", &small().finish());
    let pipe = directory.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for arguments in [
        &["report", &*pipe][..],
        &["diff", &file, &pipe],
        &["view", &pipe],
    ] {
        let (line, code) = failure_of(arguments);
        assert_eq!(code, 1, "{line}");
        let cause = format!("plimsoll: {pipe}: a named pipe without a writer");
        assert_eq!(line, cause, "{arguments:?}");
    }
    let script = format!("cat {file} > {pipe} & exec \"$0\" report --folded {pipe}");
    let substituted = format!("exec \"$0\" report --folded <(cat {file})");
    for script in [script, substituted] {
        let output = std::process::Command::new("bash")
            .args(["-c", &script, env!("CARGO_BIN_EXE_plimsoll")])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.stdout, b"main;leaf 7\n", "{errors}");
    }
}
