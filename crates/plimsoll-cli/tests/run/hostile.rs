//! Directories that other users can change.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::scene::{PLIMSOLL, Scene, only, reports, run};

/// Returns the preloaded library's path, with this home directory and directory for temporary
/// files.
fn library(scene: &Scene, home: &Path) -> PathBuf {
    let mut command = run(
        &["--quiet", "--children"],
        "/bin/sh",
        &["-c", "echo ${LD_PRELOAD%%:*} $PLIMSOLL_RUN_TO"],
    );
    command.env("HOME", home).env_remove("XDG_CACHE_HOME");
    command.env("TMPDIR", home.join("tmp"));
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (library, reports) = text.trim().split_once(' ').unwrap_or_else(|| {
        panic!("{text} {}", String::from_utf8_lossy(&output.stderr));
    });
    assert!(!Path::new(reports).starts_with(&scene.directory), "{text}");
    library.into()
}

/// Creates a home directory in which other users can replace files.
fn hostile_home(scene: &Scene) -> PathBuf {
    let home = scene.path("home");
    fs::create_dir_all(home.join("tmp")).unwrap();
    fs::set_permissions(&home, PermissionsExt::from_mode(0o777)).unwrap();
    home
}

#[test]
fn no_library_is_loaded_from_a_directory_that_others_can_exchange() {
    let scene = Scene::new("exchange");
    let home = hostile_home(&scene);
    let genuine = library(&scene, &home);
    assert!(!genuine.starts_with(&scene.directory), "{genuine:?}");
    let version = genuine.parent().unwrap().file_name().unwrap();
    let marker = scene.path("marker");
    let source = format!(
        r#"
        #include <fcntl.h>
        __attribute__((constructor)) static void mark(void) {{ open("{}", O_CREAT, 0600); }}
        "#,
        marker.display()
    );
    let evil = scene.compile("cc", "evil.so", &source, &["-shared", "-fPIC"]);
    // Two directories, with the genuine and a hostile library, replace each other continually.
    let cache = home.join(".cache");
    let [good, bad] = ["good", "bad"].map(|name| {
        let directory = home.join(name);
        let own = directory.join("plimsoll").join(version);
        fs::create_dir_all(&own).unwrap();
        fs::set_permissions(directory.join("plimsoll"), PermissionsExt::from_mode(0o700)).unwrap();
        let from = if name == "good" { &genuine } else { &evil };
        fs::copy(from, own.join(genuine.file_name().unwrap())).unwrap();
        directory
    });
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for directory in [&good, &bad] {
                    fs::rename(directory, &cache).unwrap();
                    fs::rename(&cache, directory).unwrap();
                }
            }
        });
        let output: Vec<_> = (0..10)
            .map(|_| {
                let mut command = run(&["--quiet"], "/bin/true", &[]);
                command.env("HOME", &home).env_remove("XDG_CACHE_HOME");
                command.output().unwrap()
            })
            .collect();
        done.store(true, Ordering::Relaxed);
        for output in output {
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && text.is_empty(), "{text}");
        }
    });
    assert!(!marker.exists());
}

#[test]
fn a_cache_that_only_this_user_can_change_is_used() {
    let scene = Scene::new("own-cache");
    fs::set_permissions(&scene.directory, PermissionsExt::from_mode(0o700)).unwrap();
    let mut command = run(
        &["--quiet", "--children"],
        "/bin/sh",
        &["-c", "echo ${LD_PRELOAD%%:*}"],
    );
    let command = command.env("XDG_CACHE_HOME", scene.path("cache"));
    let path = |output: std::process::Output| String::from_utf8(output.stdout).unwrap();
    let first = path(command.output().unwrap());
    assert!(
        first.starts_with(scene.path("cache").to_str().unwrap()),
        "{first}"
    );
    // A file that others put there is neither loaded nor kept.
    let library = Path::new(first.trim());
    fs::remove_file(library).unwrap();
    symlink("/none", library).unwrap();
    assert_eq!(path(command.output().unwrap()), first);
    assert!(fs::symlink_metadata(library).unwrap().is_file());
}

