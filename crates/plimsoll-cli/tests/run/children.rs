//! Child processes: their reports and their pages.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::port::Port;
use crate::scene::{Scene, number, report, reports, run};
use crate::table::{self, Row};

const FORKS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static char *blocks[1000];
__attribute__((noinline)) static void of_parent(void) { for (int i = 0; i < 1000; i++) blocks[i] = malloc(50000); }
__attribute__((noinline)) static void of_child(void) { for (int i = 0; i < 200; i++) *(volatile char *)malloc(50000) = 1; }
__attribute__((noinline)) static void of_grandchild(void) { for (int i = 0; i < 3; i++) *(volatile char *)malloc(50000) = 1; }
int main() {
    of_parent();
    struct timespec time = {0, 300000000};
    nanosleep(&time, 0);
    if (!fork()) {
        of_child();
        for (int i = 0; i < 10; i++) free(blocks[i]);
        if (!fork()) { of_grandchild(); _exit(0); }
        wait(0);
        _exit(0);
    }
    wait(0);
    return 0;
}"#;

/// The first thread of a child continues one of its parent's, which has another besides it. Both children
/// rename theirs, which must make no rows.
#[test]
fn a_forked_childs_threads_are_those_that_it_created() {
    const THREADS: &str = r#"
        #include <pthread.h>
        #include <sys/prctl.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static pthread_barrier_t all;
        static void *waits(void *none) { pthread_barrier_wait(&all); for (;;) pause(); }
        __attribute__((noinline)) static void of_parent(void) {
            pthread_t thread;
            pthread_create(&thread, 0, waits, 0);
        }
        __attribute__((noinline)) static void of_child(void) {
            pthread_t thread;
            for (int i = 0; i < 2; i++) pthread_create(&thread, 0, waits, 0);
        }
        int main() {
            pthread_barrier_init(&all, 0, 2);
            of_parent();
            pthread_barrier_wait(&all);
            if (!fork()) {
                prctl(PR_SET_NAME, "child");
                if (!fork()) {
                    prctl(PR_SET_NAME, "grandchild");
                    _exit(0);
                }
                wait(0);
                pthread_barrier_init(&all, 0, 3);
                of_child();
                pthread_barrier_wait(&all);
                _exit(0);
            }
            wait(0);
            return 0;
        }"#;
    let scene = Scene::new("child-threads");
    let program = scene.c("threads", THREADS);
    let out = scene.path("out");
    let options = ["--children", "--out", out.to_str().unwrap()];
    let output = run(&options, &program, &[]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let files = std::fs::read_dir(&out)
        .unwrap()
        .map(|file| file.unwrap().file_name());
    let is_created = |name: &String| name.ends_with(".threadcreate.pb.gz");
    let created: Vec<String> = files
        .filter_map(|name| name.into_string().ok())
        .filter(is_created)
        .collect();
    let [child] = &created[..] else {
        panic!("{created:?}");
    };
    let top = |file: &str| {
        let top = std::process::Command::new(crate::scene::PLIMSOLL)
            .args(["report", "--top"])
            .arg(out.join(file))
            .output()
            .unwrap();
        String::from_utf8_lossy(&top.stdout).into_owned()
    };
    let of_child = top(child);
    assert!(
        of_child.contains("accounting for 2, 100% of 2 total"),
        "{of_child}"
    );
    assert!(
        of_child.contains("of_child") && !of_child.contains("unknown"),
        "{of_child}"
    );
    let of_parent = top("threadcreate.pb.gz");
    assert!(
        of_parent.contains("of_parent") && of_parent.contains("unknown creator"),
        "{of_parent}"
    );
}

#[test]
fn a_forked_childs_report_is_of_its_own_life() {
    let scene = Scene::new("own-life");
    let program = scene.c("forks", FORKS);
    let options = ["--children", "--heap-rate", "1"];
    let output = run(&[&options[..], &["--json"]].concat(), &program, &[])
        .output()
        .unwrap();
    let mut all = reports(&output).1;
    all.sort_by_key(|report| number(report, "mallocs"));
    let [grandchild, child, parent] = &all[..] else {
        panic!("{all:?}");
    };
    let seconds = |report: &Value| report["seconds"].as_f64().unwrap();
    // The parent waits for the child, which started 0.3 s later.
    assert!(seconds(child) + 0.3 <= seconds(parent), "{child} {parent}");
    assert_eq!(parent["inherited"], Value::Null);
    assert!(number(parent, "mallocs") >= 1000);
    for (report, mallocs, frees, inherited) in [(child, 200, 10, 1000), (grandchild, 3, 0, 1190)] {
        assert_eq!(number(report, "mallocs"), mallocs, "{report}");
        assert_eq!(number(report, "frees"), frees, "{report}");
        assert_eq!(number(report, "asked_bytes"), mallocs * 50_000, "{report}");
        assert_eq!(number(report, "threads"), 1, "{report}");
        let [blocks, bytes] = [0, 1].map(|at| report["inherited"][at].as_u64().unwrap());
        assert!((inherited..inherited + 50).contains(&blocks), "{report}");
        assert!(bytes >= inherited * 50_000, "{report}");
        // The peak is checked after each MiB.
        let (own, peak) = (mallocs * 50_000, number(report, "peak_bytes"));
        assert!((own - own / 4..=own + 50_000).contains(&peak), "{report}");
    }

    let output = run(&options, &program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let section = |report: &str| {
        let sections = text.split("plimsoll: ");
        let mut found = sections.filter(|section| section.contains(report));
        found
            .next()
            .unwrap_or_else(|| panic!("{report}: {text}"))
            .to_owned()
    };
    let of_child = section(" of_child (");
    // The parent's blocks appear only among those that the child freed.
    let is_of_parent = |row: &&Row| row.site.starts_with("of_parent");
    if let Some(of_parent) = table::rows(&of_child).iter().find(is_of_parent) {
        for column in ["at peak", "at exit", "resident", "allocated", "calls"] {
            assert!(matches!(of_parent.cell(column), "-" | ""), "{of_child}");
        }
    }
    assert!(
        of_child.contains("more, in 190 blocks more, at exit than at the fork"),
        "{of_child}"
    );
    assert!(of_child.contains("\n  inherited  "), "{of_child}");
    let at_peak = table::row(&of_child, "of_child < main").number("at peak");
    assert!(
        (9.4..9.6).contains(&(at_peak / f64::from(1 << 20))),
        "{of_child}"
    );
    let of_grandchild = section(" of_grandchild (");
    assert!(!of_grandchild.contains(" of_child ("), "{of_grandchild}");
}

const FREED_BEFORE: &str = r#"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void *blocks[100];
__attribute__((noinline)) static void of_parent(void) {
    for (int i = 0; i < 100; i++) blocks[i] = malloc(500000);
    for (int i = 0; i < 100; i++) free(blocks[i]);
}
__attribute__((noinline)) static void of_child(void) {
    for (int i = 0; i < 100; i++) blocks[i] = malloc(50000);
}
int main() {
    /* After the first child without new samples, after an event, and of a child. */
    for (int i = 0; i < 3; i++) {
        if (i % 2 == 0) of_parent();
        if (!fork()) {
            of_child();
            if (i == 2 && !fork()) { of_child(); _exit(0); }
            while (wait(0) > 0) {}
            _exit(0);
        }
        wait(0);
    }
    return 0;
}"#;

/// The parent's memory in use was at its maximum long before the fork.
#[test]
fn the_peak_of_a_forked_child_begins_with_what_is_in_use_at_the_fork() {
    let scene = Scene::new("freed-before");
    let program = scene.c("freed_before", FREED_BEFORE);
    let out = scene.path("out");
    let options = [
        "--quiet",
        "--children",
        "--each",
        "--heap-rate",
        "1",
        "--out",
    ];
    let status = run(
        &[&options[..], &[out.to_str().unwrap()]].concat(),
        &program,
        &[],
    )
    .status();
    assert!(status.unwrap().success());
    let files = std::fs::read_dir(&out).unwrap();
    let of_children = files.map(|file| file.unwrap().path()).filter(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.ends_with(".peak.pb.gz")
    });
    let mut count = 0;
    for path in of_children {
        let folded = report(&["--folded"], &path);
        for line in folded.lines() {
            let (stack, bytes) = line.rsplit_once(' ').unwrap();
            assert!(stack.ends_with(";of_child"), "{folded}");
            let bytes: u64 = bytes.parse().unwrap();
            assert!((4_900_000..5_200_000).contains(&bytes), "{folded}");
            count += 1;
        }
    }
    assert_eq!(count, 4);
}

const FORKS_IN_HANDLER: &str = r#"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile sig_atomic_t forks, is_child;
static void await(int child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    if (status) _exit(1);
}
static void handler(int signal) {
    (void)signal;
    if (is_child) return;
    int child = fork();
    /* The child goes on where the signal arrived. */
    if (!child) { is_child = 1; return; }
    await(child);
    forks++;
}
int main(int count, char **arguments) {
    size_t size = atol(arguments[1]);
    int most = atoi(arguments[2]);
    int forks_outside = count > 3;
    struct sigaction action = {0};
    action.sa_handler = handler;
    sigaction(SIGVTALRM, &action, 0);
    struct itimerval often = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_VIRTUAL, &often, 0);
    for (int left = 100; forks < most && left;) {
        void *volatile block = malloc(size);
        free(block);
        left -= is_child;
        if (forks_outside && !is_child) {
            int child = fork();
            if (!child) _exit(0);
            await(child);
        }
    }
    return 0;
}"#;

