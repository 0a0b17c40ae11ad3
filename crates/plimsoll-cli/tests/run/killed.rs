//! With `--postmortem`, programs that are killed have a report.

use std::process::Output;

use plimsoll_testkit::control_group::Group;

use crate::scene::{Scene, number, reports, run};

const GROWS: &str = r#"
    #include <signal.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/wait.h>
    #include <unistd.h>
    __attribute__((noinline)) void grow(void) {
        for (int i = 0; i < 3000; i++)
            memset(malloc(10000), 1, 10000);
    }
    __attribute__((noinline)) void end(void) { kill(getpid(), SIGKILL); }
    int main(int count, char **arguments) {
        if (count > 1 && fork() == 0) {
            // The executed program has a separate file.
            execl("/proc/self/exe", "grows", NULL);
            _exit(1);
        }
        if (count > 1) {
            wait(NULL);
            return 0;
        }
        void *freed = malloc(1 << 20);
        free(freed);
        grow();
        end();
        return 0;
    }"#;

fn killed(options: &[&str]) -> (Scene, Output) {
    let scene = Scene::new(&format!("killed{}", options.concat()));
    let program = scene.c("grows", GROWS);
    let options: Vec<&str> = ["--postmortem"].iter().chain(options).copied().collect();
    let output = run(&options, program, &[]).output().unwrap();
    (scene, output)
}

#[test]
fn counts_before_the_kill_are_reported() {
    use std::os::unix::process::ExitStatusExt;

    let (_scene, output) = killed(&[]);
    assert_eq!(output.status.signal(), Some(9));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("was ended by signal 9"), "{text}");
    assert!(text.contains("killed before it could report"), "{text}");
    assert!(!text.contains("requested"), "not known: {text}");
    assert!(!text.contains("threads"), "not known: {text}");
    let grow = crate::table::row(&text, "grow < main");
    for column in ["at peak", "at the end", "allocated", "calls"] {
        assert!(grow.number(column) > 0.0, "{column}: {text}");
    }
}

#[test]
fn counts_of_a_killed_program_are_exact_and_unknown_ones_are_absent() {
    let (_scene, output) = killed(&["--json"]);
    let (_, reports) = reports(&output);
    assert_eq!(reports.len(), 1);
    let report = &reports[0];
    assert_eq!(report["ending"], "killed");
    let live = number(report, "mallocs") - number(report, "frees");
    let bytes = number(report, "malloc_bytes") - number(report, "free_bytes");
    assert_eq!((live, bytes), (3000, 3000 * 10240), "{report}");
    assert!(number(report, "free_bytes") >= 1 << 20, "{report}");
    let peak = number(report, "peak_bytes");
    assert!(peak >= bytes && peak < 2 * bytes, "{report}");
    assert!(report["threads"].is_null() && report["asked_bytes"].is_null());
}

/// If no allocation was observed, the report does not claim that there are no blocks.
#[test]
fn a_heap_of_which_nothing_was_counted_is_not_an_empty_one() {
    let scene = Scene::new("killed-unseen");
    let source = r#"
        #include <signal.h>
        #include <unistd.h>
        int main(void) { return kill(getpid(), SIGKILL); }"#;
    let output = run(&["--postmortem"], scene.c("unseen", source), &[])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("heap       not observed: nothing was counted"),
        "{text}"
    );
    assert!(!text.contains("0 blocks"), "{text}");
}

#[test]
fn its_profile_is_kept() {
    let scene = Scene::new("killed-kept");
    let program = scene.c("grows", GROWS);
    let kept = scene.path("kept");
    let options = ["--postmortem", "--quiet", "--out", kept.to_str().unwrap()];
    run(&options, program, &[]).output().unwrap();
    let report = std::process::Command::new(crate::scene::PLIMSOLL)
        .args(["report", "-t", "peak_space"])
        .arg(kept.join("heap.pb.gz"))
        .output()
        .unwrap();
    let text = String::from_utf8(report.stdout).unwrap();
    let grow = text.lines().find(|line| line.ends_with(" grow"));
    assert!(grow.is_some(), "{text}");
    let numbers = std::fs::read(kept.join("numbers.json")).unwrap();
    let numbers: serde_json::Value = serde_json::from_slice(&numbers).unwrap();
    assert_eq!(numbers["ending"], "killed");
}

