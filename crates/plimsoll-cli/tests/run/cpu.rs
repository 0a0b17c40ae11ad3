//! CPU samples of unmodified programs.

use std::process::Command;

use crate::scene::{PLIMSOLL, Scene, run};

/// Uses CPU time in three functions, in the proportion 5 : 3 : 2, on two threads. Each uses 1.2 s.
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
BURN(uses_half, 6)
BURN(uses_three_tenths, 3.6)
BURN(uses_a_fifth, 2.4)
static void *work(void *unused) {
    for (int i = 0; i < 100; i++) { uses_half(); uses_three_tenths(); uses_a_fifth(); }
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
