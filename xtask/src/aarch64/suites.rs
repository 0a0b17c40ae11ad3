//! The test binaries that run in the machine.

use super::{MUSL_TARGET, TARGET};

/// A test target of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// The unit tests.
    Lib,
    /// An integration test.
    Test(&'a str),
}

/// One test binary.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    /// Its package.
    pub package: &'static str,
    /// Features beside the default ones, separated by commas.
    pub features: &'static str,
    /// Its target.
    pub target: Target<'static>,
    /// The compiler's target: with glibc or musl.
    pub triple: &'static str,
    /// Filters and options of its test harness. Filters of the user come in addition, and select
    /// among the tests that these leave.
    pub arguments: &'static [&'static str],
    /// The machine kills it after this time. Emulated processors are some ten times slower.
    pub limit_seconds: u32,
}

impl Suite {
    /// Its name in markers and messages.
    pub fn name(&self) -> String {
        let test = match self.target {
            Target::Lib => "lib",
            Target::Test(test) => test,
        };
        let note = if self.is_musl() { ":musl" } else { "" };
        format!("{}:{test}{note}", self.package)
    }

    /// Whether it is a static program with musl.
    pub fn is_musl(&self) -> bool {
        self.triple == MUSL_TARGET
    }
}

/// All test binaries, from the lowest crate to the highest. Not among them: tests that compile
/// programs (`link_matrix`, `published_suites`, `two_copies`), tests of other allocators, and the
/// test binary `pages`, whose formats do not depend on the processor.
pub const SUITES: &[Suite] = &[
    lib("plimsoll-settings"),
    lib("plimsoll-sys"),
    lib("plimsoll-process"),
    lib("plimsoll-redirect"),
    lib("plimsoll-server"),
    lib("plimsoll-unwind"),
    Suite {
        package: "plimsoll-unwind",
        ..plimsoll("unwind_tables", &[])
    },
    Suite {
        package: "plimsoll-unwind",
        ..plimsoll("walk_cache", &[])
    },
    lib("plimsoll-interpreter"),
    lib("plimsoll-symbolize"),
    lib("plimsoll-pprof"),
    interpose("pass_through"),
    interpose("pthread"),
    interpose("pthread_lookup"),
    interpose("mappings"),
    lib("plimsoll-ledger"),
    lib("plimsoll-backend"),
    Suite {
        limit_seconds: 900,
        ..lib("plimsoll-core")
    },
    lib("plimsoll-threads"),
    lib("plimsoll-python"),
    lib("plimsoll-tasks"),
    lib("plimsoll-waits"),
    lib("plimsoll-limits"),
    lib("plimsoll-stats"),
    Suite {
        // Reads the documentation's source.
        arguments: &["--skip", "the_documentation_lists_all_kinds"],
        ..lib("plimsoll-profiles")
    },
    lib("plimsoll-serve"),
    Suite {
        limit_seconds: 900,
        ..lib("plimsoll")
    },
    plimsoll("failing_allocator", &[]),
    plimsoll("sampling_alloc", &[]),
    plimsoll("backend_system", &[]),
    // The module `line_tables` needs binutils.
    plimsoll("memory", &["--skip", "line_tables"]),
    // The module `stripped` needs binutils.
    plimsoll("waits", &["--skip", "stripped"]),
    plimsoll("threads_and_tasks", &[]),
    plimsoll("whole_process", &["pass_through::"]),
    lib("plimsoll-command"),
    lib("plimsoll-launch"),
    lib("plimsoll-watch"),
    lib("plimsoll-attach"),
    lib("plimsoll-top"),
    Suite {
        // The skipped test reads the documentation.
        arguments: &["--skip", "the_tables_of_the_documentation"],
        ..lib("plimsoll-cli")
    },
    Suite {
        package: "plimsoll-cli",
        // Its figures are for comparison with those of other machines.
        ..plimsoll("launcher", &["--nocapture"])
    },
    Suite {
        package: "plimsoll-cli",
        // The skipped test compiles a library.
        ..plimsoll("postmortem", &["--skip", "libraries_that_were_loaded_late"])
    },
    PLATFORM_CHECK,
    Suite {
        triple: MUSL_TARGET,
        ..PLATFORM_CHECK
    },
];

const PLATFORM_CHECK: Suite = Suite {
    package: "plimsoll-platform-check",
    ..plimsoll("parts", &[])
};

const fn lib(package: &'static str) -> Suite {
    Suite {
        package,
        features: "",
        target: Target::Lib,
        triple: TARGET,
        arguments: &[],
        limit_seconds: 300,
    }
}

const fn interpose(test: &'static str) -> Suite {
    Suite {
        package: "plimsoll-interpose",
        features: "mmap,pthread",
        target: Target::Test(test),
        triple: TARGET,
        arguments: &[],
        limit_seconds: 300,
    }
}

const fn plimsoll(test: &'static str, arguments: &'static [&'static str]) -> Suite {
    Suite {
        package: "plimsoll",
        features: "",
        target: Target::Test(test),
        triple: TARGET,
        arguments,
        limit_seconds: 900,
    }
}
