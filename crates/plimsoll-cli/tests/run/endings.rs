//! Each way to end, and each way to execute another program: with a report, and otherwise
//! unchanged.

use plimsoll_sys::os::signals::{self, FATAL, Fatal};

use crate::scene::{Scene, number, only, run, same, same_with};

const ENDINGS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static void later(void) { free(malloc(77)); puts("at exit"); }
static void *ends(void *how) { _exit(11); }
static void *idles(void *how) { for (;;) pause(); }
#ifdef __x86_64__
#define BREAKPOINT "int3"
#else
#define BREAKPOINT "brk 0"
#endif
static void deeper(int depth) { volatile char room[4096]; room[0] = depth; deeper(depth + 1); room[1] = 1; }
int main(int count, char **arguments) {
    char *environment[] = {"A=1", "B=2", 0};
    char *env[] = {"env", 0}, *echo[] = {"echo", "x", "y", 0};
    const char *how = arguments[1];
    /* What has started the tests may block signals, as perf does. */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, 0);
    for (int i = 0; i < 100; i++) malloc(1000);
    fflush(stdout);
    int result = 0;
#define IS(word) (!strcmp(how, word))
    if (IS("return")) return 3;
    if (IS("exit")) { atexit(later); exit(4); }
    if (IS("_exit")) _exit(5);
    if (IS("_Exit")) _Exit(6);
    if (IS("quick_exit")) { at_quick_exit(later); quick_exit(7); }
    if (IS("abort")) abort();
    if (IS("raise")) raise(atoi(arguments[2]));
    if (IS("kill")) { kill(getpid(), atoi(arguments[2])); pause(); }
    if (IS("segv")) *(volatile int *)0 = 1;
    if (IS("overflow")) deeper(0);
    if (IS("sigsys")) {
        unsigned long action[4] = {1};
        syscall(SYS_rt_sigaction, SIGSYS, 0, action, 8);
        puts(action[0] ? "changed" : "default");
        fflush(stdout);
        raise(SIGSYS);
    }
    if (IS("breakpoint")) __asm__ volatile(BREAKPOINT);
    if (IS("bus")) {
        /* The allocator writes to a page behind the end of a file, while it holds its lock. */
        pthread_t t; pthread_create(&t, 0, idles, 0);
        char *from = (char *)(((size_t)malloc(1) | 4095) + 1), *to = sbrk(0);
        int file = memfd_create("empty", 0);
        mmap(from, to - from, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
        for (int i = 0; i < 1000; i++) malloc(1000);
    }
    if (IS("thread")) { pthread_t t; pthread_create(&t, 0, ends, 0); pause(); }
    if (IS("pthread_exit")) pthread_exit(0);
    if (IS("inside")) { /* a signal while a block is made */
        signal(SIGALRM, SIG_DFL); ualarm(20000, 0);
        for (;;) free(malloc(1 + rand() % 100000));
    }
    if (IS("execl")) result = execl("/bin/echo", "echo", "1", "2", "3", "4", "5", "6", "7", "8", NULL);
    if (IS("execlp")) result = execlp("echo", "echo", "1", "2", "3", "4", "5", "6", "7", "8", NULL);
    if (IS("execle")) result = execle("/usr/bin/env", "env", NULL, environment);
    if (IS("execle-long")) result = execle("/bin/sh", "sh", "-c", "echo $1 $2 $3 $4 $A", "sh", "1", "2", "3", "4", "5", NULL, environment);
    if (IS("execv")) result = execv("/bin/echo", echo);
    if (IS("execvp")) result = execvp("echo", echo);
    if (IS("execve")) result = execve("/usr/bin/env", env, environment);
    if (IS("execvpe")) result = execvpe("env", env, environment);
    if (IS("fexecve")) result = fexecve(open("/usr/bin/env", O_RDONLY), env, environment);
    if (IS("execveat")) result = execveat(open("/usr/bin", O_PATH), "env", env, environment, 0);
    if (IS("fails")) { result = execl("/none", "1", "2", "3", "4", "5", "6", "7", "8", NULL); malloc(5000); }
    if (IS("fails-too")) { result = execvp("/", echo); malloc(5000); }
    if (IS("fork")) { if (!fork()) { free(malloc(10)); _exit(1); } wait(0); return 12; }
    if (IS("fork-exit")) { if (!fork()) exit(1); wait(0); return 12; }
    if (IS("fork-exec")) { if (!fork()) { execl("/bin/echo", "echo", "child", NULL); } wait(0); return 12; }
    if (IS("vfork")) { if (!vfork()) { execl("/bin/echo", "echo", "child", NULL); _exit(1); } wait(0); return 12; }
    if (IS("vfork-exit")) { if (!vfork()) _exit(1); wait(0); return 12; }
    if (IS("system")) { system("echo child; exit 3"); return 12; }
    if (IS("fork-kill")) { int s; if (!fork()) raise(SIGTERM); wait(&s); printf("%d\n", s); return 12; }
    printf("%d %s\n", result, strerror(errno));
    return 13;
}
"#;

