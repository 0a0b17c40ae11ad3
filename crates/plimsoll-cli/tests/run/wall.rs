//! Wall-clock profiles of unmodified programs.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::scene::{PLIMSOLL, Scene, run};

/// Two threads that sleep, and the main thread that computes meanwhile: each for three seconds by the
/// clock.
const WAITS: &str = r#"
#include <pthread.h>
#include <time.h>
static double end;
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}
__attribute__((noinline)) static void sleeps(void) {
    while (now() < end) {
        struct timespec time = {0, 200000000};
        nanosleep(&time, 0);
    }
}
__attribute__((noinline)) static void computes(void) {
    while (now() < end) for (volatile int i = 0; i < 1000; i++);
}
static void *work(void *unused) {
    sleeps();
    return unused;
}
int main(void) {
    pthread_t threads[2];
    end = now() + 3;
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, 0);
    computes();
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return 0;
}
"#;

/// Returns the part of the elapsed time that the samples with the label `state` have.
fn part(profile: &Path, state: &str) -> f64 {
    let total = |options: &[&str]| -> f64 {
        let report = Command::new(PLIMSOLL)
            .args(["report", "--json", "--sample-type", "time"])
            .args(options)
            .arg(profile)
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        let rows = report["functions"].as_array().unwrap();
        rows.iter().map(|row| row["flat"].as_f64().unwrap()).sum()
    };
    total(&["--tag", &format!("state={state}")]) / total(&[])
}

/// The thread that computes has a third of the time, and some of it in other states: the
/// system may not have run it.
#[test]
fn threads_have_the_elapsed_time_in_which_they_wait_and_run() {
    let scene = Scene::new("wall");
    let program = scene.c("waits", WAITS);
    let out = scene.path("out");
    let options = ["--wall", "--out", out.to_str().unwrap()];
    let output = run(&options, &program, &[]).output().unwrap();
    assert!(output.status.success());
    let summary = String::from_utf8_lossy(&output.stderr);
    assert!(
        summary.contains("elapsed time of all threads: "),
        "{summary}"
    );
    assert!(summary.contains("sleeps"), "{summary}");
    let profile = out.join("wall.pb.gz");
    let [sleep, running] = ["sleep", "running"].map(|state| part(&profile, state));
    assert!((sleep - 2.0 / 3.0).abs() < 0.15, "{sleep} {summary}");
    assert!((running - 1.0 / 3.0).abs() < 0.15, "{running} {summary}");
}

const FORKS: &str = r#"
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    usleep(300000);
    if (fork() == 0) { usleep(300000); return 0; }
    wait(0);
    return 0;
}
"#;

#[test]
fn a_forked_child_has_a_wall_clock_profile_of_its_own_time() {
    let scene = Scene::new("wall_fork");
    let program = scene.c("forks", FORKS);
    let options = ["--wall", "--children"];
    let output = run(&options, &program, &[]).output().unwrap();
    let summary = String::from_utf8_lossy(&output.stderr);
    let times: Vec<&str> = summary
        .lines()
        .filter_map(|line| line.strip_prefix("elapsed time of all threads: "))
        .collect();
    assert_eq!(times.len(), 2, "{summary}");
}

#[test]
fn without_the_option_no_wall_clock_profile_is_made() {
    let scene = Scene::new("no_wall");
    let out = scene.path("out");
    let options = ["--quiet", "--out", out.to_str().unwrap()];
    assert!(run(&options, "/bin/true", &[]).status().unwrap().success());
    assert!(!out.join("wall.pb.gz").exists());
}
