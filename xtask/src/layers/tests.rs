//! Tests of the check on small generated projects.

use std::fs;
use std::path::{Path, PathBuf};

use super::{check, violations};

const ORDER: &str = "\
### `low`
| module | purpose |
|---|---|
| `leaf` | a leaf |
| `middle` | above it |
| `top` | above both |

### `high`
| module | purpose |
|---|---|
| `only` | a module |
";

/// A project of two crates in a temporary folder.
struct Project(PathBuf);

impl Project {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        let project = Self(root);
        project.write("ARCHITECTURE.md", ORDER);
        let defaults = [
            ("low/src/lib.rs", "mod leaf; mod middle; mod top;"),
            ("low/src/leaf.rs", "pub struct Leaf;"),
            ("low/src/middle/mod.rs", "mod inner; pub use inner::Inner;"),
            (
                "low/src/middle/inner.rs",
                "use crate::leaf::Leaf; pub struct Inner(Leaf);",
            ),
            (
                "low/src/top.rs",
                "use crate::{leaf::Leaf, middle::Inner}; pub fn top(_: Leaf, _: Inner) {}",
            ),
            ("high/src/lib.rs", "mod only;"),
            (
                "high/src/only.rs",
                "use low::top::top; fn only() { low::leaf::Leaf; top }",
            ),
        ];
        for (file, text) in defaults.iter().chain(files) {
            project.write(&format!("crates/{file}"), text);
        }
        project
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn violations(&self) -> Vec<String> {
        violations(Path::new(&self.0), |_| {}).unwrap()
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn imports_that_point_down_are_no_violations() {
    let project = Project::new("down", &[]);
    assert_eq!(project.violations(), [""; 0]);
    assert_eq!(check(&project.0, false), Ok(()));
}

#[test]
fn an_import_of_a_higher_module_is_a_violation() {
    let project = Project::new(
        "up",
        &[("low/src/leaf.rs", "use crate::top::top; pub struct Leaf;")],
    );
    let expected =
        "crates/low/src/leaf.rs -> crates/low/src/top.rs: a higher module: crate::top::top";
    assert_eq!(project.violations(), [expected]);
    assert!(check(&project.0, false).is_err());
}

#[test]
fn a_path_in_code_or_in_a_macro_is_an_import() {
    for body in ["crate::top::top", "assert!(crate::top::top)"] {
        let text = format!("pub struct Leaf; fn up() {{ {body} }}");
        let project = Project::new("path", &[("low/src/leaf.rs", &text)]);
        assert_eq!(project.violations().len(), 1, "{body}");
    }
}

#[test]
fn an_import_through_the_crate_root_or_another_module_is_a_violation() {
    let project = Project::new(
        "facade",
        &[
            (
                "low/src/lib.rs",
                "mod leaf; mod middle; mod top; pub use leaf::Leaf;",
            ),
            (
                "low/src/middle/mod.rs",
                "mod inner; pub use inner::Inner; pub use crate::leaf::Leaf;",
            ),
            (
                "low/src/middle/inner.rs",
                "use crate::Leaf; pub struct Inner(Leaf);",
            ),
            (
                "low/src/top.rs",
                "use crate::middle::{Inner, Leaf}; pub fn top(_: Leaf, _: Inner) {}",
            ),
        ],
    );
    let found = project.violations();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found
            .iter()
            .all(|line| line.contains("through another module's re-export"))
    );
}

#[test]
fn an_import_of_a_higher_crate_is_a_violation() {
    let project = Project::new(
        "crate",
        &[("low/src/leaf.rs", "use high::only::only; pub struct Leaf;")],
    );
    let found = project.violations();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("a higher crate"));
}

#[test]
fn code_of_tests_may_import_everything() {
    let text = "pub struct Leaf; #[cfg(test)] mod tests { use crate::top::top; }";
    let project = Project::new("tests", &[("low/src/leaf.rs", text)]);
    assert_eq!(project.violations(), [""; 0]);
}

#[test]
fn a_module_without_a_row_is_an_error_that_names_it() {
    let project = Project::new(
        "row",
        &[
            ("low/src/lib.rs", "mod leaf; mod middle; mod top; mod new;"),
            ("low/src/new.rs", ""),
        ],
    );
    let error = check(&project.0, false).unwrap_err();
    assert_eq!(error, "ARCHITECTURE.md has no row for: low::new");
}

#[test]
fn a_crate_without_a_table_is_an_error_that_names_it() {
    let project = Project::new("table", &[("other/src/lib.rs", "")]);
    let error = check(&project.0, false).unwrap_err();
    assert_eq!(error, "ARCHITECTURE.md has no row for: other");
}

/// Checks the project itself.
#[test]
fn no_import_of_this_project_is_against_the_layers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    assert_eq!(violations(root, |_| {}).unwrap(), [""; 0]);
}

#[test]
fn code_for_one_processor_is_in_folders_named_arch_or_os() {
    let code = "#[cfg(target_arch = \"aarch64\")] pub struct Leaf;";
    let project = Project::new(
        "processors",
        &[
            ("low/src/arch/aarch64.rs", code),
            ("low/src/middle/os/linux.rs", code),
            ("low/src/middle/tests.rs", code),
            ("low/src/leaf/tests/walks.rs", code),
        ],
    );
    assert_eq!(project.violations(), [""; 0]);
    project.write(
        "crates/low/src/leaf.rs",
        &format!("pub struct Other;\n{code}"),
    );
    assert_eq!(
        project.violations(),
        ["crates/low/src/leaf.rs:2: target_arch outside arch and os"]
    );
}

#[test]
fn a_crate_has_no_more_lines_than_its_maximum() {
    let lines = |count: usize| format!("pub struct Leaf;\n{}", "\n".repeat(count));
    let project = Project::new("sizes", &[("low/src/leaf.rs", &lines(5_000))]);
    assert_eq!(project.violations(), [""; 0]);
    project.write("crates/low/src/leaf.rs", &lines(6_000));
    let found = project.violations();
    let [found] = &found[..] else {
        panic!("{found:?}");
    };
    assert!(
        found.starts_with("low: 60") && found.ends_with(" lines, 6000 at most"),
        "{found}"
    );
}

#[test]
fn conditions_are_those_of_the_oldest_compiler() {
    let code = "pub struct Leaf; fn f(a: Option<u8>) { if let Some(b) = a && b > 0 {} }";
    let project = Project::new("compilers", &[("low/src/leaf.rs", code)]);
    assert_eq!(project.violations(), [""; 0], "a crate for a later one");
    project.write("crates/low/Cargo.toml", "rust-version.workspace = true\n");
    let expected = ["crates/low/src/leaf.rs: 1 conditions with `&&` and `let`"];
    assert_eq!(project.violations(), expected);
}
