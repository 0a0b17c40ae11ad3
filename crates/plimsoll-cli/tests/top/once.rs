//! `plimsoll top --once` prints plain text, or one line that states the failure.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use crate::fake::{Answer, Fake};
use crate::port::Port;

fn top(program: &str, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["top", program]).args(more);
    command.env("LC_ALL", "C.UTF-8");
    command
}

/// Runs `plimsoll top --once` with a short interval.
fn once(program: &str) -> Output {
    let mut command = top(program, &["--once", "--interval", "0.1"]);
    command.output().expect("it can be run")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it is text")
}

/// Returns the only line on standard error, which contains no control characters.
fn complaint(output: &Output) -> &str {
    let said = text(&output.stderr);
    let line = said
        .strip_suffix('\n')
        .unwrap_or_else(|| panic!("{said:?}"));
    assert!(!line.contains(char::is_control), "{said:?}");
    assert!(line.starts_with("plimsoll: "), "{said:?}");
    line
}

#[test]
fn once_prints_all_parts() {
    let fake = Fake::start();
    let output = once(&fake.url());
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    let said = text(&output.stdout);
    for line in [
        "program  fake --some thing",
        &format!("pages    {}", fake.url()),
        "heap        12.0 MiB",
        "threads     4",
        "allocated   0 B/s, -",
        " 8.00 MiB       10           -   80.0 MiB  own::large own.rs:1",
        " 3.00 MiB      900           -   9.00 MiB  own::many own.rs:2",
        "       8 B       300   23.1 %        0/s        0/s      1000  #####",
        "waiter    3.00 s           -        3  own::lock lock.rs:5",
        "holder    2.00 s           -        3  own::lock lock.rs:5",
        "      4                own::run own.rs:7",
        "100.0 %         -       50  own::computes own.rs",
    ] {
        assert!(
            said.lines().any(|printed| printed == line),
            "{line:?}\n{said}"
        );
    }
    assert_eq!(fake.asked("/metrics"), 2);
    for profile in ["heap", "mutex", "block", "goroutine"] {
        assert_eq!(
            fake.asked(&format!("/debug/pprof/{profile}")),
            1,
            "{profile}"
        );
    }
}

/// Another client may record one, or the program's system has none.
#[test]
fn without_a_cpu_profile_the_rest_is_printed() {
    let fake = Fake::start();
    fake.answer("/debug/pprof/profile?seconds=2", Answer::Status(500));
    let output = once(&fake.url());
    assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
    let said = text(&output.stdout);
    let expected = "The profile is not available: the response has status 500.";
    assert!(said.lines().any(|line| line == expected), "{said}");
}

