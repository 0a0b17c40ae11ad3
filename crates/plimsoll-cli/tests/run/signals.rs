//! Signals: the program's handlers stay in force, and signals to the command reach the program.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use crate::scene::{Scene, only, reports, run, same, same_with};

#[test]
fn the_program_sees_its_own_dispositions() {
    let scene = Scene::new("dispositions");
    let program = scene.c(
        "dispositions",
        r#"
        #include <signal.h>
        #include <stdio.h>
        #include <string.h>
        #include <unistd.h>
        #include <sys/wait.h>
        static void handler(int signal) { }
        int main() {
            for (int signal = 1; signal < 32; signal++) {
                struct sigaction before;
                memset(&before, 7, sizeof before);
                sigaction(signal, 0, &before);
                printf("%d: %d %x", signal, before.sa_handler == SIG_DFL, before.sa_flags & ~0x04000000);
                struct sigaction action = {0};
                action.sa_handler = handler;
                action.sa_flags = SA_RESTART;
                printf(" %d", sigaction(signal, &action, 0));
                action.sa_handler = SIG_DFL;
                printf(" %d %d", sigaction(signal, &action, &before), before.sa_handler == handler);
                printf(" %d", (void *)signal_number(signal) == 0);
                puts("");
            }
            fflush(stdout);
            if (!fork()) { execl("/bin/grep", "grep", "-e", "SigIgn", "-e", "SigBlk", "/proc/self/status", NULL); }
            wait(0);
            return 0;
        }
        int signal_number(int number) {
            void (*before)(int) = signal(number, SIG_IGN);
            void (*now)(int) = signal(number, SIG_DFL);
            if (number == SIGKILL || number == SIGSTOP) return before != SIG_ERR;
            return before != SIG_DFL || now != SIG_IGN;
        }"#,
    );
    only(same(program, &[]));
}

/// A program chains to the action that was there before, unless that is the default.
#[test]
fn every_function_that_sets_an_action_returns_the_programs_last_one() {
    let scene = Scene::new("chains");
    let program = scene.c(
        "chains",
        r#"
        #define _GNU_SOURCE
        #include <signal.h>
        #include <stdio.h>
        #include <stdlib.h>
        typedef void (*handler)(int);
        extern handler __sysv_signal(int, handler), bsd_signal(int, handler), sysv_signal(int, handler);
        extern handler sigset(int, handler), ssignal(int, handler);
        static handler before;
        static void chains(int number) { if (before != SIG_DFL && before != SIG_IGN) before(number); }
        int main() {
            handler (*all[])(int, handler) = { signal, ssignal, bsd_signal, sysv_signal, __sysv_signal, sigset };
            for (int i = 0; i < 6; i++) {
                before = all[i](SIGTERM, chains);
                printf("%d %d", i, before == SIG_DFL);
                raise(SIGTERM);
                handler now = all[i](SIGTERM, SIG_DFL);
                /* Some of them return to the default at the first signal. */
                printf(" %d\n", now == chains || now == SIG_DFL);
            }
            return 0;
        }"#,
    );
    only(same(program, &[]));
}

/// Plimsoll's threads take no signal for which a thread of the program waits.
#[test]
fn a_signal_of_the_process_reaches_the_thread_that_waits_for_it() {
    let scene = Scene::new("waits-for-signals");
    let program = scene.c(
        "waits",
        r#"
        #include <signal.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <unistd.h>
        int main() {
            sigset_t all, others;
            sigfillset(&all);
            sigprocmask(SIG_BLOCK, &all, 0);
            int signals[] = { SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGTERM, SIGUSR1, SIGQUIT };
            for (int round = 0; round < 20; round++)
                for (int i = 0; i < 9; i++) {
                    free(malloc(100000));
                    kill(getpid(), signals[i]);
                    int got;
                    sigwait(&all, &got);
                    if (got != signals[i]) return 1;
                }
            puts("all");
            return 0;
        }"#,
    );
    for options in [&[][..], &["--wall"], &["--cpu"], &["--heap-rate", "1"]] {
        only(same_with(options, &program, &[]));
    }
}

