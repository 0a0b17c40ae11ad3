//! The counts equal the program's operations exactly.

use std::process::Command;

use crate::scene::{Scene, number, only, run, same, same_with};

/// A deterministic program: every function, sizes of all classes, large and refused requests.
pub const DETERMINISTIC: &str = r#"
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static uint64_t state = 88172645463325252ull;
static uint64_t next(void) { state ^= state << 13; state ^= state >> 7; state ^= state << 17; return state; }
static void *blocks[1000];
int main(int count, char **arguments) {
    setvbuf(stdout, 0, _IONBF, 0);
    for (int i = 0; i < 200000; i++) {
        void **at = blocks + next() % 1000;
        size_t size = 1 + (next() % 100 ? next() % 600 : next() % 300000);
        switch (next() % 10) {
        case 0: free(*at); *at = calloc(1 + next() % 3, size); break;
        case 1: case 2: case 3: *at = realloc(*at, size + 1); break;
        case 4: free(*at); *at = memalign(64, size); break;
        case 5: free(*at); if (posix_memalign(at, 4096, size)) *at = 0; break;
        case 6: free(*at); *at = 0; break;
        default: free(*at); *at = malloc(size);
        }
        if (*at) memset(*at, i, malloc_usable_size(*at) < size ? 0 : size);
    }
    for (int i = 0; i < 1000; i += 2) { free(blocks[i]); blocks[i] = 0; }
    puts("done");
    return 0;
}
"#;

/// Compares with valgrind, which also counts calls and bytes.
#[test]
fn calls_and_bytes_equal_valgrinds_counts() {
    let Ok(version) = Command::new("valgrind").arg("--version").output() else {
        plimsoll_testkit::skip!("valgrind is not installed");
        return;
    };
    assert!(version.status.success());
    let scene = Scene::new("valgrind");
    let program = scene.c("deterministic", DETERMINISTIC);
    let report = only(same(&program, &[]));
    let valgrind = Command::new("valgrind")
        .args(["--run-libc-freeres=no", "--run-cxx-freeres=no"])
        .arg(&program)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&valgrind.stderr);
    let line = text
        .lines()
        .find(|line| line.contains("total heap usage:"))
        .expect("its summary");
    let numbers: Vec<u64> = line
        .split("total heap usage:")
        .nth(1)
        .unwrap()
        .replace(',', "")
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let ours = ["mallocs", "frees", "asked_bytes"].map(|name| number(&report, name));
    assert_eq!(ours.to_vec(), numbers, "{line}");
}

/// The exact figures are the same with every allocation sampled and with none.
#[test]
fn sampling_changes_no_exact_figure() {
    let scene = Scene::new("sampling");
    let program = scene.c("deterministic", DETERMINISTIC);
    let figures = |rate: &str| {
        let output = run(&["--json", "--heap-rate", rate], &program, &[])
            .output()
            .unwrap();
        let report = only(crate::scene::reports(&output).1);
        assert_eq!(number(&report, "untracked"), 0, "{rate}");
        ["mallocs", "frees", "asked_bytes"].map(|name| number(&report, name))
    };
    let expected = figures("0");
    for rate in ["1", "1000", "512k"] {
        assert_eq!(figures(rate), expected, "{rate}");
    }
}

/// With every allocation sampled, the profile is exact: it shows the blocks in use.
#[test]
fn a_profile_of_everything_agrees_with_the_figures() {
    let scene = Scene::new("everything");
    let program = scene.c("deterministic", DETERMINISTIC);
    let out = scene.path("out");
    let output = run(
        &["--json", "--heap-rate", "1", "--out", out.to_str().unwrap()],
        &program,
        &[],
    )
    .output()
    .unwrap();
    let report = only(crate::scene::reports(&output).1);
    let file = std::fs::File::open(out.join("heap.pb.gz")).unwrap();
    let profile = plimsoll_command::profile::read(file, Default::default()).unwrap();
    let sum = |name: &str| -> i64 {
        let at = profile.sample_type(name).unwrap();
        profile.samples().map(|sample| sample.value(at)).sum()
    };
    let about = |sampled: i64, exact: u64, slack: u64| {
        let sampled = sampled.unsigned_abs();
        assert!(exact.abs_diff(sampled) <= slack, "{sampled} for {exact}");
    };
    about(sum("alloc_objects"), number(&report, "mallocs"), 0);
    about(
        sum("inuse_objects"),
        number(&report, "mallocs") - number(&report, "frees"),
        0,
    );
    let live = number(&report, "malloc_bytes") - number(&report, "free_bytes");
    // The profile counts a block by the size that the allocator would choose. The block is larger
    // if the allocator made it from a larger remainder.
    about(sum("inuse_space"), live, live / 50);
}

