//! Programs on systems with pages of other sizes than 4 KiB.

use std::process::Command;

use crate::scene::{Scene, reports, run};

/// A library that changes the size of pages in the auxiliary vector, as other libraries read it. It is loaded before the
/// C library, and usable before the program is.
const VECTOR: &str = r#"
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    unsigned long getauxval(unsigned long type) {
        unsigned long entry[2];
        if (type == 6) return PAGE;
        int file = syscall(SYS_openat, AT_FDCWD, "/proc/self/auxv", O_RDONLY);
        while (syscall(SYS_read, file, entry, sizeof entry) == sizeof entry) {
            if (entry[0] == type || entry[0] == 0) break;
        }
        syscall(SYS_close, file);
        return entry[0] == type ? entry[1] : 0;
    }"#;

const SOURCE: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/wait.h>
    #include <unistd.h>
    void *volatile kept;
    unsigned long work(void) {
        unsigned long sum = 0;
        for (int i = 0; i < 20000; i++) {
            char *block = malloc(1 + i % 9000);
            block[0] = i;
            block = realloc(block, 1 + i % 20000);
            for (int j = 0; j < 2000; j++) sum += block[0] + j;
            free(block);
        }
        kept = malloc(1 << 20);
        return sum;
    }
    void *thread(void *sum) { *(unsigned long *)sum = work(); return 0; }
    int main() {
        unsigned long sum = 0;
        pthread_t id;
        pthread_create(&id, 0, thread, &sum);
        pthread_join(id, 0);
        char *mapped = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(mapped, 1, 1 << 20);
        munmap(mapped, 1 << 20);
        int child = fork(), status;
        if (!child) { work(); exit(5); }
        waitpid(child, &status, 0);
        printf("%lu %d\n", sum, WEXITSTATUS(status));
        return 3;
    }"#;

#[test]
fn programs_run_unchanged_with_pages_of_any_size() {
    let scene = Scene::new("pages");
    for (page, is_supported) in [
        (4096, true),
        (16 << 10, true),
        (64 << 10, true),
        (128 << 10, false),
        (0, false),
    ] {
        let name = format!("pages-{page}");
        let size = format!("-DPAGE={page}");
        let library = format!("lib{name}.so");
        let library = scene.compile("cc", &library, VECTOR, &["-shared", "-fPIC", &size]);
        let options = ["-pthread", "-Wl,--no-as-needed", library.to_str().unwrap()];
        let program = scene.compile("cc", &name, SOURCE, &options);
        let alone = Command::new(&program).output().unwrap();
        for options in [
            &["--json", "--wall", "--postmortem"][..],
            &["--json", "--children"],
        ] {
            let output = run(options, &program, &[]).output().unwrap();
            let (errors, reports) = reports(&output);
            assert_eq!(output.status, alone.status, "{page}: {errors}");
            assert_eq!(output.stdout, alone.stdout, "{page}: {errors}");
            assert_eq!(!reports.is_empty(), is_supported, "{page}: {errors}");
            for report in &reports {
                assert!(report["mallocs"].as_u64() > Some(10_000), "{report}");
            }
        }
    }
}
