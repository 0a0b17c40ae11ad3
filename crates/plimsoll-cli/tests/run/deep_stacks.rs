//! Stacks that are deeper than the frames that are kept: both ends are, in all outputs.

use std::path::{Path, PathBuf};

use crate::scene::{Scene, number, report, reports, run};

/// Allocates 100 blocks of 10,000 bytes in a recursion of about as many frames as the argument, each time of another
/// number. Then ends as the second argument requests.
const RECURSION: &str = r#"
    #include <signal.h>
    #include <stdlib.h>
    #include <string.h>
    void *kept[100];
    __attribute__((noinline)) int recurse(int frames, int block) {
        if (frames) return recurse(frames - 1, block) + 1;
        kept[block] = memset(malloc(10000), 1, 10000);
        return 0;
    }
    __attribute__((noinline)) int begin(int frames) {
        int sum = 0;
        for (int i = 0; i < 100; i++) sum += recurse(frames + i, i);
        return sum;
    }
    int main(int count, char **arguments) {
        volatile int sum = begin(atoi(arguments[1]));
        if (count > 2) raise(SIGKILL);
        return 0;
    }
"#;

/// The bytes of the blocks, in the size class.
const BYTES: u64 = 100 * 10_240;

fn program(scene: &Scene, options: &[&str]) -> PathBuf {
    let options = [options, &["-O0", "-fno-optimize-sibling-calls"]].concat();
    scene.compile("cc", "recursion", RECURSION, &options)
}

/// Returns the stacks of the recursion in a heap profile, from the root, with their bytes in use.
fn stacks(profile: &Path) -> Vec<(String, u64)> {
    let text = report(&["--folded", "-t", "inuse_space"], profile);
    let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    let stacks = lines.map(|(stack, bytes)| (stack.to_owned(), bytes.parse().unwrap()));
    stacks
        .filter(|(stack, _)| stack.contains("recurse"))
        .collect()
}

/// Asserts that the blocks have one stack, with both ends.
fn are_under_the_root(stacks: &[(String, u64)], context: &str) {
    assert_eq!(stacks.len(), 1, "{context}: {stacks:?}");
    let (stack, bytes) = &stacks[0];
    assert_eq!(*bytes, BYTES, "{context}");
    let (root, leaf) = stack.split_once(";[frames left out];").expect(stack);
    assert!(
        root.contains("main;begin;recurse;recurse"),
        "{context}: {stack}"
    );
    assert!(leaf.ends_with(";recurse;recurse"), "{context}: {stack}");
    let frames = stack.split(';').count();
    assert!((100..=128).contains(&frames), "{context}: {frames}");
}

#[test]
fn a_deep_recursion_is_under_its_root() {
    for option in ["-fomit-frame-pointer", "-fno-omit-frame-pointer"] {
        let scene = Scene::new(&format!("deep-root{option}"));
        let program = program(&scene, &[option]);
        for unwinder in ["tables", "frame-pointers"] {
            if (option, unwinder) == ("-fomit-frame-pointer", "frame-pointers") {
                continue;
            }
            let out = scene.path(unwinder);
            let options = ["--heap-rate", "1", "--json", "--out", out.to_str().unwrap()];
            let mut run = run(&options, &program, &["5000"]);
            let settings = format!("unwinder={unwinder}");
            let output = run.env("PLIMSOLL", settings).output().unwrap();
            let (errors, reports) = reports(&output);
            assert_eq!((reports.len(), &*errors), (1, ""), "{unwinder}");
            assert!((100..110).contains(&number(&reports[0], "shortened_stacks")));
            assert_eq!(number(&reports[0], "cut_stacks"), 0);
            let context = format!("{option} {unwinder}");
            are_under_the_root(&stacks(&out.join("heap.pb.gz")), &context);
        }
    }
}

#[test]
fn a_deep_recursion_of_a_killed_program_is_under_its_root() {
    let scene = Scene::new("deep-root-killed");
    let program = program(&scene, &[]);
    let directory = scene.path("files");
    std::fs::create_dir(&directory).unwrap();
    let postmortem = format!("--postmortem={}", directory.display());
    let options = ["--heap-rate", "1", "--json", &postmortem];
    let output = run(&options, program, &["5000", "kill"]).output().unwrap();
    let (errors, reports) = reports(&output);
    assert_eq!((reports.len(), &*errors), (1, ""));
    let shortened = number(&reports[0], "shortened_stacks");
    assert!((100..110).contains(&shortened), "{shortened}");
    let files = std::fs::read_dir(&directory).unwrap();
    let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    are_under_the_root(&stacks(&files[0]), "post-mortem file");
}

/// The number of frames that are kept includes hidden ones in some places, and not in others.
#[test]
fn a_recursion_of_about_the_maximum_depth_is_under_its_root() {
    let scene = Scene::new("nearly-deep");
    let program = program(&scene, &[]);
    let out = scene.path("out");
    let options = ["--heap-rate", "1", "--out", out.to_str().unwrap()];
    run(&options, program, &["80"]).output().unwrap();
    let stacks = stacks(&out.join("heap.pb.gz"));
    assert_eq!(stacks.iter().map(|(_, bytes)| bytes).sum::<u64>(), BYTES);
    for (stack, _) in &stacks {
        assert!(stack.contains("main;begin;recurse;"), "{stack}");
        assert!(stack.split(';').count() <= 128);
    }
    let whole = stacks
        .iter()
        .filter(|(stack, _)| !stack.contains("[frames left out]"));
    assert!((35..50).contains(&whole.count()), "{}", stacks.len());
}
