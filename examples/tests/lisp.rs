//! The Lisp as users run it: with a program, and without one, when it serves its profiles. Go's
//! tool reads them, too, if there is a Go toolchain (`PLIMSOLL_GO`, or `go` in `PATH`).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

mod running;

use running::{Running, built, go};

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("lisp/programs")
}

fn run(arguments: &[&Path]) -> Output {
    Command::new(built("lisp"))
        .args(arguments)
        .env_remove("PLIMSOLL")
        .output()
        .expect("the example can be run")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn a_program_is_run_and_ends() {
    for (program, says) in [
        ("queens.lisp", "8 queens: 92 ways"),
        ("words.lisp", "the most frequent of 5000 words"),
        ("mandelbrot.lisp", "@@@@@@@@@@@"),
        ("json.lisp", "[{\"name\":\"ship 0\",\"draught\":0.0,"),
        ("trees.lisp", "the long-lived tree has 32767 nodes"),
        ("evaluator.lisp", "fibonacci of 15, twice removed: 610"),
    ] {
        let output = run(&[&programs().join(program)]);
        let said = text(&output.stdout);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(said.contains(says), "{program}: {said}");
        assert!(output.stderr.is_empty());
    }
}

#[test]
fn a_mistake_is_reported_with_its_place() {
    let directory = std::env::temp_dir().join(format!("plimsoll-lisp-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let wrong = directory.join("wrong.lisp");
    let source = "(print 1)\n(define (f x) (car x))\n\n(print (f 5))\n";
    std::fs::write(&wrong, source).unwrap();
    let not_text = directory.join("not-text.lisp");
    std::fs::write(&not_text, b"\xff").unwrap();
    let missing = directory.join("missing.lisp");

    let output = run(&[&wrong]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "1\n");
    let expected =
        "lisp: wrong.lisp, line 2: car: 5 is not a pair\n  in f, line 2\n  in top level, line 4\n";
    assert_eq!(text(&output.stderr), expected);
    for path in [&not_text, &missing] {
        let output = run(&[path]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("cannot be read"));
    }
    assert_eq!(run(&[Path::new("--nonsense")]).status.code(), Some(2));
    let _ = std::fs::remove_dir_all(&directory);
}

/// Returns a figure at the end of the heap profile's text: `# NumGC = 12`.
fn figure(text: &str, name: &str) -> u64 {
    let begins = format!("# {name} = ");
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(begins.as_str()));
    value.expect(name).parse().expect(name)
}

#[test]
fn the_profile_contains_the_scripts_objects() {
    let lisp = Running::start("lisp", &["--seconds", "300"], "heap_rate=4k");
    // The first round has ended when the last program was seen.
    let seen = lisp.text_when("heap?debug=1", |text| {
        figure(text, "NumGC") > 10
            && text.contains("lisp::value::cons")
            && text.contains("lisp::value::frame")
            && text.contains("lisp::value::text")
    });
    assert_eq!(figure(&seen, "NumForcedGC"), 0);
    assert!(figure(&seen, "NextGC") > 0);
    assert!(figure(&seen, "LastGC") > 0);
    for method in ["\tgc_arena::gc::Gc", "\t<gc_arena::gc::Gc"] {
        assert!(
            !seen.contains(method),
            "an allocation is shown at its caller"
        );
    }

    // The labels name the program and its function.
    let of_trees = |text: &str| {
        text.lines().any(|line| {
            line.contains("\"script\":\"trees.lisp\"") && line.contains("\"function\":\"tree\"")
        })
    };
    lisp.text_when("heap?debug=1", of_trees);

    // A requested collection is a complete one.
    let (_, collected) = lisp.get("heap?gc=1&debug=1");
    let collected = text(&collected);
    assert!(figure(&collected, "NumForcedGC") >= 1);
    assert!(figure(&collected, "NumGC") > figure(&seen, "NumGC"));
    assert!(figure(&collected, "LastGC") > figure(&seen, "LastGC"));
    lisp.text_when("heap?debug=1", |text| {
        figure(text, "NumGC") > figure(&collected, "NumGC")
    });

    let Some(go) = go() else { return };
    let top = lisp.pprof(&go, &["-top", "-sample_index=alloc_space"], "heap");
    assert!(top.contains("lisp::value::frame"), "{top}");
    let tags = lisp.pprof(&go, &["-tags", "-sample_index=alloc_space"], "heap");
    for tag in [
        "script: Total",
        "function: Total",
        "trees.lisp",
        "queens.lisp",
    ] {
        assert!(tags.contains(tag), "{tag}: {tags}");
    }
    let only = [
        "-top",
        "-sample_index=alloc_space",
        "-tagfocus=script=json.lisp",
    ];
    let json = lisp.pprof(&go, &only, "heap");
    assert!(json.contains("lisp::value::text"), "{json}");
}
