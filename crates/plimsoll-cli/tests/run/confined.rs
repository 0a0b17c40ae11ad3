//! Programs that confine themselves: by system call filters, another user, another root directory, limits. They run as
//! they do alone, and report.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::scene::{Scene, number, only, reports, run, same_with};

/// A filter that allows what the C library's allocator and the program need, and answers all else in a way that the first
/// argument chooses; `all` threads of the process in two of the ways.
const FILTER: &str = r#"
    #define _GNU_SOURCE
    #include <errno.h>
    #include <pthread.h>
    #include <signal.h>
    #include <stddef.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>
    #include <unistd.h>
    #include <linux/audit.h>
    #include <linux/filter.h>
    #include <linux/seccomp.h>
    #define ALLOW(n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, n, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    static int confine(const char *way) {
        unsigned refusal = SECCOMP_RET_KILL_PROCESS;
        if (strstr(way, "thread")) refusal = SECCOMP_RET_KILL_THREAD;
        if (strstr(way, "trap")) refusal = SECCOMP_RET_TRAP;
        if (strstr(way, "errno")) refusal = SECCOMP_RET_ERRNO | EPERM;
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_exit), ALLOW(SYS_mmap), ALLOW(SYS_munmap),
            ALLOW(SYS_mremap), ALLOW(SYS_brk), ALLOW(SYS_mprotect), ALLOW(SYS_futex), ALLOW(SYS_madvise),
            BPF_STMT(BPF_RET | BPF_K, refusal),
        };
        struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 1;
        if (strstr(way, "all")) return syscall(SYS_seccomp, 1, SECCOMP_FILTER_FLAG_TSYNC, &program);
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    }
    static void say(const char *text) { write(1, text, strlen(text)); }
    __attribute__((noinline)) static void keep(int count, int size) {
        for (int i = 0; i < count; i++) memset(malloc(size), 1, size);
    }
"#;

const BLOCKS: &str = r#"
    int main(int count, char **way) {
        keep(1000, 3000);
        if (confine(way[1])) return 9;
        keep(10000, 4000);
        for (int i = 0; i < 100000; i++) free(malloc(1000));
        free(malloc(3 << 20));
        say("done\n");
        _exit(4);
    }
"#;

#[test]
fn a_program_with_a_filter_runs_as_alone_and_reports_its_blocks() {
    let scene = Scene::new("filter");
    let program = scene.c("filter", &format!("{FILTER}{BLOCKS}"));
    for way in ["kill", "trap", "errno", "thread", "kill all", "trap all"] {
        for options in [
            &[][..],
            &["--children"],
            &["--wall", "--cpu=200", "--http", "127.0.0.1:0"],
        ] {
            let report = only(same_with(options, &program, &[way]));
            assert_eq!(report["ending"], "_exit", "{way} {options:?}");
            assert!(report["filter_seconds"].as_f64().unwrap() > 0.0);
            assert!(
                number(&report, "mallocs") >= 111_001,
                "{way} {options:?}: {report}"
            );
            assert!(number(&report, "malloc_bytes") > 140_000_000);
            assert_eq!(report["exact"], true, "{way} {options:?}: {report}");
        }
    }
}

