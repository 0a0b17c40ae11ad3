//! `cargo plimsoll`: cargo builds and runs the programs, and each is run by `plimsoll run`.

mod packages;
mod project;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use project::{CARGO_PLIMSOLL, Project, errors, output, text};

/// Allocates a known number of blocks, and prints its arguments and what it inherited of settings.
const PROGRAM: &str = r#"
use std::os::unix::ffi::OsStrExt;

#[inline(never)]
fn fill_store() -> Vec<Vec<u8>> {
    (0..3000).map(|_| Vec::with_capacity(10_000)).collect()
}

fn main() {
    let store = fill_store();
    for argument in std::env::args_os().skip(1) {
        println!("argument {:?}", argument.as_bytes());
    }
    for (name, value) in std::env::vars_os() {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        if name.ends_with("_RUNNER") || name.starts_with("CARGO_PROFILE") {
            println!("inherited {name}={value}");
        }
    }
    println!("package {}", std::env::var("CARGO_PKG_NAME").unwrap_or_default());
    let status = std::env::var("STATUS").unwrap_or_default();
    std::process::exit(status.parse().unwrap_or(store.len() as i32 - 3000))
}
"#;

const MANIFEST: &str = "[package]\nname = \"store\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";

#[test]
fn run_builds_a_release_with_lines_and_reports() {
    let project = Project::new("run")
        .file("Cargo.toml", MANIFEST)
        .file("src/main.rs", PROGRAM);
    let run = output(project.plimsoll(&["run", "--out", "kept", "--heap-rate", "1"]));
    assert!(run.status.success(), "{}", errors(&run));
    assert_eq!(text(&run), "package store\n");
    let said = errors(&run);
    assert!(said.contains("Finished `release` profile"), "{said}");
    assert!(said.contains("plimsoll: store (process "), "{said}");
    assert!(said.contains("store::fill_store"), "{said}");
    let lines = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["report", "--list", "fill_store"])
        .arg(project.path("kept/heap.pb.gz"))
        .current_dir(project.path(""))
        .output()
        .unwrap();
    let listed = String::from_utf8_lossy(&lines.stdout);
    assert!(listed.contains("src/main.rs"), "{listed}");
    assert!(listed.contains("Vec::with_capacity(10_000)"), "{listed}");
    // The configuration of the package is unchanged.
    assert_eq!(
        fs::read_to_string(project.path("Cargo.toml")).unwrap(),
        MANIFEST
    );
}

#[test]
fn arguments_and_status_pass_unchanged() {
    let project = Project::new("arguments")
        .file("Cargo.toml", MANIFEST)
        .file("src/main.rs", PROGRAM);
    let mut run = project.plimsoll(&["run", "-q", "--"]);
    let words = [
        OsString::from("two words"),
        OsString::from_vec(b"\xff\xfe".to_vec()),
        OsString::from("--release"),
        OsString::from(""),
        OsString::from("--"),
    ];
    run.args(&words).env("STATUS", "7");
    let run = output(run);
    assert_eq!(run.status.code(), Some(7), "{}", errors(&run));
    let expected: String = words
        .iter()
        .map(|word| format!("argument {:?}\n", word.as_encoded_bytes()))
        .collect();
    assert_eq!(text(&run), expected + "package store\n");
}

#[test]
fn settings_of_the_user_win_whatever_their_form_and_are_not_inherited_changed() {
    let configuration = "[profile.release]\ndebug = 0\nstrip = true\n\
                         [target.x86_64-unknown-linux-gnu]\nrunner = [\"false\", \"of the user\"]\n\
                         [target.aarch64-unknown-linux-gnu]\nrunner = \"false\"\n";
    let project = Project::new("settings")
        .file("Cargo.toml", MANIFEST)
        .file(".cargo/config.toml", configuration)
        .file("src/main.rs", PROGRAM);
    let mut run = project.plimsoll(&["run", "--heap-rate", "1"]);
    run.env("CARGO_PROFILE_RELEASE_DEBUG", "1");
    let run = output(run);
    assert!(run.status.success(), "{}", errors(&run));
    assert_eq!(
        text(&run),
        "inherited CARGO_PROFILE_RELEASE_DEBUG=1\npackage store\n"
    );
    assert!(
        errors(&run).contains("store::fill_store"),
        "{}",
        errors(&run)
    );
    // Words of --config are stronger than this command's settings.
    let run = output(project.plimsoll(&[
        "run",
        "-q",
        "-v",
        "--config",
        "profile.release.debug=2",
        "--config=profile.release.strip=false",
    ]));
    assert!(errors(&run).contains("debuginfo=2"), "{}", errors(&run));
}

