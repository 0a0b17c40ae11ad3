//! A program cannot observe that `plimsoll run` started it.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::scene::{PLIMSOLL, Scene, number, only, reports, run, same};

/// Prints the environment, except for the variables that a shell sets itself.
const ENV: [&str; 2] = ["-c", "env | grep -v -e ^_= -e ^SHLVL | sort"];

#[test]
fn the_environment_is_as_it_was() {
    // A shell uses its own functions for the environment.
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

/// The directory is on no disk unless the user chose one, or the kept files are large.
#[test]
fn reports_are_in_memory_unless_the_user_chose_a_directory() {
    let scene = Scene::new("reports");
    let chosen = scene.path("chosen");
    std::fs::create_dir(&chosen).unwrap();
    // The kernel shows the variables that the preloaded library hides from the program.
    let script = "tr '\\0' '\\n' < /proc/$$/environ | grep ^PLIMSOLL_RUN_TO=";
    let place = |options: &[&str], directory: Option<&std::path::Path>| {
        let mut command = run(options, "/bin/sh", &["-c", script]);
        match directory {
            Some(directory) => command.env("TMPDIR", directory),
            None => command.env_remove("TMPDIR"),
        };
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let place = text
            .trim()
            .split_once('=')
            .map(|(_, place)| place.to_owned());
        let place = place.unwrap_or_else(|| panic!("{text}"));
        assert!(!std::path::Path::new(&place).exists(), "{place} remains");
        place
    };
    let chosen_place = place(&[], Some(&chosen));
    assert!(
        chosen_place.starts_with(chosen.to_str().unwrap()),
        "{chosen_place}"
    );
    assert!(place(&["--postmortem"], None).starts_with("/tmp/"));
    let usual = place(&[], None);
    assert!(
        usual.starts_with("/dev/shm/") || usual.starts_with("/tmp/"),
        "{usual}"
    );
}

/// A run that is killed cannot remove its directory. The next one does, and leaves those of living runs.
#[test]
fn directories_of_killed_runs_are_removed() {
    let script = "tr '\\0' '\\n' < /proc/$$/environ | grep ^PLIMSOLL_RUN_TO=; read line || true";
    let begin = || {
        let mut command = run(&[], "/bin/sh", &["-c", script]);
        command.env_remove("TMPDIR");
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = pipes.stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let place = line.trim().split_once('=').unwrap().1.to_owned();
        (child, PathBuf::from(place))
    };
    let (mut killed, abandoned) = begin();
    let (mut living, used) = begin();
    assert!(abandoned.exists() && used.exists());
    killed.kill().unwrap();
    killed.wait().unwrap();
    let (mut next, _) = begin();
    // Where shared memory has no room, directories are on a disk and remain.
    assert_eq!(abandoned.exists(), !abandoned.starts_with("/dev/shm"));
    assert!(used.exists());
    for child in [&mut living, &mut next] {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
    assert!(!used.exists());
}

#[test]
fn earlier_preloads_remain() {
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
    // The command itself also has the library preloaded.
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
        /* Plimsoll's thread may have a file open for a moment. Waits until it is closed. */
        static int descriptor(int expected) {
            int opened = -1;
            for (int tries = 0; opened != expected && tries < 100000; tries++) {
                if (opened >= 0) close(opened);
                opened = open("/dev/null", O_RDONLY);
            }
            return opened;
        }
        int main() {
            printf("%d threads, next descriptor %d\n", threads(), descriptor(3));
            pthread_t t; pthread_create(&t, 0, thread, 0); pthread_join(t, 0);
            printf("next descriptor %d\n", descriptor(4));
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
fn a_closed_pipe_ends_it_as_without_plimsoll() {
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

/// What Plimsoll has reserved is given back before the program limits its address space.
#[test]
fn a_program_that_limits_its_address_space_has_its_share() {
    let scene = Scene::new("own-limit");
    let program = scene.c(
        "limits",
        r#"
        #define _GNU_SOURCE
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/mman.h>
        #include <sys/resource.h>
        int main(int count, char **arguments) {
            rlim_t limit = (rlim_t)atol(arguments[1]) << 20;
            struct rlimit limits = {limit, limit};
            if (*arguments[2] == 's' ? setrlimit(RLIMIT_AS, &limits) : prlimit(0, RLIMIT_AS, &limits, 0)) return 3;
            int mapped = 0;
            while (mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) mapped++;
            printf("%d", mapped);
            return 0;
        }"#,
    );
    for mebibytes in [64, 512, 4096] {
        for call in ["setrlimit", "prlimit"] {
            let arguments = [&*mebibytes.to_string(), call];
            let mapped = |output: std::process::Output| -> i64 {
                assert!(output.status.success(), "{output:?}");
                String::from_utf8(output.stdout).unwrap().parse().unwrap()
            };
            let alone = mapped(Command::new(&program).args(arguments).output().unwrap());
            for options in [&[][..], &["--children"]] {
                let with = mapped(run(options, &program, &arguments).output().unwrap());
                // The library itself, what it uses and what a report needs, and 1 % of the limit.
                let least = alone - 32 - mebibytes / 50;
                assert!(with >= least, "{mebibytes} {call}: {with} of {alone}");
            }
        }
    }
}

/// The reserved address space shrinks with the limit, down to zero.
#[test]
fn a_limit_on_address_space_leaves_the_program_its_share() {
    let scene = Scene::new("limits");
    let program = scene.c(
        "limits",
        r#"
        #include <pthread.h>
        #include <stdlib.h>
        #include <string.h>
        static void *work(void *unused) {
            for (int i = 0; i < 20000; i++) { void *block = malloc(i % 5000); free(0); free(realloc(block, i % 9000 + 1)); }
            return 0;
        }
        int main(int count, char **arguments) {
            pthread_t thread;
            char *block = malloc(atol(arguments[1]));
            if (!block) return 3;
            memset(block, 1, atol(arguments[1]));
            work(0);
            if (pthread_create(&thread, 0, work, 0)) return 4;
            pthread_join(thread, 0);
            free(block);
            return 0;
        }"#,
    );
    for mebibytes in [128_u64, 192, 256, 400, 600, 1024, 8192] {
        // The program uses half of it.
        let limit = format!("ulimit -v {} && exec \"$@\"", mebibytes * 1024);
        let work = (mebibytes << 19).min(1 << 28).to_string();
        for rate in ["1k", "512k"] {
            let options = ["run", "--json", "--heap-rate", rate, "--"];
            let output = Command::new("/bin/sh")
                .args(["-c", &limit, "sh", PLIMSOLL])
                .args(options)
                .args([program.to_str().unwrap(), &work])
                .output()
                .unwrap();
            let (errors, reports) = reports(&output);
            assert_eq!(
                output.status.code(),
                Some(0),
                "{mebibytes} {rate}: {errors}"
            );
            let report = only(reports);
            assert!(number(&report, "mallocs") > 80_000, "{mebibytes}: {report}");
        }
    }
}

/// Without them, the counts cannot be read at any time, so the peak comes from the samples.
#[test]
fn the_peak_is_the_samples_where_the_kernel_lacks_restartable_sequences() {
    let scene = Scene::new("no-rseq");
    let program = scene.c(
        "peak",
        r#"
        #include <stdlib.h>
        int main() {
            static void *blocks[1000];
            for (int round = 0; round < 3; round++) {
                for (int i = 0; i < 1000; i++) blocks[i] = malloc(20000);
                for (int i = 0; i < 1000; i++) free(blocks[i]);
            }
            return 0;
        }"#,
    );
    for (tunables, estimated) in [("", false), ("glibc.pthread.rseq=0", true)] {
        // About 300 samples at the peak, a standard error of 6%; the margin is seven times that.
        let output = run(&["--json", "--heap-rate", "64k"], &program, &[])
            .env("GLIBC_TUNABLES", tunables)
            .output()
            .unwrap();
        let report = only(reports(&output).1);
        assert_eq!(report["peak_estimated"], estimated, "{report}");
        let peak = number(&report, "peak_bytes");
        let margin = if estimated { 8_000_000 } else { 1 << 20 };
        assert!(peak.abs_diff(20_000_000) <= margin, "{report}");
    }
}