#[test]
fn any_page_of_it_will_do() {
    let fake = Fake::start();
    for page in [
        "/",
        "/debug/pprof/",
        "/debug/pprof/heap?debug=1",
        "/metrics",
    ] {
        let output = once(&format!("{}{page}", fake.url()));
        assert_eq!(
            output.status.code(),
            Some(0),
            "{page} {}",
            text(&output.stderr)
        );
    }
    let output = once(&fake.address().to_string());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn figures_that_cannot_be_had_are_one_line() {
    let cases = [
        (Answer::Status(500), "status 500"),
        (Answer::Status(404), "status 404"),
        (Answer::Noise, "not HTTP"),
        (Answer::HangUp, "truncated"),
        (Answer::CutOff, "truncated"),
        (Answer::Silence, "no response"),
        (Answer::Drip, "the response is incomplete"),
        (Answer::Body(Vec::new()), "no metrics of Plimsoll"),
        (
            Answer::Body(b"<html>\x1b[2J</html>\n".to_vec()),
            "no metrics of Plimsoll",
        ),
        (
            Answer::Body(b"go_goroutines 4\n".to_vec()),
            "no metrics of Plimsoll",
        ),
        (Answer::Body(vec![0xff; 1 << 16]), "the middle of a line"),
        (Answer::Body(vec![b'\n'; 20 << 20]), "too long"),
    ];
    // At the same time, since the command waits for some of these until its timeout.
    std::thread::scope(|scope| {
        for (answer, why) in cases {
            scope.spawn(move || {
                let fake = Fake::start();
                let shown = format!("{answer:?}").chars().take(50).collect::<String>();
                fake.answer("/metrics", answer);
                let output = once(&fake.url());
                assert_eq!(output.status.code(), Some(1), "{shown}");
                assert_eq!(text(&output.stdout), "", "{shown}");
                let said = complaint(&output);
                assert!(
                    said.contains(why) && said.contains(&fake.url()),
                    "{shown}: {said}"
                );
            });
        }
    });
}

#[test]
fn a_program_that_is_gone_is_one_line() {
    let port = Port::new();
    let fake = Fake::start_at(port.address());
    let url = fake.url();
    drop(fake);
    let output = once(&url);
    assert_eq!(output.status.code(), Some(1));
    let said = complaint(&output);
    assert!(
        said.contains("no server listens") && said.contains("PLIMSOLL=http="),
        "{said}"
    );
}

#[test]
fn a_program_that_goes_between_two_readings_is_one_line() {
    let fake = Fake::start();
    fake.answer_after("/metrics", 1, Answer::HangUp);
    let mut command = top(&fake.url(), &["--once", "--interval", "1"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = command.spawn().expect("it can be run");
    fake.wait_for_requests("/metrics", 1);
    drop(fake);
    let output = running.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
    complaint(&output);
}

#[test]
fn absent_profiles_are_reported_and_the_rest_is_printed() {
    let fake = Fake::start();
    let cases = [
        (Answer::Status(501), "status 501"),
        (Answer::CutOff, "truncated"),
        (Answer::HangUp, "truncated"),
        (Answer::Noise, "not HTTP"),
        (Answer::Body(Vec::new()), "empty"),
        (Answer::Body(vec![0xff; 4096]), "profile"),
        (
            Answer::Body(vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1]),
            "",
        ),
        (Answer::Body(b"<html>\x1b]0;x\x07\n".to_vec()), "a web page"),
    ];
    for (answer, why) in cases {
        let shown = format!("{answer:?}").chars().take(50).collect::<String>();
        fake.answer("/debug/pprof/heap", answer);
        let output = once(&fake.url());
        assert_eq!(output.status.code(), Some(1), "{shown}");
        let said = complaint(&output);
        assert!(
            said.contains("the profile heap") && said.contains(why),
            "{shown}: {said}"
        );
        let printed = text(&output.stdout);
        assert!(
            printed.contains("heap        12.0 MiB"),
            "{shown}: {printed}"
        );
        assert!(
            printed.contains("The profile is not available: "),
            "{shown}: {printed}"
        );
        assert!(
            printed.contains("own::lock lock.rs:5"),
            "{shown}: {printed}"
        );
    }
}

#[test]
fn hostile_names_are_printed_as_letters() {
    let fake = Fake::start();
    let hostile = "\u{1b}]0;title\u{7}\u{1b}[2J\r\u{9b}31m\u{202e}検索\nnext";
    fake.change(|figures| {
        let stack = vec![(hostile.to_owned(), hostile.to_owned(), 1)];
        figures.heap = vec![(stack, [1, 1, 1, 1])];
        figures.more =
            "plimsoll_gc_collector_cycles_gc_cycles_total{collector=\"\u{1b}[31m\\n\"} 3\n".into();
    });
    let steers =
        |character: char| character != '\n' && (character.is_control() || character == '\u{202e}');
    let output = once(&fake.url());
    let said = text(&output.stdout);
    assert!(!said.contains(steers), "{said:?}");
    assert!(said.contains("検索"), "{said}");
    let mut command = top(&fake.url(), &["--once", "--interval", "0.1"]);
    let output = command.env("LC_ALL", "C").output().expect("it can be run");
    let said = text(&output.stdout);
    assert!(said.is_ascii() && !said.contains(steers), "{said:?}");
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let fake = Fake::start();
    // The output exceeds a pipe's capacity.
    fake.change(|figures| {
        let stack = |number| vec![("x".repeat(300), "own.rs".to_owned(), number)];
        figures.heap = (1..2000).map(|number| (stack(number), [1; 4])).collect();
    });
    let mut command = top(
        &fake.url(),
        &["--once", "--interval", "0.1", "--rows", "9999"],
    );
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().expect("it can be run");
    let mut lines = BufReader::new(running.stdout.take().expect("piped"));
    lines
        .read_line(&mut String::new())
        .expect("the line exists");
    drop(lines);
    let output = running.wait_with_output().expect("it ends");
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn invalid_arguments_and_failures_have_different_exit_codes() {
    for arguments in [
        &["nonsense", "--once"][..],
        &["", "--once"],
        &["ftp://127.0.0.1", "--once"],
        &["127.0.0.1:1", "--once", "--interval", "0"],
        &["127.0.0.1:1", "--once", "--interval", "nan"],
        &["127.0.0.1:1", "--once", "--rows", "-1"],
        &["127.0.0.1:1", "--profile-interval", "1e9"],
        // Standard output is not a terminal here.
        &["127.0.0.1:1"],
    ] {
        let mut command = top(arguments[0], &arguments[1..]);
        let output = command.output().expect("it can be run");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
    }
    let output = once("999999999");
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("no such process"));
}
