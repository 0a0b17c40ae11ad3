//! Small profiles whose stacks would take much memory are refused, and names are written once.

use std::process::{Command, Output, Stdio};

use crate::command::Directory;
use crate::proto::{Message, gzip};

/// Returns a compressed profile of `samples` samples of `length` locations. Each location has `lines`
/// lines of a function with that name.
fn profile(samples: usize, length: usize, lines: usize, name: &str) -> Vec<u8> {
    let number = |field, value| Message::default().number(field, value);
    let mut location = number(1, 1);
    for _ in 0..lines {
        location = location.message(4, &number(1, 1));
    }
    let mut profile = Message::default()
        .message(1, &number(1, 1).number(2, 2))
        .message(5, &number(1, 1).number(2, 3))
        .message(4, &location);
    for text in ["", "inuse_space", "bytes", name] {
        profile = profile.bytes(6, text.as_bytes());
    }
    for sample in 0..samples {
        let stack = vec![1; length - sample];
        profile = profile.message(2, &Message::default().packed(1, stack).packed(2, [5]));
    }
    gzip(&profile.0)
}

/// Returns a compressed profile of a sample at each of `count` addresses of a file with a long name.
fn addresses(count: i64, file: &str) -> Vec<u8> {
    let number = |field, value| Message::default().number(field, value);
    let mut profile = Message::default()
        .message(1, &number(1, 1).number(2, 2))
        .message(3, &number(1, 1).number(5, 3));
    for text in ["", "inuse_space", "bytes", file] {
        profile = profile.bytes(6, text.as_bytes());
    }
    for id in 1..=count {
        let location = number(1, id).number(2, 1).number(3, id);
        let sample = Message::default().packed(1, [id]).packed(2, [5]);
        profile = profile.message(4, &location).message(2, &sample);
    }
    gzip(&profile.0)
}

/// Runs the command with an address space of 200 MiB, and discards its output.
fn within_200_mib(arguments: &[&str]) -> Output {
    Command::new("sh")
        .args(["-c", "ulimit -v 204800; exec \"$@\" > /dev/null", "sh"])
        .arg(env!("CARGO_BIN_EXE_plimsoll"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The commands that read a profile's stacks.
fn commands(file: &str) -> [Vec<&str>; 8] {
    [
        vec!["report", "--top", file],
        vec!["report", "--tree", file],
        vec!["report", "--json", file],
        vec!["report", "--folded", file],
        vec!["report", "--summary", file],
        vec!["report", "--html", "-", file],
        vec!["report", "--svg", "-", file],
        vec!["diff", file, file],
    ]
}

#[test]
fn stacks_of_too_many_inlined_functions_are_refused() {
    let directory = Directory::new("inlined");
    for (name, bytes, cause) in [
        (
            "long.pb.gz",
            profile(1, 20_000, 20_000, "f"),
            "a stack has more than 1048576 frames, with inlined functions",
        ),
        (
            "many.pb.gz",
            profile(500, 1000, 1000, "f"),
            "the stacks have more than ",
        ),
    ] {
        assert!(bytes.len() < 8 << 10, "{}", bytes.len());
        let file = directory.file(name, &bytes);
        for command in commands(&file) {
            let output = within_200_mib(&command);
            let errors = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{command:?}: {errors}");
            assert!(errors.contains(cause), "{command:?}: {errors}");
            assert_eq!(errors.lines().count(), 1, "{errors}");
        }
    }
}

#[test]
fn long_names_are_not_kept_for_each_frame() {
    let directory = Directory::new("long-names");
    let name = "n".repeat(100_000);
    for (file, bytes) in [
        ("frames.pb.gz", profile(1, 3000, 1, &name)),
        ("addresses.pb.gz", addresses(3000, &name)),
    ] {
        let file = directory.file(file, &bytes);
        for command in commands(&file) {
            let output = within_200_mib(&command);
            let errors = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{command:?}: {errors}");
        }
    }
}
