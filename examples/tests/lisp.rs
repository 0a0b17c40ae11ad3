//! The Lisp as users run it: with a program, and without one, when it serves its profiles. Go's
//! tool reads them, too, if there is a Go toolchain (`PLIMSOLL_GO`, or `go` in `PATH`).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

mod running;

use plimsoll_testkit::tools::go;
use running::{Running, built};

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
        ("trees.lisp", "the long-lived tree has 32767 nodes"),
    ] {
        let output = run(&[&programs().join(program)]);
        let said = text(&output.stdout);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(said.contains(says), "{program}: {said}");
        assert!(output.stderr.is_empty());
    }
}

/// A directory for programs; removed on drop.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let name = format!("plimsoll-lisp-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    fn write(&self, name: &str, source: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, source).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn functions_capture_their_scope() {
    let directory = Directory::new("scope");
    let program = directory.write(
        "scope.lisp",
        "(define (counter) (let ((count 0)) (lambda () (set! count (+ count 1)) count)))
         (define a (counter))
         (define b (counter))
         (a) (a) (b)
         (print (a) (b))
         (define x 1)
         (print (let ((x 2) (y x)) (- x y)))
         (define (last n) (if (= n 0) 'done (last (- n 1))))
         (print (last 100000))",
    );
    let output = run(&[&program]);
    assert_eq!(text(&output.stdout), "32\n1\ndone\n");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_mistake_is_reported_with_its_place() {
    let directory = Directory::new("mistakes");
    let deep = "(".repeat(1_000_000);
    let mistakes = [
        (
            "(print 1)\n(define (f x)\n(car x))\n(f 5)",
            "4, in f: car: 5 is not a pair",
        ),
        ("\n(a (b)", "2, in top level: a list is not closed"),
        (
            "1\n)",
            "2, in top level: no list is open that this ) closes",
        ),
        ("\"a", "1, in top level: a string is not closed"),
        ("'", "1, in top level: no form follows this '"),
        (&deep, "1, in top level: lists are nested deeper than 200"),
        (
            "(if 1)",
            "1, in top level: this is not of the form (if test then otherwise)",
        ),
        (
            "(list (list 1) nowhere)",
            "1, in top level: nowhere is not defined",
        ),
        (
            "(set! nowhere 1)",
            "1, in top level: nowhere is not defined",
        ),
        (
            "(quotient 1 0)",
            "1, in top level: quotient: 1 and 0 have no 64-bit result",
        ),
        (
            "(define (f x) x)\n(f)",
            "2, in f: 1 arguments are needed, not 0",
        ),
        (
            "(define (f n) (+ 1 (f n)))\n(f 1)",
            "2, in f: calls are nested deeper than 1000",
        ),
        ("(\"f\" 1)", "1, in top level: f is not a function"),
    ];
    for (source, mistake) in mistakes {
        let output = run(&[&directory.write("wrong.lisp", source)]);
        let expected = format!("lisp: wrong.lisp, line {mistake}\n");
        assert_eq!(text(&output.stderr), expected);
        assert_eq!(output.status.code(), Some(1));
    }

    // A fault ends only its program.
    let not_text = directory.write("not-text.lisp", b"\xff");
    let missing = directory.0.join("missing.lisp");
    let right = directory.write("right.lisp", "(print 1)");
    let output = run(&[&not_text, &missing, &right]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr)
            .matches(".lisp cannot be read: ")
            .count(),
        2
    );
    assert_eq!(text(&output.stdout), "1\n");
    assert_eq!(run(&[Path::new("--nonsense")]).status.code(), Some(2));
}

/// Programs of random words end, with a value or a fault.
#[test]
fn no_program_crashes_the_interpreter() {
    const PROGRAMS: usize = 3000;
    const WORDS: &str = "( ) ( ) ( ) ' \"a\" 1 -2 #t #f x y define lambda let if set! begin quote car cons list map + string-join equal?";
    let words: Vec<&str> = WORDS.split(' ').collect();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut chance = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    let directory = Directory::new("random");
    let mut paths = Vec::new();
    for number in 0..PROGRAMS {
        let mut source = String::new();
        let mut open = 0;
        for _ in 0..chance(40) {
            let word = words[chance(words.len())];
            match word {
                "(" => open += 1,
                ")" if open == 0 => continue,
                ")" => open -= 1,
                _ => {}
            }
            source.push_str(word);
            source.push(' ');
        }
        source.push_str(&")".repeat(open));
        // A program may end with a quote.
        source.push_str("0 (print 'completed)");
        paths.push(directory.write(&number.to_string(), source));
    }
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let output = run(&paths);
    assert_eq!(output.status.code(), Some(1));
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    let completed = said.lines().filter(|&line| line == "completed").count();
    assert!(completed > 100, "{completed}");
    assert_eq!(completed + complained.lines().count(), PROGRAMS);
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
    let lisp = Running::start("lisp", &[], "heap_rate=4k");
    // The first round has ended when the last program was seen.
    let seen = lisp.text_when("heap?debug=1", |text| {
        figure(text, "NumGC") > 10
            && text.contains("lisp::value::cons")
            && text.contains("lisp::value::variable")
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
    assert!(top.contains("lisp::value::variable"), "{top}");
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
        "-tagfocus=script=words.lisp",
    ];
    let words = lisp.pprof(&go, &only, "heap");
    assert!(words.contains("lisp::value::text"), "{words}");
}
