//! The same tests for the pthread functions.

use crate::commands::{command, rust_libraries, succeed};
use crate::form::{is_in_this_form, profiles, say};
use crate::linkers::Linker;
use crate::package::{Package, compile_c, depends_on_the_crate, source};
use crate::report::has_interpreter;

/// Returns a program that depends on the crate with the feature `pthread`.
fn pthread_program(case: &str) -> Package {
    Package::new(case, "program")
        .manifest("program", "", &depends_on_the_crate(&["pthread"]))
        .file("src/main.rs", source::PTHREAD_PROGRAM)
        .file("src/witness.rs", source::PTHREAD_WITNESS)
}

/// Asserts the report on [`source::PTHREAD_C`], in a library or a program: one wait for a lock,
/// which a cancellation abandons, and one wait for a condition.
fn saw_the_pthread_locks(case: &str, report: &str) {
    say(&format!("{case}: {}", report.trim()));
    for part in [
        "linked=true in_force=true locks=1 conditions=1 releases=",
        " abandoned=1",
    ] {
        assert!(report.contains(part), "{case}: {report}");
    }
    assert!(!report.contains(" releases=0 "), "{case}: {report}");
}

/// Asserts that the hooks see the locks of a C library that the program loads.
fn takes_over_pthread(case: &str, package: &Package) {
    let program = package.build_program();
    let arguments = ["-shared", "-fPIC", "-pthread"];
    if let Some(library) = compile_c(case, source::PTHREAD_C, "liblocks.so", &arguments) {
        let libraries = rust_libraries();
        let report = succeed(
            command(&program)
                .arg(library)
                .env("LD_LIBRARY_PATH", libraries),
        );
        saw_the_pthread_locks(case, &report);
    }
}

#[test]
fn pthread_locks_are_taken_over_however_a_program_is_linked() {
    for (case, profile) in [
        ("pthread-debug", "dev"),
        // This profile aborts on panics; a thread can still be cancelled.
        ("pthread-stripped", "stripped"),
    ] {
        takes_over_pthread(case, &pthread_program(case).profile(profile));
    }
    if Linker::Bfd.is_here() {
        let package = Linker::Bfd.applied_to(pthread_program("pthread-bfd"));
        takes_over_pthread("pthread-bfd", &package);
    }
    if !is_in_this_form("pthread in other ways") {
        return;
    }
    for (case, profile) in [
        ("pthread-release", "release"),
        ("pthread-thin", "thin"),
        ("pthread-fat", "fat"),
    ] {
        takes_over_pthread(case, &pthread_program(case).profile(profile));
    }
    for linker in [Linker::Bfd, Linker::Gold, Linker::Lld] {
        if linker.is_here() {
            for profile in ["dev", "stripped"] {
                let case = format!("pthread-{}-{profile}", linker.name());
                let package = linker.applied_to(pthread_program(&case).profile(profile));
                takes_over_pthread(&case, &package);
            }
        }
    }
    for profile in ["dev", "release"] {
        let case = format!("pthread-dynamic-{profile}");
        let package = pthread_program(&case)
            .profile(profile)
            .flag("prefer-dynamic");
        takes_over_pthread(&case, &package);
    }
}

/// Here the crate defines no pthread functions, and nothing clashes.
#[test]
fn pthread_locks_are_left_alone_in_a_program_with_the_c_library_in_it() {
    if !is_in_this_form("pthread with crt-static") {
        return;
    }
    for profile in ["dev", "stripped"] {
        let case = format!("pthread-static-{profile}");
        let package = pthread_program(&case)
            .profile(profile)
            .flag("target-feature=+crt-static");
        let program = package.build_program();
        assert!(!has_interpreter(&program), "{case}");
        let report = succeed(&mut command(&program));
        assert!(
            report.contains("linked=false in_force=false"),
            "{case}: {report}"
        );
    }
}

#[test]
fn a_preloaded_library_sees_the_programs_pthread_locks() {
    let case = "pthread-preload";
    let arguments = ["-DHOST", "-pthread"];
    let Some(host) = compile_c(case, source::PTHREAD_C, "host", &arguments) else {
        return;
    };
    for profile in profiles() {
        let case = format!("{case}-{profile}");
        let library = Package::new(&case, "library")
            .manifest(
                "library",
                "[lib]\ncrate-type = [\"cdylib\"]",
                &depends_on_the_crate(&["export", "pthread"]),
            )
            .file("src/lib.rs", source::PTHREAD_LIBRARY)
            .file("src/witness.rs", source::PTHREAD_WITNESS)
            .profile(profile);
        let report = succeed(command(&host).env("LD_PRELOAD", library.build_library()));
        saw_the_pthread_locks(&case, &report);
    }
}
