//! Threads and locks of unmodified programs.

use std::process::Command;

use crate::scene::{Scene, number, only, run, same};

const CONTENDED: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all;
static volatile int turns, left = 4;
__attribute__((noinline)) int keeps_others_waiting(void) {
    pthread_mutex_lock(&lock); int turn = ++turns; usleep(5000); pthread_mutex_unlock(&lock);
    return turn;
}
static void *thread(void *_) {
    pthread_barrier_wait(&all);
    for (int i = 0; i < 20; i++) {
        int turn = keeps_others_waiting();
        /* The next turn is another thread's, however late that wakes up. */
        while (turns == turn && left > 1) usleep(100);
    }
    __atomic_fetch_sub(&left, 1, __ATOMIC_RELAXED);
    return 0;
}
int main() {
    pthread_t threads[4];
    pthread_barrier_init(&all, 0, 4);
    for (int i = 0; i < 4; i++) pthread_create(threads + i, 0, thread, 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    puts("done");
    return 0;
}
"#;

#[test]
fn the_owner_of_a_contended_lock_is_named() {
    let scene = Scene::new("contended");
    let program = scene.c("contended", CONTENDED);
    let report = only(same(&program, &[]));
    assert_eq!(number(&report, "threads"), 5);
    assert!(number(&report, "lock_waits") >= 40, "{report}");
    // Three threads wait while one sleeps.
    assert!(number(&report, "lock_waited_ns") >= 300_000_000, "{report}");
    let output = run(&["--mutex-fraction", "1"], &program, &[])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let list = text
        .split("delayed other threads by holding a lock:")
        .nth(1);
    let first = list
        .and_then(|list| list.lines().nth(1))
        .unwrap_or_default();
    assert!(first.contains("keeps_others_waiting"), "{text}");
}

/// A library whose threads wait for a lock of Rust's standard library.
const LOCK_OF_RUST: &str = r#"
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;
static LOCK: Mutex<u32> = Mutex::new(0);
static ALL: Barrier = Barrier::new(4);
#[unsafe(no_mangle)]
extern "C" fn contend() {
    let thread = || {
        ALL.wait();
        for _ in 0..20 {
            let mut turns = LOCK.lock().unwrap();
            *turns += 1;
            thread::sleep(Duration::from_millis(2));
        }
    };
    thread::scope(|scope| for _ in 0..4 { scope.spawn(thread); });
}
"#;

/// Few objects of such a program come from Rust, and only these are searched for the functions in which
/// threads wait.
#[test]
fn locks_of_a_rust_library_in_a_c_program_are_recognized() {
    let scene = Scene::new("rust-in-c");
    let source = scene.path("contend.rs");
    std::fs::write(&source, LOCK_OF_RUST).unwrap();
    let [program, with_library] = [("staticlib", "a"), ("cdylib", "so")].map(|(kind, ending)| {
        let library = scene.path(&format!("libcontend.{ending}"));
        let status = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
            .args(["--edition=2024", "-Copt-level=2", "--crate-type", kind])
            .arg("-o")
            .args([&library, &source])
            .status()
            .unwrap();
        assert!(status.success());
        scene.compile(
            "cc",
            &format!("contend-{kind}"),
            "#include <stdio.h>\nvoid contend(void);\nint main() { contend(); puts(\"done\"); return 0; }",
            &[library.to_str().unwrap(), "-pthread", "-ldl", "-lm"],
        )
    });
    // Some tools remove the names of compilers.
    let nameless = scene.path("nameless");
    let status = Command::new("objcopy")
        .args(["-R", ".comment"])
        .args([&program, &nameless])
        .status()
        .unwrap();
    assert!(status.success());
    for program in [&program, &nameless, &with_library] {
        // Each of 80 turns but the first ones keeps three threads waiting.
        let report = only(same(program, &[]));
        assert!(number(&report, "lock_waits") >= 20, "{report}");
    }
}

/// Threads that are created before `main`, in destructors, by several threads at once, and while
/// libraries come and go.
#[test]
fn threads_are_counted_for_every_creator() {
    let scene = Scene::new("created");
    let program = scene.compile(
        "c++",
        "created",
        r#"
        #include <cstdio>
        #include <thread>
        #include <vector>
        static void work() { delete[] new char[1000]; }
        struct Early { Early() { std::thread(work).join(); } ~Early() { std::thread(work).join(); } } early;
        int main() {
            std::vector<std::thread> threads;
            for (int i = 0; i < 10; i++) threads.emplace_back([] { for (int j = 0; j < 10; j++) std::thread(work).join(); });
            for (auto &thread : threads) thread.join();
            std::puts("done");
        }"#,
        &["-pthread", "-std=c++17"],
    );
    let report = only(same(&program, &[]));
    assert_eq!(number(&report, "threads"), 1 + 2 + 10 + 100);
}

/// The C library's `thrd_create` does not call `pthread_create` by name.
#[test]
fn threads_of_c11_are_threads() {
    let scene = Scene::new("c11");
    let program = scene.c(
        "c11",
        r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/resource.h>
        #include <threads.h>
        #include <unistd.h>
        static int work(void *number) { for (int i = 0; i < 1000; i++) free(malloc(i)); return -*(int *)number; }
        static _Atomic int runs;
        static int stays(void *_) { runs = 1; for (;;) pause(); }
        static int ends(void *number) { free(malloc(1)); thrd_exit(*(int *)number); }
        static int creates(int number, int (*how)(void *)) {
            thrd_t thread;
            int result = 0;
            if (thrd_create(&thread, how, &number) != thrd_success || thrd_join(thread, &result) != thrd_success) return 99;
            return result;
        }
        int main() {
            thrd_t staying;
            thrd_create(&staying, stays, 0);
            /* A thread that has not run yet has no known creator. */
            while (!runs) thrd_yield();
            for (int i = 0; i < 5; i++) printf("%d %d\n", creates(i, work), creates(i, ends));
            struct rlimit none = {0, 0};
            setrlimit(RLIMIT_AS, &none);
            thrd_t threads[20];
            for (int i = 0; i < 20; i++) printf("%d\n", thrd_create(&threads[i], work, "   "));
            fflush(stdout);
            quick_exit(0);
        }"#,
    );
    let output = run(&["--json", "--heap-rate", "1"], &program, &[])
        .output()
        .unwrap();
    let alone = std::process::Command::new(&program).output().unwrap();
    // The number of threads that reuse an existing stack differs, so equal lines are merged.
    let said = |output: &std::process::Output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.dedup();
        lines
    };
    assert_eq!(said(&output), said(&alone));
    assert!(said(&alone).contains(&"2".into()), "{alone:?}");
    let (_, reports) = crate::scene::reports(&output);
    assert!(number(&only(reports), "threads") >= 12);
    let out = scene.path("out");
    let status = run(&["--quiet", "--out", out.to_str().unwrap()], &program, &[])
        .status()
        .unwrap();
    assert!(status.success());
    let created = std::process::Command::new(crate::scene::PLIMSOLL)
        .args(["report", "--top"])
        .arg(out.join("threadcreate.pb.gz"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&created.stdout);
    assert!(text.contains("main"), "{text}");
}

#[test]
fn a_program_ends_with_its_last_thread() {
    let scene = Scene::new("last-thread");
    let program = scene.c(
        "last-thread",
        r#"
        #include <pthread.h>
        #include <stdlib.h>
        #include <unistd.h>
        static void at_end(void) { write(1, "at end\n", 7); }
        static void *work(void *argument) { usleep(300000); write(1, "worked\n", 7); return argument; }
        int main() {
            pthread_t thread;
            atexit(at_end);
            pthread_create(&thread, 0, work, 0);
            pthread_detach(thread);
            pthread_exit(0);
        }"#,
    );
    let report = only(same(&program, &[]));
    assert_eq!(report["ending"], "exit");
}

/// Plimsoll's thread has the signal mask of the thread that creates the first thread.
#[test]
fn signals_are_for_the_thread_that_waits_for_them() {
    let scene = Scene::new("sigwait");
    let program = scene.c(
        "sigwait",
        r#"
        #include <pthread.h>
        #include <signal.h>
        #include <stdio.h>
        #include <unistd.h>
        static sigset_t all;
        static volatile int blocked;
        static void *work(void *argument) { pthread_sigmask(SIG_BLOCK, &all, 0); sleep(1); while (!blocked) usleep(1000); kill(getpid(), SIGTERM); return argument; }
        int main() {
            pthread_t thread;
            int signal = 0;
            sigfillset(&all);
            pthread_create(&thread, 0, work, 0);
            pthread_sigmask(SIG_BLOCK, &all, 0);
            blocked = 1;
            sigwait(&all, &signal);
            printf("%d\n", signal);
            return 0;
        }"#,
    );
    only(same(&program, &[]));
}