#[test]
fn blocks_that_are_allocated_after_the_filter_have_their_sites() {
    let scene = Scene::new("filter-sites");
    let program = scene.c("filter", &format!("{FILTER}{BLOCKS}"));
    let run = run(&["--heap-rate", "50000"], &program, &["kill"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(4), "{text}");
    assert!(
        text.contains("  filter     a system call filter (seccomp) began "),
        "{text}"
    );
    assert!(
        text.contains("\n  heap       42.0 MiB in 11,000 blocks at exit"),
        "{text}"
    );
    // Five standard deviations of 880 samples: a false failure has a probability of 6e-7.
    let share = crate::table::row(&text, "keep < main").number("at exit") / f64::from(42 << 20);
    assert!((share - 1.0).abs() < 0.17, "{share}: {text}");
}

#[test]
fn threads_and_locks_go_on_under_a_filter_of_all_threads() {
    let source = r#"
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static pthread_barrier_t both;
        static void *work(void *way) {
            pthread_barrier_wait(&both);
            pthread_barrier_wait(&both);
            for (int i = 0; i < 20000; i++) {
                pthread_mutex_lock(&lock);
                void *block = malloc(100 + i % 3000);
                pthread_mutex_unlock(&lock);
                free(block);
            }
            return 0;
        }
        int main(int count, char **way) {
            pthread_t threads[3];
            pthread_barrier_init(&both, 0, 4);
            for (int i = 0; i < 3; i++) pthread_create(threads + i, 0, work, 0);
            pthread_barrier_wait(&both);
            int failed = confine(way[1]);
            pthread_barrier_wait(&both);
            for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
            say("joined\n");
            _exit(failed ? 9 : 4);
        }
    "#;
    // Threads end by these calls as well.
    let filter = FILTER.replace(
        "ALLOW(SYS_write)",
        "ALLOW(SYS_rseq), ALLOW(SYS_rt_sigprocmask), ALLOW(SYS_write)",
    );
    let scene = Scene::new("filter-threads");
    let program = scene.c("threads", &format!("{filter}{source}"));
    for way in ["kill all", "trap all", "kill"] {
        for options in [
            &[][..],
            &["--children", "--wall"],
            &["--cpu=500", "--http", "127.0.0.1:0"],
        ] {
            let report = only(same_with(options, &program, &[way]));
            assert!(
                number(&report, "mallocs") >= 60_000,
                "{way} {options:?}: {report}"
            );
        }
    }
}

/// Such as OpenSSH's unprivileged child, and the helpers of browsers.
#[test]
fn forked_children_with_filters_run_as_alone_and_report() {
    let source = r#"
        int main(int count, char **way) {
            // The C library prepares its allocator.
            keep(1, 100);
            for (int i = 0; i < 20; i++) {
                pid_t child = fork();
                if (child == 0) {
                    if (confine(way[1])) _exit(9);
                    keep(100, 2000);
                    _exit(i);
                }
                int status;
                waitpid(child, &status, 0);
                printf("%d %x\n", i, status);
            }
            // A filter in the parent, too, and children that inherit it.
            fflush(stdout);
            return 0;
        }
    "#;
    let scene = Scene::new("filter-children");
    let program = scene.c("children", &format!("{FILTER}{source}"));
    assert_eq!(same_with(&[], &program, &["kill"]).len(), 1);
    for way in ["kill", "trap", "errno"] {
        let reports = same_with(&["--children"], &program, &[way]);
        assert_eq!(reports.len(), 21, "{reports:?}");
        let confined = reports
            .iter()
            .filter(|report| !report["filter_seconds"].is_null());
        for report in confined.clone() {
            assert_eq!(number(report, "mallocs"), 100, "{report}");
            assert_eq!(report["ending"], "_exit");
        }
        assert_eq!(confined.count(), 20);
    }
}

#[test]
fn children_of_a_process_with_a_filter_inherit_it_and_run_as_alone() {
    let source = r#"
        int main(int count, char **way) {
            keep(10, 1000);
            if (confine(way[1])) return 9;
            for (int i = 0; i < 10; i++) {
                pid_t child = fork();
                if (child == 0) {
                    keep(100, 2000);
                    if (i % 3 == 0) _exit(i);
                    if (i % 3 == 1) exit(i);
                    abort();
                }
                int status;
                waitpid(child, &status, 0);
                char line[99];
                snprintf(line, sizeof line, "%d %x\n", i, status);
                say(line);
            }
            exit(3);
        }
    "#;
    // Also what `fork`, `waitpid` and `abort` need.
    let filter = FILTER.replace(
        "ALLOW(SYS_write)",
        "ALLOW(SYS_clone), ALLOW(SYS_wait4), ALLOW(SYS_set_robust_list), ALLOW(SYS_rt_sigprocmask), ALLOW(SYS_tgkill), \
         ALLOW(SYS_gettid), ALLOW(SYS_getpid), ALLOW(SYS_write)",
    );
    let scene = Scene::new("filter-inherited");
    let program = scene.c("inherited", &format!("{filter}{source}"));
    for options in [&[][..], &["--children"]] {
        for way in ["kill", "errno"] {
            let reports = same_with(options, &program, &[way]);
            let parent = reports
                .iter()
                .find(|report| report["ending"] == "exit")
                .expect("the parent");
            assert_eq!(number(parent, "mallocs"), 10, "{parent}");
        }
    }
}

#[test]
fn the_strict_mode_is_survived() {
    let source = r#"
        int main(int count, char **way) {
            keep(1000, 1000);
            void *block = malloc(100000);
            if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 9;
            for (int i = 0; i < 10000; i++) free(malloc(100));
            say("strict\n");
            syscall(SYS_exit, 3);
        }
    "#;
    let scene = Scene::new("strict");
    let program = scene.c("strict", &format!("{FILTER}{source}"));
    for options in [
        &[][..],
        &["--children"],
        &["--heap-rate", "1000"],
        &["--wall"],
    ] {
        let report = only(same_with(options, &program, &[]));
        assert!(number(&report, "mallocs") >= 11_001, "{report}");
    }
}

/// Sandboxes change the root directory in such a child, which shares the memory and whose storage for threads is zeros.
#[test]
fn a_child_in_the_same_memory_without_storage_for_threads_runs_as_alone() {
    let source = r#"
        #define _GNU_SOURCE
        #include <sched.h>
        #include <signal.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/resource.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static char stack[1 << 16], storage[1 << 16];
        static char *program;
        static int child(void *executes) {
            struct rlimit limit = {8, 8};
            chroot("/");
            chdir("/");
            setrlimit(RLIMIT_NOFILE, &limit);
            if (executes) {
                char *arguments[] = {program, "again", 0}, *environment[] = {0};
                execve(program, arguments, environment);
            }
            _exit(5);
        }
        int main(int count, char **arguments) {
            if (count > 1) return 6;
            char path[4096] = {0};
            readlink("/proc/self/exe", path, sizeof path - 1);
            program = path;
            for (long executes = 0; executes < 2; executes++) {
                free(malloc(100));
                int flags = CLONE_VM | CLONE_VFORK | CLONE_SETTLS | SIGCHLD, status = -1;
                int pid = clone(child, stack + sizeof stack, flags, (void *)executes, 0, storage + sizeof storage / 2, 0);
                waitpid(pid, &status, 0);
                printf("status %d, signal %d\n", WEXITSTATUS(status), WTERMSIG(status));
            }
            return 3;
        }
    "#;
    let scene = Scene::new("same-memory");
    let program = scene.c("same-memory", source);
    for options in [&[][..], &["--children"], &["--heap-rate", "1"]] {
        let reports = same_with(options, &program, &[]);
        assert!(!reports.is_empty());
    }
}

/// The system kills such a process for a call that the program makes; its status must be the same.
#[test]
fn a_call_that_a_filter_forbids_ends_the_program_as_alone() {
    let source = r#"
        static void *work(void *way) { getppid(); return 0; }
        int main(int count, char **way) {
            keep(10, 1000);
            pthread_t thread;
            if (strstr(way[1], "second")) {
                pthread_create(&thread, 0, work, 0);
                pthread_join(thread, 0);
            }
            if (confine(way[1])) return 9;
            keep(1000, 1000);
            say("before\n");
            getppid();
            say("after\n");
            _exit(4);
        }
    "#;
    let scene = Scene::new("forbidden");
    let program = scene.c("forbidden", &format!("{FILTER}{source}"));
    for way in [
        "kill",
        "trap",
        "thread",
        "errno",
        "kill second",
        "thread second all",
        "trap second all",
    ] {
        for options in [
            &[][..],
            &["--children"],
            &["--wall", "--http", "127.0.0.1:0", "--memory-limit", "1g"],
        ] {
            let status = |mut command: Command| {
                let output = command.stderr(Stdio::null()).output().unwrap();
                (output.status.code(), output.status.signal(), output.stdout)
            };
            let mut alone = Command::new(&program);
            alone.arg(way);
            let by_plimsoll = run(options, &program, &[way]);
            assert_eq!(status(by_plimsoll), status(alone), "{way} {options:?}");
        }
    }
}

/// A filter that the kernel refuses changes nothing.
#[test]
fn a_filter_that_is_refused_leaves_everything_as_it_was() {
    let source = r#"
        int main() {
            struct sock_filter invalid[] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 3), BPF_STMT(BPF_RET | BPF_K, 0) };
            struct sock_fprog program = { 2, invalid }, none = { 0, 0 };
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            printf("%d\n", prctl(PR_SET_SECCOMP, 2, &program));
            printf("%d\n", prctl(PR_SET_SECCOMP, 2, 0));
            printf("%d\n", prctl(PR_SET_SECCOMP, 2, 8));
            printf("%ld\n", syscall(SYS_seccomp, 1, 0, &none));
            printf("%ld\n", syscall(SYS_seccomp, 1, SECCOMP_FILTER_FLAG_TSYNC, 0));
            printf("%ld\n", syscall(SYS_seccomp, 7, 0, 0));
            fflush(stdout);
            keep(1000, 1000);
            raise(SIGTERM);
        }
    "#;
    let scene = Scene::new("refused-filter");
    let program = scene.c("refused", &format!("{FILTER}{source}"));
    let report = only(same_with(&[], &program, &[]));
    // Handlers of signals report, as they do without filters.
    assert_eq!(report["ending"], "SIGTERM");
    assert!(report["filter_seconds"].is_null());
    assert!(!report["memory"].is_null());
}

