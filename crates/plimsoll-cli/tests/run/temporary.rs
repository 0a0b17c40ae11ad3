//! Temporary blocks: freed by their thread before its next allocation.

use std::process::Command;

use crate::scene::{Scene, run};
use crate::table;

/// Each function allocates 100 blocks, unless its comment says more.
const KINDS: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define SITE __attribute__((noinline))
#define EACH for (int i = 0; i < 100; i++)
#define MAKES(name, call) SITE char *name(void) { char *block = call; return block + 1 - 1; }
MAKES(plain, malloc(100))
MAKES(large, malloc(100000))
MAKES(zeroed, calloc(3, 50))
MAKES(aligned, aligned_alloc(64, 128))
MAKES(older, malloc(40))
MAKES(newer, malloc(40))
MAKES(beside_nothing, malloc(70))
MAKES(begun, malloc(30))
MAKES(resized_away, malloc(30))
MAKES(passed, malloc(50))
MAKES(born, malloc(60))
MAKES(reborn, malloc(60))
MAKES(threaded, malloc(64))
MAKES(kept, malloc(20))
SITE char *grown(char *block) { char *more = realloc(block, 3000); return more + 1 - 1; }
static sem_t go, gone;
static char *volatile handed;
static volatile int is_recycling, at_same_address;
static char *all_kept[100];
static void *partner(void *nothing) {
    for (;;) {
        sem_wait(&go);
        char *block = handed;
        if (!block) return 0;
        free(block);
        if (is_recycling) { handed = reborn(); at_same_address += handed == block; }
        sem_post(&gone);
    }
}
static void *worker(void *nothing) { for (int i = 0; i < 1000; i++) free(threaded()); return 0; }
int main() {
    EACH free(plain());
    EACH free(large());
    EACH free(zeroed());
    EACH free(aligned());
    EACH { char *first = older(), *second = newer(); free(first); free(second); }
    EACH { char *block = beside_nothing(), *nothing = malloc(0); free(block); free(nothing); }
    EACH free(grown(begun()));
    EACH { char *volatile none = realloc(resized_away(), 0); }
    EACH all_kept[i] = kept();
    sem_init(&go, 0, 0);
    sem_init(&gone, 0, 0);
    pthread_t threads[4];
    pthread_create(threads, 0, partner, 0);
    EACH { handed = passed(); sem_post(&go); sem_wait(&gone); }
    is_recycling = 1;
    EACH { handed = born(); sem_post(&go); sem_wait(&gone); free(handed); }
    handed = 0;
    sem_post(&go);
    pthread_join(threads[0], 0);
    for (int i = 0; i < 4; i++) pthread_create(threads + i, 0, worker, 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    printf("%d\n", at_same_address);
    EACH free(all_kept[i]);
    return 0;
}
"#;

/// Returns the number of temporary blocks of a function.
fn temporary(text: &str, function: &str) -> u64 {
    let rows = table::rows(text).into_iter();
    let mut found = rows
        .filter(|row| table::without_positions(&row.site).starts_with(&format!("{function} <")));
    found.next().map_or(0, |row| row.number("temporary") as u64)
}

#[test]
fn exactly_the_blocks_freed_before_the_next_allocation_are_temporary() {
    let scene = Scene::new("temporary");
    let program = scene.c("kinds", KINDS);
    let output = run(&["--heap-rate", "1", "--sites", "100"], &program, &[])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    // The addresses must be equal for the test of `reborn` to mean something.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "100\n");
    for (function, expected) in [
        ("plain", 100),
        ("large", 100),
        ("zeroed", 100),
        ("aligned", 100),
        ("older", 0),
        ("newer", 100),
        // Where every block is sampled, one of zero bytes is an allocation as any other.
        ("beside_nothing", 0),
        // The contents of a block that `realloc` replaces live on.
        ("begun", 0),
        ("grown", 100),
        ("resized_away", 100),
        ("kept", 0),
        ("passed", 0),
        ("born", 0),
        ("reborn", 0),
        ("threaded", 4000),
    ] {
        assert_eq!(temporary(&text, function), expected, "{function} in {text}");
    }
    let plain = format!("plain ({}/kinds.c:11) < ", scene_name(&scene));
    let rows = table::rows(&text);
    assert!(
        rows.iter().any(|row| row.site.starts_with(&plain)),
        "{text}"
    );
}

fn scene_name(scene: &Scene) -> String {
    let name = scene.directory.file_name().unwrap();
    name.to_string_lossy().into_owned()
}

const SHARE: &str = r#"
#include <stdlib.h>
#define SITE __attribute__((noinline))
SITE char *brief(void) { char *block = malloc(100); return block + 1 - 1; }
SITE char *lasting(int size) { char *block = malloc(size); return block + 1 - 1; }
int main(int count, char **arguments) {
    static char *kept[1000];
    int blocks = atoi(arguments[1]), per_cent = atoi(arguments[2]), step = count > 3 ? 8 : 0;
    for (int i = 0; i < blocks; i++) {
        if (i % 100 < per_cent) { free(brief()); continue; }
        free(kept[i % 1000]);
        kept[i % 1000] = lasting(100 + step * (i % 7));
    }
    return 0;
}
"#;

/// Returns the shares of blocks and of bytes in per cent, each with its error.
fn shares(text: &str) -> [[f64; 2]; 2] {
    let line = text.lines().find(|line| line.starts_with("  temporary "));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    let parts = line.split_once("temporary").unwrap().1.split(',');
    let mut shares = parts.map(|part| {
        let number = |text: &str| text.trim().parse().unwrap_or_else(|_| panic!("{line}"));
        let (share, rest) = part.split_once(" %").unwrap();
        let error = rest.trim_start().strip_prefix('±');
        [
            number(share),
            error.map_or(0.0, |error| number(error.split(' ').next().unwrap())),
        ]
    });
    [shares.next().unwrap(), shares.next().unwrap()]
}

#[test]
fn the_share_of_temporary_blocks_is_exact_if_each_is_sampled() {
    let scene = Scene::new("share");
    let program = scene.c("share", SHARE);
    for (per_cent, share) in [("0", 0.0), ("7", 7.0), ("100", 100.0)] {
        let output = run(&["--heap-rate", "1"], &program, &["10000", per_cent])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(shares(&text), [[share, 0.0]; 2], "{text}");
    }
}

/// 10 million blocks of 104 bytes are sampled 1,984 times on average, so the standard deviation of a
/// share of 30 % is 1.03 points. The bound is five of them: an error probability of 6e-7. The stated
/// error is of 95 %.
#[test]
fn the_share_of_temporary_blocks_is_estimated_within_its_error() {
    let scene = Scene::new("share-estimated");
    let program = scene.c("share", SHARE);
    let output = run(&[], &program, &["10000000", "30"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    for [share, error] in shares(&text) {
        assert!((share - 30.0).abs() < 5.0 * 1.03, "{text}");
        assert!((1.7..=2.4).contains(&error), "{text}");
    }
    assert!(temporary(&text, "brief") > 0, "{text}");
}

/// A share of all has no sample of the rest, but its error is not zero.
#[test]
fn a_share_of_all_states_an_error_and_few_samples_no_share() {
    let scene = Scene::new("share-of-all");
    let program = scene.c("share", SHARE);
    let output = run(&[], &program, &["10000000", "100"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    for [share, error] in shares(&text) {
        assert_eq!(share, 100.0, "{text}");
        assert!((0.1..=0.3).contains(&error), "{text}");
    }
    // No block of a hundred is sampled, with a probability of 98 %; five never are.
    let output = run(&[], &program, &["100", "100"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!text.contains("\n  temporary "), "{text}");
}

const FORKS: &str = r#"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) char *inherited(void) { char *block = malloc(100); return block + 1 - 1; }
__attribute__((noinline)) char *own(void) { char *block = malloc(100); return block + 1 - 1; }
int main() {
    for (int i = 0; i < 10; i++) {
        char *block = inherited();
        pid_t child = fork();
        if (child == 0) { free(block); if (i == 9) for (int j = 0; j < 10; j++) free(own()); _exit(0); }
        waitpid(child, 0, 0);
        free(block);
    }
    return 0;
}
"#;

/// The last allocation of a forked child was its parent's.
#[test]
fn a_block_that_a_forked_child_frees_is_not_temporary_there() {
    let scene = Scene::new("temporary-forks");
    let program = scene.c("forks", FORKS);
    let options = ["--heap-rate", "1", "--children", "--each", "--sites", "100"];
    let output = run(&options, &program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let reports: Vec<&str> = text.split("plimsoll: forks (").skip(1).collect();
    assert_eq!(reports.len(), 11, "{text}");
    let of_own: u64 = reports.iter().map(|report| temporary(report, "own")).sum();
    assert_eq!(of_own, 10, "{text}");
    let is_child = |report: &&&str| report.contains("\n  inherited ");
    let children: Vec<_> = reports.iter().filter(is_child).collect();
    assert_eq!(children.len(), 10, "{text}");
    for child in children {
        assert_eq!(temporary(child, "inherited"), 0, "{child}");
    }
}

/// heaptrack counts a free as temporary if the last allocation of any thread had the same stack and
/// size. So the program has one thread, and frees no block after the allocation of another such. The C library's own blocks before `main` may differ: the tolerance is 10 blocks of
/// 37,000.
#[test]
fn heaptrack_counts_the_same_temporary_blocks() {
    if Command::new("heaptrack").arg("--version").output().is_err() {
        return plimsoll_testkit::skip!("heaptrack is not installed");
    }
    let scene = Scene::new("heaptrack");
    let program = scene.c("share", SHARE);
    let arguments = ["100000", "37", "of several sizes"];
    let file = scene.path("recorded");
    let recorded = Command::new("heaptrack")
        .arg("--output")
        .arg(&file)
        .arg(&program)
        .args(arguments)
        .output()
        .unwrap();
    assert!(recorded.status.success(), "{recorded:?}");
    let files = std::fs::read_dir(&scene.directory).unwrap();
    let written = files
        .map(|file| file.unwrap().path())
        .find(|path| path.to_string_lossy().contains("recorded"))
        .unwrap_or_else(|| panic!("{recorded:?}"));
    let printed = Command::new("heaptrack_print").arg(&written).output();
    let printed = String::from_utf8_lossy(&printed.unwrap().stdout).into_owned();
    let line = printed
        .lines()
        .find_map(|line| line.strip_prefix("temporary memory allocations: "))
        .unwrap_or_else(|| panic!("{printed}"));
    let theirs: u64 = line.split(' ').next().unwrap().parse().unwrap();
    let output = run(
        &["--heap-rate", "1", "--sites", "100"],
        &program,
        &arguments,
    )
    .output()
    .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let rows = table::rows(&text);
    let ours: u64 = rows.iter().map(|row| row.number("temporary") as u64).sum();
    assert!(ours.abs_diff(theirs) <= 10, "{ours} and {theirs}: {line}");
    assert!(ours.abs_diff(37_000) <= 10, "{text}");
}