#[test]
fn a_name_that_others_have_taken_is_passed_over() {
    let scene = Scene::new("taken");
    let shared = scene.path("tmp");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, PermissionsExt::from_mode(0o1777)).unwrap();
    // Root has a directory that others cannot take.
    // SAFETY: `geteuid` takes no arguments.
    let (is_root, user) = match unsafe { libc::geteuid() } {
        0 => (true, 65534),
        user => (false, user),
    };
    let taken = shared.join(format!("plimsoll-{user}"));
    fs::create_dir(&taken).unwrap();
    fs::set_permissions(&taken, PermissionsExt::from_mode(0o777)).unwrap();
    let mut command = run(
        &["--quiet", "--children"],
        "/bin/sh",
        &["-c", "echo ${LD_PRELOAD%%:*}"],
    );
    command.env_remove("HOME").env_remove("XDG_CACHE_HOME");
    command.env("TMPDIR", &shared).current_dir(&shared);
    if is_root {
        command.uid(user);
    }
    let Ok(output) = command.output() else {
        plimsoll_testkit::skip!("user {user} may not execute this build");
        return;
    };
    let library = String::from_utf8(output.stdout).unwrap();
    let next = shared.join(format!("plimsoll-{user}-1"));
    assert!(Path::new(&library).starts_with(&next), "{library}");
}

/// In the namespace, root's directories belong to the user without a mapping.
#[test]
fn a_user_namespace_without_root_has_a_safe_directory() {
    let inside = ["--map-user=1", "--user", "--"];
    let is_allowed = Command::new("unshare").args(inside).arg("true").output();
    if !is_allowed.is_ok_and(|output| output.status.success()) {
        plimsoll_testkit::skip!("no user namespaces");
        return;
    }
    let scene = Scene::new("namespace");
    let output = Command::new("unshare")
        .args(inside)
        .args([PLIMSOLL, "run", "--json", "--", "/bin/true"])
        .env("HOME", scene.path("nowhere"))
        .env_remove("XDG_CACHE_HOME")
        .output()
        .unwrap();
    let (errors, reports) = reports(&output);
    assert!(output.status.success(), "{errors}");
    assert_eq!(only(reports)["ending"], "exit");
}

#[test]
fn profiles_are_not_written_through_planted_links() {
    let scene = Scene::new("planted");
    let out = scene.path("out");
    fs::create_dir(&out).unwrap();
    let victim = scene.path("victim");
    fs::File::create(&victim).unwrap().write_all(b"x").unwrap();
    let kinds = ["heap", "peak", "lifetimes", "mmap", "block", "mutex"];
    let planted = |name: &str| symlink(&victim, out.join(name)).unwrap();
    for kind in kinds {
        planted(&format!("{kind}.pb.gz"));
        planted(&format!("{kind}.pb.part"));
    }
    planted("numbers.json");
    let status = run(
        &["--quiet", "--out", out.to_str().unwrap()],
        "/bin/true",
        &[],
    )
    .status()
    .unwrap();
    assert!(status.success());
    assert_eq!(fs::read(&victim).unwrap(), b"x");
    for name in kinds.map(|kind| format!("{kind}.pb.gz")) {
        let written = fs::symlink_metadata(out.join(&name)).unwrap();
        assert!(written.is_file(), "{name}");
        assert_eq!(written.mode() & 0o777, 0o600, "{name}");
        assert_ne!(written.len(), 0, "{name}");
    }
    let numbers = fs::read(out.join("numbers.json")).unwrap();
    serde_json::from_slice::<serde_json::Value>(&numbers).unwrap();
    let left = fs::read_dir(&out).unwrap().flatten();
    let left = left.filter(|file| file.file_name().to_str().unwrap().ends_with(".part"));
    assert_eq!(left.count(), kinds.len(), "those that were planted");
}