#[test]
fn programs_that_are_executed_under_a_filter_run_as_alone() {
    let source = r#"
        extern char **environ;
        int main(int count, char **way) {
            keep(10, 1000);
            if (confine(way[1])) return 9;
            char *arguments[] = { "sh", "-c", "echo executed; exit 5", 0 };
            execve("/bin/sh", arguments, environ);
            return 8;
        }
    "#;
    // The new program needs most calls; those that Plimsoll makes in addition are forbidden.
    let filter = FILTER.replace("refusal),\n        };", "SECCOMP_RET_ALLOW),\n        };");
    let filter = filter.replace(
        "ALLOW(SYS_write)",
        "BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1), BPF_STMT(BPF_RET | BPF_K, refusal), \
         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 1), BPF_STMT(BPF_RET | BPF_K, refusal), \
         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1), BPF_STMT(BPF_RET | BPF_K, refusal), \
         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_getaffinity, 0, 1), BPF_STMT(BPF_RET | BPF_K, refusal), \
         ALLOW(SYS_write)",
    );
    let scene = Scene::new("filter-exec");
    let program = scene.c("executes", &format!("{filter}{source}"));
    for options in [&[][..], &["--children"]] {
        for way in ["kill", "trap"] {
            let reports = same_with(options, &program, &[way]);
            assert!(
                reports.iter().all(|report| report["ending"] == "exec"),
                "{reports:?}"
            );
        }
    }
}

