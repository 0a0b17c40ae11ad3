//! Shared libraries, loaded and preloaded.

use std::path::{Path, PathBuf};

use crate::commands::command;
use crate::form::{is_in_this_form, say};
use crate::linkers::Linker;
use crate::package::{Package, compile_c, source};
use crate::report::Report;

/// Builds the hosts that load a library: a Rust program, which contains another standard library,
/// and a C program.
fn hosts(case: &str) -> Vec<PathBuf> {
    let mut hosts = vec![Package::host(case).build_host()];
    hosts.extend(compile_c(case, source::HOST_C, "host", &[]));
    hosts
}

/// Asserts `is_right` for the library's report in each host, and prints the report.
fn for_each_host(
    case: &str,
    hosts: &[PathBuf],
    package: &Package,
    is_right: impl Fn(&Report) -> bool,
) {
    let library = package.build_library();
    for host in hosts {
        let report = Report::of(command(host).arg(&library));
        say(&format!("{case}: {report:?}"));
        assert!(is_right(&report), "{case}: {report:?}");
    }
}

/// rustc makes foreign symbols such as this one local in a `cdylib`. The library's calls therefore
/// bind to its own function whatever the program defines, and no other calls do.
#[test]
fn a_library_that_is_loaded_sees_its_own_calls() {
    let hosts = hosts("cdylib-hosts");
    let holds = |case: &str, package: Package| {
        for_each_host(case, &hosts, &package, |report| {
            report.linked && report.saw_the_lock() && report.exported == Some(false)
        });
    };
    let dev = |case: &str| Package::library(case, &[]);
    holds("cdylib-debug", dev("cdylib-debug"));
    if !is_in_this_form("other cdylibs") {
        return;
    }
    for (case, profile) in [
        ("cdylib-release", "release"),
        ("cdylib-stripped", "stripped"),
    ] {
        holds(case, dev(case).profile(profile));
    }
    for (case, linker) in [("cdylib-bfd", Linker::Bfd), ("cdylib-gold", Linker::Gold)] {
        if linker.is_here() {
            holds(case, linker.applied_to(dev(case)));
        }
    }
    let case = "cdylib-symbolic";
    holds(case, dev(case).flag(SYMBOLIC));
}

const SYMBOLIC: &str = "link-arg=-Wl,-Bsymbolic-functions";

/// An exported function can be overridden by a definition that the linker finds earlier.
#[test]
fn a_loaded_library_that_exports_the_function_knows_whether_it_has_it() {
    if !is_in_this_form("cdylibs with the feature export") {
        return;
    }
    let hosts = hosts("export-hosts");
    for profile in ["dev", "release", "stripped"] {
        let case = format!("export-{profile}");
        let package = Package::library(&case, &["export"]).profile(profile);
        for_each_host(&case, &hosts, &package, |report| {
            !report.linked && !report.saw_anything() && report.exported == Some(true)
        });
        let case = format!("export-symbolic-{profile}");
        let package = Package::library(&case, &["export"])
            .profile(profile)
            .flag(SYMBOLIC);
        for_each_host(&case, &hosts, &package, |report| {
            report.linked && report.saw_the_lock() && report.exported == Some(true)
        });
    }
}

/// Runs a contending program with the library preloaded, and returns the library's report at exit.
fn preloaded(case: &str, library: &Package, host: &Path) -> Report {
    let report = Report::of(
        command(host)
            .env("LD_PRELOAD", library.build_library())
            .env("LIBRARY_REPORTS_AT_EXIT", "1"),
    );
    say(&format!("{case}: {report:?}"));
    report
}

#[test]
fn a_preloaded_library_that_exports_the_function_sees_the_programs_calls() {
    let host = Package::host("preload-export-host").build_host();
    let holds = |case: &str, library: Package| {
        let report = preloaded(case, &library, &host);
        assert!(report.linked && report.saw_the_lock(), "{case}: {report:?}");
    };
    let dev = |case: &str| Package::library(case, &["export"]);
    holds("preload-export-dev", dev("preload-export-dev"));
    if !is_in_this_form("other preloaded cdylibs") {
        return;
    }
    for profile in ["release", "stripped"] {
        let case = format!("preload-export-{profile}");
        holds(&case, dev(&case).profile(profile));
    }
    for linker in [Linker::Bfd, Linker::Gold] {
        if linker.is_here() {
            let case = format!("preload-export-{}", linker.name());
            holds(&case, linker.applied_to(dev(&case)));
        }
    }
}

/// The counterpart of [`a_library_that_is_loaded_sees_its_own_calls`].
#[test]
fn a_preloaded_library_that_does_not_sees_nothing_of_the_program() {
    if !is_in_this_form("LD_PRELOAD without the feature export") {
        return;
    }
    let host = Package::host("preload-host").build_host();
    for profile in ["dev", "release"] {
        let case = format!("preload-{profile}");
        let library = Package::library(&case, &[]).profile(profile);
        let report = preloaded(&case, &library, &host);
        assert!(
            report.linked && !report.saw_anything(),
            "{case}: {report:?}"
        );
    }
}
