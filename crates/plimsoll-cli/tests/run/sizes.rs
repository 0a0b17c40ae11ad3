//! Allocators that return the usable size of a request and accept the size of a freed block:
//! jemalloc and similar ones.

use crate::loading::BARE;
use crate::scene::{Scene, number, only, reports, run};

/// jemalloc's extensions. Sizes that are passed to frees must be correct.
const JEMALLOCS: &str = r#"
unsigned long sized;
int mallctl(const char *name, void *old, size_t *old_length, void *new, size_t new_length) { return 2; }
size_t nallocx(size_t size, int flags) {
    if (!size || flags) __builtin_trap();
    return (size + LIE + 15) / 16 * 16;
}
void sdallocx(void *block, size_t size, int flags) {
    if (((size_t *)block)[-1] != MARK || ((size_t *)block)[-2] != size || flags) __builtin_trap();
    sized++;
}
"#;

/// Uses all sizes below 2,000; usable sizes of requests up to 1 KiB are known in advance.
const USER: &str = r#"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
extern unsigned long sized;
int main() {
    unsigned long before = sized, sizes = 0;
    for (size_t size = 0; size < 2000; size++) {
        void *block = malloc(size), *zero = calloc(1, size), *aligned;
        if (posix_memalign(&aligned, 64, size)) return 1;
        sizes += malloc_usable_size(block) + malloc_usable_size(zero) + malloc_usable_size(aligned);
        free(realloc(block, 2000 - size));
        free(zero);
        free(aligned);
    }
    fprintf(stderr, "%lu bytes, %lu sized\n", sizes, sized - before);
    return 0;
}
"#;

#[test]
fn an_allocator_receives_the_sizes_it_returned() {
    // In the second case, `nallocx` returns a wrong size: each block is then looked up.
    for (lie, is_sized) in [(0, true), (16, false)] {
        let scene = Scene::new(&format!("sized-{lie}"));
        let options = [
            "-shared",
            "-fPIC",
            "-DSIZES",
            "-DPOSIX",
            &format!("-DLIE={lie}"),
        ];
        let source = format!("{BARE}{JEMALLOCS}");
        let library = scene.compile("cc", "libsized.so", &source, &options);
        let path = format!("-Wl,-rpath,{}", scene.directory.to_str().unwrap());
        let program = scene.compile("cc", "sized", USER, &[library.to_str().unwrap(), &path]);
        let run = |rate| {
            let run = run(&["--json", "--heap-rate", rate], &program, &[]).output();
            let run = run.unwrap();
            assert!(run.status.success(), "{:?}", run.status);
            let (errors, reports) = reports(&run);
            (errors, only(reports))
        };
        let (errors, report) = run("0");
        // Three blocks of each of 2,000 sizes, each rounded up to a multiple of 16.
        let bytes: usize = (0..2000usize)
            .map(|size| size.max(1).next_multiple_of(16))
            .sum();
        let calls: usize = (0..2000usize)
            .map(|size| {
                let large = |size: usize| usize::from(size.next_multiple_of(16) > 1024);
                3 - 2 * large(size) - large(2000 - size)
            })
            .sum();
        let calls = if is_sized { calls } else { 0 };
        assert_eq!(errors, format!("{} bytes, {calls} sized\n", 3 * bytes));
        assert_eq!(report["allocator"], "other");
        assert!(
            (8000..8100).contains(&number(&report, "mallocs")),
            "{report}"
        );
        // The counts are the same with sampled blocks, which the allocator does not know.
        let (_, sampled) = run("100");
        assert_eq!(
            [number(&sampled, "mallocs"), number(&sampled, "frees")],
            [number(&report, "mallocs"), number(&report, "frees")]
        );
    }
}

/// Random operations, then blocks that are kept or freed.
const KEEPS: &str = r#"
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static uint64_t state = 88172645463325252ull;
static uint64_t next(void) { state ^= state << 13; state ^= state >> 7; state ^= state << 17; return state; }
static void *blocks[1000];
int main(int count, char **arguments) {
    for (int i = 0; i < 300000; i++) {
        void **at = blocks + next() % 1000;
        size_t size = next() % 100 ? next() % 900 : next() % 300000, align = 16 << next() % 8;
        switch (next() % 8) {
        case 0: free(*at); *at = calloc(1, size); break;
        case 1: case 2: *at = realloc(*at, size + 1); break;
        case 3: free(*at); if (posix_memalign(at, align, size)) *at = 0; break;
        case 4: free(*at); *at = 0; break;
        default: free(*at); *at = malloc(size);
        }
        if (*at) memset(*at, i, malloc_usable_size(*at));
    }
    for (int i = 0; i < 1000; i++) { free(blocks[i]); blocks[i] = 0; }
    size_t live = 0;
    for (size_t size = 0; size < 1000; size++) {
        void *block = size % 3 ? malloc(size) : memalign(32, size);
        live += malloc_usable_size(block);
        if (arguments[1][0] == 'd') free(block);
    }
    printf("%zu\n", live);
    fflush(stdout);
    return 0;
}
"#;

/// The same with jemalloc itself, if it is installed.
#[test]
fn blocks_of_jemalloc_are_counted_to_the_byte() {
    let scene = Scene::new("jemalloc");
    let found = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"]
        .map(|directory| format!("{directory}/libjemalloc.so.2"));
    let Some(library) = found.iter().find(|file| std::fs::exists(file).unwrap()) else {
        plimsoll_testkit::skip!("libjemalloc.so.2 is not installed");
        return;
    };
    let program = scene.compile("cc", "keeps", KEEPS, &["-Wl,--no-as-needed", library]);
    let in_use = |what: &str, rate: &str| {
        let run = run(&["--json", "--heap-rate", rate], &program, &[what]).output();
        let run = run.unwrap();
        assert!(run.status.success(), "{:?}", run.status);
        let report = only(reports(&run).1);
        assert_eq!(report["allocator"], "other");
        let bytes = number(&report, "malloc_bytes") - number(&report, "free_bytes");
        let said: u64 = String::from_utf8_lossy(&run.stdout).trim().parse().unwrap();
        (bytes, said)
    };
    let (kept, said) = in_use("keep", "0");
    let (dropped, _) = in_use("drop", "0");
    assert_eq!(kept - dropped, said);
    // Samples may have other sizes; a free counts the size of its allocation.
    assert_eq!(in_use("drop", "1000").0, dropped);
}
