//! CPU samples of unmodified programs.

use std::process::Command;

use plimsoll_testkit::pprof::Profile;

use crate::scene::{PLIMSOLL, Scene, run};

/// Uses CPU time in three functions, in the proportion 5 : 3 : 2, on two threads. Each uses 1.2 s. The period of 20/pi ms has
/// no common multiple with the ticks of the system, at which samples are taken: otherwise these would meet few places of it.
const BURNS: &str = r#"
#include <pthread.h>
#include <time.h>
static long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}
#define BURN(name, part) \
    __attribute__((noinline)) static void name(void) { \
        long end = now() + part * 1000000L; \
        while (now() < end) for (volatile int i = 0; i < 1000; i++); \
        __asm__ volatile(""); \
    }
BURN(uses_half, 3.18310)
BURN(uses_three_tenths, 1.90986)
BURN(uses_a_fifth, 1.27324)
static void *work(void *unused) {
    for (int i = 0; i < 190; i++) { uses_half(); uses_three_tenths(); uses_a_fifth(); }
    return unused;
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
    work(0);
    return pthread_join(thread, 0);
}
"#;

/// Returns the share of a function in the table of `report --top`, in percent.
fn share(table: &str, function: &str) -> f64 {
    let line = table.lines().find(|line| line.ends_with(function));
    let line = line.unwrap_or_else(|| panic!("no {function} in\n{table}"));
    let share = line.split_whitespace().nth(4).unwrap();
    share.trim_end_matches('%').parse().unwrap()
}

/// 240 samples: five standard errors are 16 %, and the error probability is 6e-7 for each function.
#[test]
fn functions_of_a_c_program_have_their_shares_of_cpu_time() {
    let scene = Scene::new("cpu");
    let program = scene.c("burns", BURNS);
    let out = scene.path("out");
    let options = ["--cpu", "--out", out.to_str().unwrap()];
    let output = run(&options, &program, &[]).output().unwrap();
    assert!(output.status.success());
    let summary = String::from_utf8_lossy(&output.stderr);
    assert!(summary.contains("used CPU time: "), "{summary}");
    let report = Command::new(PLIMSOLL)
        .args(["report", "--top"])
        .arg(out.join("profile.pb.gz"))
        .output()
        .unwrap();
    let table = String::from_utf8_lossy(&report.stdout);
    for (function, expected) in [
        ("uses_half", 50.0),
        ("uses_three_tenths", 30.0),
        ("uses_a_fifth", 20.0),
    ] {
        let found = share(&table, function);
        assert!(
            (found - expected).abs() < 16.0,
            "{function}: {found} %\n{table}"
        );
    }
}

/// Switches between two stacks for a second of CPU time. A different function runs on each.
const SWITCHES: &str = r#"
#include <stdio.h>
#include <time.h>
#include <ucontext.h>
static ucontext_t first, second;
static char stack[65536];
static long turns;
static int is_over(void) {
    struct timespec time;
    if (turns++ % 1024) return 0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec >= 1;
}
__attribute__((noinline)) static void on_first(void) {
    while (!is_over()) swapcontext(&first, &second);
    __asm__ volatile("");
}
__attribute__((noinline)) static void on_second(void) {
    for (;;) swapcontext(&second, &first);
}
int main(void) {
    getcontext(&second);
    second.uc_stack.ss_sp = stack;
    second.uc_stack.ss_size = sizeof stack;
    makecontext(&second, on_second, 0);
    on_first();
    puts("switched");
}
"#;