/// Runs a command that must end within a minute.
fn in_time(command: &Command) -> std::process::Output {
    let mut bounded = Command::new("timeout");
    bounded.args(["--signal=KILL", "60"]);
    bounded.arg(command.get_program()).args(command.get_args());
    bounded.output().unwrap()
}

/// Any user can plant one for each number that a process may have.
#[test]
fn a_pipe_or_device_at_the_path_of_a_list_for_perf_delays_no_run() {
    let plants = [
        "mkfifo /tmp/perf-$$.map",
        "ln -s /dev/zero /tmp/perf-$$.map",
    ];
    for plant in plants {
        let script = format!("echo $$; {plant}; exit 3");
        let options = ["--quiet", "--heap-rate", "1"];
        let output = in_time(&run(&options, "/bin/sh", &["-c", &script]));
        let process = String::from_utf8(output.stdout).unwrap();
        fs::remove_file(format!("/tmp/perf-{}.map", process.trim())).unwrap();
        assert_eq!(output.status.code(), Some(3), "{plant}");
    }
}

/// Reports have arguments and stacks.
#[test]
fn only_the_user_of_a_process_can_read_what_it_writes() {
    let scene = Scene::new("modes");
    let out = scene.path("out");
    let script = "umask 0; /bin/true; /bin/true & wait; stat -c '%a %n' $PLIMSOLL_RUN_TO/*";
    let options = ["--quiet", "--children", "--out", out.to_str().unwrap()];
    let mut command = run(&options, "/bin/sh", &["-c", script]);
    let output = command.output().unwrap();
    let modes = String::from_utf8(output.stdout).unwrap();
    assert!(modes.lines().count() >= 2, "{modes}");
    for line in modes.lines() {
        assert!(line.starts_with("600 "), "{line}");
    }
    let profile = fs::read_dir(&out)
        .unwrap()
        .flatten()
        .map(|file| file.path());
    let profile = profile.filter(|path| path.to_str().unwrap().ends_with("heap.pb.gz"));
    let profile = profile.min().unwrap();
    for arguments in [
        "report --html OUT PROFILE",
        "report --svg OUT PROFILE",
        "report --json -o OUT PROFILE",
        "symbolize -o OUT PROFILE",
    ] {
        let written = scene.path("written");
        let place = |word: &str| match word {
            "OUT" => written.clone(),
            "PROFILE" => profile.clone(),
            word => word.into(),
        };
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask 0; exec \"$@\"", "sh", PLIMSOLL]);
        let output = shell
            .args(arguments.split(' ').map(place))
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments}: {errors}");
        let mode = fs::metadata(&written).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600, "{arguments}");
        fs::remove_file(&written).unwrap();
    }
}

/// Returns a report of a process with these parts.
fn forged(process: u32, seconds: &str, parts: &[(&str, &[u8])]) -> Vec<u8> {
    let numbers = format!(
        r#"{{"version":1,"process":{process},"program":"/forged","ending":"exit","seconds":{seconds}}}"#
    );
    let mut report = Vec::new();
    for (name, bytes) in parts.iter().chain([&("numbers", numbers.as_bytes())]) {
        writeln!(report, "{name} {}", bytes.len()).unwrap();
        report.extend_from_slice(bytes);
    }
    report
}