/// A filter that was there before `plimsoll run`: one that fails calls is tolerated; one that ends processes leaves the
/// program unobserved.
#[test]
fn a_filter_around_the_command_harms_no_program() {
    let source = r#"
        extern char **environ;
        int main(int count, char **arguments) {
            unsigned refusal = arguments[1][0] == 'k' ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM;
            struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1), BPF_STMT(BPF_RET | BPF_K, refusal),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_timer_create, 0, 1), BPF_STMT(BPF_RET | BPF_K, refusal),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
            };
            struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 9;
            execve(arguments[2], arguments + 2, environ);
            return 8;
        }
    "#;
    let scene = Scene::new("filter-around");
    let around = scene.c("around", &format!("{FILTER}{source}"));
    let inner = scene.c(
        "inner",
        &format!("{FILTER}int main() {{ keep(100, 3000); say(\"inner\\n\"); return 5; }}"),
    );
    for (way, is_observed) in [("errno", true), ("kill", false)] {
        let output = Command::new(&around)
            .args([way, crate::scene::PLIMSOLL, "run", "--json", "--"])
            .arg(&inner)
            .output()
            .unwrap();
        let (errors, reports) = reports(&output);
        assert_eq!(output.status.code(), Some(5), "{way}: {errors}");
        assert_eq!(output.stdout, b"inner\n");
        assert_eq!(reports.len(), usize::from(is_observed), "{way}: {errors}");
        let expected = "a system call filter (seccomp) that plimsoll was started with";
        assert_eq!(errors.contains(expected), !is_observed, "{way}: {errors}");
    }
}

