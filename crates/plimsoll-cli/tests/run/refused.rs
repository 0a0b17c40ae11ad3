//! Programs that cannot be run, or whose allocations cannot be observed.

use plimsoll_cli::library::LIBRARY;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::scene::{Scene, run};

/// Returns the exit status and the only line of output.
fn refused(options: &[&str], program: impl AsRef<Path>) -> (Option<i32>, String) {
    let output = run(options, program, &[]).output().unwrap();
    assert!(output.stdout.is_empty());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("plimsoll: "), "{text}");
    (output.status.code(), text)
}

#[test]
fn absent_and_invalid_programs_end_with_the_shells_status() {
    let scene = Scene::new("no-program");
    let (code, text) = refused(&[], "no-such-program-anywhere");
    assert_eq!(code, Some(127), "{text}");
    assert!(text.contains("no-such-program-anywhere"));
    let file = scene.path("file");
    std::fs::write(&file, "text").unwrap();
    let (code, text) = refused(&[], &file);
    assert_eq!(code, Some(126), "{text}");
    assert_eq!(refused(&[], &scene.directory).0, Some(126));
}

#[test]
fn a_static_program_is_explained() {
    let scene = Scene::new("static");
    let program = scene.compile("cc", "static", "int main() { return 0; }", &["-static"]);
    let (code, text) = refused(&[], program);
    assert_eq!(code, Some(125));
    assert!(text.contains("statically linked"), "{text}");
}

#[test]
fn a_program_with_other_rights_is_refused() {
    let scene = Scene::new("setuid");
    let program = scene.c("setuid", "int main() { return 0; }");
    // SAFETY: `geteuid` takes no arguments.
    if unsafe { libc::geteuid() } != 0 {
        plimsoll_testkit::skip!("only root can change the owner of a file");
        return;
    }
    std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).unwrap();
    let (code, text) = refused(&[], program);
    assert_eq!(code, Some(125));
    assert!(text.contains("preloaded"), "{text}");
}

/// For such a program, the loader drops `LD_PRELOAD`, but not a library that the program is linked
/// with.
#[test]
fn a_privileged_program_that_is_linked_with_the_library_obeys_no_environment() {
    // SAFETY: `geteuid` takes no arguments.
    if unsafe { libc::geteuid() } != 0 {
        plimsoll_testkit::skip!("only root can make a program that is another user's and setuid");
        return;
    }
    let scene = Scene::new("linked-setuid");
    let library = scene.path("libpreloaded.so");
    std::fs::write(&library, LIBRARY.content).unwrap();
    scene.open_to_all("libpreloaded.so");
    let source = "#include <stdlib.h>
        #include <sys/auxv.h>
        int main() { free(malloc(100)); return getauxval(AT_SECURE) ? 3 : 4; }";
    let program = scene.compile("cc", "linked", source, &[library.to_str().unwrap()]);
    for (mode, elevated) in [(0o755, 4), (0o4755, 3)] {
        std::fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
        let reports = scene.path(&format!("reports-{mode:o}"));
        std::fs::create_dir(&reports).unwrap();
        std::fs::set_permissions(&reports, PermissionsExt::from_mode(0o777)).unwrap();
        let file = reports.join("post-mortem");
        let output = Command::new(&program)
            .env("PLIMSOLL_RUN", format!("postmortem={}", file.display()))
            .env("PLIMSOLL_RUN_TO", &reports)
            .current_dir("/")
            .uid(65534)
            .gid(65534)
            .output()
            .unwrap();
        let written = std::fs::read_dir(&reports).unwrap().count();
        match output.status.code() {
            Some(code) if code == elevated => {}
            Some(4) => return plimsoll_testkit::skip!("the file system takes setuid away"),
            _ => panic!("{output:?}"),
        }
        if mode == 0o755 {
            assert!(written > 0, "the library reports without privileges");
        } else {
            assert_eq!(written, 0);
            assert!(output.stderr.is_empty(), "{output:?}");
        }
    }
}

#[test]
fn settings_that_make_no_sense_are_named_before_anything_is_run() {
    for (option, value) in [
        ("--heap-rate", "often"),
        ("--block-rate", "1"),
        ("--http", "a,b"),
    ] {
        let (code, text) = refused(&[option, value], "/bin/true");
        assert_eq!(code, Some(125), "{text}");
        assert!(text.contains(option), "{text}");
    }
    let (code, text) = refused(&["--out", "/dev/null/x"], "/bin/true");
    assert_eq!(code, Some(125), "{text}");
}

/// An allocator inside the program cannot be interposed.
#[test]
fn an_allocator_inside_the_program_is_reported() {
    let scene = Scene::new("inside");
    let program = scene.compile(
        "cc",
        "inside",
        r#"
        #include <stddef.h>
        static char room[1 << 20]; static size_t used;
        void *malloc(size_t size) { void *block = room + used; used += (size + 15) / 16 * 16; return block; }
        void free(void *block) {}
        void *calloc(size_t count, size_t each) { return malloc(count * each); }
        void *realloc(void *block, size_t size) { return malloc(size); }
        int main() { for (int i = 0; i < 100; i++) free(malloc(100)); return 0; }
        "#,
        &["-rdynamic"],
    );
    // The same through a wrapper, whose own allocator is the C library's.
    let wrapper = format!("exec {}", program.display());
    let runs = [
        run(&[], &program, &[]).output().unwrap(),
        run(&[], "/bin/sh", &["-c", &wrapper]).output().unwrap(),
    ];
    for output in runs {
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success());
        let named = "heap       not observed: allocations go to its own malloc (exported)";
        assert!(text.contains(named), "{text}");
        assert!(!text.contains("blocks at exit"), "{text}");
    }
}