#[test]
fn every_ending_is_as_without_and_reported() {
    let scene = Scene::new("endings");
    let program = scene.c("endings", ENDINGS);
    for (how, ending) in [
        ("return", "exit"),
        ("exit", "exit"),
        ("_exit", "_exit"),
        ("_Exit", "_Exit"),
        ("quick_exit", "quick_exit"),
        ("abort", "SIGABRT"),
        ("segv", "SIGSEGV"),
        ("thread", "_exit"),
        ("pthread_exit", "exit"),
        ("inside", "SIGALRM"),
    ] {
        let report = only(same(&program, &[how]));
        assert_eq!(report["ending"], ending, "{how}");
        assert!(number(&report, "mallocs") >= 100, "{how}");
        assert!(number(&report, "asked_bytes") >= 100_000, "{how}");
    }
}

#[test]
fn allocations_at_exit_are_counted() {
    let scene = Scene::new("at-exit");
    let program = scene.c("endings", ENDINGS);
    let mallocs = |how: &str| number(&only(same(&program, &[how])), "mallocs");
    // Exit allocates the block, and the buffer of standard output.
    assert_eq!(mallocs("exit"), mallocs("return") + 2);
}

/// Destructors of libraries run after the program's own, and after its exit handlers.
#[test]
fn allocations_in_destructors_are_counted() {
    let scene = Scene::new("destructors");
    let source = r#"
        #include <stdlib.h>
        #include <unistd.h>
        void *kept_by_library;
        __attribute__((destructor)) static void last(void) { kept_by_library = malloc(1000000); write(1, "last\n", 5); }
    "#;
    let library = scene.compile("cc", "liblast.so", source, &["-shared", "-fPIC"]);
    let source = r#"
        #include <stdlib.h>
        #include <unistd.h>
        extern void *kept_by_library;
        static void *kept;
        static void at_end(void) { kept = malloc(100000); write(1, "at end\n", 7); }
        __attribute__((destructor)) static void late(void) { kept = malloc(10000); write(1, "late\n", 5); }
        int main() { atexit(at_end); return kept_by_library != 0; }
    "#;
    for options in [&["-no-pie", "-fno-pie"][..], &[]] {
        let options = [options, &[library.to_str().unwrap()]].concat();
        let program = scene.compile("cc", "destructors", source, &options);
        let report = only(same(&program, &[]));
        assert_eq!(report["ending"], "exit");
        assert_eq!(number(&report, "asked_bytes"), 1_110_000, "{report}");
    }
}

#[test]
fn every_fatal_signal_ends_it_as_without() {
    let scene = Scene::new("fatal");
    let program = scene.c("endings", ENDINGS);
    // A shell makes its background jobs ignore these signals, as nohup does, and programs inherit that.
    // SAFETY: sets dispositions that no handler of this process replaces.
    unsafe {
        libc::signal(libc::SIGHUP, libc::SIG_DFL);
        libc::signal(libc::SIGINT, libc::SIG_DFL);
        libc::signal(libc::SIGQUIT, libc::SIG_DFL);
    }
    let handled = FATAL.iter().filter(|signal| signal.number != libc::SIGSYS);
    for Fatal {
        number: signal,
        name,
        ..
    } in handled
    {
        for how in ["raise", "kill"] {
            let report = only(same(&program, &[how, &signal.to_string()]));
            assert_eq!(number(&report, "mallocs"), 100, "{how} {name}: {report}");
            assert_eq!(report["ending"], *name, "{how}");
            let has_account = report["memory"].is_object();
            assert_eq!(has_account, !signals::is_fault(name), "{how}: {report}");
        }
    }
}

/// Sandboxes reserve this signal for system call filters.
#[test]
fn the_signal_of_filters_keeps_its_default_action() {
    let scene = Scene::new("of-filters");
    let program = scene.c("endings", ENDINGS);
    let alone = std::process::Command::new(&program)
        .arg("sigsys")
        .output()
        .unwrap();
    let beside = run(&["--quiet"], &program, &["sigsys"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&alone.stdout), "default\n");
    assert_eq!((beside.stdout, beside.status), (alone.stdout, alone.status));
}

/// An account of the memory would wait for a lock that the interrupted thread holds.
#[test]
fn a_fault_inside_the_allocator_is_reported_without_a_wait() {
    let scene = Scene::new("inside-allocator");
    let program = scene.c("endings", ENDINGS);
    // A report of a fatal signal that waited for too long would be given up.
    let report = only(same(&program, &["bus"]));
    assert_eq!(report["ending"], "SIGBUS");
}

/// The program goes on behind the instruction when the handler returns.
#[test]
fn a_breakpoint_ends_it_as_without() {
    let scene = Scene::new("breakpoint");
    let report = only(same(scene.c("endings", ENDINGS), &["breakpoint"]));
    assert_eq!(report["ending"], "SIGTRAP");
}

