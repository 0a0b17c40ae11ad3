//! At a memory limit, the C library's free memory is returned to the system.

use crate::scene::{Scene, run};

/// Frees seven of each eight blocks, but not the last: the C library keeps the memory between. Then
/// waits with one thread, for the given number of seconds, until memory is returned. Some may be returned
/// while blocks are being freed; then the rest stays, if the use is below nine tenths of the limit
/// already: below 108 MiB, and some MiB of files.
const HOLDS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#define BLOCKS (120 * 64)
static char *blocks[BLOCKS];
static long resident(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    fscanf(file, "%*ld %ld", &pages);
    fclose(file);
    return pages * 4 >> 10;
}
int main(int argc, char **argv) {
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(16384);
        memset(blocks[i], 1, 16384);
    }
    if (resident() < 118) return 2;
    for (int i = 0; i < BLOCKS; i++) if (i % 8 != 7) free(blocks[i]);
    time_t end = time(0) + atoi(argv[1]);
    while (resident() > 114 && time(0) <= end) usleep(1000);
    puts(resident() > 114 ? "held" : "given back");
    return 0;
}
"#;

#[test]
fn free_memory_is_returned_at_a_limit() {
    let scene = Scene::new("memory");
    let program = scene.c("holds", HOLDS);
    for (limit, seconds, expected) in [
        (&["--memory-limit", "120m"][..], "60", "given back\n"),
        (&["--memory-limit", "1g"], "1", "held\n"),
        (&["--memory-limit", "off"], "1", "held\n"),
        (&[], "0", "held\n"),
    ] {
        let options = [&["--quiet"], limit].concat();
        let output = run(&options, &program, &[seconds]).output().unwrap();
        assert!(output.status.success(), "{limit:?}: {:?}", output.status);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            expected,
            "{limit:?}"
        );
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{limit:?}");
    }
}

#[test]
fn a_limit_that_is_none_is_refused() {
    let output = run(&["--memory-limit", "101%"], "/bin/true", &[]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(125));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("--memory-limit 101%: the value is not a share"),
        "{said}"
    );
}
