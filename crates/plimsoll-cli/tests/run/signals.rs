//! Signals: those that the program handles are its own, and those that it is sent get there.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::scene::{Scene, only, reports, run, same};

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

/// What was ignored when the command began is for the program, too.
#[test]
fn what_is_ignored_stays_ignored() {
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
        // SAFETY: sends a signal to a child that is not waited for.
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

#[test]
fn there_is_no_report_of_what_is_killed_and_that_is_said() {
    let output = run(&[], "/bin/sh", &["-c", "kill -9 $$"]).output().unwrap();
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(output.status.signal(), Some(libc::SIGKILL));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("without a report"), "{text}");
}