/// Blocks of zero bytes are blocks, too: the allocator makes them of its smallest size.
#[test]
fn a_profile_of_everything_has_blocks_of_zero_bytes() {
    let scene = Scene::new("zero-bytes");
    let source = r#"
        #include <stdlib.h>
        static void *volatile kept[40];
        int main() {
            for (int i = 0; i < 10; i++) kept[i] = malloc(0);
            for (int i = 10; i < 30; i++) kept[i] = calloc(0, 8);
            for (int i = 30; i < 40; i++) free(malloc(0));
            return 0;
        }
    "#;
    let program = scene.compile("cc", "zero", source, &["-fno-builtin"]);
    let out = scene.path("out");
    let options = ["--json", "--heap-rate", "1", "--out", out.to_str().unwrap()];
    let output = run(&options, &program, &[]).output().unwrap();
    let report = only(crate::scene::reports(&output).1);
    assert_eq!(number(&report, "mallocs"), 40, "{report}");
    let file = std::fs::File::open(out.join("heap.pb.gz")).unwrap();
    let profile = plimsoll_command::profile::read(file, Default::default()).unwrap();
    let sum = |name: &str| -> i64 {
        let at = profile.sample_type(name).unwrap();
        profile.samples().map(|sample| sample.value(at)).sum()
    };
    assert_eq!([sum("alloc_objects"), sum("inuse_objects")], [40, 30]);
}

/// A library that binds `malloc` to the C library makes blocks that the program frees.
#[test]
fn memory_in_use_is_unknown_after_frees_of_unobserved_blocks() {
    let scene = Scene::new("unobserved");
    let source = r#"
        #include <stdlib.h>
        extern void *__libc_malloc(size_t);
        int main() {
            for (int i = 0; i < 100; i++) { free(__libc_malloc(500)); }
            return malloc(50000) == 0;
        }
    "#;
    let program = scene.c("unobserved", source);
    let output = run(&["--heap-rate", "1"], &program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("\n  heap       unknown: at least 100 blocks were freed whose allocations"),
        "{text}"
    );
    assert!(
        text.contains("blocks of unobserved allocations included"),
        "{text}"
    );
}

/// The first calls of each thread are refused; then the thread allocates once. The profile shows
/// that.
#[test]
fn the_first_block_of_each_thread_is_sampled() {
    let scene = Scene::new("first");
    let program = scene.c(
        "first",
        r#"
        #include <pthread.h>
        #include <stdint.h>
        #include <stdlib.h>
        static void *once(void *number) {
            size_t sizes[] = {((size_t)1 << 62) + 1, SIZE_MAX / 2, SIZE_MAX / 2 + 1, SIZE_MAX - 8, SIZE_MAX};
            size_t size = sizes[(size_t)number % 5];
            if ((size_t)number % 2 && malloc(size)) abort();
            if ((size_t)number % 3 == 1 && calloc(1, size)) abort();
            if ((size_t)number % 3 == 2 && realloc(0, size)) abort();
            return malloc(50001);
        }
        int main() {
            for (size_t number = 0; number < 200; number++) {
                pthread_t thread;
                void *block, *larger;
                if (pthread_create(&thread, 0, once, (void *)number)) abort();
                pthread_join(thread, &block);
                if (realloc(block, SIZE_MAX / 2)) abort();
            }
            return 0;
        }"#,
    );
    let out = scene.path("out");
    let options = ["--json", "--heap-rate", "1", "--out", out.to_str().unwrap()];
    let output = run(&options, &program, &[]).output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    let report = only(crate::scene::reports(&output).1);
    let file = std::fs::File::open(out.join("heap.pb.gz")).unwrap();
    let profile = plimsoll_command::profile::read(file, Default::default()).unwrap();
    let sum = |name: &str| -> i64 {
        let at = profile.sample_type(name).unwrap();
        profile.samples().map(|sample| sample.value(at)).sum()
    };
    assert_eq!(sum("alloc_objects") as u64, number(&report, "mallocs"));
    assert!(sum("inuse_space") > 200 * 50_001, "{report}");
}