/// Signals that were ignored when the command started are ignored in the program.
#[test]
fn ignored_signals_stay_ignored() {
    let script = |run: &str| {
        let output = std::process::Command::new("/bin/sh")
            .args([
                "-c",
                &format!("trap '' HUP INT PIPE TERM; {run} /bin/grep SigIgn /proc/self/status"),
            ])
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let run = format!("{} run --quiet --", crate::scene::PLIMSOLL);
    assert_eq!(script(&run), script(""));
}

#[test]
fn signals_to_the_command_are_for_the_program() {
    let scene = Scene::new("forwarded");
    let program = scene.c(
        "forwarded",
        r#"
        #include <signal.h>
        #include <stdio.h>
        #include <unistd.h>
        static void handler(int signal) { static const char text[] = "handled\n"; write(1, text, 8); }
        int main() {
            signal(SIGUSR1, handler);
            puts("ready"); fflush(stdout);
            for (;;) pause();
        }"#,
    );
    let mut child = run(&["--json"], &program, &[])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "ready");
    let send = |signal| {
        // SAFETY: the child is not waited for yet, so the id is its own.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
    };
    send(libc::SIGUSR1);
    assert_eq!(next(), "handled");
    send(libc::SIGTERM);
    let output = child.wait_with_output().unwrap();
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(output.status.signal(), Some(libc::SIGTERM));
    assert_eq!(only(reports(&output).1)["ending"], "SIGTERM");
}

/// A signal may reach the command as soon as the program exists.
#[test]
fn a_signal_that_comes_early_is_for_the_program() {
    for microseconds in (0..8000).step_by(250) {
        let mut child = run(&["--json"], "/bin/sleep", &["60"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        // SAFETY: the child is not waited for yet, so the id is its own.
        let send = |process| assert_eq!(unsafe { libc::kill(process, libc::SIGTERM) }, 0);
        let program = loop {
            let children = std::fs::read_to_string(&children).unwrap();
            match children.trim().parse() {
                Ok(program) => break program,
                Err(_) => assert!(child.try_wait().unwrap().is_none()),
            }
        };
        std::thread::sleep(std::time::Duration::from_micros(microseconds));
        send(child.id() as i32);
        use std::os::unix::process::ExitStatusExt;
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGTERM));
        // SAFETY: signal 0 is not sent; the call only checks whether the process exists.
        assert_eq!(unsafe { libc::kill(program, 0) }, -1, "it is left alone");
    }
}

/// A terminal sends these signals to the program itself; other senders send them to the command.
#[test]
fn all_handled_signals_are_forwarded() {
    let scene = Scene::new("handed-on");
    let program = scene.c(
        "handed-on",
        r#"
        #include <signal.h>
        #include <stdio.h>
        #include <unistd.h>
        static void handler(int signal) { char text[8]; write(1, text, sprintf(text, "%d\n", signal)); }
        int main() {
            struct sigaction action = {0};
            action.sa_handler = handler;
            sigfillset(&action.sa_mask);
            for (int signal = 1; signal <= SIGRTMAX; signal++) sigaction(signal, &action, 0);
            puts("ready"); fflush(stdout);
            for (;;) pause();
        }"#,
    );
    let mut command = run(&["--quiet"], &program, &[]);
    command.stdout(Stdio::piped());
    // What has started the tests may block signals, as perf blocks SIGWINCH.
    // SAFETY: both functions may be called after a fork, and write to a local variable only.
    unsafe {
        command.pre_exec(|| {
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "ready");
    let signals = [1, 2, 3, 10, 12, 14, 15, 26, 27, 28, 29, 30];
    for signal in signals
        .into_iter()
        .chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
    {
        // SAFETY: the child is not waited for yet, so the id is its own.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        assert_eq!(next(), signal.to_string());
    }
    let program = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id()));
    let program: i32 = program.unwrap().trim().parse().unwrap();
    // SAFETY: the command, which waits for the program, still runs, so the id is the program's.
    assert_eq!(unsafe { libc::kill(program, libc::SIGKILL) }, 0);
    child.wait().unwrap();
}

