//! Two copies of the crate in one program.

use std::fs;
use std::path::Path;

use crate::commands::run;
use crate::package::Package;

/// The situation of a program that depends on two versions: neither may override the other
/// silently.
#[test]
fn two_copies_in_one_program_are_an_error_that_cargo_explains() {
    let original = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(original.join("Cargo.toml")).expect("is there");
    let mut dependencies = String::new();
    for version in ["0.1.0", "0.2.0"] {
        // It inherits from no workspace.
        let own = |line: &&str| !line.ends_with("workspace = true");
        let lines: Vec<&str> = manifest.lines().filter(own).collect();
        let manifest = lines.join("\n").replace(
            "[package]\n",
            &format!("[package]\nversion = \"{version}\"\nedition = \"2024\"\n"),
        );
        let name = format!("copy-{version}");
        let mut copy = Package::new("copies", &name).file("Cargo.toml", &manifest);
        for path in ["build.rs", "src/lib.rs"] {
            let content = fs::read_to_string(original.join(path)).expect("is there");
            copy = copy.file(path, &content);
        }
        copy.write();
        dependencies += &format!(
            "copy-{} = {{ package = \"plimsoll-interpose\", path = {:?} }}\n",
            version.replace('.', "-"),
            copy.root
        );
    }
    let program = Package::new("copies", "program")
        .manifest("program", "", &dependencies)
        .file("src/main.rs", "fn main() {}\n");
    let output = run(&mut program.cargo("build"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        errors.contains("links to the native library `plimsoll_interpose`"),
        "{errors}"
    );
}