#[test]
fn the_peak_is_the_highest_use() {
    let scene = Scene::new("peak");
    let program = scene.c(
        "peak",
        r#"
        #include <stdlib.h>
        static void *blocks[64];
        int main() {
            for (int i = 0; i < 64; i++) blocks[i] = malloc(1 << 20);
            for (int i = 0; i < 64; i++) free(blocks[i]);
            for (int i = 0; i < 32; i++) blocks[i] = malloc(1 << 20);
            return 0;
        }"#,
    );
    let report = only(same(&program, &[]));
    let peak = number(&report, "peak_bytes");
    // Each block adds a page. The peak is read when a block is sampled, with a probability of six
    // in seven. None of the last twelve is sampled in one of about 10^10 runs.
    assert!((52 << 20..=65 << 20).contains(&peak), "{peak}");
    let live = number(&report, "malloc_bytes") - number(&report, "free_bytes");
    assert!((32 << 20..=33 << 20).contains(&live), "{live}");
}

/// A stack of 300 frames; a child that frees what its parent allocated.
const DEEP: &str = r#"
    #include <stdlib.h>
    #include <string.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void *kept[1000];
    __attribute__((noinline)) static int deep(int frames) {
        if (frames) return deep(frames - 1) + 1;
        for (int i = 0; i < 1000; i++) kept[i] = memset(malloc(10000), 1, 10000);
        return 0;
    }
    int main() {
        volatile int frames = deep(300);
        if (!fork()) {
            free(malloc(1000));
            for (int i = 0; i < 1000; i++) free(kept[i]);
            _exit(0);
        }
        wait(0);
        return frames != 300;
    }
"#;

#[test]
fn stacks_that_are_deeper_than_the_maximum_are_counted() {
    let scene = Scene::new("deep-stacks");
    let program = scene.compile("cc", "deep", DEEP, &["-fno-optimize-sibling-calls", "-O0"]);
    let report = only(same_with(&["--heap-rate", "1"], &program, &[]));
    let shortened = number(&report, "shortened_stacks");
    // Each of the 1,000 blocks, and no other event.
    assert!((1000..=1010).contains(&shortened), "{shortened}");
    assert_eq!(number(&report, "cut_stacks"), 0);
    let run = run(&["--heap-rate", "1"], &program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&run.stderr);
    assert!(
        text.contains("parts of stacks beyond the maximum depth"),
        "{text}"
    );
}

#[test]
fn no_share_above_all_is_freed() {
    let scene = Scene::new("freed-share");
    let program = scene.compile("cc", "deep", DEEP, &[]);
    let run = run(&["--children"], &program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&run.stderr);
    assert!(text.contains(" freed, inherited blocks included"), "{text}");
    for line in text.lines().filter(|line| line.contains(" % freed")) {
        let share = line.rsplit(' ').nth(2).unwrap();
        assert!(share.parse::<f64>().unwrap() <= 100.0, "{line}");
    }
}

#[test]
fn a_program_has_the_name_by_which_it_was_executed() {
    let scene = Scene::new("hard-link");
    let program = scene.compile("cc", "one-name", "int main() { return 0; }", &[]);
    let [other, link] = ["another-name", "a-link"].map(|name| scene.path(name));
    std::fs::hard_link(&program, &other).unwrap();
    std::os::unix::fs::symlink(&program, &link).unwrap();
    for path in [&program, &other, &link] {
        let directory = path.parent().unwrap().canonicalize().unwrap();
        let executed = directory.join(path.file_name().unwrap());
        let report = only(same_with(&[], path, &[]));
        assert_eq!(report["program"], executed.to_str().unwrap());
    }
}