#[test]
fn directories_with_spaces_and_other_bytes_work() {
    let name = OsString::from_vec(b"two words \xff".to_vec());
    let project = Project::new("spaces")
        .file("Cargo.toml", MANIFEST)
        .file("src/main.rs", PROGRAM);
    let temporary = project.path("").join(&name);
    fs::create_dir(&temporary).unwrap();
    let command = temporary.join("cargo-plimsoll");
    // A child process copies: a concurrent fork of this one would hold the file open for writing.
    let copied = Command::new("cp")
        .arg(CARGO_PLIMSOLL)
        .arg(&command)
        .status();
    assert!(copied.unwrap().success());
    let out = temporary.join("out");
    let mut run = project.plimsoll_of(command.as_os_str(), &["run", "-q", "--out"]);
    run.arg(&out).env("TMPDIR", &temporary);
    let run = output(run);
    assert!(run.status.success(), "{}", errors(&run));
    assert!(out.join("numbers.json").exists());
}

#[test]
fn a_signal_that_ends_the_program_ends_the_command() {
    let project = Project::new("signal")
        .file("Cargo.toml", MANIFEST)
        .file("src/main.rs", "fn main() { std::process::abort() }");
    let run = output(project.plimsoll(&["run", "-q"]));
    assert_eq!(run.status.signal(), Some(libc::SIGABRT), "{}", errors(&run));
}

#[test]
fn a_signal_for_the_command_reaches_the_program() {
    let source = "fn main() { println!(\"ready\"); std::io::stdin().read_line(&mut String::new()).unwrap(); }";
    let project = Project::new("forwarded")
        .file("Cargo.toml", MANIFEST)
        .file("src/main.rs", source);
    let mut run = project.plimsoll(&["run"]);
    run.stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut running = run.spawn().unwrap();
    // `wait_with_output` would close it, and the program could end before the signal arrives.
    let _input = running.stdin.take();
    let mut line = String::new();
    let mut lines = BufReader::new(running.stdout.take().unwrap());
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    // SAFETY: the child is not waited for yet, so its id is still its own.
    assert_eq!(unsafe { libc::kill(running.id() as i32, libc::SIGTERM) }, 0);
    let run = running.wait_with_output().unwrap();
    assert_eq!(run.status.signal(), Some(libc::SIGTERM), "{}", errors(&run));
    assert!(
        errors(&run).contains("was ended by signal 15"),
        "{}",
        errors(&run)
    );
}

/// A program that a test starts by cargo is not profiled, and its output has no summary.
#[test]
fn cargo_inside_a_program_is_not_changed() {
    let source = "fn main() {\n    if std::env::args().len() > 1 { return println!(\"inner\"); }\n    \
                  let inner = std::process::Command::new(\"cargo\").args([\"run\", \"-q\", \"--release\", \"--offline\", \"--\", \"x\"])\n    \
                  .output().unwrap();\n    \
                  print!(\"{}{}\", String::from_utf8_lossy(&inner.stdout), String::from_utf8_lossy(&inner.stderr));\n}\n";
    let project = Project::new("inside")
        .file("Cargo.toml", MANIFEST)
        .file("src/main.rs", source);
    let run = output(project.plimsoll(&["run"]));
    assert!(run.status.success(), "{}", errors(&run));
    assert_eq!(text(&run), "inner\n");
    assert_eq!(
        errors(&run).matches(" (process ").count(),
        1,
        "{}",
        errors(&run)
    );
}