/// What the program does, and what root alone may do.
#[test]
fn programs_that_confine_themselves_otherwise_report_to_the_end() {
    let source = r#"
        #include <sched.h>
        #include <sys/mount.h>
        #include <sys/resource.h>
        #include <sys/stat.h>
        int main(int count, char **way) {
            keep(1000, 3000);
            struct rlimit none = { 0, 0 }, few = { 3, 3 };
            int failed = 0;
            if (!strcmp(way[1], "file size")) failed = setrlimit(RLIMIT_FSIZE, &none);
            if (!strcmp(way[1], "file size by prlimit")) failed = prlimit(0, RLIMIT_FSIZE, &none, 0);
            if (!strcmp(way[1], "descriptors")) failed = setrlimit(RLIMIT_NOFILE, &few);
            if (!strcmp(way[1], "root")) failed = chroot("/usr/share") || chdir("/");
            if (!strcmp(way[1], "root by number")) failed = syscall(SYS_chroot, "/usr/share") || chdir("/");
            if (!strcmp(way[1], "user")) failed = setgid(65534) || setuid(65534);
            if (!strcmp(way[1], "mounts")) {
                failed = unshare(CLONE_NEWNS) || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0)
                    || mount("t", "/dev/shm", "tmpfs", 0, 0) || mount("t", "/tmp", "tmpfs", 0, 0);
            }
            if (failed) return 9;
            keep(1000, 3000);
            return 3;
        }
    "#;
    let scene = Scene::new("confined");
    let program = scene.c("confined", &format!("{FILTER}{source}"));
    // SAFETY: `geteuid` takes no arguments.
    let is_root = unsafe { libc::geteuid() } == 0;
    let for_root = ["root", "root by number", "user", "mounts"];
    let for_all = ["file size", "file size by prlimit", "descriptors"];
    for way in for_all
        .into_iter()
        .chain(for_root.into_iter().filter(|_| is_root))
    {
        for options in [&[][..], &["--children"]] {
            let report = only(same_with(options, &program, &[way]));
            assert_eq!(report["ending"], "exit", "{way}");
            assert!(number(&report, "mallocs") >= 2000, "{way}: {report}");
        }
    }
}

/// The loader prints an error for a preloaded library that it cannot open.
#[test]
fn a_program_that_does_not_see_the_library_is_executed_without_it() {
    // SAFETY: `geteuid` takes no arguments.
    if unsafe { libc::geteuid() } != 0 {
        plimsoll_testkit::skip!("only root can hide directories");
        return;
    }
    let source = r#"
        #include <sched.h>
        #include <sys/mount.h>
        extern char **environ;
        int main(int count, char **way) {
            int w = atoi(way[1]);
            keep(100, 1000);
            if (unshare(CLONE_NEWNS) || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0)
                || mount("t", "/var/cache", "tmpfs", 0, 0) || mount("t", "/dev/shm", "tmpfs", 0, 0))
                return 9;
            pid_t child = w & 8 ? vfork() : fork();
            if (child == 0) {
                char *arguments[] = { "sh", "-c", "echo $0 $1 [$LD_PRELOAD]; exit 5", "a", "b", 0 };
                switch (w & 7) {
                case 0: execv("/bin/sh", arguments); break;
                case 1: execvp("sh", arguments); break;
                case 2: execve("/bin/sh", arguments, environ); break;
                case 3: execl("/bin/sh", "sh", "-c", "echo $0 $1 [$LD_PRELOAD]; exit 5", "a", "b", (char *)0); break;
                case 4: execlp("sh", "sh", "-c", "echo $0 $1 [$LD_PRELOAD]; exit 5", "a", "b", (char *)0); break;
                case 5: execle("/bin/sh", "sh", "-c", "echo $0 $1 [$LD_PRELOAD]; exit 5", "a", "b", (char *)0, environ);
                        break;
                default: execvpe("sh", arguments, environ);
                }
                _exit(8);
            }
            int status;
            waitpid(child, &status, 0);
            return WEXITSTATUS(status);
        }
    "#;
    let scene = Scene::new("invisible");
    let program = scene.c("invisible", &format!("{FILTER}{source}"));
    for way in 0..15 {
        same_with(&["--children"], &program, &[&way.to_string()]);
    }
    // Another library that is preloaded stays.
    let other = scene.compile("cc", "other.so", "int other;", &["-shared", "-fPIC"]);
    let output = run(&["--children", "-q"], &program, &["2"])
        .env("LD_PRELOAD", &other)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed, format!("a b [{}]\n", other.display()));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// A process with a filter that kills by one call executes programs that do not make it.