/// Each allocation is sampled, and the counts are read after each MiB. So the handler often interrupts its thread
/// while that counts or reads the counts.
#[test]
fn a_signal_handler_forks_while_its_thread_counts() {
    let scene = Scene::new("forks-in-handler");
    let program = scene.c("forks_in_handler", FORKS_IN_HANDLER);
    let options = ["--children", "--json", "--heap-rate", "1"];
    for (size, forks, outside) in [
        ("100", 200, None),
        ("1048576", 200, None),
        ("1048576", 20, Some("forks-outside")),
    ] {
        let most = forks.to_string();
        let arguments: Vec<&str> = [size, &most].into_iter().chain(outside).collect();
        let output = run(&options, &program, &arguments).output().unwrap();
        let (_, reports) = reports(&output);
        assert!(output.status.success(), "{:?}", output.status);
        assert!(reports.len() > forks, "{} reports", reports.len());
    }
}

const GROWTH: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static long resident(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    fscanf(file, "%*d %ld", &pages);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE) / 1024;
}
/* The growth of the resident memory in KiB for 100,000 blocks, which take 14,062 KiB. */
static long grown(void) {
    long before = resident();
    for (int i = 0; i < 100000; i++) memset(malloc(136), 1, 136);
    return resident() - before;
}
int main() {
    printf("%ld ", grown());
    fflush(stdout);
    if (!fork()) { printf("%ld", grown()); fflush(stdout); _exit(0); }
    wait(0);
    return 0;
}"#;