#[test]
fn a_child_that_is_killed_is_reported_beside_its_parent() {
    let scene = Scene::new("killed-child");
    let program = scene.c("grows", GROWS);
    let options = ["--postmortem", "--children", "--json"];
    let output = run(&options, program, &["forks"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let (_, reports) = reports(&output);
    let endings = reports.iter().map(|report| report["ending"].as_str());
    let mut endings: Vec<_> = endings.flatten().collect();
    endings.sort_unstable();
    assert_eq!(endings, ["exit", "killed"]);
}

#[test]
fn a_directory_that_no_setting_can_name_is_refused() {
    let scene = Scene::new("killed-comma");
    let directory = scene.path("a,b");
    std::fs::create_dir(&directory).unwrap();
    let mut command = run(&["--postmortem"], "true", &[]);
    let output = command.env("TMPDIR", &directory).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("a comma"), "{text}");
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn a_hint_is_printed_without_a_post_mortem() {
    let scene = Scene::new("killed-without");
    let program = scene.c("grows", GROWS);
    let output = run(&[], program, &[]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("--postmortem keeps"), "{text}");
}

/// As in a pod: the launcher, the program or both are killed, and numbers of processes recur.
#[test]
fn files_in_a_named_directory_outlive_the_launcher() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let scene = Scene::new("killed-named");
    let program = scene.c("grows", GROWS);
    let directory = scene.path("not/yet there");
    let option = format!("--postmortem={}", directory.display());
    let names = || {
        let entries = std::fs::read_dir(&directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<Vec<_>>()
    };
    let output = run(&[&option], &program, &[]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("killed before it could report"), "{text}");
    crate::table::row(&text, "grow < main");
    let left = names();
    assert_eq!(left.len(), 1);

    // A run reports on its own processes only, and a program that exits leaves no file.
    let output = run(&[&option], "/bin/true", &[]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success() && !text.contains("killed"),
        "{text}"
    );
    assert_eq!(names(), left);

    let mut command = run(&[&option, "-q"], "/bin/sh", &["-c", "echo $$; read line"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut launcher = command.spawn().unwrap();
    let mut line = String::new();
    let mut lines = BufReader::new(launcher.stdout.take().unwrap());
    lines.read_line(&mut line).unwrap();
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    let process: i32 = line.trim().parse().unwrap();
    // SAFETY: `kill` takes no pointers. The process waits for input that never ends before.
    assert_eq!(unsafe { libc::kill(process, libc::SIGKILL) }, 0);
    let name = |name: &String| name.starts_with(&format!("{process}-"));
    let file = directory.join(names().into_iter().find(name).unwrap());
    let left = plimsoll_postmortem::read(&std::fs::File::open(file).unwrap()).unwrap();
    assert_eq!(left.process, process as u32);
    assert!(left.heap.mallocs > 0);
}

/// The program and the command are in the same control group.
#[test]
fn a_kill_for_lack_of_memory_in_the_control_group_is_named() {
    let group = match Group::new(128 << 20) {
        Ok(group) => group,
        Err(why) => return plimsoll_testkit::skip!("cannot create a control group: {why}"),
    };
    let scene = Scene::new("killed-in-group");
    let source = "
        #include <stdlib.h>
        #include <string.h>
        int main(void) {
            for (;;) memset(malloc(1 << 20), 1, 1 << 20);
        }";
    let program = scene.c("grows-on", source);
    let expected = "was ended by signal 9 (Killed), while the kernel killed a process of the control group for lack of memory";
    for options in [&["--postmortem"][..], &[]] {
        let mut command = run(options, &program, &[]);
        group.contain(&mut command);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(expected), "{options:?}: {text}");
    }
    // A kill by another process is none.
    let (_scene, output) = killed(&[]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("was ended by signal 9 (Killed)"), "{text}");
    assert!(!text.contains("for lack of memory"), "{text}");
}

const HAS_LARGE_CHILD: &str = r#"
    #include <signal.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/wait.h>
    #include <unistd.h>
    int main(void) {
        memset(malloc(1 << 20), 1, 1 << 20);
        if (fork() == 0) {
            volatile char *large = malloc(200 << 20);
            for (int i = 0; i < 200 << 20; i += 4096)
                large[i] = 1;
            _exit(0);
        }
        wait(NULL);
        usleep(300000);
        raise(SIGKILL);
    }"#;

/// The kernel's maximum for an ended process includes the children for which it waited.
#[test]
fn a_killed_program_does_not_have_the_memory_of_its_child() {
    let scene = Scene::new("killed-parent");
    let program = scene.c("parent", HAS_LARGE_CHILD);
    let output = run(&["--postmortem", "--json"], &program, &[])
        .output()
        .unwrap();
    let resident = number(&reports(&output).1[0], "resident_bytes");
    assert!((1 << 20..100 << 20).contains(&resident), "{resident}");
    let output = run(&["--postmortem"], &program, &[]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let peak = text
        .lines()
        .find(|line| line.starts_with("  peak  "))
        .unwrap();
    assert!(peak.contains(" or up to 20"), "{peak}");
    assert!(peak.contains(" unless a child reached that"), "{peak}");
}

/// Touches 146 MiB between two readings of the launcher, and is killed.
const FAST: &str = r#"
    #include <signal.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    int main() {
        usleep(300000);
        for (int i = 0; i < 1500; i++)
            memset(malloc(100 << 10), 1, 100 << 10);
        raise(SIGKILL);
    }"#;

/// The estimated peak is as likely above the exact sum of all allocations as below it, so all five runs would pass by
/// chance in 1 of 32 if it were not bounded.
#[test]
fn no_peak_of_a_killed_program_contradicts_an_exact_figure() {
    let scene = Scene::new("killed-bounds");
    let program = scene.c("fast", FAST);
    for _ in 0..5 {
        let options = ["--postmortem", "--json", "--heap-rate", "4m"];
        let output = run(&options, &program, &[]).output().unwrap();
        let report = &reports(&output).1[0];
        let allocated = number(report, "malloc_bytes");
        assert!(allocated >= 1500 * (100 << 10), "{report}");
        let peak = number(report, "peak_bytes");
        let live = allocated - number(report, "free_bytes");
        assert!((live..=allocated).contains(&peak), "{report}");
        // All of it was touched.
        let resident = number(report, "resident_bytes");
        assert!(resident >= 146 << 20, "{report}");
    }
}
