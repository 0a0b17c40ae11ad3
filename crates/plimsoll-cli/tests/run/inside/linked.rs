//! Allocators that the program does not export.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::ALLOCATOR;
use crate::scene::{Scene, number, only, reports, run, same};

/// Compiles the allocator with a prefix of its names, which are not exported.
fn compile(scene: &Scene, name: &str, prefix: &str, user: &str, options: &[&str]) -> PathBuf {
    let names = [
        "malloc",
        "free",
        "calloc",
        "realloc",
        "posix_memalign",
        "aligned_alloc",
        "memalign",
        "valloc",
        "malloc_usable_size",
    ];
    let mut source = String::new();
    for name in names {
        // The macro is of no effect in the headers, which come first.
        let own = match (prefix, name) {
            ("mi_", "malloc_usable_size") => "usable_size",
            _ => name,
        };
        source.push_str(&format!("#define {name} {prefix}{own}\n"));
    }
    let (headers, code) = ALLOCATOR.split_at(ALLOCATOR.find("/*").unwrap());
    let source = [headers, &source, code, user].concat();
    scene.compile("cc", name, &source, &[&["-pthread"], options].concat())
}

/// Allocates as often as its argument says, by all functions, and prints the allocator's totals.
const USER: &str = r#"
int main(int count, char **arguments) {
    (void)count;
    char *kept = malloc(300);
    for (int i = 0; i < atoi(arguments[1]); i++) {
        size_t size = i * 37 % 3000, align = 16 << i % 9;
        char *block = malloc(size), *other;
        memset(block, 1, size);
        block = realloc(block, 2 * size + 1);
        if (size && block[size - 1] != 1) return 1;
        free(block);
        if (posix_memalign((void **)&other, align, size) || (uintptr_t)other % align) return 2;
        free(other);
        free(aligned_alloc(align, size));
        free(memalign(align, size));
        free(valloc(size));
        free(calloc(3, size));
        free(realloc(0, size));
        free(malloc(50000 + i));
        free(0);
    }
    kept = realloc(kept, 700);
    say();
    return 0;
}
"#;

/// Returns the numbers of a run that are the allocator's alone: its report's, without those of a run
/// that does less.
fn grown(program: &Path, options: &[&str], rounds: [&str; 2]) -> [[u64; 4]; 2] {
    let [less, more] = rounds.map(|rounds| {
        let options = [options, &["--json"]].concat();
        let output = run(&options, program, &[rounds]).output().unwrap();
        let report = only(reports(&output).1);
        assert!(output.status.success(), "{:?} {report}", output.status);
        assert_eq!(report["allocator"], "redirected", "{report}");
        assert_eq!(report["exact"], true);
        let names = ["mallocs", "malloc_bytes", "frees", "free_bytes"];
        let counted = names.map(|name| number(&report, name));
        let said = String::from_utf8_lossy(&output.stdout);
        let said = said.split_whitespace().map(|word| word.parse().unwrap());
        let said: Vec<u64> = said.collect();
        [counted, said.try_into().unwrap()]
    });
    [0, 1].map(|of| [0, 1, 2, 3].map(|at| more[of][at] - less[of][at]))
}