/// A sampled block has a record of more than 40 bytes.
#[test]
fn a_forked_child_samples_allocations_only_if_it_reports() {
    let scene = Scene::new("fork-samples");
    let program = scene.c("growth", GROWTH);
    let alone = ["--quiet", "--heap-rate", "1"];
    let all = [&alone[..], &["--children"]].concat();
    for (options, samples_in_child) in [(&all[..], true), (&alone, false)] {
        let output = run(options, &program, &[]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let growths: Vec<u32> = text
            .split(' ')
            .map(|growth| growth.parse().unwrap())
            .collect();
        let are_sampled = |&growth: &u32| growth > 17_000;
        let [parent, child] = &growths[..] else {
            panic!("{text}");
        };
        assert!(are_sampled(parent), "{text}");
        assert_eq!(are_sampled(child), samples_in_child, "{options:?}: {text}");
    }
}

#[test]
fn a_forked_child_does_not_hold_the_port() {
    let scene = Scene::new("daemon");
    let program = scene.c(
        "daemon",
        r#"
        #include <stdio.h>
        #include <unistd.h>
        int main() {
            int child = fork();
            if (child) { printf("%d\n", child); return 0; }
            for (int i = 0; i < 3; i++) close(i);
            for (;;) pause();
        }"#,
    );
    let port = Port::new();
    let address = port.number.to_string();
    let output = run(&["--quiet", "--http", &address], program, &[])
        .output()
        .unwrap();
    let child: i32 = String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let connected = TcpStream::connect(port.address());
    // SAFETY: `kill` takes no pointers; the test's child runs until then.
    let killed = unsafe { libc::kill(child, libc::SIGKILL) };
    assert_eq!(killed, 0);
    assert!(connected.is_err(), "the child holds the port");
}

/// Returns the response to a request, or an empty text.
fn get(address: SocketAddr, path: &str) -> String {
    let mut answer = String::new();
    let _ = TcpStream::connect(address).and_then(|mut stream| {
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
        stream.read_to_string(&mut answer)
    });
    answer
}

#[test]
fn each_child_has_a_port_of_its_own_and_all_are_listed() {
    let scene = Scene::new("ports");
    let program = scene.c(
        "ports",
        r#"
        #include <sys/wait.h>
        #include <unistd.h>
        int main() {
            char byte;
            if (!fork()) { read(0, &byte, 1); _exit(0); }
            if (!fork()) execl("/bin/cat", "cat", NULL);
            read(0, &byte, 1);
            while (wait(0) > 0);
            return 0;
        }"#,
    );
    let port = Port::new();
    let address = port.number.to_string();
    let mut child = run(&["--children", "--http", &address], program, &[])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let serves = |line: &str| {
        let at = line
            .rsplit("http://")
            .next()
            .and_then(|rest| rest.split('/').next());
        let at: SocketAddr = at.unwrap().parse().unwrap();
        get(at, "/debug/pprof/").starts_with("HTTP/1.1 200")
    };
    let began = Instant::now();
    // Waits until all three serve, and the last has executed its program: until its pages follow, those that it had
    // before are listed.
    let list = loop {
        let list = get(port.address(), "/");
        let body = list.split("\r\n\r\n").nth(1).unwrap_or_default();
        if body.lines().count() == 3 && body.contains(" cat ") && body.lines().all(serves) {
            break body.to_owned();
        }
        if let Some(status) = child.try_wait().unwrap() {
            panic!("{status}: {list}");
        }
        if began.elapsed() > Duration::from_secs(180) {
            child.kill().unwrap();
            panic!("{list}");
        }
        std::thread::yield_now();
    };
    let mut ports = HashSet::new();
    for line in list.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [process, _, url] = words[..] else {
            panic!("{list}");
        };
        let rest = url.strip_prefix("http://").unwrap();
        let at: SocketAddr = rest.split('/').next().unwrap().parse().unwrap();
        assert!(
            ports.insert(at.port()) && at.port() != port.number,
            "{list}"
        );
        if process == list.split_whitespace().next().unwrap() {
            // The program has the lowest process id, unless the ids wrapped around.
            let answer = get(port.address(), "/debug/pprof/heap?debug=1");
            assert!(answer.starts_with("HTTP/1.1 307"), "{answer}");
            let location = format!("Location: http://{at}/debug/pprof/heap?debug=1\r\n");
            assert!(
                answer.contains(&location) || !list.contains(" ports "),
                "{answer}"
            );
        }
    }
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    for at in ports {
        assert!(
            text.contains(&format!("serves http://127.0.0.1:{at}/")),
            "{text}"
        );
    }
}