#[test]
fn examples_features_and_profiles_are_passed_on() {
    let manifest = format!(
        "{MANIFEST}[features]\nextra = []\n[profile.small-one]\ninherits = \"dev\"\ndebug = 0\nstrip = true\n"
    );
    let example = "fn main() { println!(\"extra {} debug {}\", cfg!(feature = \"extra\"), cfg!(debug_assertions)); }";
    let project = Project::new("examples")
        .file("Cargo.toml", &manifest)
        .file("src/main.rs", PROGRAM)
        .file("examples/demo.rs", example);
    let elsewhere = project.path("").join("..");
    let manifest = project.path("Cargo.toml");
    let target = project.path("other");
    let mut run = project.plimsoll(&[
        "run",
        "--example",
        "demo",
        "-F",
        "extra",
        "--profile",
        "small-one",
        "-v",
    ]);
    run.arg("--manifest-path")
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&target)
        .current_dir(elsewhere);
    let run = output(run);
    assert!(run.status.success(), "{}", errors(&run));
    assert_eq!(text(&run), "extra true debug true\n");
    assert!(
        errors(&run).contains("debuginfo=line-tables-only"),
        "{}",
        errors(&run)
    );
    assert!(
        errors(&run).contains("plimsoll: demo (process "),
        "{}",
        errors(&run)
    );
    assert!(target.join("small-one/examples/demo").exists());
}

#[test]
fn flame_writes_a_page_or_a_picture() {
    let project = Project::new("flame")
        .file("Cargo.toml", MANIFEST)
        .file("src/main.rs", PROGRAM);
    let mut run = project.plimsoll(&["flame", "--heap-rate", "1", "--", "x"]);
    run.env("STATUS", "9");
    let run = output(run);
    assert_eq!(run.status.code(), Some(9), "{}", errors(&run));
    assert!(
        errors(&run).ends_with("flame graph: flame.html\n"),
        "{}",
        errors(&run)
    );
    let page = fs::read_to_string(project.path("flame.html")).unwrap();
    assert!(page.starts_with("<!") && page.len() > 1000, "{page}");
    let mut run = project.plimsoll(&[
        "flame",
        "-q",
        "--heap-rate",
        "1",
        "--of",
        "heap",
        "-t",
        "alloc_space",
        "-o",
        "it.svg",
    ]);
    run.env("STATUS", "0");
    let run = output(run);
    assert!(run.status.success(), "{}", errors(&run));
    assert!(!errors(&run).contains("flame graph"), "{}", errors(&run));
    let picture = fs::read_to_string(project.path("it.svg")).unwrap();
    assert!(picture.contains("store::fill_store"), "{picture}");
    // The name of a profile is checked before the program runs.
    let run = output(project.plimsoll(&["flame", "--of", "unknown"]));
    assert_eq!((run.status.code(), text(&run).as_str()), (Some(2), ""));
    assert!(
        errors(&run).starts_with("cargo plimsoll: --of unknown: no such profile; available: "),
        "{}",
        errors(&run)
    );
    // A profile that the run did not record.
    let run = output(project.plimsoll(&["flame", "-q", "--of", "profile"]));
    assert_eq!(run.status.code(), Some(125), "{}", errors(&run));
    assert!(
        errors(&run).ends_with("cargo plimsoll: the profile profile: the run recorded none\n"),
        "{}",
        errors(&run)
    );
}

#[test]
fn a_failed_build_has_cargo_s_messages_and_status() {
    let project = Project::new("broken")
        .file("Cargo.toml", MANIFEST)
        .file("src/main.rs", "fn main() { let x: u32 = \"text\"; }");
    let alone = Command::new(project::cargo())
        .args(["run", "--release", "--offline"])
        .current_dir(project.path(""))
        .output()
        .unwrap();
    for command in ["run", "flame", "test", "bench"] {
        let run = output(project.plimsoll(&[command]));
        assert_eq!(
            run.status.code(),
            alone.status.code(),
            "{command}: {}",
            errors(&run)
        );
        assert!(errors(&run).contains("error[E0308]"), "{}", errors(&run));
        assert!(!errors(&run).contains("plimsoll: "), "{}", errors(&run));
    }
    let run = output(project.plimsoll(&["run", "--profile", "no-such"]));
    assert!(
        errors(&run).contains("no-such") && !run.status.success(),
        "{}",
        errors(&run)
    );
}

#[test]
fn a_program_that_plimsoll_cannot_run_is_refused() {
    let source = "fn main() { println!(\"ran\"); }";
    let project = Project::new("refused")
        .file("Cargo.toml", MANIFEST)
        .file("src/main.rs", source);
    let mut run = project.plimsoll(&["run", "-q"]);
    run.env("RUSTFLAGS", "-C target-feature=+crt-static");
    let run = output(run);
    assert_eq!(run.status.code(), Some(125), "{}", errors(&run));
    assert_eq!(text(&run), "");
    let said = errors(&run);
    let last = said.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("plimsoll: ") && last.contains("static"),
        "{said}"
    );
}

