//! Libraries that are loaded and unloaded at run time, and other allocators.

use std::path::Path;

use crate::scene::{Scene, number, only, report, reports, run, same, same_with};

#[test]
fn functions_of_late_libraries_have_names() {
    let scene = Scene::new("loading");
    let library = scene.compile(
        "cc",
        "later.so",
        r#"
        #include <stdlib.h>
        __attribute__((noinline)) char *from_later(void) { char *block = malloc(50000); return block + 1 - 1; }
        "#,
        &["-shared", "-fPIC"],
    );
    let program = scene.c(
        "loading",
        r#"
        #include <dlfcn.h>
        #include <stdio.h>
        #include <stdlib.h>
        int main(int count, char **arguments) {
            for (int round = 0; round < 20; round++) {
                void *library = dlopen(arguments[1], RTLD_NOW);
                if (!library) { puts(dlerror()); return 1; }
                char *(*allocate)(void) = dlsym(library, "from_later");
                for (int i = 0; i < 50; i++) if (round < 19 || i % 2) free(allocate()); else allocate();
                if (round < 19) dlclose(library);
            }
            dlopen("/none.so", RTLD_NOW);
            puts(dlerror());
            return 0;
        }"#,
    );
    let arguments = [library.to_str().unwrap()];
    only(same(&program, &arguments));
    let output = run(&["--heap-rate", "1"], &program, &arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let rows = crate::table::rows(&text);
    let is_later = |row: &&crate::table::Row| {
        crate::table::without_positions(&row.site).starts_with("from_later < main")
    };
    assert!(
        rows.iter()
            .filter(is_later)
            .any(|row| row.number("at exit") > 0.0),
        "{text}"
    );
}

/// Code of libraries that were loaded with the program is never unloaded. So stacks that go through it, as all do
/// that begin in `main`, are found without a question to the loader.
#[test]
fn stacks_of_libraries_that_the_program_needs_do_not_depend_on_the_loader() {
    let scene = Scene::new("needed");
    let library = scene.compile(
        "cc",
        "libneeded.so",
        r#"
        #include <stdlib.h>
        __attribute__((noinline)) char *from_needed(void) { char *block = malloc(1000); return block + 1 - 1; }
        "#,
        &["-shared", "-fPIC"],
    );
    let source = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        #include <stdlib.h>
        char *from_needed(void);
        static int asked;
        static int (*next)(void *, void *);
        int _dl_find_object(void *address, void *found) {
            asked++;
            return next ? next(address, found) : -1;
        }
        int main() {
            next = (int (*)(void *, void *))dlsym((void *)-1L /* RTLD_NEXT */, "_dl_find_object");
            for (int i = 0; i < 1000; i++) free(from_needed());
            printf("%d", asked);
            return 0;
        }"#;
    let needed = [library.to_str().unwrap(), "-rdynamic"];
    let program = scene.compile("cc", "needs", source, &needed);
    let output = run(&["--heap-rate", "1"], &program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    crate::table::row(&text, "from_needed < main");
    let asked: u32 = String::from_utf8_lossy(&output.stdout).parse().unwrap();
    assert!(asked < 100, "{asked} of 1000 stacks: {text}");
}

/// No table describes generated code. Where it keeps no frame record either, and does not return right
/// after its call, stacks end there, and the summary counts them.
#[test]
fn stacks_that_end_in_generated_code_are_counted() {
    let scene = Scene::new("generated");
    let program = scene.c(
        "generated",
        r#"
        #include <stdlib.h>
        #include <string.h>
        #include <sys/mman.h>
        /* Calls its second argument with its first, in a frame without a frame pointer. */
        static const unsigned char code[] = { 0x48, 0x83, 0xec, 0x18, 0xff, 0xd6, 0x90, 0x48, 0x83, 0xc4, 0x18, 0xc3 };
        int main(int count, char **arguments) {
            void *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (page == MAP_FAILED) return 1;
            memcpy(page, code, sizeof code);
            void *(*call)(size_t, void *(*)(size_t)) = page;
            free(malloc(1000));
            for (int i = 0; i < 70; i++) if (count == 1) call(1000, malloc); else free(malloc(1000));
            return 0;
        }"#,
    );
    let report = only(same_with(&["--heap-rate", "1"], &program, &[]));
    assert_eq!(number(&report, "cut_stacks"), 70);
    let report = only(same_with(&["--heap-rate", "1"], &program, &["whole"]));
    assert_eq!(number(&report, "cut_stacks"), 0);
    let output = run(&["--heap-rate", "1"], &program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("  lost       70 ends of stacks, at code that cannot be unwound\n"),
        "{text}"
    );
}

/// The allocator keeps its own blocks throughout, and its function returns their sizes.
#[test]
fn an_allocator_that_the_program_is_linked_with_stays_in_use() {
    let scene = Scene::new("other");
    let library = scene.compile(
        "cc",
        "libother.so",
        r#"
        #include <stddef.h>
        #include <string.h>
        #include <sys/mman.h>
        /* Blocks are never used again; their sizes stand before them. */
        static char *at, *end;
        unsigned long other_calls;
        size_t malloc_usable_size(void *block) { return block ? ((size_t *)block)[-2] : 0; }
        void *memalign(size_t align, size_t size) {
            if (size > 1 << 28) return 0;
            __atomic_fetch_add(&other_calls, 1, __ATOMIC_RELAXED);
            if (align < 16) align = 16;
            size = (size + 15) / 16 * 16 + 16;
            if (!at || at + size + 2 * align + 16 > end) {
                size_t length = (size + 2 * align + (1 << 24)) / 4096 * 4096;
                at = mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                end = at + length;
            }
            char *block = (char *)(((size_t)at + 16 + align - 1) / align * align);
            at = block + size;
            ((size_t *)block)[-2] = size - 16;
            return block;
        }
        void *malloc(size_t size) { return memalign(16, size); }
        void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }
        void *calloc(size_t count, size_t each) { void *block = malloc(count * each); if (block) memset(block, 0, count * each); return block; }
        void free(void *block) { if (block) __atomic_fetch_add(&other_calls, 1 << 20, __ATOMIC_RELAXED); }
        void *realloc(void *block, size_t size) {
            void *moved = malloc(size); size_t old = malloc_usable_size(block);
            if (moved && block) memcpy(moved, block, old < size ? old : size);
            return moved;
        }
        "#,
        &["-shared", "-fPIC"],
    );
    let directory = scene.directory.to_str().unwrap().to_owned();
    let program = scene.compile(
        "cc",
        "other",
        r#"
        #include <stdio.h>
        #include <stdlib.h>
        extern unsigned long other_calls;
        int main() {
            unsigned long before = other_calls;
            for (int i = 0; i < 1000; i++) { void *block = malloc(1000); block = realloc(block, 3000); free(block); }
            unsigned long calls = other_calls - before;
            fprintf(stderr, "%lu made, %lu freed\n", calls & 0xfffff, calls >> 20);
            return 0;
        }"#,
        &[library.to_str().unwrap(), &format!("-Wl,-rpath,{directory}")],
    );
    // Without sampling, which places samples elsewhere, every call is passed on.
    let output = run(&["--json", "--heap-rate", "0"], &program, &[])
        .output()
        .unwrap();
    let (errors, reports) = reports(&output);
    assert_eq!(errors, "2000 made, 1000 freed\n");
    let report = only(reports);
    assert_eq!(report["allocator"], "other");
    assert!(number(&report, "mallocs") >= 2000);
    let output = run(&["--quiet", "--heap-rate", "1k"], &program, &[])
        .output()
        .unwrap();
    assert!(output.status.success());
}

/// A minimal allocator: each block follows its size and a mark, which `free` checks.
pub const BARE: &str = r#"
#include <stddef.h>
#include <string.h>
#include <stdlib.h>
#include <sys/mman.h>
#define MARK 0x6172656b6f636b61
static char *at, *end;
static void *place(size_t align, size_t size) {
    if (align < 16) align = 16;
    size = (size + !size + 15) / 16 * 16;
    if (!at || at + size + align + 16 > end) {
        size_t length = (size + align + (1 << 24)) / 4096 * 4096;
        at = mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        end = at + length;
    }
    char *block = (char *)(((size_t)at + 16 + align - 1) / align * align);
    at = block + size;
    ((size_t *)block)[-2] = size;
    ((size_t *)block)[-1] = MARK;
    return block;
}
void *malloc(size_t size) { return place(16, size); }
void *calloc(size_t count, size_t each) { void *block = malloc(count * each); memset(block, 0, count * each); return block; }
void free(void *block) { if (block && ((size_t *)block)[-1] != MARK) __builtin_trap(); }
void *realloc(void *block, size_t size) {
    if (!block) return malloc(size);
    if (((size_t *)block)[-1] != MARK) __builtin_trap();
    void *moved = malloc(size); size_t old = ((size_t *)block)[-2];
    memcpy(moved, block, old < size ? old : size);
    return moved;
}
#ifdef SIZES
size_t malloc_usable_size(void *block) {
    if (block && ((size_t *)block)[-1] != MARK) __builtin_trap();
    return block ? ((size_t *)block)[-2] : 0;
}
#endif
#ifdef POSIX
int posix_memalign(void **to, size_t align, size_t size) { *to = place(align, size); return 0; }
#endif
#ifdef ALIGNED
void *aligned_alloc(size_t align, size_t size) { return place(align, size); }
#endif
"#;

/// Functions that the underlying allocator lacks come from the C library, which cannot free its
/// blocks.
#[test]
fn functions_of_two_allocators_are_not_mixed() {
    let user = r#"
        #include <stdint.h>
        #include <stdlib.h>
        #include <string.h>
        int main() {
            for (int i = 0; i < 20000; i++) {
                size_t size = i % 3000, align = 16 << (i % 9);
                char *block = malloc(size), *other;
                memset(block, 1, size);
                block = realloc(block, size / 2 + 1);
                free(block);
                if (ALIGNS) {
                    if (posix_memalign((void **)&other, align, size) || (uintptr_t)other % align) return 1;
                    memset(other, 1, size);
                    free(other);
                }
                free(calloc(size, 1));
            }
            return 0;
        }"#;
    for (name, has, sees) in [
        ("everything", &["-DSIZES", "-DPOSIX", "-DALIGNED"][..], true),
        ("posix", &["-DSIZES", "-DPOSIX"], true),
        ("aligned", &["-DSIZES", "-DALIGNED"], true),
        ("no-alignment", &["-DSIZES"], false),
        ("no-sizes", &["-DPOSIX", "-DALIGNED"], false),
        ("least", &[], false),
    ] {
        let scene = Scene::new(&format!("mixed-{name}"));
        let options = [&["-shared", "-fPIC"], has].concat();
        let library = scene.compile("cc", &format!("lib{name}.so"), BARE, &options);
        // Without `posix_memalign`, the program would get blocks that this allocator cannot free.
        let aligns = format!("-DALIGNS={}", i32::from(has.contains(&"-DPOSIX")));
        let path = format!("-Wl,-rpath,{}", scene.directory.to_str().unwrap());
        let options = [library.to_str().unwrap(), &path, &aligns];
        let program = scene.compile("cc", name, user, &options);
        for rate in ["100", "512k"] {
            let report = only(same_with(&["--heap-rate", rate], &program, &[]));
            let allocator = if sees { "other" } else { "unmeasured" };
            assert_eq!(report["allocator"], allocator, "{name}");
            assert_eq!(number(&report, "mallocs") >= 60_000, sees, "{name}");
        }
        let output = run(&[], &program, &[]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(text.contains("heap       not observed"), !sees, "{text}");
    }
}

/// At a fixed address, a pointer to `malloc` points into the program.
#[test]
fn a_program_at_a_fixed_address_has_no_allocator_of_its_own() {
    let scene = Scene::new("fixed");
    let program = scene.compile(
        "cc",
        "fixed",
        r#"
        #include <stdlib.h>
        int main() {
            void *(*volatile allocate)(size_t) = malloc;
            for (int i = 0; i < 100; i++) free(allocate(100));
            return 0;
        }"#,
        &["-fno-pie", "-no-pie"],
    );
    let report = only(same(&program, &[]));
    assert_eq!(report["allocator"], "libc");
    assert_eq!(number(&report, "mallocs"), 100);
}

/// Loads a library, keeps blocks of it and unloads it, some times; then the same with each further library.
const UNLOADS: &str = r#"
    #include <dlfcn.h>
    #include <stdlib.h>
    int main(int count, char **libraries) {
        for (int i = 1; i < count; i++)
            for (int turn = 0; turn < 3; turn++) {
                void *library = dlopen(libraries[i], RTLD_NOW);
                if (!library) return 2;
                void (*keep)(int) = (void (*)(int))dlsym(library, "keep");
                for (int block = 0; block < 3000; block++) keep(1000);
                // The last one stays.
                if (i == 1 || turn < 2) dlclose(library);
            }
        return 0;
    }
"#;

/// Compiles a library whose allocating function has this name.
fn plugin(scene: &Scene, name: &str, function: &str) -> std::path::PathBuf {
    let source = format!(
        "#include <stdlib.h>\n#include <string.h>\n
         __attribute__((noinline)) void *{function}(int size) {{ return memset(malloc(size), 7, size); }}
         void keep(int size) {{ *(volatile char *){function}(size) = 1; }}"
    );
    scene.compile("cc", name, &source, &["-shared", "-fPIC", "-Wl,--build-id"])
}

/// Runs the program above. Returns the bytes in use at the exit by the stack within the program.
fn kept(scene: &Scene, program: &Path, libraries: &[&Path]) -> Vec<(String, u64)> {
    let libraries: Vec<&str> = libraries.iter().map(|at| at.to_str().unwrap()).collect();
    let out = scene.path("out");
    let options = ["-q", "--heap-rate", "10000", "--out", out.to_str().unwrap()];
    let mut command = run(&options, program, &libraries);
    let output = command.current_dir(&scene.directory).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let folded = report(&["--folded"], &out.join("heap.pb.gz"));
    let stack = |line: &str| {
        let (stack, bytes) = line.rsplit_once(' ')?;
        let (_, stack) = stack.split_once("main;keep;")?;
        Some((stack.to_owned(), bytes.parse().ok()?))
    };
    let stacks: Vec<(String, u64)> = folded.lines().filter_map(stack).collect();
    let stacks: Vec<_> = stacks.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
    assert!(!stacks.is_empty(), "{folded}");
    stacks
}

#[test]
fn the_sites_of_an_unloaded_library_have_its_names() {
    let scene = Scene::new("unloaded");
    let program = scene.compile("cc", "program", UNLOADS, &["-ldl"]);
    plugin(&scene, "one.so", "allocate_in_one");
    let stacks = kept(&scene, &program, &[Path::new("./one.so")]);
    let [(name, bytes)] = &stacks[..] else {
        panic!("{stacks:?}");
    };
    assert_eq!(name, "allocate_in_one");
    // 9 MB in about 870 samples: five standard errors are 17 %.
    assert!((7_500_000..=10_700_000).contains(bytes), "{bytes}");
}

#[test]
fn a_library_gives_no_names_to_addresses_of_an_earlier_one() {
    let scene = Scene::new("replaced");
    let program = scene.compile("cc", "program", UNLOADS, &["-ldl"]);
    // The loader maps both at the same address, with equal code.
    let one = plugin(&scene, "one.so", "allocate_in_one");
    let two = plugin(&scene, "two.so", "allocate_longer_name_in_two");
    let mut stacks = kept(&scene, &program, &[&one, &two]);
    stacks.sort();
    let [(first, in_one), (second, in_two)] = &stacks[..] else {
        panic!("{stacks:?}");
    };
    assert_eq!(
        [first.as_str(), second],
        ["allocate_in_one", "allocate_longer_name_in_two"]
    );
    for bytes in [in_one, in_two] {
        assert!((7_500_000..=10_700_000).contains(bytes), "{stacks:?}");
    }
}
