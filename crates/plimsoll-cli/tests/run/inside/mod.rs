//! Allocators inside the program: their functions are redirected, or nothing is changed.

mod linked;
mod programs;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::scene::{PLIMSOLL, Scene, number, only, reports, run, same};

/// An allocator that counts what its callers ask for. Blocks are reused within their sizes.
const ALLOCATOR: &str = include_str!("allocator.c");

/// Compiles the allocator with a program that uses it.
pub fn compile(scene: &Scene, name: &str, user: &str, options: &[&str]) -> PathBuf {
    let source = [ALLOCATOR, user].concat();
    let options = [&["-rdynamic", "-pthread"], options].concat();
    scene.compile("cc", name, &source, &options)
}

/// Runs a program that prints its allocator's totals at the end, and asserts that the report has the
/// same.
fn has_its_totals(program: &Path, options: &[&str], arguments: &[&str]) -> Value {
    let options = [options, &["--json"]].concat();
    let output = run(&options, program, arguments).output().unwrap();
    let (errors, reports) = reports(&output);
    assert!(output.status.success(), "{:?} {errors}", output.status);
    let report = only(reports);
    let said = String::from_utf8_lossy(&output.stdout);
    let said: Vec<u64> = said
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    let [made, made_bytes, freed, freed_bytes] = said[..].try_into().unwrap();
    let counted = ["mallocs", "frees"].map(|name| number(&report, name));
    assert_eq!(counted, [made, freed], "{options:?} {report}");
    let bytes = ["malloc_bytes", "free_bytes"].map(|name| number(&report, name));
    // Sizes from 1 KiB to 32 KiB are counted in classes.
    let classes = report["classes"].as_array().unwrap();
    if classes.iter().all(|class| class[0].as_u64() <= Some(1024)) {
        assert_eq!(bytes, [made_bytes, freed_bytes], "{options:?} {report}");
    } else {
        for (counted, bytes) in bytes.into_iter().zip([made_bytes, freed_bytes]) {
            assert!((bytes..bytes + bytes / 8).contains(&counted), "{report}");
        }
    }
    assert_eq!(report["allocator"], "redirected");
    assert_eq!(report["obstacle"], Value::Null);
    assert_eq!(report["exact"], true);
    report
}

/// Uses every function, on several threads; the first blocks are older than `main`.
const USES_ALL: &str = r#"
#include <pthread.h>
#include <sys/wait.h>
extern void *early[10];
void free_early(void);
static void *mine[10];
static void before(void) { for (int i = 0; i < 10; i++) mine[i] = malloc(1000); }
static void first(void) { mine[9] = malloc(77); }
__attribute__((section(".preinit_array"))) static void (*preinit)(void) = first;
__attribute__((constructor(101))) static void constructor(void) { free(mine[9]); before(); }
static void *work(void *number) {
    void *kept = 0;
    for (size_t i = 0; i < 3000; i++) {
        size_t size = (i * 37 + (size_t)number) % 5000, align = 16 << (i % 9);
        char *block = malloc(size), *other;
        memset(block, 1, size);
        block = realloc(block, size * 2 + 1);
        if (block[0] != (size ? 1 : block[0])) abort();
        free(block);
        if (posix_memalign((void **)&other, align, size) || (uintptr_t)other % align) abort();
        memset(other, 2, size);
        free(other);
        free(aligned_alloc(align, size));
        free(memalign(align, size));
        free(valloc(size));
        block = calloc(size, 3);
        for (size_t i = 0; i < size * 3; i++) if (block[i]) abort();
        free(block);
        free(realloc(0, size));
        free(0);
        if (i % 100 == 0) { void *new = malloc(100000 + i); free(kept); kept = new; }
    }
    if (malloc((size_t)1 << 50) || calloc((size_t)1 << 50, 1 << 20)) abort();
    return kept;
}
int main(int count, char **arguments) {
    pthread_t threads[3];
    free_early();
    for (int i = 0; i < 10; i++) free(mine[i]);
    for (size_t i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < 3; i++) { void *kept; pthread_join(threads[i], &kept); if (i) free(kept); }
    void *inherited = malloc(500);
    if (count > 1) {
        int child = fork();
        if (!child) {
            free(inherited);
            for (int i = 0; i < 1000; i++) { void *block = malloc(200); if (i % 2) free(block); }
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status) abort();
    }
    say();
    return 0;
}
"#;