/// Daemons: one with its environment, and one that overwrote it by a title. They wait for the end of a
/// pipe.
const DAEMONS: &str = r#"
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
extern char **environ;
int main(int count, char **arguments) {
    int ends[2];
    pipe(ends);
    for (int title = 0; title < 2; title++) {
        if (fork()) continue;
        setsid();
        if (fork()) _exit(0);
        close(1); close(2);
        prctl(PR_SET_NAME, title ? "titled" : "plain");
        char *end = environ[0];
        for (char **variable = environ; *variable; variable++) end = *variable + strlen(*variable);
        if (title) memset(environ[0], 'x', end - environ[0]);
        close(ends[0]);
        write(ends[1], "!", 1);
        close(ends[1]);
        char byte;
        while (read(0, &byte, 1) > 0);
        _exit(0);
    }
    close(ends[1]);
    char bytes[2];
    for (int got = 0; got < 2;) got += read(ends[0], bytes, 1);
    return 0;
}"#;

#[test]
fn processes_that_go_on_are_named() {
    let scene = Scene::new("daemons");
    let program = scene.c("daemons", DAEMONS);
    for options in [&[][..], &["--children"]] {
        let (input, held) = std::io::pipe().unwrap();
        let mut command = run(options, &program, &[]);
        let output = command.stdin(input).output().unwrap();
        drop(command);
        let text = String::from_utf8(output.stderr).unwrap();
        let line = text
            .lines()
            .find(|line| line.ends_with("without a report") || line.contains("without a report: "));
        let line = line.unwrap_or_else(|| panic!("{text}"));
        assert!(
            line.starts_with("plimsoll: ") && line.contains("plain ("),
            "{text}"
        );
        // The other is found if the first process has adopted it.
        if is_adopted("titled") {
            assert!(
                line.contains("2 processes go on") && line.contains("titled ("),
                "{text}"
            );
        }
        drop(held);
    }
    let program = scene.c("none", "int main() { return 0; }");
    let output = run(&[], &program, &[]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!text.contains("without a report"), "{text}");
}