#[test]
fn blocks_of_an_allocator_that_is_not_exported_are_counted() {
    let scene = Scene::new("inside-linked");
    for (name, prefix) in [
        ("jemalloc", "_rjem_"),
        ("plain-jemalloc", "je_"),
        ("mimalloc", "mi_"),
    ] {
        let program = compile(&scene, name, prefix, USER, &[]);
        for rate in ["0", "10000", "1"] {
            // Blocks up to 1 KiB have exact sizes in the counts: these are so few that all rounds
            // have the same classes.
            let [counted, said] = grown(&program, &["--heap-rate", rate], ["0", "20"]);
            assert_eq!(
                [counted[0], counted[2]],
                [said[0], said[2]],
                "{name} {rate}"
            );
            assert_eq!(said[0], 20 * 9);
            for at in [1, 3] {
                let expected = said[at]..said[at] + said[at] / 8;
                assert!(
                    expected.contains(&counted[at]),
                    "{name} {counted:?} {said:?}"
                );
            }
        }
        let output = run(&[], &program, &["2000"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let known = name.trim_start_matches("plain-");
        let note = format!("the heap belongs to {known} (linked in), inside the program");
        assert!(text.contains(&note), "{text}");
        assert!(text.contains("main"), "{text}");
    }
}

#[test]
fn an_allocator_without_the_sizes_of_its_blocks_is_left_alone() {
    let scene = Scene::new("inside-linked-obstacles");
    let source = |prefix: &str| {
        let free = format!("void {prefix}free(void *block) {{ (void)block; }}");
        format!(
            "#include <stdio.h>\nstatic char room[1 << 16], *at = room;\n\
             __attribute__((noinline)) void *{prefix}malloc(unsigned long size) {{ at += size; return at - size; }}\n\
             __attribute__((noinline)) {free}\n\
             int main() {{ {prefix}free({prefix}malloc(10)); puts(\"works\"); return 0; }}"
        )
    };
    for (name, prefix, obstacle) in [
        ("jemalloc", "_rjem_", "it lacks malloc_usable_size"),
        ("mimalloc", "mi_", "it lacks malloc_usable_size"),
    ] {
        let program = scene.compile("cc", name, &source(prefix), &[]);
        let report = only(same(&program, &[]));
        assert_eq!(report["obstacle"], obstacle, "{report}");
        let output = run(&[], &program, &[]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let note =
            format!("allocations go to {name} (linked in), which is not redirected: {obstacle}");
        assert!(text.contains(&note), "{text}");
        // Its output allocates from the C library, whose blocks are counted.
        let source = source(prefix).replace("return 0", "fflush(stdout); raise(SIGKILL)");
        let source = format!("#include <signal.h>\n{source}");
        let program = scene.compile("cc", &format!("{name}-killed"), &source, &[]);
        let output = run(&["--postmortem"], &program, &[]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("the process was killed"), "{text}");
        assert!(text.contains(&note), "{text}");
        assert!(!text.contains("its functions are redirected"), "{text}");
    }
    // Without symbols, its functions are unknown.
    let program = compile(&scene, "stripped", "je_", USER, &["-s"]);
    let output = run(&["--json"], &program, &["10"]).output().unwrap();
    let report = only(reports(&output).1);
    assert_eq!(
        (&report["allocator"], &report["obstacle"]),
        (&"libc".into(), &Value::Null)
    );
}

/// Its symbol table has names at which the search begins, but its allocator is the C library's.
#[test]
fn a_program_that_only_frees_blocks_of_an_allocator_has_another() {
    let scene = Scene::new("inside-linked-frees");
    let source = "#include <stdlib.h>\n__attribute__((noinline)) void mi_free(void *block) { free(block); }\n\
        void je_other(void) {}\nint main() { for (int i = 0; i < 500; i++) mi_free(malloc(100)); return 0; }";
    let program = scene.compile("cc", "frees", source, &["-O1"]);
    let report = only(same(&program, &[]));
    assert_eq!(report["allocator"], "libc", "{report}");
    assert!(number(&report, "mallocs") >= 500 && number(&report, "frees") >= 500);
}

/// The program that `plimsoll run` starts executes another one.
#[test]
fn an_executed_program_is_examined_as_well() {
    let scene = Scene::new("inside-linked-executed");
    let program = compile(&scene, "executed", "je_", USER, &[]);
    let command = format!("exec {} 100", program.display());
    let output = run(&["--json"], Path::new("/bin/sh"), &["-c", &command]).output();
    let output = output.unwrap();
    let report = only(reports(&output).1);
    assert_eq!(report["allocator"], "redirected", "{report}");
    assert!(number(&report, "mallocs") >= 900);
    // Alone, it works in the same way.
    let alone = Command::new(&program).arg("100").output().unwrap();
    assert!(alone.status.success());
}
