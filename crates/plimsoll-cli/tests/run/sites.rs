//! Where memory was allocated, by name.

use crate::scene::{Scene, run};

const SITES: &str = r#"
#include <stdlib.h>
#include <string.h>
static void *kept[200];
__attribute__((noinline)) char *hoard(void) { char *block = malloc(100000); memset(block, 1, 100000); return block + 1 - 1; }
__attribute__((noinline)) char *waste(void) { char *block = calloc(1, 100000); return block + 1 - 1; }
__attribute__((noinline)) char *grow(char *block) { char *more = realloc(block, 300000); return more + 1 - 1; }
int main() {
    for (int i = 0; i < 200; i++) { kept[i] = hoard(); free(waste()); }
    free(grow(malloc(10)));
    return 0;
}
"#;

#[test]
fn the_summary_names_who_holds_and_who_wastes() {
    let scene = Scene::new("sites");
    let program = scene.c("sites", SITES);
    let output = run(&["--heap-rate", "1"], &program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let after = |title: &str| -> &str {
        let list = text
            .split(title)
            .nth(1)
            .unwrap_or_else(|| panic!("{title} in {text}"));
        list.lines().nth(1).unwrap()
    };
    assert!(
        after("in use at the end:").contains("hoard < main"),
        "{text}"
    );
    assert!(
        after("in use when most was:").contains("hoard < main"),
        "{text}"
    );
    assert!(after("churn:").contains("waste < main"), "{text}");
    assert!(text.contains("grow < main"), "{text}");
    // Nothing of the library that is preloaded.
    assert!(
        !text.contains("plimsoll_preload") && !text.contains("malloc"),
        "{text}"
    );
}

/// The profiles are for Go's tool as well as for this one: with names, files and lines.
#[test]
fn profiles_are_kept_with_names_and_lines() {
    let scene = Scene::new("kept");
    let program = scene.c("sites", SITES);
    let out = scene.path("out/of/it");
    let status = run(
        &[
            "--quiet",
            "--heap-rate",
            "1",
            "--out",
            out.to_str().unwrap(),
        ],
        &program,
        &[],
    )
    .status()
    .unwrap();
    assert!(status.success());
    for name in ["heap", "peak", "block", "mutex", "threadcreate"] {
        assert!(out.join(format!("{name}.pb.gz")).is_file(), "{name}");
    }
    let report = |options: &[&str]| {
        let output = std::process::Command::new(crate::scene::PLIMSOLL)
            .arg("report")
            .args(options)
            .arg(out.join("heap.pb.gz"))
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(report(&[]).contains("hoard"), "{}", report(&[]));
    let folded = report(&["--folded"]);
    assert!(
        folded.lines().any(|line| line.contains("main;hoard ")),
        "{folded}"
    );
    let list = report(&["--list", "^hoard$"]);
    assert!(list.contains("char *block = malloc(100000)"), "{list}");
}
