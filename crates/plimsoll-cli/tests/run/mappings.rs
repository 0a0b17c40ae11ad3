//! Memory that programs map directly: it is counted exactly and attributed to its owner.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::port::Port;
use crate::scene::{PLIMSOLL, Scene, number, only, reports, run, same, same_with};

const PAGE: u64 = 4096;

/// The common part of the programs.
const HEAD: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#define P 4096L
#define RW (PROT_READ | PROT_WRITE)
#define OWN (MAP_PRIVATE | MAP_ANONYMOUS)
static char *pages(long count) {
    char *at = mmap(0, count * P, RW, OWN, -1, 0);
    if (at == MAP_FAILED) { perror("mmap"); exit(9); }
    return at;
}
"#;

fn program(scene: &Scene, name: &str, source: &str) -> std::path::PathBuf {
    scene.c(name, &format!("{HEAD}{source}"))
}

/// Asserts the numbers of calls, mapped pages, unmapped pages and remaining mappings.
#[track_caller]
fn assert_mapped(report: &Value, [calls, mapped, unmapped, left]: [u64; 4]) {
    assert_eq!(
        (
            number(report, "mapping_calls"),
            number(report, "mapped_bytes"),
            number(report, "unmapped_bytes"),
            number(report, "mappings"),
            number(report, "lost_mappings"),
        ),
        (calls, mapped * PAGE, unmapped * PAGE, left, 0),
        "{report}"
    );
}