/// Returns whether a process of that name is a child of process 1.
fn is_adopted(name: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut status =
        processes.filter_map(|process| std::fs::read_to_string(process.path().join("status")).ok());
    let head = format!("Name:\t{name}\n");
    status.any(|status| status.starts_with(&head) && status.contains("\nPPid:\t1\n"))
}

/// A child that becomes another user, as workers of servers do, and one that then executes a program.
const OTHER_USER: &str = r#"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main() {
    for (int executes = 0; executes < 2; executes++) {
        if (!fork()) {
            if (setgid(65534) || setuid(65534)) _exit(1);
            if (executes) execl("/bin/true", "true", (char *)0);
            for (int i = 0; i < 100; i++) *(volatile char *)malloc(40000) = 1;
            _exit(0);
        }
        int status;
        wait(&status);
        if (status) return 1;
    }
    return 0;
}"#;

#[test]
fn children_that_become_another_user_report() {
    // SAFETY: the call has no arguments.
    if unsafe { libc::geteuid() } != 0 {
        plimsoll_testkit::skip!("only root can become another user");
        return;
    }
    let scene = Scene::new("other-user");
    let program = scene.c("program", OTHER_USER);
    let mut command = run(&["--children", "--json"], &program, &[]);
    let output = command.env_remove("XDG_CACHE_HOME").output().unwrap();
    let (errors, all) = reports(&output);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    assert_eq!(all.len(), 3, "{all:?}");
    let of_child = all
        .iter()
        .filter(|report| number(report, "asked_bytes") == 4_000_000);
    assert_eq!(of_child.count(), 1, "{all:?}");
    let executed = all.iter().filter(|report| {
        report["program"].as_str().unwrap().ends_with("/true") && report["ending"] == "exit"
    });
    assert_eq!(executed.count(), 1, "{all:?}");
}