fn uses_all(scene: &Scene) -> PathBuf {
    let library = scene.compile(
        "cc",
        "libearly.so",
        "#include <stdlib.h>
        void *early[10];
        __attribute__((constructor)) static void allocate(void) {
            for (int i = 0; i < 10; i++) early[i] = realloc(malloc(50), 200 + i);
        }
        void free_early(void) { for (int i = 0; i < 10; i++) free(early[i]); }",
        &["-shared", "-fPIC"],
    );
    let path = format!("-Wl,-rpath,{}", scene.directory.to_str().unwrap());
    compile(scene, "all", USES_ALL, &[library.to_str().unwrap(), &path])
}

#[test]
fn every_block_of_an_allocator_inside_the_program_is_counted() {
    let scene = Scene::new("inside-all");
    let program = uses_all(&scene);
    for rate in ["0", "512k", "1000", "1"] {
        let report = has_its_totals(&program, &["--heap-rate", rate], &[]);
        assert!(number(&report, "mallocs") > 60_000, "{report}");
        assert!(number(&report, "threads") >= 4);
    }
    has_its_totals(&program, &[], &["fork"]);
    let output = run(&[], &program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let note = "the heap belongs to its own malloc (exported), inside the program";
    assert!(text.contains(note), "{text}");
    assert!(!text.contains("not observed"), "{text}");
}

/// Programs at a fixed address, with an instruction for indirect calls at the start of functions,
/// with frame pointers, and without optimization.
#[test]
fn functions_of_other_forms_are_redirected() {
    let scene = Scene::new("inside-forms");
    let user = "int main() { for (int i = 0; i < 450; i++) free(realloc(malloc(i), 2 * i)); free(malloc(100000)); say(); return 0; }";
    for (name, options) in [
        ("fixed", &["-no-pie", "-fno-pie"][..]),
        ("branches", &["-fcf-protection=full"]),
        ("frames", &["-fno-omit-frame-pointer"]),
        ("plain", &["-O0"]),
        ("fast", &["-O3"]),
        ("old-hash", &["-Wl,--hash-style=both", "-Wl,-z,lazy"]),
    ] {
        let program = compile(&scene, name, user, options);
        has_its_totals(&program, &["--heap-rate", "100"], &[]);
        only(same(&program, &[]));
    }
    let jump = r#"asm(".globl malloc\n.type malloc,@function\nmalloc: jmp *next(%rip)\n.size malloc,.-malloc\n.data\nnext: .quad other\n.text\n");static void *other(size_t size) __asm__("other");__attribute__((used)) static void *other(size_t size) { return place(16, size); }"#;
    let source = format!("#define MALLOC\n{ALLOCATOR}\n{jump}\n{user}");
    let program = scene.compile("cc", "jump", &source, &["-rdynamic"]);
    has_its_totals(&program, &["--heap-rate", "100"], &[]);
}

#[test]
fn a_forked_child_reports_what_it_allocates() {
    let scene = Scene::new("inside-fork");
    let program = uses_all(&scene);
    let output = run(&["--json", "--children"], &program, &["fork"]).output();
    let all = reports(&output.unwrap()).1;
    assert_eq!(all.len(), 2, "{all:?}");
    let child = all.iter().find(|report| !report["inherited"].is_null());
    let child = child.unwrap();
    let counts = ["mallocs", "frees", "malloc_bytes"].map(|name| number(child, name));
    assert_eq!(counts, [1000, 501, 208_000], "{child}");
}

/// The program is executed by another, whose allocator is the C library's.
#[test]
fn an_executed_program_is_redirected_as_well() {
    let scene = Scene::new("inside-exec");
    let program = uses_all(&scene);
    let command = format!("{0}; {0}", program.display());
    let output = run(&["--json", "--children"], "/bin/sh", &["-c", &command]).output();
    let all = reports(&output.unwrap()).1;
    let of = |name: &str| {
        let is_it = |report: &&Value| report["allocator"] == name;
        all.iter().filter(is_it).count()
    };
    assert_eq!(of("redirected"), 2, "{all:?}");
}

/// Code that no hook sees frees and replaces blocks, as an inlined copy of `free` does: sampled blocks
/// are in the program's allocator, too.
#[test]
fn blocks_may_be_freed_by_code_that_is_not_redirected() {
    let scene = Scene::new("inside-unseen");
    let user = r#"
        int main() {
            for (int i = 0; i < 20000; i++) {
                char *block = i % 3 ? malloc(i % 3000) : calloc(i % 3000, 1);
                memset(block, i, i % 3000);
                if (i % 7 == 0) block = realloc(block, 4000);
                release(block);
                block = place(16, i % 2000);
                if (i % 5 == 0) { char *moved = realloc(block, 100); block = moved; }
                free(block);
            }
            write(1, "works\n", 6);
            return 0;
        }"#;
    let program = compile(&scene, "unseen", user, &[]);
    for rate in ["1", "1000", "512k"] {
        let output = run(&["--json", "--heap-rate", rate], &program, &[]).output();
        let output = output.unwrap();
        assert_eq!(output.stdout, b"works\n", "{:?}", output.status);
        let report = only(reports(&output).1);
        assert_eq!(report["allocator"], "redirected");
        assert!(number(&report, "mallocs") >= 20_000, "{report}");
    }
}

/// Chromium's allocator locks itself around forks, before the handlers of libraries that were loaded earlier. Those must not
/// call functions of the C library that allocate.
#[test]
fn an_allocator_may_lock_itself_around_forks() {
    let scene = Scene::new("inside-forks");
    let user = r#"
        #include <pthread.h>
        #include <signal.h>
        #include <sys/prctl.h>
        #include <sys/wait.h>
        int main() {
            /* A handler that waits may have blocked all signals. */
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            pthread_atfork(enter, leave, leave);
            for (int i = 0; i < 3; i++) {
                pid_t child = fork();
                if (!child) { for (int j = 0; j < 1000; j++) free(malloc(j)); return 0; }
                int status;
                if (waitpid(child, &status, 0) != child || status) abort();
            }
            return 0;
        }"#;
    let program = compile(&scene, "forks", user, &[]);
    let options = ["--json", "--children", "--heap-rate", "1000"];
    for more in [&[][..], &["--postmortem"], &["--wall", "--cpu"]] {
        let output = Command::new("timeout")
            .args(["-s", "KILL", "60", PLIMSOLL, "run"])
            .args([&options, more].concat())
            .arg("--")
            .arg(&program)
            .current_dir(&scene.directory)
            .output()
            .unwrap();
        let (errors, reports) = reports(&output);
        assert!(
            output.status.success(),
            "{more:?}: {:?} {errors}",
            output.status
        );
        assert_eq!(reports.len(), 4, "{more:?}: {errors}");
    }
}

/// Sites are the callers of the program's functions.
#[test]
fn sites_are_the_callers_of_the_redirected_functions() {
    let scene = Scene::new("inside-sites");
    let user = r#"
        __attribute__((noinline)) char *hoard(void) { char *block = malloc(2000); return block + 1 - 1; }
        __attribute__((noinline)) char *grow(char *block) { block = realloc(block, 9000); return block + 1 - 1; }
        int main() {
            for (int i = 0; i < 300; i++) hoard();
            for (int i = 0; i < 100; i++) grow(malloc(8));
            return 0;
        }"#;
    let program = compile(&scene, "sites", user, &[]);
    let output = run(&["--heap-rate", "1"], &program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let at_exit = |site| crate::table::row(&text, site).cell("at exit").to_owned();
    assert_eq!(at_exit("grow < main"), "925.0 KiB", "{text}");
    assert_eq!(at_exit("hoard < main"), "600.0 KiB", "{text}");
}

/// Runs a program that must work as without; returns the obstacle.
fn obstacle(program: &Path) -> String {
    let report = only(same(program, &[]));
    assert_eq!(report["allocator"], "program", "{report}");
    let output = run(&[], program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let obstacle = report["obstacle"].as_str().unwrap().to_owned();
    let line = "heap       not observed: allocations go to its own malloc (exported), which is not redirected: ";
    assert!(text.contains(&format!("{line}{obstacle}; ")), "{text}");
    obstacle
}

/// A program that prints a text if its allocator works.
const SMALL: &str = r#"
    int main() {
        for (int i = 0; i < 1000; i++) {
            char *block = malloc(i + 1);
            memset(block, i, i + 1);
            block = realloc(block, 2000);
            if (block[i] != (char)i) return 1;
            free(block);
        }
        write(1, "works\n", 6);
        return 0;
    }"#;

#[test]
fn functions_that_cannot_be_displaced_are_left_alone() {
    let scene = Scene::new("inside-obstacles");
    for (name, function, obstacle_of) in [
        (
            "jump",
            r#"-DMALLOC=asm(".globl malloc\n.type malloc,@function\nmalloc: cld\njmp *next(%rip)\n.size malloc,.-malloc\n.data\nnext: .quad other\n.text\n");static void *other(size_t size) __asm__("other");__attribute__((used)) static void *other(size_t size) { return place(16, size); }"#,
            "malloc begins with instructions that cannot be moved (fc ff 25 ",
        ),
        (
            "chained",
            r#"-DMALLOC=asm(".globl malloc\n.type malloc,@function\nmalloc: push %rbp\npop %rbp\njmp 1f\n1: jmp other\n.size malloc,.-malloc\n");__attribute__((used)) static void *other(size_t size) __asm__("other");static void *other(size_t size) { return place(16, size); }"#,
            "malloc begins with instructions that cannot be moved (55 5d eb ",
        ),
        (
            "short",
            r#"-DFREE=asm(".globl free\n.type free,@function\nfree: ret\n.size free,.-free\n");"#,
            "free is too short to be redirected",
        ),
        (
            "unsized",
            r#"-DFREE=asm(".globl free\n.type free,@function\nfree: xor %eax,%eax\nnopl 64(%rax)\nret\n");"#,
            "free is not in the program's code",
        ),
        (
            "loop",
            r#"-DFREE=asm(".globl free\n.type free,@function\nfree: mov $3,%al\nagain: sub $1,%eax\ncmp $0,%al\njne again\nret\n.size free,.-free\n");"#,
            "free has a branch into its first instructions",
        ),
        (
            "shared",
            r#"-DFREE=void free(void *block) { release(block); } void *reallocarray(void *, size_t, size_t) __attribute__((alias("free")));"#,
            "reallocarray is the same as a function of another type",
        ),
    ] {
        // A macro of the source, in place of an option with quotes.
        let (defined, text) = function
            .strip_prefix("-D")
            .unwrap()
            .split_once('=')
            .unwrap();
        let source = format!("#define {defined}\n{ALLOCATOR}\n{text}\n{SMALL}");
        let program = scene.compile("cc", name, &source, &["-rdynamic"]);
        let found = obstacle(&program);
        assert!(found.starts_with(obstacle_of), "{name}: {found}");
    }
}

/// Each function that was changed before the obstacle works as before, too: none is changed.
#[test]
fn a_system_without_changes_of_code_leaves_the_program_alone() {
    let scene = Scene::new("inside-mdwe");
    let program = compile(&scene, "denied", SMALL, &[]);
    let mut command = Command::new(PLIMSOLL);
    command.args(["run", "--json", "--"]).arg(&program);
    // SAFETY: `prctl` is safe between fork and exec.
    unsafe {
        command.pre_exec(|| {
            const PR_SET_MDWE: i32 = 65;
            match libc::prctl(PR_SET_MDWE, 1, 0, 0, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return plimsoll_testkit::skip!("the kernel has no PR_SET_MDWE: {error}"),
    };
    assert_eq!(output.stdout, b"works\n");
    let report = only(reports(&output).1);
    assert_eq!(report["allocator"], "program");
    assert_eq!(
        report["obstacle"],
        "no executable memory was available near the program"
    );
}

/// The allocator lacks this function of the C library, which calls the program's `realloc`.
#[test]
fn a_function_that_the_allocator_lacks_uses_its_other_functions() {
    let user = r#"
        int main() {
            char *block = malloc(10);
            for (int i = 0; i < 100; i++) { block = reallocarray(block, i + 1, 100); block[i * 100] = 1; }
            free(block);
            say();
            return 0;
        }"#;
    let scene = Scene::new("inside-lacks");
    let program = compile(&scene, "lacks", user, &["-D_GNU_SOURCE"]);
    let report = has_its_totals(&program, &[], &[]);
    assert_eq!(number(&report, "mallocs"), 101);
    // The same without redirection.
    let short = r#"asm(".globl free\n.type free,@function\nfree: ret\n.size free,.-free\n");"#;
    let source = format!("#define FREE\n#define _GNU_SOURCE\n{ALLOCATOR}\n{short}\n{user}");
    let program = scene.compile("cc", "short", &source, &["-rdynamic"]);
    assert!(obstacle(&program).starts_with("free is too short"));
}

/// Operators of C++ in the program: those that call `malloc` and `free` are counted once, and those
/// that are `free` under another name are counted, too. Exceptions pass through a hook.
#[test]
fn operators_of_the_program_are_counted_once() {
    let allocator = ALLOCATOR
        .replace("unsigned long made", "extern \"C\" {\nunsigned long made")
        .replace("at = mmap", "at = (char *)mmap")
        .replace(
            "size_of(block);\n    memcpy",
            "size_of((char *)block);\n    memcpy",
        )
        .replace(
            "release(block);\n    return moved",
            "release((char *)block);\n    return moved",
        )
        .replace("{ release(block); }", "{ release((char *)block); }")
        .replace("? size_of(block) : 0", "? size_of((char *)block) : 0");
    let calling = r#"
        void *operator new(size_t size) { void *block = malloc(size); if (!block) throw std::bad_alloc(); return block; }
        void operator delete(void *block) noexcept { free(block); }
        void operator delete(void *block, size_t) noexcept { free(block); }"#;
    let same = r#"
        ALONE void *operator new(size_t size) { return place(16, size); }
        void operator delete(void *block) noexcept __attribute__((alias("free")));
        ALONE void operator delete(void *block, size_t) noexcept { release((char *)block); }"#;
    let other = r#"
        void *operator new(size_t size) { return (char *)place(16, size + 16) + 16; }
        void operator delete(void *block) noexcept { if (block) release((char *)block - 16); }
        void operator delete(void *block, size_t) noexcept { if (block) release((char *)block - 16); }"#;
    let user = r#"
        int main() {
            for (int i = 0; i < 1000; i++) { delete new int[2]; int *one = new int(i); delete one; free(malloc(i)); }
            for (int i = 0; i < 3 * THROWS; i++) {
                try { delete (char *)operator new((size_t)1 << 50); } catch (std::bad_alloc &) { free(malloc(1)); }
            }
            say();
            return 0;
        }"#;
    let scene = Scene::new("inside-operators");
    for (name, operators) in [("calling", calling), ("same", same), ("other", other)] {
        let throws = i32::from(name != "same");
        let source = format!(
            "#define THROWS {throws}\n{allocator}\n}}\n#include <new>\n{operators}\n{user}"
        );
        let options = [
            "-rdynamic",
            "-fpermissive",
            "-fno-exceptions",
            "-fexceptions",
        ];
        let program = scene.compile("c++", name, &source, &options);
        if name == "other" {
            let found = obstacle(&program);
            assert_eq!(found, "_Znwm may free memory without calling free");
        } else {
            for rate in ["0", "100"] {
                has_its_totals(&program, &["--heap-rate", rate], &[]);
            }
        }
    }
}

/// A program that is killed has its counts.
#[test]
fn a_killed_program_has_the_counts_of_its_allocator() {
    let scene = Scene::new("inside-killed");
    let user = "#include <signal.h>
        int main() { for (int i = 0; i < 1000; i++) malloc(1000); raise(SIGKILL); return 0; }";
    let program = compile(&scene, "killed", user, &[]);
    let output = run(&["--postmortem"], &program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("in 1,000 blocks"), "{text}");
    assert!(text.contains("its functions are redirected"), "{text}");
    assert!(!text.contains("not observed"), "{text}");
}
