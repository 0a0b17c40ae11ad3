//! Blocks satisfy the C standard, sampled or not.

use crate::scene::{Scene, number, only, run, same_with};

const CHECKS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define CHECK(that) do { if (!(that)) { printf("line %d: %s\n", __LINE__, #that); return 1; } } while (0)
static int is_filled(unsigned char *block, size_t size, unsigned char with) {
    for (size_t i = 0; i < size; i++) if (block[i] != with) return 0;
    return 1;
}
int main() {
    for (int round = 0; round < 300; round++) {
        for (size_t size = 0; size < 70000; size = size * 5 / 4 + 1) {
            unsigned char *block = malloc(size);
            CHECK(block && (uintptr_t)block % 16 == 0);
            size_t usable = malloc_usable_size(block);
            CHECK(usable >= size);
            memset(block, 0xa5, usable);
            CHECK(malloc_usable_size(block) == usable);
            unsigned char *more = realloc(block, size + size / 3 + 1);
            CHECK(more && is_filled(more, size, 0xa5));
            unsigned char *less = realloc(more, size / 2 + 1);
            CHECK(less && is_filled(less, size / 2 < size ? size / 2 : 0, 0xa5));
            free(less);
            unsigned char *zero = calloc(3, size);
            CHECK(zero && is_filled(zero, 3 * size, 0));
            memset(zero, 1, malloc_usable_size(zero));
            free(zero);
            for (size_t align = 8; align <= 65536; align *= 4) {
                void *aligned;
                CHECK(posix_memalign(&aligned, align, size) == 0 && (uintptr_t)aligned % align == 0);
                memset(aligned, 2, size);
                free(aligned);
                aligned = aligned_alloc(align, size);
                CHECK(aligned && (uintptr_t)aligned % align == 0);
                aligned = realloc(aligned, size + 100);
                CHECK(aligned);
                free(aligned);
                aligned = memalign(align, size);
                CHECK(aligned && (uintptr_t)aligned % align == 0);
                free(aligned);
            }
        }
    }
    void *untouched = (void *)1;
    errno = 0;
    CHECK(posix_memalign(&untouched, 24, 8) == EINVAL && posix_memalign(&untouched, 4, 8) == EINVAL);
    CHECK(posix_memalign(&untouched, 16, SIZE_MAX / 2) == ENOMEM && untouched == (void *)1 && errno == 0);
    CHECK(!malloc(SIZE_MAX) && errno == ENOMEM); errno = 0;
    CHECK(!malloc((size_t)1 << 62) && errno == ENOMEM); errno = 0;
    CHECK(!calloc(SIZE_MAX / 2, 3) && errno == ENOMEM); errno = 0;
    CHECK(!calloc(SIZE_MAX, 1) && errno == ENOMEM); errno = 0;
    char *kept = strdup("kept");
    CHECK(!realloc(kept, SIZE_MAX / 2) && errno == ENOMEM && !strcmp(kept, "kept")); errno = 0;
    CHECK(!reallocarray(kept, SIZE_MAX / 2, 3) && errno == ENOMEM && !strcmp(kept, "kept")); errno = 0;
    CHECK(!pvalloc(SIZE_MAX) && errno == ENOMEM); errno = 0;
    CHECK(!aligned_alloc(16, SIZE_MAX) && errno == ENOMEM); errno = 0;
    kept = reallocarray(kept, 10, 10);
    CHECK(kept && !strcmp(kept, "kept"));
    CHECK(!realloc(kept, 0));
    CHECK(realloc(0, 10) && malloc_usable_size(0) == 0);
    CHECK((uintptr_t)valloc(10) % 4096 == 0 && (uintptr_t)pvalloc(10) % 4096 == 0);
    free(0);
    errno = 7;
    for (int i = 0; i < 100000; i++) free(malloc(i));
    CHECK(errno == 7);
    puts("all well");
    return 0;
}
"#;

/// Runs at rates that sample all blocks, many, hardly any, and none.
#[test]
fn blocks_are_aligned_filled_and_refused_as_in_c() {
    let scene = Scene::new("blocks");
    let program = scene.c("blocks", CHECKS);
    for rate in ["1", "700", "100k", "0"] {
        let output = run(&["--quiet", "--heap-rate", rate], &program, &[])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text, "all well\n", "{rate}");
        assert!(output.status.success(), "{rate}: {:?}", output.status);
    }
}

const OPERATORS: &str = r#"
#include <cstdint>
#include <cstdio>
#include <map>
#include <new>
#include <string>
#include <vector>
struct alignas(128) Wide { char room[256]; };
int main() {
    std::map<int, std::string> map;
    for (int i = 0; i < 20000; i++) map[i] = std::string(i % 300, 'x');
    size_t sum = 0;
    for (auto &entry : map) sum += entry.second.size();
    std::vector<Wide *> wide;
    for (int i = 0; i < 1000; i++) {
        wide.push_back(new Wide);
        if ((uintptr_t)wide.back() % 128) return 1;
    }
    for (auto *one : wide) delete one;
    delete[] new int[100];
    if (new (std::nothrow) char[(size_t)1 << 62]) return 2;
    try { volatile size_t size = (size_t)1 << 62; new char[size]; return 3; } catch (std::bad_alloc &) { sum++; }
    static int asked = 0;
    std::set_new_handler([] { if (++asked == 3) throw 5; });
    try { volatile size_t size = (size_t)1 << 62; ::operator new(size); return 4; } catch (int five) { sum += five; }
    std::printf("%zu %d\n", sum, asked);
}
"#;

#[test]
fn the_operators_of_cpp_keep_to_their_contract() {
    let scene = Scene::new("operators");
    let program = scene.compile("c++", "operators", OPERATORS, &["-std=c++17"]);
    for rate in ["1", "512k"] {
        let output = run(&["--quiet", "--heap-rate", rate], &program, &[])
            .output()
            .unwrap();
        assert!(output.status.success(), "{rate}: {:?}", output.status);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "2980006 3\n",
            "{rate}"
        );
    }
}

#[test]
fn little_stack_is_enough() {
    let scene = Scene::new("coroutines");
    let program = scene.c(
        "coroutines",
        r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <ucontext.h>
        #include <unistd.h>
        #define STACK 8192
        static ucontext_t here, there;
        static char *volatile block;
        static void works(void) {
            for (int i = 0; i < 20; i++) {
                block = malloc(100 + 1000 * i);
                block = realloc(block, 300000);
                memset(block, 1, 300000);
                free(block);
                free(calloc(i, 70000));
            }
        }
        int main() {
            for (int i = 0; i < 100; i++) {
                char *stack = mmap(0, STACK + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                mprotect(stack + 4096, STACK, PROT_READ | PROT_WRITE);
                getcontext(&there);
                there.uc_stack.ss_sp = stack + 4096;
                there.uc_stack.ss_size = STACK;
                there.uc_link = &here;
                makecontext(&there, works, 0);
                swapcontext(&here, &there);
                munmap(stack, STACK + 4096);
            }
            puts("done");
            return 0;
        }"#,
    );
    for rate in ["1", "100k", "512k"] {
        only(same_with(&["--heap-rate", rate], &program, &[]));
    }
}

/// An `operator new` that allocates from a private pool.
const POOL: &str = r#"
#include <cstdio>
#include <cstdlib>
#include <new>
static char pool[1 << 22];
static size_t used, freed;
void *operator new(size_t size) {
    if (used + size + 32 > sizeof pool) abort();
    void *block = pool + used;
    used += (size + 31) / 16 * 16;
    return block;
}
void operator delete(void *block) noexcept {
    if (!block) return;
    if ((char *)block < pool || (char *)block >= pool + sizeof pool) abort();
    freed++;
}
void operator delete(void *block, size_t) noexcept { operator delete(block); }
extern "C" int *made_inside(int i) { return new int(i); }
extern "C" void freed_inside(int *number) { delete number; }
extern "C" void says(void) { printf("%zu %zu\n", used, freed); }
"#;

const OF_POOL: &str = r#"
#include <cstdio>
#include <string>
#include <vector>
extern "C" int *made_inside(int);
extern "C" void freed_inside(int *);
extern "C" void says(void);
int main() {
    std::vector<std::string> names;
    for (int i = 0; i < 1000; i++) names.push_back(std::string(i % 100, 'x'));
    for (int i = 0; i < 1000; i++) {
        delete made_inside(i);
        freed_inside(new int(i));
        delete[] new char[i];
    }
    names.clear();
    says();
}
"#;

#[test]
fn operators_that_a_library_has_in_their_place_stay_in_force() {
    let scene = Scene::new("pool");
    for options in [&[][..], &["-Wl,-Bsymbolic-functions"]] {
        let library = ["-shared", "-fPIC"];
        let library = scene.compile("c++", "libpool.so", POOL, &[&library, options].concat());
        let program = scene.compile("c++", "of-pool", OF_POOL, &[library.to_str().unwrap()]);
        for rate in ["1", "512k"] {
            let report = only(same_with(&["--heap-rate", rate], &program, &[]));
            // Allocations from the pool are not counted as the allocator's.
            assert!(number(&report, "mallocs") < 200, "{report}");
        }
    }
}

/// Many threads exchange blocks and fork, at a low rate.
#[test]
fn threads_and_forks_find_their_blocks_whole() {
    let scene = Scene::new("threads");
    let program = scene.c(
        "threads",
        r#"
        #include <pthread.h>
        #include <signal.h>
        #include <stdint.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/wait.h>
        #include <time.h>
        #include <unistd.h>
        #define SLOTS 512
        static void *slots[SLOTS];
        static int bad;
        static void check(unsigned char *block) {
            if (!block) return;
            size_t size; memcpy(&size, block, sizeof size);
            for (size_t i = sizeof size; i < size; i++) if (block[i] != (unsigned char)size) { bad = 1; return; }
            free(block);
        }
        static void work(unsigned seed, int rounds) {
            for (int i = 0; i < rounds; i++) {
                size_t size = 16 + rand_r(&seed) % (rand_r(&seed) % 50 ? 500 : 60000);
                unsigned char *block = malloc(size / 2 + 8);
                block = realloc(block, size);
                memset(block, (unsigned char)size, size);
                memcpy(block, &size, sizeof size);
                check(__atomic_exchange_n(&slots[rand_r(&seed) % SLOTS], block, __ATOMIC_ACQ_REL));
            }
        }
        static void *thread(void *seed) { work((uintptr_t)seed, 100000); return 0; }
        /* A child that waits for a lock may have blocked every other signal. */
        static void kill_later(void) {
            struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL };
            struct itimerspec time = { .it_value.tv_sec = 300 };
            timer_t timer;
            if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &time, 0)) abort();
        }
        int main() {
            pthread_t threads[4];
            for (uintptr_t i = 0; i < 4; i++) pthread_create(threads + i, 0, thread, (void *)i);
            for (int i = 0; i < 20; i++) {
                if (!fork()) { kill_later(); work(i, 1000); _exit(bad); }
                int status; wait(&status);
                if (status) { printf("child: %d\n", status); bad = 1; }
            }
            for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
            puts(bad ? "bad" : "all well");
            return bad;
        }"#,
    );
    for rate in ["1k", "512k"] {
        for options in [&["--quiet"][..], &["--quiet", "--children"]] {
            let options = [options, &["--heap-rate", rate]].concat();
            let output = run(&options, &program, &[]).output().unwrap();
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                "all well\n",
                "{options:?}"
            );
            assert!(output.status.success(), "{options:?}");
        }
    }
}

