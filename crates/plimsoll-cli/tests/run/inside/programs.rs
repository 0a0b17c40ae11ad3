//! Programs that contain a known allocator. What is not installed is skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::scene::{Scene, number, only, reports, run};

/// Runs a program, whose output must be the same without Plimsoll. Returns its report and its summary.
fn report_and_summary(program: &Path, arguments: [&[&str]; 2]) -> (Value, String) {
    let [alone, observed] = arguments;
    let alone = Command::new(program).args(alone).output().unwrap();
    let json = run(&["--json"], program, observed).output().unwrap();
    let text = run(&[], program, observed).output().unwrap();
    for output in [&json, &text] {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status, alone.status, "{errors}");
        assert_eq!(output.stdout, alone.stdout, "{errors}");
    }
    let summary = String::from_utf8_lossy(&text.stderr).into_owned();
    (only(reports(&json).1), summary)
}

/// The compiler's jemalloc is called by its libraries, from several threads.
#[test]
fn the_heap_of_the_rust_compiler_is_observed() {
    let scene = Scene::new("inside-rustc");
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = String::from_utf8(sysroot.unwrap().stdout).unwrap();
    let rustc = PathBuf::from(sysroot.trim()).join("bin/rustc");
    let source = scene.path("hello.rs");
    std::fs::write(&source, "fn main() { println!(\"hello\"); }").unwrap();
    let files = ["alone", "observed"].map(|name| scene.path(name));
    let arguments = |at: usize| [source.to_str().unwrap(), "-o", files[at].to_str().unwrap()];
    let (report, summary) = report_and_summary(&rustc, [&arguments(0), &arguments(1)]);
    if report["allocator"] == "libc" {
        return plimsoll_testkit::skip!("{} contains no allocator", rustc.display());
    }
    let [alone, observed] = files.map(|file| std::fs::read(file).unwrap());
    assert!(alone == observed, "the compiled programs differ");
    assert_eq!(report["allocator"], "redirected", "{report}");
    let [mallocs, frees] = ["mallocs", "frees"].map(|name| number(&report, name));
    assert!(mallocs > 10_000 && frees <= mallocs, "{report}");
    assert_eq!(number(&report, "untracked"), 0, "{report}");
    let note = "the heap belongs to jemalloc (exported), inside the program";
    assert!(summary.contains(note), "{summary}");
}

/// PartitionAlloc exports the operators of C++ as well, and some of its functions are the same.
#[test]
fn the_heap_of_chromium_is_observed() {
    let scene = Scene::new("inside-chromium");
    let places = [
        "/usr/lib/chromium/chromium",
        "/usr/lib64/chromium-browser/chromium-browser",
    ];
    let Some(program) = places.iter().map(Path::new).find(|file| file.exists()) else {
        return plimsoll_testkit::skip!("chromium is not installed");
    };
    let page = scene.path("page.html");
    let text = "<script>document.write([1, 2, 3].map(x => x * x))</script>";
    std::fs::write(&page, text).unwrap();
    let user = format!("--user-data-dir={}", scene.path("user").display());
    let page = format!("file://{}", page.display());
    let options = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"];
    let arguments = [&options[..], &[&user, &page]].concat();
    let (report, summary) = report_and_summary(program, [&arguments, &arguments]);
    assert_eq!(report["allocator"], "redirected", "{report}");
    let [mallocs, frees] = ["mallocs", "frees"].map(|name| number(&report, name));
    assert!(mallocs > 100_000 && frees <= mallocs, "{report}");
    let note = "the heap belongs to PartitionAlloc (exported), inside the program";
    assert!(summary.contains(note), "{summary}");
}
