//! The test binaries that run in the machine.

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
    /// Filters and options of its test harness. Filters of the user come in addition, and select
    /// among the tests that these leave.
    pub arguments: &'static [&'static str],
    /// The machine kills it after this time. Emulated processors are some ten times slower.
    pub limit_seconds: u32,
}

impl Suite {
    /// Its name in markers and messages.
    pub fn name(&self) -> String {
        match self.target {
            Target::Lib => format!("{}:lib", self.package),
            Target::Test(test) => format!("{}:{test}", self.package),
        }
    }
}

/// All test binaries, from the lowest crate to the highest. Not among them: tests that compile
/// programs (`link_matrix`, `published_suites`, `two_copies`), tests of other allocators, and the
/// test binary `pages`, whose formats do not depend on the processor.
pub const SUITES: &[Suite] = &[
    lib("plimsoll-settings"),
    lib("plimsoll-sys"),
    lib("plimsoll-unwind"),
    lib("plimsoll-symbolize"),
    lib("plimsoll-pprof"),
    interpose("pass_through"),
    interpose("pthread"),
    interpose("pthread_lookup"),
    interpose("mappings"),
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
];

const fn lib(package: &'static str) -> Suite {
    Suite {
        package,
        features: "",
        target: Target::Lib,
        arguments: &[],
        limit_seconds: 300,
    }
}

const fn interpose(test: &'static str) -> Suite {
    Suite {
        package: "plimsoll-interpose",
        features: "mmap,pthread",
        target: Target::Test(test),
        arguments: &[],
        limit_seconds: 300,
    }
}

const fn plimsoll(test: &'static str, arguments: &'static [&'static str]) -> Suite {
    Suite {
        package: "plimsoll",
        features: "",
        target: Target::Test(test),
        arguments,
        limit_seconds: 900,
    }
}