#[test]
fn a_missing_cargo_is_an_error_of_one_line() {
    let project = Project::new("missing")
        .file("Cargo.toml", MANIFEST)
        .file("src/main.rs", PROGRAM);
    let mut run = project.plimsoll(&["run"]);
    run.env("CARGO", "/no/such/cargo");
    let run = output(run);
    assert_eq!(run.status.code(), Some(127));
    assert!(
        errors(&run).starts_with("cargo plimsoll: /no/such/cargo: "),
        "{}",
        errors(&run)
    );
    assert_eq!(errors(&run).lines().count(), 1, "{}", errors(&run));
    let mut run = project.plimsoll(&["run"]);
    run.env_remove("CARGO").env("PATH", project.path("src"));
    let run = output(run);
    assert_eq!(run.status.code(), Some(127), "{}", errors(&run));
    assert_eq!(errors(&run).lines().count(), 1, "{}", errors(&run));
    // A program of that name that is not cargo.
    let mut run = project.plimsoll(&["run"]);
    run.env("CARGO", "/bin/true");
    let run = output(run);
    assert_eq!(run.status.code(), Some(125), "{}", errors(&run));
    assert_eq!(
        errors(&run),
        "cargo plimsoll: /bin/true: it does not print the line `host:` with -vV\n"
    );
}

#[test]
fn a_program_that_cargo_runs_for_another_target_is_no_success() {
    let project = Project::new("target")
        .file("Cargo.toml", MANIFEST)
        .file("src/main.rs", PROGRAM)
        // A specification's name differs from the triple of the machine.
        .file(
            ".cargo/config.toml",
            "[build]\ntarget = \"x86_64-unknown-linux-musl\"\n",
        );
    let is_installed = Command::new("rustc")
        .args([
            "--print",
            "target-libdir",
            "--target",
            "x86_64-unknown-linux-musl",
        ])
        .output()
        .is_ok_and(|libraries| {
            std::path::Path::new(String::from_utf8_lossy(&libraries.stdout).trim()).exists()
        });
    if !is_installed {
        plimsoll_testkit::skip!("the target for musl is not installed");
        return;
    }
    let run = output(project.plimsoll(&["run"]));
    assert_eq!(run.status.code(), Some(125), "{}", errors(&run));
    let said = errors(&run);
    assert!(
        said.lines()
            .last()
            .unwrap()
            .contains("pass --target as well"),
        "{said}"
    );
}

#[test]
fn cargo_finds_the_subcommand_and_nothing_remains() {
    let project = Project::new("found")
        .file("Cargo.toml", MANIFEST)
        .file("src/main.rs", PROGRAM);
    let directory = std::path::Path::new(CARGO_PLIMSOLL).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = [directory.to_owned()]
        .into_iter()
        .chain(std::env::split_paths(&path));
    let temporary = project.path("temporary");
    fs::create_dir(&temporary).unwrap();
    let mut run = Command::new(project::cargo());
    project::without_outer(&mut run);
    run.args(["plimsoll", "run", "-q", "--offline"])
        .env("PATH", std::env::join_paths(path).unwrap())
        .env("TMPDIR", &temporary)
        // The library stays in the cache; without HOME, that is in TMPDIR.
        .env("XDG_CACHE_HOME", project.path("cache"))
        .current_dir(project.path(""));
    let run = output(run);
    assert!(run.status.success(), "{}", errors(&run));
    assert_eq!(text(&run), "package store\n");
    let remains: Vec<_> = fs::read_dir(&temporary).unwrap().flatten().collect();
    assert!(remains.is_empty(), "{remains:?}");
}

#[test]
fn a_runner_that_cargo_has_not_started_fails_in_one_line() {
    for words in [
        &["--runner-of"][..],
        &["--runner-of", "/no/such"],
        &["--runner-of", "/no/such", "/bin/true"],
    ] {
        let mut run = Command::new(OsStr::new(CARGO_PLIMSOLL));
        run.args(words);
        let run = output(run);
        assert!(matches!(run.status.code(), Some(2 | 125)), "{words:?}");
        assert_eq!(
            errors(&run).lines().count(),
            1,
            "{words:?}: {}",
            errors(&run)
        );
    }
}