const EVERY_WAY: &str = r#"
static void early(void) __attribute__((constructor));
static char *from_early;
static void early(void) { from_early = pages(7); memset(from_early, 1, 7 * P); }
int main() {
    char *a = pages(100);
    memset(a, 1, 100 * P);
    munmap(a, 10 * P);
    munmap(a + 90 * P, 10 * P);
    munmap(a + 40 * P, 20 * P);
    /* What is not there any more. */
    munmap(a + 40 * P, 20 * P);
    char *b = mmap64(0, 50 * P + 1, RW, OWN, -1, 0);
    memset(b, 2, 50 * P + 1);
    b = mremap(b, 51 * P, 200 * P, MREMAP_MAYMOVE);
    for (long i = 0; i < 50 * P + 1; i++) if (b[i] != 2) return 1;
    b = mremap(b, 200 * P, 20 * P, 0);
    char *r = mmap(0, 1000 * P, PROT_NONE, OWN | MAP_NORESERVE, -1, 0);
    if (mremap(b, 20 * P, 20 * P, MREMAP_MAYMOVE | MREMAP_FIXED, r + 100 * P) != r + 100 * P) return 2;
    for (long i = 0; i < 20 * P; i++) if (r[100 * P + i] != 2) return 3;
    /* At its beginning, over what was mapped in it, and behind it. */
    mmap(r, 10 * P, RW, OWN | MAP_FIXED, -1, 0);
    mmap(r + 500 * P, 10 * P, RW, OWN | MAP_FIXED, -1, 0);
    mmap(r + 505 * P, 10 * P, RW, OWN | MAP_FIXED, -1, 0);
    /* What is a file's is not counted, and takes the place of what is. */
    mmap(r + 600 * P, 10 * P, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    int file = open("/proc/self/exe", O_RDONLY);
    char *f = mmap(r + 700 * P, P, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0);
    if (f[1] != 'E') return 4;
    char *g = mmap(0, 2 * P, PROT_READ, MAP_PRIVATE, file, 0);
    munmap(g, 2 * P);
    char *s = mmap(0, 2 * P, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    s = mremap(s, 2 * P, 4 * P, MREMAP_MAYMOVE);
    /* What the C library maps is not the program's own. */
    char *large = malloc(10 << 20);
    memset(large, 3, 10 << 20);
    free(large);
    puts("done");
    return 0;
}
"#;

#[test]
fn every_way_to_map_and_unmap_is_counted_exactly() {
    let scene = Scene::new("mapped");
    let program = program(&scene, "every-way", EVERY_WAY);
    let report = only(same(&program, &[]));
    let calls = 1 + 1 + 2 + 1 + 1 + 3 + 3;
    let mapped = 7 + 100 + 51 + 200 + 1000 + 20 + 10 + 10 + 10 + 10 + 2 + 4;
    let of_a = 10 + 10 + 20;
    let of_b = 51 + 180 + 20;
    let of_reserved = 20 + 10 + 10 + 10 + 10 + 1;
    let of_shared = 2;
    // Parts of the reservation before and behind other mappings, the five mappings in it, two parts
    // of the first mapping, the earliest one, and the shared one.
    let left = 5 + 5 + 2 + 1 + 1;
    let unmapped = of_a + of_b + of_reserved + of_shared;
    assert_mapped(&report, [calls, mapped, unmapped, left]);
}

/// Calls that fail, and the calls after them.
const REFUSED: &str = r#"
static void say(const char *what, long result) { printf("%s %ld %s\n", what, result, strerror(errno)); errno = 77; }
int main() {
    errno = 77;
    char *kept = pages(30);
    say("well", kept == MAP_FAILED);
    say("no length", (long)mmap(0, 0, RW, OWN, -1, 0));
    say("no kind", (long)mmap(0, P, RW, MAP_ANONYMOUS, -1, 0));
    say("no file", (long)mmap(0, P, RW, MAP_PRIVATE, 999, 0));
    say("offset", (long)mmap(0, P, RW, MAP_PRIVATE, 0, 100));
    say("too much", (long)mmap(0, 1L << 60, RW, OWN, -1, 0));
    say("wrap", (long)mmap(0, -1L, RW, OWN, -1, 0));
    say("over another", (long)mmap(kept, P, RW, OWN | MAP_FIXED_NOREPLACE, -1, 0));
    say("within a page", munmap(kept + 1, P));
    say("none", munmap(kept, 0));
    say("all", munmap(0, 1L << 62));
    say("beyond", munmap(kept, -P));
    say("no such", munmap((void *)(1L << 50), P));
    say("remap to nothing", (long)mremap(kept, P, 0, 0));
    say("remap within a page", (long)mremap(kept + 1, P, P, 0));
    say("remap flags", (long)mremap(kept, P, P, 1 << 20));
    say("remap to itself", (long)mremap(kept, 4 * P, 4 * P, MREMAP_MAYMOVE | MREMAP_FIXED, kept + P));
    say("remap too much", (long)mremap(kept, 2 * P, 1L << 60, MREMAP_MAYMOVE));
    say("remap without room", (long)mremap(kept, 2 * P, 64 * P, 0));
    say("remap nothing", (long)mremap((void *)(1L << 45), P, 2 * P, MREMAP_MAYMOVE));
    struct rlimit limit = {1 << 20, 1L << 40};
    setrlimit(RLIMIT_AS, &limit);
    say("limit", (long)mmap(0, 1 << 20, RW, OWN, -1, 0));
    say("limit of remap", (long)mremap(kept, 30 * P, 600 * P, MREMAP_MAYMOVE));
    limit.rlim_cur = 1L << 40;
    setrlimit(RLIMIT_AS, &limit);
    memset(kept, 1, 30 * P);
    /* As many as there can be: then a part of one cannot be unmapped. */
    char *many = mmap(0, 140000 * P, PROT_NONE, OWN, -1, 0);
    long at = 0;
    while (at < 140000 && !mprotect(many + at * P, P, RW)) at += 2;
    say("as many as there can be", 0);
    int file = open("/proc/self/exe", O_RDONLY);
    say("part", munmap(kept + 10 * P, P));
    say("part of one that was mapped so", (long)mremap(kept + 10 * P, P, 3 * P, MREMAP_MAYMOVE));
    munmap(many, 140000 * P);
    say("part", munmap(kept + 10 * P, P));
    return 0;
}
"#;

#[test]
fn failing_calls_keep_their_error_and_change_nothing() {
    let scene = Scene::new("refused-maps");
    let program = program(&scene, "refused", REFUSED);
    let report = only(same(&program, &[]));
    let [unmapped, left] = ["unmapped_bytes", "mappings"].map(|name| number(&report, name));
    assert_eq!(number(&report, "mapped_bytes"), (30 + 140_000) * PAGE);
    assert_eq!(number(&report, "mapping_calls"), 2);
    assert_eq!(unmapped, (140_000 + 1) * PAGE, "{report}");
    // A mapping that was restored is a separate record.
    assert!((2..=8).contains(&left), "{report}");
    assert_eq!(number(&report, "lost_mappings"), 0);
}

#[test]
fn threads_that_map_at_once_are_counted_exactly() {
    let scene = Scene::new("mapping-threads");
    let program = program(
        &scene,
        "threads",
        r#"
        static void *work(void *number) {
            for (long i = 0; i < 2000; i++) {
                char *at = pages(20);
                at[0] = at[19 * P] = 1;
                switch (i % 4) {
                case 0: munmap(at, 20 * P); break;
                case 1: munmap(at, 5 * P); munmap(at + 15 * P, 5 * P); munmap(at + 5 * P, 10 * P); break;
                /* Not as a whole: another may have mapped something in the middle. */
                case 2: munmap(at + 5 * P, 10 * P); munmap(at + 15 * P, 5 * P); munmap(at, 5 * P); break;
                case 3: at = mremap(at, 20 * P, 40 * P, MREMAP_MAYMOVE); munmap(at, 40 * P); break;
                }
            }
            return pages(3);
        }
        int main() {
            pthread_t threads[8];
            for (int i = 0; i < 8; i++) pthread_create(threads + i, 0, work, 0);
            for (int i = 0; i < 8; i++) pthread_join(threads[i], 0);
            puts("done");
            return 0;
        }"#,
    );
    let report = only(same(&program, &[]));
    let moved = 8 * 500;
    let pages = 8 * 2000 * 20 + moved * 40;
    assert_mapped(&report, [8 * 2000 + moved + 8, pages + 24, pages, 8]);
}

#[test]
fn signal_handlers_may_map_at_any_time() {
    let scene = Scene::new("mapping-handlers");
    let program = program(
        &scene,
        "handlers",
        r#"
        static volatile int handled;
        static void handle(int _) {
            if (handled == 2000) return;
            int before = errno;
            char *at = pages(3);
            at[0] = 1;
            munmap(at + P, P);
            munmap(at, 3 * P);
            errno = before;
            handled++;
        }
        int main() {
            signal(SIGALRM, handle);
            struct itimerval often = {{0, 50}, {0, 50}};
            setitimer(ITIMER_REAL, &often, 0);
            for (int i = 0; i < 20000 || handled < 2000; i++) {
                if (i >= 20000) { pause(); continue; }
                errno = 5;
                char *at = pages(5);
                if (munmap(at, 5 * P) || errno != 5) return 1;
            }
            struct itimerval never = {};
            setitimer(ITIMER_REAL, &never, 0);
            puts("done");
            return 0;
        }"#,
    );
    let report = only(same(&program, &[]));
    let pages = 20_000 * 5 + 2000 * 3;
    assert_mapped(&report, [22_000, pages, pages, 0]);
}

#[test]
fn a_forks_child_counts_its_own_mappings() {
    let scene = Scene::new("mapping-forks");
    let program = program(
        &scene,
        "forks",
        r#"
        int main() {
            char *a = pages(10), *b = pages(20);
            memset(a, 1, 10 * P);
            if (!fork()) {
                munmap(a, 10 * P);
                munmap(b + 5 * P, 5 * P);
                pages(100);
                exit(0);
            }
            int status; wait(&status);
            /* Its memory is the parent's. */
            if (!vfork()) { munmap(b, 20 * P); pages(1); _exit(0); }
            wait(&status);
            puts("done");
            return status;
        }"#,
    );
    let reports = same_with(&["--children"], &program, &[]);
    assert_eq!(reports.len(), 2, "{reports:?}");
    let child = reports.iter().find(|report| {
        number(report, "mapping_calls") == 1
            && report["ending"] == "exit"
            && number(report, "unmapped_bytes") == 15 * PAGE
    });
    // One of the two inherited mappings was unmapped, the other was split in two, and one is new.
    assert_mapped(child.expect("the child's"), [1, 100, 15, 1]);
    let parent = reports
        .iter()
        .find(|report| number(report, "unmapped_bytes") == 20 * PAGE);
    assert_mapped(parent.expect("the parent's"), [3, 31, 20, 2]);
}

#[test]
fn only_mappings_beyond_the_table_are_counted_as_lost() {
    let scene = Scene::new("mapping-table");
    let program = program(
        &scene,
        "many",
        r#"
        int main() {
            /* The system makes one of them, but no call unmaps them as one. */
            for (int i = 0; i < 70000; i++) pages(1);
            puts("done");
            return 0;
        }"#,
    );
    let report = only(same(&program, &[]));
    assert_eq!(number(&report, "mapping_calls"), 70_000);
    assert_eq!(number(&report, "mapped_bytes"), 70_000 * PAGE);
    assert_eq!(number(&report, "mappings"), 65_536);
    assert_eq!(number(&report, "lost_mappings"), 70_000 - 65_536);
    let unmapped = number(&report, "unmapped_bytes");
    assert_eq!(unmapped, (70_000 - 65_536) * PAGE, "counted as unmapped");
}

#[test]
fn the_profile_names_the_callers_of_current_mappings() {
    let scene = Scene::new("mapping-sites");
    let program = program(
        &scene,
        "sites",
        r#"
        __attribute__((noinline)) char *hoards(void) { char *at = pages(100); return at + 1 - 1; }
        __attribute__((noinline)) char *wastes(void) { char *at = pages(300); munmap(at, 200 * P); return at + 1 - 1; }
        __attribute__((noinline)) char *grows(char *at) { at = mremap(at, 100 * P, 1000 * P, MREMAP_MAYMOVE); return at + 1 - 1; }
        int main() { for (int i = 0; i < 10; i++) { hoards(); wastes(); } grows(hoards()); puts("done"); return 0; }"#,
    );
    let out = scene.path("out");
    let options = ["--out", out.to_str().unwrap()];
    let output = run(&options, &program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!text.contains("grows < main"), "it touched nothing: {text}");
    let file = std::fs::File::open(out.join("mmap.pb.gz")).unwrap();
    let profile = plimsoll_command::profile::read(file, Default::default()).unwrap();
    let sum = |name: &str| -> i64 {
        let at = profile.sample_type(name).unwrap();
        profile.samples().map(|sample| sample.value(at)).sum()
    };
    assert_eq!(sum("mapped_objects"), 22);
    assert_eq!(sum("mapped_space"), (1100 + 3000 + 1000) * PAGE as i64);
    assert_eq!(sum("inuse_objects"), 21);
    assert_eq!(sum("inuse_space"), (1000 + 1000 + 1000) * PAGE as i64);
    let folded = |value: &str| {
        let output = Command::new(PLIMSOLL)
            .args(["report", "--folded", "-t", value])
            .arg(out.join("mmap.pb.gz"))
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let lines = folded("inuse_space");
    let of = |name: &str| {
        let line = lines
            .lines()
            .find(|line| line.contains(&format!("main;{name};")));
        let line = line.or_else(|| {
            lines
                .lines()
                .find(|line| line.contains(&format!("main;{name} ")))
        });
        let value = line
            .and_then(|line| line.rsplit_once(' '))
            .map(|(_, value)| value);
        value.and_then(|value| value.parse::<u64>().ok())
    };
    assert_eq!(of("hoards"), Some(1000 * PAGE), "{lines}");
    assert_eq!(of("wastes"), Some(1000 * PAGE), "{lines}");
    assert_eq!(of("grows"), Some(1000 * PAGE), "{lines}");
}

/// Runs a program until it prints `ready` and waits. Returns its mapped memory, from the memory
/// page.
fn rows_of(program: impl AsRef<Path>, arguments: &[&str]) -> Value {
    let port = Port::new();
    let options = ["--http", &port.number.to_string()];
    let mut child = run(&options, program, arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let mut stream = TcpStream::connect(port.address()).unwrap();
    let request = "GET /debug/plimsoll/memory?format=json HTTP/1.0\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let body = answer.split("\r\n\r\n").nth(1).expect("a body");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

fn resident(rows: &Value, name: &str) -> u64 {
    let mut all = rows["rows"].as_array().unwrap().iter();
    let row = all.find(|row| row["name"] == name);
    row.unwrap_or_else(|| panic!("{name} in {rows}"))["resident"]
        .as_u64()
        .unwrap()
}

#[track_caller]
fn assert_explained(rows: &Value) {
    let unexplained = rows["unexplained"].as_i64().unwrap();
    let all = rows["kernel"]["resident"].as_i64().unwrap();
    assert!(unexplained.abs() * 20 <= all, "{rows}");
}

#[test]
fn mappings_of_the_program_are_attributed_to_it() {
    let scene = Scene::new("mapping-rows");
    let program = program(
        &scene,
        "rows",
        r#"
        int main() {
            /* Half of it is touched. Neighbours, so that the system makes one of them. */
            char *a = pages(4000), *b = pages(4000);
            memset(a, 1, 2000 * P);
            memset(b + 2000 * P, 1, 2000 * P);
            munmap(a + 500 * P, 500 * P);
            /* Not to be read, and of a reservation. */
            char *c = mmap(0, 1L << 40, PROT_NONE, OWN | MAP_NORESERVE, -1, 0);
            mprotect(c + 1000 * P, 1000 * P, RW);
            memset(c + 1000 * P, 1, 1000 * P);
            mprotect(c + 1000 * P, 500 * P, PROT_NONE);
            /* Others' beside it. */
            char *large = malloc(20 << 20);
            memset(large, 1, 20 << 20);
            puts("ready");
            fflush(stdout);
            getchar();
            return 0;
        }"#,
    );
    let rows = rows_of(&program, &[]);
    let mapped = resident(&rows, "mapped by the program");
    let expected = (1500 + 2000 + 1000) * PAGE;
    // A huge page contains more than the touched pages.
    assert!((expected..expected + (4 << 20)).contains(&mapped), "{rows}");
    let heap = resident(&rows, "heap: blocks in use");
    assert!((20 << 20..21 << 20).contains(&heap), "{rows}");
    assert_explained(&rows);
}

/// An allocator of the program that maps its memory by the interposed functions. Its blocks in use
/// are not counted twice. As mimalloc does, it may have the C library's other names for its functions.
#[test]
fn mappings_of_another_allocator_belong_to_the_heap() {
    mappings_belong_to_the_heap("mapping-allocator", &[]);
    mappings_belong_to_the_heap("mapping-aliases", &["-DALIASES"]);
}

fn mappings_belong_to_the_heap(name: &str, options: &[&str]) {
    let scene = Scene::new(name);
    let library = scene.compile(
        "cc",
        "liballocates.so",
        &format!(
            "{HEAD}{}",
            r#"
            static char *next, *end;
            static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
            void *memalign(size_t align, size_t size) {
                if (align < 16) align = 16;
                size = (size + 15) & -16;
                pthread_mutex_lock(&lock);
                char *block = (char *)(((uintptr_t)next + 16 + align - 1) & -align);
                if (!next || block + size > end) {
                    size_t more = (size + align + 16 + (8 << 20)) & -P;
                    next = pages(more / P);
                    end = next + more;
                    block = (char *)(((uintptr_t)next + 16 + align - 1) & -align);
                }
                next = block + size;
                pthread_mutex_unlock(&lock);
                ((size_t *)block)[-1] = size;
                return block;
            }
            size_t malloc_usable_size(void *block) { return block ? ((size_t *)block)[-1] : 0; }
            void *malloc(size_t size) { return memalign(16, size); }
            void *calloc(size_t count, size_t size) { return memset(malloc(count * size), 0, count * size); }
            void *realloc(void *block, size_t size) {
                void *moved = malloc(size);
                size_t before = malloc_usable_size(block);
                if (block) memcpy(moved, block, before < size ? before : size);
                return moved;
            }
            int posix_memalign(void **to, size_t align, size_t size) { *to = memalign(align, size); return 0; }
            void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }
            void free(void *block) {}
            #ifdef ALIASES
            void *__libc_malloc(size_t size) __attribute__((alias("malloc")));
            void *__libc_memalign(size_t align, size_t size) __attribute__((alias("memalign")));
            void __libc_free(void *block) __attribute__((alias("free")));
            #endif
            "#
        ),
        &[&["-shared", "-fPIC", "-pthread"], options].concat(),
    );
    let program = scene.compile(
        "cc",
        "allocates",
        &format!(
            "{HEAD}{}",
            r#"
            int main() {
                for (int i = 0; i < 30000; i++) memset(malloc(1000), 1, 1000);
                for (int i = 0; i < 10000; i++) { char *block = malloc(1000); memset(block, 1, 1000); free(block); }
                memset(pages(2000), 1, 2000 * P);
                puts("ready");
                fflush(stdout);
                getchar();
                return 0;
            }"#
        ),
        &[library.to_str().unwrap(), "-pthread"],
    );
    let rows = rows_of(&program, &[]);
    let near = |name: &str, expected: u64| {
        let found = resident(&rows, name);
        assert!(found.abs_diff(expected) < 3 << 20, "{name}: {rows}");
    };
    near("heap: blocks in use", 30_000_000);
    near("heap: held or fragmented", 10_000_000);
    near("mapped by the program", 2000 * PAGE);
    assert_explained(&rows);
    let report = only(reports(&run(&["--json"], &program, &[]).output().unwrap()).1);
    assert_eq!(report["allocator"], "other");
}

/// Python, which maps memory for its own allocator.
#[test]
fn pythons_objects_are_explained() {
    let is_there = Command::new("python3").arg("--version").output();
    if !is_there.is_ok_and(|output| output.status.success()) {
        plimsoll_testkit::skip!("python3 is not installed");
        return;
    }
    let script = "import sys\n\
         kept = [{str(i): [str(i) * 5]} for i in range(100000)]\n\
         print('ready', flush=True)\n\
         sys.stdin.read()\n";
    let rows = rows_of("python3", &["-c", script]);
    assert!(
        resident(&rows, "mapped by the program") > 20 << 20,
        "{rows}"
    );
    assert_explained(&rows);
}

/// Threads map memory while the report is written.
#[test]
fn the_numbers_of_mappings_are_those_of_their_profile() {
    let scene = Scene::new("mapped-meanwhile");
    let program = scene.c(
        "meanwhile",
        r#"
        #include <pthread.h>
        #include <stdlib.h>
        #include <sys/mman.h>
        static void *maps(void *unused) {
            for (size_t length = 4096;; length = length % (64 << 20) + 4096) {
                void *at = mmap(0, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                if (length % 3) munmap(at, length);
            }
        }
        int main() {
            pthread_t thread;
            for (int i = 0; i < 2; i++) pthread_create(&thread, 0, maps, 0);
            for (int i = 0; i < 100000; i++) free(malloc(i));
            return 0;
        }"#,
    );
    let out = scene.path("out");
    for _ in 0..3 {
        let options = ["--json", "--out", out.to_str().unwrap()];
        let output = run(&options, &program, &[]).output().unwrap();
        let report = only(reports(&output).1);
        let profile = out.join("mmap.pb.gz");
        let comments = std::process::Command::new(crate::scene::PLIMSOLL)
            .args(["report", "--comments", profile.to_str().unwrap()])
            .output()
            .unwrap();
        let text = String::from_utf8(comments.stdout).unwrap();
        let [calls, mapped, gone] =
            ["mapping_calls", "mapped_bytes", "unmapped_bytes"].map(|name| number(&report, name));
        let expected =
            format!("{calls} calls have mapped {mapped} bytes, of which {gone} are unmapped");
        assert!(text.contains(&expected), "{expected}: {text}");
    }
}

/// Runs before the preloaded library's own constructor, which sets the hook.
const EARLY_LIBRARY: &str = r#"
char *mapped;
__attribute__((noinline)) static void maps_early(void) { mapped = pages(1000); }
__attribute__((constructor)) static void construct(void) { maps_early(); }
"#;

#[test]
fn mappings_by_the_constructors_of_libraries_are_counted_with_their_caller() {
    let scene = Scene::new("early_mappings");
    let source = format!("{HEAD}{EARLY_LIBRARY}");
    let library = scene.compile("cc", "libearly.so", &source, &["-shared", "-fPIC", "-g"]);
    let program = scene.compile(
        "cc",
        "early",
        "extern char *mapped; int main(void) { *mapped = 1; return 0; }",
        &[library.to_str().unwrap()],
    );
    let report = only(same(&program, &[]));
    assert_mapped(&report, [1, 1000, 0, 1]);
    let out = scene.path("out");
    let options = ["--quiet", "--out", out.to_str().unwrap()];
    run(&options, &program, &[]).output().unwrap();
    let report = Command::new(PLIMSOLL)
        .args(["report", "--top"])
        .arg(out.join("mmap.pb.gz"))
        .output()
        .unwrap();
    let text = String::from_utf8(report.stdout).unwrap();
    let is_named = |line: &str| line.ends_with(" pages") || line.ends_with(" maps_early");
    assert!(text.lines().any(is_named), "{text}");
}

/// Shared memory that a forked child touches, mapped a second time.
const SHARED: &str = r#"
#include <sys/wait.h>
__attribute__((noinline)) static char *buffers(void) {
    char *made = mmap(0, 3000 * P, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return made == MAP_FAILED ? 0 : made;
}
int main() {
    char *s = buffers();
    memset(s, 1, 2000 * P);
    char *again = mremap(s, 0, 3000 * P, MREMAP_MAYMOVE);
    if (again == MAP_FAILED || again[1999 * P] != 1) return 1;
    if (fork() == 0) { s[0] = 2; _exit(0); }
    wait(0);
    if (again[0] != 2) return 2;
    munmap(again, 3000 * P);
    puts("done");
    return 0;
}
"#;

#[test]
fn shared_anonymous_memory_has_the_site_that_mapped_it() {
    let scene = Scene::new("mapped-shared");
    let program = program(&scene, "shares", SHARED);
    let output = run(&[], &program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.stdout, b"done\n", "{text}");
    // 2,000 of 3,000 pages are touched.
    assert!(
        text.contains(
            "7.8 MiB touched of 11.7 MiB in 1 mapping at exit; 23.4 MiB mapped by 2 calls"
        ),
        "{text}"
    );
    let is_site = |line: &&str| line.contains("7.8 MiB") && line.contains("buffers < main");
    assert!(text.lines().any(|line| is_site(&line)), "{text}");
}

/// The program moves the end of its data segment beside `malloc`, which moves it as well.
const SEGMENT: &str = r#"
__attribute__((noinline)) static char *arena(long size) {
    char *at = sbrk(size);
    memset(at, 1, size);
    return at + 1 - 1;
}
__attribute__((noinline)) static void blocks(void) { for (int i = 0; i < 1000; i++) memset(malloc(5000), 2, 5000); }
int main() {
    blocks();
    char *first = arena(40 << 20);
    blocks();
    /* Small calls share pages. */
    char *end = sbrk(0);
    long odd = P - (long)end % P;
    if (odd != P) sbrk(odd);
    for (int i = 0; i < 10; i++) arena(P / 2);
    arena(8 * P);
    if (sbrk(-4 * P) == (void *)-1) return 1;
    char *by_brk = sbrk(0);
    if (brk(by_brk + 6 * P) || brk(by_brk + P) || sbrk(0) != by_brk + P) return 2;
    if (sbrk(1L << 60) != (void *)-1 || errno != ENOMEM) return 3;
    /* Below the segment, the kernel leaves the end where it is. The C library may report success. */
    (void)!brk((void *)P);
    if (sbrk(0) != by_brk + P) return 4;
    printf("%d\n", first[39 << 20]);
    return 0;
}
"#;

#[test]
fn memory_of_sbrk_belongs_to_its_caller_and_not_to_malloc() {
    let scene = Scene::new("segment");
    let program = program(&scene, "segment", SEGMENT);
    let report = only(same(&program, &[]));
    // The large call, five pages of ten small ones, the last one, and `brk`.
    let mapped = (40 << 20) / PAGE + 5 + 8 + 6;
    assert_mapped(&report, [1 + 5 + 1 + 1, mapped, 4 + 5, 1 + 5 + 1 + 1]);
    let memory = |owner: &str| report["memory"][owner].as_u64().unwrap_or(0);
    let touched = (40 << 20) + (5 + 4) * PAGE;
    assert!(
        (touched..=touched + PAGE).contains(&memory("mapped")),
        "{report}"
    );
    // Twice a thousand blocks of 5,000 bytes, and less than a page more for each time.
    let heap = memory("heap");
    assert!((10_000_000..10_600_000).contains(&heap), "{report}");
    let output = run(&["--heap-rate", "1"], &program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let is_site = |line: &&str| line.contains("40.0 MiB") && line.contains("arena < main");
    assert!(text.lines().any(|line| is_site(&line)), "{text}");
}