/// Wrappers of `malloc` release by the C library's own names, and plugins by its own functions.
#[test]
fn blocks_may_be_released_by_ways_that_are_not_interposed() {
    let scene = Scene::new("other-releases");
    let library = "
        #include <stdlib.h>
        #include <string.h>
        void *deep_alloc(size_t size) { return memset(malloc(size), 7, size); }
        void *deep_resize(void *block, size_t size) { return realloc(block, size); }
        void deep_free(void *block) { free(block); }
    ";
    let library = scene.compile("cc", "deep.so", library, &["-shared", "-fPIC"]);
    let source = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        extern void __libc_free(void *), *__libc_malloc(size_t), *__libc_realloc(void *, size_t);
        int main(int count, char **arguments) {
            void *deep = dlopen(arguments[1], RTLD_NOW | RTLD_DEEPBIND);
            void *(*deep_alloc)(size_t) = dlsym(deep, "deep_alloc");
            void *(*deep_resize)(void *, size_t) = dlsym(deep, "deep_resize");
            void *c = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
            void (*frees[])(void *) = {
                free, __libc_free, dlsym(deep, "deep_free"), dlsym(c, "free"), dlsym(RTLD_NEXT, "free"),
            };
            unsigned sum = 0;
            for (int round = 0; round < 5; round++)
                for (int i = 0; i < 20000; i++) {
                    size_t size = 1 + i * 37 % 9000;
                    char *blocks[] = {
                        malloc(size), calloc(1, size), __libc_malloc(size), deep_alloc(size), aligned_alloc(64, size),
                        strdup("text"), realloc(malloc(10), size), __libc_realloc(malloc(20), size),
                        realloc(deep_alloc(30), size), deep_resize(malloc(40), size), realloc(__libc_malloc(50), size),
                    };
                    for (int b = 0; b < 11; b++) {
                        sum += blocks[b][0] = b;
                        frees[(round + b) % 5](blocks[b]);
                    }
                }
            printf("%u\n", sum);
            return 0;
        }
    "#;
    let program = scene.compile("cc", "releases", source, &["-ldl"]);
    let library = library.to_str().unwrap();
    for options in [
        &[][..],
        &["--children"],
        &["--heap-rate", "1"],
        &["--heap-rate", "5000"],
    ] {
        let report = only(same_with(options, &program, &[library]));
        // No figure is absurd: there are never more than some blocks.
        assert!(number(&report, "peak_bytes") < 1 << 34, "{report}");
    }
}

/// Blocks that are too large for the memory of sampled blocks are exact as well if each is sampled.
#[test]
fn many_large_blocks_are_exact_if_each_is_sampled() {
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
    let available = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let available = available.and_then(|kib| kib.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    if available.is_none_or(|kib| kib < 4 << 20) {
        return plimsoll_testkit::skip!("less than 4 GiB of memory are available");
    }
    let scene = Scene::new("many-large");
    let source = "
        #include <stdlib.h>
        char *kept[200000];
        __attribute__((noinline)) void keep(void) {
            for (int i = 0; i < 200000; i++)
                if (!(kept[i] = malloc(40000)))
                    exit(3);
        }
        int main(void) {
            keep();
            return 0;
        }";
    let program = scene.c("large", source);
    let output = run(&["--heap-rate", "1"], program, &[]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    if output.status.code() == Some(3) {
        return plimsoll_testkit::skip!("less than 8 GB of address space can be reserved");
    }
    let keep = crate::table::row(&text, "keep < main");
    assert_eq!(keep.number("calls"), 200_000.0, "{text}");
    assert!((keep.number("at exit") - 8e9).abs() < 0.01 * 8e9, "{text}");
    assert!(
        !text.contains("others, and blocks that were not sampled"),
        "{text}"
    );
}