/// Each of these processes can write what it wants.
#[test]
#[allow(clippy::zombie_processes, reason = "wait4 waits for it")]
fn hostile_reports_take_little_memory_and_do_not_change_the_status() {
    let scene = Scene::new("reports");
    let mut many = b"a 0\n".repeat(4 << 20);
    many.extend(forged(700_001, "1", &[]));
    // A profile whose strings take 400 MB.
    let text = [&[0x32, 0xe8, 0x07][..], &[b'x'; 1000]].concat();
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    bomb.write_all(b"\x0a\x02\x08\x01").unwrap();
    for _ in 0..400_000 {
        bomb.write_all(&text).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    fs::create_dir(scene.path("forged")).unwrap();
    for (name, report) in [
        ("700001", many),
        ("700002", forged(700_002, "1e18", &[])),
        ("700003", forged(700_003, "0.1", &[("heap", &bomb)])),
        // Another process than the name of the file states.
        ("700004", forged(1, "0.1", &[])),
    ] {
        fs::write(scene.path(&format!("forged/{name}.report")), report).unwrap();
    }
    let script = "cp \"$0\"/* $PLIMSOLL_RUN_TO; exit 3";
    let forged = scene.path("forged");
    let arguments = ["-c", script, forged.to_str().unwrap()];
    let errors = scene.path("errors");
    let mut command = run(&["--children", "--each"], "/bin/sh", &arguments);
    let child = command
        .stderr(fs::File::create(&errors).unwrap())
        .spawn()
        .unwrap();
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: the child is not waited for elsewhere; both results have space, and zero is valid for them.
    let usage = unsafe {
        let waited = libc::wait4(child.id() as i32, &raw mut status, 0, usage.as_mut_ptr());
        assert_eq!(waited, child.id() as i32);
        usage.assume_init()
    };
    let errors = fs::read_to_string(errors).unwrap();
    assert!(libc::WIFEXITED(status), "{errors}");
    assert_eq!(libc::WEXITSTATUS(status), 3, "{errors}");
    assert!(
        errors.contains("plimsoll: 2 reports left out: "),
        "{errors}"
    );
    let mib = usage.ru_maxrss >> 10;
    assert!(mib < 150, "{mib} MiB");
}

/// A worker of a server knows where reports are written.
#[test]
fn a_process_without_privileges_reports_only_on_itself() {
    // SAFETY: the call has no arguments.
    if unsafe { libc::geteuid() } != 0 {
        plimsoll_testkit::skip!("only root can give up its privileges");
        return;
    }
    let scene = Scene::new("forger");
    let source = r#"
        #include <signal.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static void forge(int process) {
            char text[300], name[300];
            sprintf(text, "{\"version\":1,\"process\":%d,\"program\":\"/forged\",\"ending\":\"exit\"}", process);
            sprintf(name, "%s/%d.report", getenv("PLIMSOLL_RUN_TO"), process);
            FILE *file = fopen(name, "w");
            fprintf(file, "numbers %d\n%s", (int)strlen(text), text);
            fclose(file);
        }
        int main(void) {
            int child = fork();
            if (!child) {
                if (setuid(65534)) return 1;
                forge(getppid());
                forge(1);
                return 0;
            }
            waitpid(child, 0, 0);
            raise(SIGKILL);
        }"#;
    let program = scene.c("forger", source);
    let output = run(&["--children", "--json"], &program, &[])
        .output()
        .unwrap();
    let (errors, reports) = reports(&output);
    assert!(
        errors.contains("plimsoll: 2 reports left out: "),
        "{errors}"
    );
    assert!(errors.contains("without a report"), "{errors}");
    // That of the worker, which belongs to the other user.
    assert_eq!(only(reports)["program"], program.to_str().unwrap());
}

#[test]
fn not_every_program_of_a_run_has_a_section() {
    let scene = Scene::new("programs");
    fs::create_dir(scene.path("forged")).unwrap();
    for number in 0..300 {
        let process = 710_000 + number;
        let report = forged(process, "0.1", &[]);
        let report = String::from_utf8(report).unwrap();
        let report = report.replace("/forged", &format!("/p{number:05}"));
        fs::write(scene.path(&format!("forged/{process}.report")), report).unwrap();
    }
    let script = "cp \"$0\"/* $PLIMSOLL_RUN_TO";
    let forged = scene.path("forged");
    let arguments = ["-c", script, forged.to_str().unwrap()];
    let output = run(&["--children"], "/bin/sh", &arguments)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    // The shell and `cp` are the first two.
    let sections = text.matches(": 1 process\n").count();
    assert_eq!(sections, 200, "{text}");
    assert!(text.contains("no section for 102 programs more"), "{text}");
}
