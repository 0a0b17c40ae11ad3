//! Code that a program generated in memory: walks go on through it, and the program's list for perf
//! names it.

use crate::scene::{Scene, run};

/// A function that calls its argument, generated twice, with names as Python and V8 list them.
const GENERATES: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static void *kept[200];
__attribute__((noinline)) static void *allocate(int at) { kept[at] = malloc(100000); return kept[at]; }
__attribute__((noinline)) static void fill(void) { for (int i = 0; i < 200; i++) memset(allocate(i), 1, 100000); }
__attribute__((noinline)) static void inner(void) { fill(); kept[0] = kept[0]; }
typedef void (*Caller)(void (*)(void));
static char *code;
__attribute__((noinline)) static void outer(void) { ((Caller)(code + 64))(inner); kept[0] = kept[0]; }
int main(void) {
    /* push rbp; mov rbp, rsp; call rdi; pop rbp; ret, and sub rsp, 8; call rdi; add rsp, 8; ret */
    static const unsigned char with_record[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
    static const unsigned char without_record[] = {0x48, 0x83, 0xec, 8, 0xff, 0xd7, 0x48, 0x83, 0xc4, 8, 0xc3};
    code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, with_record, sizeof with_record);
    memcpy(code + 64, without_record, sizeof without_record);
    char name[64];
    sprintf(name, "/tmp/perf-%d.map", getpid());
    FILE *list = fopen(name, "w");
    fprintf(list, "%lx 8 JS:~started /tmp/page.js:12:3\n", (unsigned long)code);
    fprintf(list, "%lx b py::hoard:/tmp/script.py\n", (unsigned long)code + 64);
    fclose(list);
    puts(name);
    ((Caller)code)(outer);
    return 0;
}"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn functions_of_generated_code_are_named_with_their_callers() {
    let scene = Scene::new("generated-names");
    let program = scene.c("generates", GENERATES);
    let out = scene.path("out");
    let options = ["--heap-rate", "1", "--out", out.to_str().unwrap()];
    let output = run(&options, program, &[]).output().unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    std::fs::remove_file(list.trim()).unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    // The first functions that the list names, and the native ones that they called.
    let row = crate::table::row(&text, "hoard");
    assert!(row.site.starts_with("hoard (script.py) < "), "{text}");
    assert!(
        row.site.contains(" > fill (") && row.site.contains(" > allocate ("),
        "{text}"
    );
    assert!(!text.contains("cannot be unwound"), "{text}");
    let report = std::process::Command::new(crate::scene::PLIMSOLL)
        .args(["report", "--folded", "-t", "inuse_space"])
        .arg(out.join("heap.pb.gz"))
        .output()
        .unwrap();
    let folded = String::from_utf8(report.stdout).unwrap();
    let stack = ";main;started (page.js:12);outer;hoard (script.py);inner;fill;allocate ";
    assert!(folded.contains(stack), "{folded}");
}

/// A script that holds 60 MB, outside of V8's own heap.
const HOARD: &str = "const kept = [];
function hoard(count) {
    for (let i = 0; i < count; i++) kept.push(Buffer.alloc(200000));
}
function outer() { hoard(300); }
outer();
console.log(kept.length);
";

#[test]
fn functions_of_node_are_named_by_either_of_its_lists() {
    let node = std::path::Path::new("/usr/bin/node");
    if !node.exists() {
        plimsoll_testkit::skip!("node is not installed");
        return;
    }
    for list in ["--perf-prof", "--perf-basic-prof"] {
        let scene = Scene::new("generated-node");
        std::fs::write(scene.path("hoard.js"), HOARD).unwrap();
        let out = scene.path("out");
        let options = ["--out", out.to_str().unwrap()];
        let flags = [list, "--interpreted-frames-native-stack", "hoard.js"];
        let mut command = run(&options, node, &flags);
        let output = command.current_dir(&scene.directory).output().unwrap();
        assert_eq!(output.stdout, b"300\n");
        let report = std::process::Command::new(crate::scene::PLIMSOLL)
            .args(["report", "--folded", "-t", "alloc_space"])
            .arg(out.join("heap.pb.gz"))
            .output()
            .unwrap();
        let folded = String::from_utf8(report.stdout).unwrap();
        let is_hoard = |line: &&str| {
            line.contains(";outer (hoard.js:5);") && line.contains(";hoard (hoard.js:2);")
        };
        let values = folded.lines().filter(is_hoard);
        let values = values.map(|line| line.rsplit_once(' ').unwrap().1);
        let sum: u64 = values.map(|value| value.parse::<u64>().unwrap()).sum();
        // 100 samples are expected. The sum deviates by half with a probability below 1 in a million.
        assert!((30_000_000..90_000_000).contains(&sum), "{list}: {sum}");
        let process = std::fs::read_to_string(out.join("numbers.json")).unwrap();
        let numbers: serde_json::Value = serde_json::from_str(&process).unwrap();
        let process = crate::scene::number(&numbers, "process");
        let _ = std::fs::remove_file(format!("/tmp/perf-{process}.map"));
    }
}