#[test]
fn a_program_that_stops_itself_stops_the_command() {
    let mut child = run(&["--quiet"], "/bin/sh", &["-c", "kill -STOP $$; exit 7"])
        .spawn()
        .unwrap();
    stops(&child);
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

/// Waits until the child stops, and continues it.
fn stops(child: &std::process::Child) {
    let (id, mut status) = (child.id() as i32, 0);
    let begun = std::time::Instant::now();
    // SAFETY: the status is a local variable; the child is not waited for yet, so the id is its
    // own.
    unsafe {
        while libc::waitpid(id, &raw mut status, libc::WUNTRACED | libc::WNOHANG) == 0 {
            assert!(begun.elapsed().as_secs() < 60, "it does not stop");
            std::thread::yield_now();
        }
        assert!(libc::WIFSTOPPED(status), "{status}");
        assert_eq!(libc::kill(id, libc::SIGCONT), 0);
    }
}

/// The signal stops the program, and thereby the command; a program that ignores it continues.
#[test]
fn a_signal_that_stops_the_program_stops_the_command() {
    let asked = |script: &str| {
        // A separate process group: the kernel does not stop an orphaned group, in which tests may
        // run.
        let mut child = run(&["--quiet"], "/bin/sh", &["-c", script])
            .process_group(0)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut begun = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut begun).unwrap();
        // SAFETY: the child is not waited for yet, so the id is its own.
        assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTSTP) }, 0);
        child
    };
    // Writes the line for which the program waits.
    let go_on = |child: &mut std::process::Child| {
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"\n").unwrap();
    };
    let mut child = asked("echo begun; read line; exit 7");
    stops(&child);
    go_on(&mut child);
    assert_eq!(child.wait().unwrap().code(), Some(7));
    let mut child = asked("trap '' TSTP; echo begun; read line; exit 8");
    go_on(&mut child);
    let mut status = 0;
    // SAFETY: the status is a local variable.
    unsafe { libc::waitpid(child.id() as i32, &raw mut status, libc::WUNTRACED) };
    assert!(libc::WIFEXITED(status), "{status}");
    assert_eq!(libc::WEXITSTATUS(status), 8);
    let _ = child.wait();
}

#[test]
fn a_parent_that_ignores_sigchld_still_gets_the_exit_code() {
    let scene = Scene::new("ignores-children");
    let ignores = scene.c(
        "ignores",
        r#"
        #include <signal.h>
        #include <unistd.h>
        int main(int count, char **arguments) { signal(SIGCHLD, SIG_IGN); return execv(arguments[1], arguments + 1); }
        "#,
    );
    let output = |command: &[&str]| {
        let mut ignores = std::process::Command::new(&ignores);
        ignores.args(command).output().unwrap()
    };
    let run = [crate::scene::PLIMSOLL, "run", "--json", "--"];
    let ended = output(&[&run[..], &["/bin/sh", "-c", "exit 3"]].concat());
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    only(reports(&ended).1);
    let asked = ["/bin/grep", "SigIgn", "/proc/self/status"];
    let under_run = output(&[&run[..], &asked].concat());
    assert_eq!(under_run.stdout, output(&asked).stdout);
}

#[test]
fn a_killed_program_has_no_report_and_a_message_states_that() {
    let output = run(&[], "/bin/sh", &["-c", "kill -9 $$"]).output().unwrap();
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(output.status.signal(), Some(libc::SIGKILL));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("without a report"), "{text}");
}

/// A signal may end the process while its thread runs Plimsoll's code: sampling, the preparations
/// at the first thread, or writing the report. No thread may then wait for a lock that it holds
/// itself. Such a wait would last for ten seconds, until it is abandoned.
#[test]
fn a_fatal_signal_at_any_instant_is_no_deadlock() {
    let scene = Scene::new("instants");
    let program = scene.c(
        "instants",
        r#"
        #include <pthread.h>
        #include <stdlib.h>
        #include <sys/time.h>
        static void *work(void *unused) { return malloc(10); }
        /* As many stacks as take a while to be read. */
        static int deeper(int depth) {
            for (int i = 0; i < 20; i++) free(malloc(i * 100));
            return depth ? deeper(depth - 1) + 1 : 0;
        }
        int main(int count, char **arguments) {
            struct itimerval timer = {{0, 0}, {0, atoi(arguments[1])}};
            pthread_t thread;
            setitimer(ITIMER_REAL, &timer, 0);
            deeper(100);
            if (count > 2) { pthread_create(&thread, 0, work, 0); pthread_join(thread, 0); }
            return 0;
        }"#,
    );
    for microseconds in (250..20_000).step_by(250) {
        let microseconds = microseconds.to_string();
        for arguments in [&[&*microseconds][..], &[&microseconds, "thread"]] {
            let output = run(&["--json", "--heap-rate", "1"], &program, arguments)
                .output()
                .unwrap();
            use std::os::unix::process::ExitStatusExt;
            let status = output.status;
            assert!(
                status.success() || status.signal() == Some(libc::SIGALRM),
                "{arguments:?}: {output:?}"
            );
            // A report that waited for too long would be given up.
            only(reports(&output).1);
        }
    }
}