/// A full stack has no space for a report; the exit status stays the same.
#[test]
fn a_stack_that_overflows_ends_it_as_without() {
    let scene = Scene::new("overflow");
    let program = scene.c("endings", ENDINGS);
    let alone = std::process::Command::new(&program)
        .arg("overflow")
        .output()
        .unwrap();
    let run = crate::scene::run(&["--quiet"], &program, &["overflow"])
        .output()
        .unwrap();
    assert_eq!(run.status, alone.status);
}

#[test]
fn a_program_executed_in_place_reports() {
    let scene = Scene::new("execute");
    let program = scene.c("endings", ENDINGS);
    for how in [
        "execl",
        "execlp",
        "execle",
        "execle-long",
        "execv",
        "execvp",
        "execve",
        "execvpe",
        "fexecve",
        "execveat",
    ] {
        let report = only(same(&program, &[how]));
        let executed = report["program"].as_str().unwrap();
        assert!(!executed.ends_with("endings"), "{how}: {executed}");
    }
}

#[test]
fn a_failed_exec_changes_nothing() {
    let scene = Scene::new("fails");
    let program = scene.c("endings", ENDINGS);
    for how in ["fails", "fails-too"] {
        let report = only(same(&program, &[how]));
        assert!(report["program"].as_str().unwrap().ends_with("endings"));
        assert_eq!(report["ending"], "exit");
        // The figures include allocations after the failure.
        assert!(number(&report, "asked_bytes") >= 105_000, "{report}");
    }
}

#[test]
fn children_are_not_followed_by_default() {
    let scene = Scene::new("children");
    let program = scene.c("endings", ENDINGS);
    for (how, children) in [
        ("fork", 1),
        ("fork-exit", 1),
        ("fork-exec", 1),
        ("vfork", 1),
        ("vfork-exit", 0),
        ("system", 1),
        ("fork-kill", 1),
    ] {
        let report = only(same(&program, &[how]));
        assert_eq!(report["ending"], "exit", "{how}");
        let reports = same_with(&["--children"], &program, &[how]);
        assert_eq!(reports.len(), 1 + children, "{how}: {reports:?}");
    }
}

#[test]
fn a_library_that_children_still_use_is_not_an_old_one() {
    let scene = Scene::new("library-in-use");
    let script = "library=${LD_PRELOAD%%:*}; echo $library
        LD_PRELOAD= touch -d '60 days ago' $library
        $1; exit 0";
    // Depends on whether the last command has the library preloaded.
    let age_with = |last: &str| {
        let mut command = run(
            &["--quiet", "--children"],
            "/bin/sh",
            &["-c", script, "-", last],
        );
        let output = command.env("XDG_CACHE_HOME", scene.path("cache")).output();
        let output = output.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let library = text.lines().next().unwrap();
        assert!(library.ends_with("libplimsoll_preload.so"), "{text}");
        let used = std::fs::metadata(library).unwrap().modified().unwrap();
        used.elapsed().unwrap_or_default().as_secs() / (24 * 60 * 60)
    };
    assert_eq!(age_with("true"), 60);
    assert_eq!(age_with("/bin/true"), 0);
}

const FAULTS: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/resource.h>
    #include <sys/wait.h>
    #include <unistd.h>
    int main(void) {
        void *block = malloc(100);
        if (fork() == 0) {
            struct rusage usage;
            getrusage(RUSAGE_SELF, &usage);
            printf("%ld\n", usage.ru_minflt);
            fflush(stdout);
            _exit(block == NULL);
        }
        wait(NULL);
        return 0;
    }"#;

/// Most of the cost of a fork are pages that the child touches for the first time.
#[test]
fn a_forks_child_touches_little_more_memory_than_without() {
    let scene = Scene::new("faults");
    let program = scene.c("faults", FAULTS);
    let faults = |output: std::process::Output| -> u64 {
        let text = String::from_utf8(output.stdout).unwrap();
        text.trim().parse().unwrap()
    };
    let alone = faults(std::process::Command::new(&program).output().unwrap());
    let beside = faults(run(&["--quiet"], &program, &[]).output().unwrap());
    assert!(beside < alone + 60, "{alone} alone, {beside}");
}

/// Standard descriptors that are closed stay closed.
#[test]
fn closed_standard_descriptors_stay_closed() {
    for closed in ["<&-", ">&-", "2>&-", "<&- >&-"] {
        let status = |command: &str| {
            let script = format!("{command} {closed}; echo $?");
            let output = std::process::Command::new("/bin/sh")
                .args(["-c", &script])
                .output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        for program in [
            "/bin/cat /dev/null -",
            "/bin/ls /proc/self/fd/0",
            "/bin/sh -c 'echo text'",
        ] {
            let observed = format!("{} run --quiet -- {program}", crate::scene::PLIMSOLL);
            assert_eq!(status(&observed), status(program), "{program} {closed}");
        }
    }
}
