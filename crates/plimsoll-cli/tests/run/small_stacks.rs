//! Hooks on small stacks: their need of stack, measured, and coroutines with the smallest stacks.

use crate::scene::{Scene, number, only, run, same};

/// The stack in bytes that a call of the allocator takes with `plimsoll run`, if it is not sampled.
const COMMON: u64 = 1 << 10;

/// The same for a sampled call.
const SAMPLED: u64 = 2560;

/// Prints the stack in bytes that calls take: the highest need of an allocation, of its free and of a reallocation that
/// are not sampled, then the need of allocations of which some are sampled, and then the need of a mapping.
const PAINTED: &str = r#"
    #define _GNU_SOURCE
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <ucontext.h>
    enum { SIZE = 65536 };
    static ucontext_t outer, inner;
    static char stack[SIZE] __attribute__((aligned(4096)));
    static int which;
    static char *block;
    static void work(void) {
        switch (which) {
        case 0: block = malloc(100); break;
        case 1: block = realloc(block, 3000); break;
        case 2: free(block); break;
        case 3: for (int i = 0; i < 3000; i++) free(malloc(700 + i)); break;
        case 4: munmap(mmap(0, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 65536); break;
        }
    }
    static unsigned long used(int what) {
        which = what;
        memset(stack, 0xa5, SIZE);
        getcontext(&inner);
        inner.uc_stack.ss_sp = stack;
        inner.uc_stack.ss_size = SIZE;
        inner.uc_link = &outer;
        makecontext(&inner, work, 0);
        swapcontext(&outer, &inner);
        int i = 0;
        while (i < SIZE && stack[i] == (char)0xa5) i++;
        return SIZE - i;
    }
    int main(int count, char **arguments) {
        unsigned long most[3] = {0};
        // The C library's first calls do more than later ones.
        for (int i = 0; i < 5; i++) used(i % 3);
        for (int i = 0; i < 5; i++)
            for (int what = 0; what < 5; what++) {
                unsigned long *to = most + (what < 3 ? 0 : what - 2), now = used(what);
                if (now > *to) *to = now;
            }
        printf("%lu %lu %lu\n", most[0], most[1], most[2]);
    }
"#;

/// Programs are bound at their start, because the loader's functions take some KiB of the stack of a first call.
fn compile(scene: &Scene, name: &str, source: &str) -> std::path::PathBuf {
    scene.compile("cc", name, source, &["-Wl,-z,now"])
}

#[test]
fn hooks_take_little_stack() {
    let scene = Scene::new("painted-stack");
    let program = compile(&scene, "painted", PAINTED);
    let needs = |options: &[&str]| -> Vec<u64> {
        let output = run(options, &program, &[]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let numbers = text
            .split_whitespace()
            .map(|number| number.parse().unwrap());
        numbers.collect()
    };
    let unsampled = needs(&["-q", "--heap-rate", "0"]);
    assert!(
        unsampled[0] < COMMON && unsampled[1] < COMMON,
        "{unsampled:?}"
    );
    for options in [&["-q"][..], &["-q", "--heap-rate", "64k"], &["-q", "--cpu"]] {
        // A CPU sample may interrupt a call, and the kernel then puts 3 KiB on the stack: in less than one of ten runs, so
        // in all of eight with a probability below 1e-8.
        let is_small = |needs: &Vec<u64>| needs.iter().all(|&need| need < SAMPLED);
        let runs = if options.contains(&"--cpu") { 8 } else { 1 };
        let sampled: Vec<Vec<u64>> = (0..runs).map(|_| needs(options)).collect();
        assert!(sampled.iter().any(is_small), "{options:?}: {sampled:?}");
    }
}

/// Each coroutine serves 200 allocations, and ends with those that it keeps.
const COROUTINES: &str = r#"
    #define _GNU_SOURCE
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    #include <ucontext.h>
    static __thread ucontext_t outer, inner;
    static __thread int done;
    static char *volatile kept;
    static void coroutine(void) {
        for (;;) {
            for (int i = 0; i < 200; i++) {
                char *block = malloc(700 + i);
                block[0] = 1;
                if (i % 10) free(block); else kept = block;
                done++;
            }
            swapcontext(&inner, &outer);
        }
    }
    static void *many(void *size_of_stack) {
        size_t size = (size_t)size_of_stack;
        for (int k = 0; k < 200; k++) {
            char *stack = mmap(0, size + 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            mprotect(stack, 4096, PROT_NONE);
            getcontext(&inner);
            inner.uc_stack.ss_sp = stack + 4096;
            inner.uc_stack.ss_size = size;
            inner.uc_link = 0;
            makecontext(&inner, coroutine, 0);
            swapcontext(&outer, &inner);
            munmap(stack, size + 8192);
        }
        return (void *)(size_t)done;
    }
    int main(int count, char **arguments) {
        void *size = (void *)(size_t)atoi(arguments[1]), *of_thread;
        pthread_t thread;
        printf("%zu\n", (size_t)many(size));
        pthread_create(&thread, 0, many, size);
        pthread_join(thread, &of_thread);
        printf("%zu\n", (size_t)of_thread);
    }
"#;

#[test]
fn coroutines_of_4_kib_run_as_alone_and_have_stacks() {
    let scene = Scene::new("coroutines");
    let program = compile(&scene, "coroutines", COROUTINES);
    for size in ["4096", "6144", "65536"] {
        let report = only(same(&program, &[size]));
        assert!(number(&report, "mallocs") >= 80_000);
        assert_eq!(number(&report, "without_stack"), 0, "{report}");
    }
}
