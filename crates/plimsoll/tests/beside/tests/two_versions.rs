//! Two versions of Plimsoll in one process. The second one is a copy of these crates with another version number. The
//! tests build it into a program, or into a shared library that a program loads.

#[path = "two_versions/project.rs"]
mod project;

use plimsoll_beside::SETTINGS;
use project::{Project, crates, second_version};

/// Returns the dependencies of a program on both versions. `options` are those of the second one.
fn both(options: &str) -> String {
    let [first, second] = [crates(), second_version()];
    let [first, second] =
        [first, second].map(|crates| crates.join("plimsoll").display().to_string());
    let testkit = crates().join("plimsoll-testkit");
    format!(
        "first = {{ package = \"plimsoll\", path = \"{first}\" }}\n\
         second = {{ package = \"plimsoll\", path = \"{second}\"{options} }}\n\
         plimsoll-testkit = {{ path = \"{}\" }}\n",
        testkit.display()
    )
}

/// Both versions define functions of the C library, of which a program has one. Cargo refuses the program before it
/// compiles anything, and names the crate.
#[test]
fn cargo_refuses_two_versions_that_interpose() {
    let project = Project::new("refused", &both(""), "fn main() {}");
    let output = project.cargo(&["metadata", "--format-version=1"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    let expected = "package `plimsoll-interpose` links to the native library `plimsoll_interpose`, but it conflicts \
                    with a previous package which links to `plimsoll_interpose` as well";
    assert!(
        !output.status.success() && errors.contains(expected),
        "{errors}"
    );
}

/// One version interposes and is the global allocator. The other one counts blocks of its own allocator.
#[test]
fn one_program_links_two_versions_if_one_interposes() {
    let options = ", default-features = false, features = [\"http\", \"on\", \"symbolize\"]";
    let program = include_str!("two_versions/linked.rs");
    let project = Project::new("linked", &both(options), program);
    project.build();
    project.run(SETTINGS, &[]);
}

/// A library that depends on another version, without its feature `on`, uses the names of that version, which then do
/// nothing.
#[test]
fn a_version_without_on_does_nothing_beside_another_one() {
    let program = include_str!("two_versions/off.rs");
    let project = Project::new("off", &both(", default-features = false"), program);
    project.build();
    project.run(SETTINGS, &[]);
}

/// A shared library has its own allocator, and its own definitions of functions of the C library, so the versions
/// need no agreement.
#[test]
fn a_program_loads_a_library_with_another_version() {
    let second = second_version().join("plimsoll");
    let dependency = format!(
        "second = {{ package = \"plimsoll\", path = \"{}\" }}\n",
        second.display()
    );
    let source = include_str!("two_versions/library.rs");
    let library = Project::library("loaded_library", &dependency, source);
    library.build();
    let [first, testkit] = ["plimsoll", "plimsoll-testkit"].map(|name| crates().join(name));
    let dependencies = format!(
        "first = {{ package = \"plimsoll\", path = \"{}\" }}\nplimsoll-testkit = {{ path = \"{}\" }}\n",
        first.display(),
        testkit.display()
    );
    let program = include_str!("two_versions/loads.rs");
    let program = Project::new("loads", &dependencies, program);
    program.build();
    program.run(SETTINGS, &[library.built()]);
}