const ENDS_IN_HANDLER: &str = r#"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>
static const char *volatile way;
static void handler(int signal) {
    (void)signal;
    if (!strcmp(way, "_exit")) _exit(3);
    if (!strcmp(way, "exit")) exit(3);
    if (!strcmp(way, "quick_exit")) quick_exit(3);
    if (!strcmp(way, "exec")) execl("/bin/sh", "sh", "-c", "exit 3", (char *)0);
    kill(getpid(), SIGKILL);
}
int main(int count, char **arguments) {
    way = arguments[1];
    size_t size = atol(arguments[2]);
    /* A wait that does not end uses the processor. */
    struct rlimit limit = {20, 20};
    setrlimit(RLIMIT_CPU, &limit);
    signal(SIGALRM, handler);
    struct itimerval once = {{0, 0}, {0, atoi(arguments[3])}};
    setitimer(ITIMER_REAL, &once, 0);
    for (;;) {
        void *volatile block = malloc(size);
        free(block);
    }
}"#;

/// The report is written by a handler that interrupted its thread while that counted: about every fourth time with
/// the smaller blocks, since each allocation is sampled.
#[test]
fn a_signal_handler_ends_the_program_while_its_thread_counts() {
    let scene = Scene::new("ends-in-handler");
    let program = scene.c("ends_in_handler", ENDS_IN_HANDLER);
    for ledger in ["auto", "per-thread"] {
        for way in ["_exit", "exit", "quick_exit", "exec"] {
            for (number, microseconds) in (500..1000).step_by(25).enumerate() {
                let microseconds = microseconds.to_string();
                let size = ["100", "1048576"][number % 2];
                let arguments = [way, size, &microseconds];
                let mut run = run(&["--json", "--heap-rate", "1"], &program, &arguments);
                let output = run.env("PLIMSOLL", format!("ledger={ledger}")).output();
                let output = output.unwrap();
                assert_eq!(output.status.code(), Some(3), "{arguments:?}: {output:?}");
                assert!(!reports(&output).1.is_empty(), "{arguments:?}");
            }
        }
    }
}

const FORKS_BELOW_REPORT: &str = r#"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
static void handler(int signal) {
    (void)signal;
    int child = fork();
    if (!child) _exit(0);
    while (waitpid(child, 0, 0) < 0 && errno == EINTR) {}
}
/* As many stacks as take a while to be read. */
static int deeper(int depth) {
    for (int i = 0; i < 20; i++) {
        void *volatile block = malloc(i * 100);
        free(block);
    }
    return depth ? deeper(depth - 1) + 1 : 0;
}
int main(int count, char **arguments) {
    (void)count;
    deeper(200);
    signal(SIGALRM, handler);
    struct itimerval once = {{0, 0}, {0, atoi(arguments[1])}};
    setitimer(ITIMER_REAL, &once, 0);
    raise(SIGTERM);
    return 0;
}"#;

/// The fork would wait for the report below the handler, and the process would end without one.
#[test]
fn a_handler_that_forks_does_not_interrupt_the_report_of_a_fatal_signal() {
    let scene = Scene::new("forks-in-report");
    let program = scene.c("forks_in_report", FORKS_BELOW_REPORT);
    let options = ["--children", "--json", "--heap-rate", "1"];
    for microseconds in (200..4000).step_by(200) {
        let arguments = [&*microseconds.to_string()];
        let output = run(&options, &program, &arguments).output().unwrap();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{output:?}");
        let (_, reports) = reports(&output);
        assert!(
            reports.iter().any(|report| report["ending"] == "SIGTERM"),
            "{reports:?}"
        );
    }
}

/// The second signal after the program's end ends the command without the summary.
#[test]
fn signals_after_the_end_of_the_program_do_not_change_the_status() {
    let script = "trap '' TERM; echo; exit 3";
    let mut command = run(&["--heap-rate", "1"], "/bin/sh", &["-c", script]);
    command.stdout(Stdio::piped());
    // Nothing reads the summary, for which the pipe has no room.
    let (reader, writer) = std::io::pipe().unwrap();
    // SAFETY: the descriptor is open; the call sets its flags only.
    unsafe {
        use std::os::fd::AsRawFd;
        libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
        while libc::write(writer.as_raw_fd(), [0_u8; 4096].as_ptr().cast(), 4096) > 0 {}
        libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, 0);
    }
    let mut child = command.stderr(writer).spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "\n");
    // The program ignores those that reach it.
    let began = std::time::Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(began.elapsed().as_secs() < 60, "the command does not end");
        // SAFETY: the command has not been waited for, so the number is its own.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        std::thread::yield_now();
    };
    drop(reader);
    assert_eq!(status.code(), Some(3), "{status:?}");
}
