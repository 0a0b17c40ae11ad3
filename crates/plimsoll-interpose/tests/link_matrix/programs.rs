//! Programs, by build options.

use crate::commands::{c_compiler_can, command, succeed};
use crate::form::{is_in_this_form, say};
use crate::package::{Package, depends_on_the_crate};
use crate::report::{Report, has_interpreter, holds, is_interposed};

#[test]
fn a_debug_build_is_interposed() {
    is_interposed("debug", &Package::program("debug").build_program());
}

#[test]
fn a_release_build_is_interposed() {
    let package = Package::program("release").profile("release");
    is_interposed("release", &package.build_program());
}

#[test]
fn a_build_with_thin_lto_is_interposed() {
    if is_in_this_form("thin LTO") {
        let package = Package::program("thin").profile("thin");
        is_interposed("thin", &package.build_program());
    }
}

#[test]
fn a_build_with_fat_lto_is_interposed() {
    if is_in_this_form("fat LTO") {
        let package = Package::program("fat").profile("fat");
        is_interposed("fat", &package.build_program());
    }
}

#[test]
fn a_stripped_build_with_fat_lto_that_aborts_is_interposed() {
    let package = Package::program("stripped").profile("stripped");
    is_interposed("stripped", &package.build_program());
}

/// Here the standard library is a shared library, whose calls must find the program's function.
#[test]
fn a_program_with_a_shared_standard_library_is_interposed() {
    if !is_in_this_form("prefer-dynamic") {
        return;
    }
    for profile in ["dev", "release"] {
        let case = format!("dynamic-{profile}");
        let package = Package::program(&case)
            .profile(profile)
            .flag("prefer-dynamic");
        let program = package.build_program();
        assert!(holds(&program, b"\0libstd-"), "{case}");
        is_interposed(&case, &program);
    }
}

/// Here the program contains the C library, whose definition must neither be used nor clash.
#[test]
fn a_program_with_the_c_library_in_it_is_interposed() {
    if !is_in_this_form("crt-static") {
        return;
    }
    let empty = Package::new("static", "c").file("empty.c", "int main(void) { return 0; }");
    empty.write();
    let source = empty.root.join("empty.c");
    let built = empty.root.join("empty");
    let paths = [&source, &built].map(|path| path.to_str().expect("text"));
    if !c_compiler_can(&["-static", paths[0], "-o", paths[1]]) {
        return say("crt-static: skipped: no static C library is installed");
    }
    for profile in ["dev", "release", "stripped"] {
        let case = format!("static-{profile}");
        let package = Package::program(&case)
            .profile(profile)
            .flag("target-feature=+crt-static");
        let program = package.build_program();
        assert!(!has_interpreter(&program), "{case}");
        let report = Report::of(&mut command(&program));
        say(&format!("{case}: {report:?}"));
        assert!(report.linked && report.saw_the_lock(), "{case}: {report:?}");
    }
}

#[test]
fn unit_integration_and_doc_tests_are_interposed() {
    for profile in ["dev", "release"] {
        if profile == "release" && !is_in_this_form("cargo test --release") {
            return;
        }
        let package = Package::program(&format!("tests-{profile}")).profile(profile);
        let passed = succeed(&mut package.cargo("test"));
        for test in [
            "test tests::a_unit_test_is_interposed ... ok",
            "test an_integration_test_is_interposed ... ok",
            "test src/lib.rs - (line 3) ... ok",
        ] {
            assert!(passed.contains(test), "{profile}: {test}\n{passed}");
        }
    }
}

#[test]
fn the_locks_of_parking_lot_are_seen() {
    if !is_in_this_form("parking_lot") {
        return;
    }
    for profile in ["dev", "release", "stripped"] {
        let case = format!("parking_lot-{profile}");
        let dependencies = depends_on_the_crate(&[]) + "\nparking_lot = \"0.12\"";
        let mut package =
            Package::program(&case)
                .profile(profile)
                .manifest("program", "", &dependencies);
        package.flags.push("--cfg=parking_lot".to_owned());
        package.arguments.clear();
        let program = package.build_program();
        let report = Report::of(command(&program).arg("parking_lot"));
        say(&format!("{case}: {report:?}"));
        assert!(report.linked && report.saw_the_lock(), "{case}: {report:?}");
    }
}