/// A sample within the switch has the old stack, the new one or none.
#[test]
fn no_sample_mixes_two_stacks_between_which_a_program_switches() {
    let scene = Scene::new("cpu-switches");
    let program = scene.c("switches", SWITCHES);
    let out = scene.path("out");
    let options = ["--cpu=1000", "--out", out.to_str().unwrap()];
    let output = run(&options, &program, &[]).output().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout, b"switched\n");
    let profile = Profile::read(&std::fs::read(out.join("profile.pb.gz")).unwrap());
    let (mut on_first, mut on_second) = (0, 0);
    for sample in &profile.sample {
        let names = profile.names(sample);
        let (first, second) = (names.contains(&"on_first"), names.contains(&"on_second"));
        assert!(!(first && second), "{names:?}");
        on_first += sample.value[0] * i64::from(first);
        on_second += sample.value[0] * i64::from(second);
    }
    // Of 250 samples or more, each function has about half. Fewer than 10 are in one of 10^50 runs.
    assert!(on_first > 10 && on_second > 10, "{on_first}, {on_second}");
}

/// Functions of C++, with a template and a lambda. Half of the time each, with the same period.
const TEMPLATE: &str = r#"
#include <ctime>
static double used() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}
namespace work {
template <typename T> __attribute__((noinline)) void burns(double until) {
    while (used() < until) for (volatile T i = 0; i < 1000; i++);
    asm volatile("");
}
}
int main() {
    for (int i = 0; i < 380; i++) {
        work::burns<int>(used() + 0.0031831);
        [] { work::burns<long>(used() + 0.0031831); }();
    }
}
"#;

/// Returns the table of `report --top` for a program under `run --cpu`.
fn table_of(scene: &Scene, program: &std::path::Path, arguments: &[&str]) -> String {
    let out = scene.path("out");
    let options = ["--quiet", "--cpu", "--out", out.to_str().unwrap()];
    let status = run(&options, program, arguments).status().unwrap();
    assert!(status.success());
    let report = Command::new(PLIMSOLL)
        .args(["report", "--top", "--unit", "ms"])
        .arg(out.join("profile.pb.gz"))
        .output()
        .unwrap();
    String::from_utf8_lossy(&report.stdout).into_owned()
}

/// 240 samples, as above.
#[test]
fn instances_of_a_template_have_their_shares_under_their_own_names() {
    let scene = Scene::new("cpu_template");
    let program = scene.compile("c++", "template", TEMPLATE, &[]);
    let table = table_of(&scene, &program, &[]);
    for name in ["work::burns<int>", "work::burns<long>"] {
        let line = table.lines().find(|line| line.contains(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in\n{table}"));
        let share = line.split_whitespace().nth(4).unwrap();
        let share: f64 = share.trim_end_matches('%').parse().unwrap();
        assert!((share - 50.0).abs() < 17.0, "{name}: {share} %\n{table}");
    }
}

#[test]
fn python_has_a_cpu_profile() {
    let version = Command::new("python3").arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        plimsoll_testkit::skip!("python3 is not installed");
        return;
    }
    let scene = Scene::new("cpu_python");
    let script = "import time\nwhile time.process_time() < 1: sum(range(10000))";
    let table = table_of(&scene, "python3".as_ref(), &["-c", script]);
    let total = table.lines().find(|line| line.contains(" total"));
    let total = total.unwrap_or_else(|| panic!("{table}"));
    let total = total.split_whitespace().rev().nth(1).unwrap();
    let milliseconds: f64 = total.trim_end_matches("ms").parse().expect(&table);
    assert!((900.0..2000.0).contains(&milliseconds), "{table}");
}

#[test]
fn without_the_option_no_sample_is_taken_and_a_bad_rate_is_refused() {
    let scene = Scene::new("no_cpu");
    let out = scene.path("out");
    let options = ["--quiet", "--out", out.to_str().unwrap()];
    assert!(run(&options, "/bin/true", &[]).status().unwrap().success());
    assert!(!out.join("profile.pb.gz").exists());
    for rate in ["--cpu=0", "--cpu=1001", "--cpu=fast"] {
        let output = run(&[rate], "/bin/true", &[]).output().unwrap();
        assert!(!output.status.success(), "{rate}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(&rate[6..]), "{errors}");
    }
}
