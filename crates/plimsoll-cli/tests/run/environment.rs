//! What a program sees of being run: nothing.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::scene::{PLIMSOLL, Scene, only, reports, run, same};

/// The variables of the environment but those that a shell sets by itself.
const ENV: [&str; 2] = ["-c", "env | grep -v -e ^_= -e ^SHLVL | sort"];

#[test]
fn the_environment_is_as_it_was() {
    // A shell has functions of its own for that.
    same("/bin/sh", &ENV);
    same("/usr/bin/env", &["echo", "through env"]);
    let bash = "/bin/bash";
    if std::path::Path::new(bash).exists() {
        same(bash, &ENV);
        same(
            bash,
            &[
                "-c",
                "(echo 1; env | grep -c PLIMSOLL); echo $LD_PRELOAD; exec env -i /bin/echo 2",
            ],
        );
    }
}

#[test]
fn what_was_preloaded_before_still_is() {
    let scene = Scene::new("preloaded");
    let other = scene.compile(
        "cc",
        "other.so",
        "#include <unistd.h>\n__attribute__((constructor)) static void at_start(void) { write(1, \"other\\n\", 6); }",
        &["-shared", "-fPIC"],
    );
    let script = ["-c", "echo $LD_PRELOAD"];
    let mut alone = Command::new("/bin/sh");
    let alone = alone
        .args(script)
        .env("LD_PRELOAD", &other)
        .output()
        .unwrap();
    let output = run(&["--json"], "/bin/sh", &script)
        .env("LD_PRELOAD", &other)
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&alone.stdout).contains("other\n"));
    // The command has it preloaded, too.
    let twice = [b"other\n", &alone.stdout[..]].concat();
    assert_eq!(output.stdout, twice);
    only(reports(&output).1);
}

#[test]
fn descriptors_and_threads_are_as_they_were() {
    let scene = Scene::new("descriptors");
    let program = scene.c(
        "descriptors",
        r#"
        #include <fcntl.h>
        #include <stdio.h>
        #include <pthread.h>
        #include <unistd.h>
        #include <dirent.h>
        static void *thread(void *_) { return 0; }
        static int threads(void) {
            DIR *tasks = opendir("/proc/self/task"); int count = -2;
            while (readdir(tasks)) count++;
            closedir(tasks);
            return count;
        }
        int main() {
            printf("%d threads, next descriptor %d\n", threads(), open("/dev/null", O_RDONLY));
            pthread_t t; pthread_create(&t, 0, thread, 0); pthread_join(t, 0);
            printf("next descriptor %d\n", open("/dev/null", O_RDONLY));
            return 0;
        }"#,
    );
    only(same(program, &[]));
}

#[test]
fn input_and_output_go_through() {
    let mut child = Command::new(PLIMSOLL)
        .args(["run", "--json", "--", "tr", "a-z", "A-Z"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes: Vec<u8> = (0..200_000u32)
        .flat_map(|at| [b'a' + (at % 26) as u8, b'\n'])
        .collect();
    let mut input = child.stdin.take().unwrap();
    let expected = bytes.to_ascii_uppercase();
    let writer = std::thread::spawn(move || input.write_all(&bytes).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    assert!(output.stdout == expected);
    only(reports(&output).1);
}

#[test]
fn whoever_reads_no_further_ends_it_as_without() {
    let script = format!("{PLIMSOLL} run --json -- yes 2>&1 >&3 | cat");
    let output = Command::new("/bin/sh")
        .args(["-c", &format!("{{ {script}; }} 3>&1 >&2 | head -n 1")])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "y\n");
    let report = only(reports(&output).1);
    assert!(
        ["SIGPIPE", "exit"].contains(&report["ending"].as_str().unwrap()),
        "{report}"
    );
}