#[test]
fn programs_execute_under_a_filter_that_kills_by_one_call() {
    let scene = Scene::new("kills-by-one");
    let program = scene.c(
        "kills",
        r#"
        #include <linux/filter.h>
        #include <linux/seccomp.h>
        #include <stddef.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/prctl.h>
        #include <sys/syscall.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static int kills(int call) {
            struct sock_filter rules[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
            };
            struct sock_fprog filter = { 4, rules };
            return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
        }
        int main() {
            int calls[] = {
                SYS_getpid, SYS_gettid, SYS_rt_sigprocmask, SYS_rt_sigaction, SYS_lseek, SYS_membarrier, SYS_clone,
                SYS_clone3, SYS_prlimit64, SYS_madvise, SYS_clock_gettime, SYS_sched_getaffinity, SYS_ioctl, SYS_fcntl,
                SYS_readlink, SYS_getrandom, SYS_futex, SYS_prctl, SYS_statx, SYS_getdents64, SYS_sigaltstack,
                SYS_process_vm_readv, SYS_timer_create, SYS_socketpair, SYS_memfd_create, SYS_ftruncate, SYS_getuid,
            };
            for (int i = 0; i < sizeof calls / sizeof *calls; i++) {
                pid_t child = fork();
                if (!child) {
                    if (kills(calls[i])) _exit(9);
                    execl("/bin/echo", "echo", "executed", (char *)0);
                    _exit(8);
                }
                int status;
                waitpid(child, &status, 0);
                printf("%d: %x\n", calls[i], status);
                fflush(stdout);
            }
            return 0;
        }"#,
    );
    let alone = std::process::Command::new(&program).output().unwrap();
    assert!(alone.status.success());
    let alone = String::from_utf8(alone.stdout).unwrap();
    for options in [&["--quiet"][..], &["--quiet", "--children"]] {
        let observed = run(options, &program, &[]).output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&observed.stdout),
            alone,
            "{options:?}"
        );
    }
}

/// Some parts can only be separated by a process of one thread, which the program is without Plimsoll's threads.
#[test]
fn a_program_of_one_thread_separates_its_parts() {
    let scene = Scene::new("separates");
    let program = scene.c(
        "separates",
        r#"
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <pthread.h>
        #include <sched.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        static volatile int id;
        static void *thread(void *_) { id = syscall(SYS_gettid); return malloc(100); }
        int main() {
            pthread_t other;
            pthread_create(&other, 0, thread, 0);
            pthread_join(other, 0);
            /* The kernel counts a thread for a moment after its end. */
            while (!syscall(SYS_tgkill, getpid(), id, 0)) usleep(1000);
            printf("%d", unshare(CLONE_VM));
            printf(" %d", unshare(CLONE_SIGHAND));
            printf(" %d", setns(open("/proc/self/ns/mnt", O_RDONLY), CLONE_NEWNS) != 0 && geteuid() == 0);
            printf(" %d\n", unshare(CLONE_NEWUSER) != 0 && access("/proc/sys/user/max_user_namespaces", F_OK) == 0);
            return 0;
        }"#,
    );
    for options in [&[][..], &["--wall"], &["--cpu"], &["--heap-rate", "1"]] {
        only(same_with(options, &program, &[]));
    }
}
