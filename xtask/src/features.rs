//! The features of a crate, as its manifest has them.

use std::path::Path;

/// Features that programs do not choose: those of the preloaded library, of tests, of a crate without items, and one for
/// libraries that are loaded at run time, which excludes others.
const NOT_FOR_PROGRAMS: [&str; 6] = [
    "default",
    "disable_initial_exec_tls",
    "double-check",
    "empty",
    "export",
    "preload",
];

/// Returns the features that programs may choose, in the order of the manifest of `crates/NAME`.
///
/// # Errors
/// The manifest cannot be read.
pub fn for_programs(root: &Path, name: &str) -> Result<Vec<String>, String> {
    let manifest = root.join("crates").join(name).join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest);
    let text = text.map_err(|error| format!("{}: {error}", manifest.display()))?;
    Ok(names_in(&text))
}

fn names_in(manifest: &str) -> Vec<String> {
    let section = manifest.split_once("\n[features]\n");
    let lines = section.map_or("", |(_, section)| section).lines();
    lines
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.starts_with(['#', ' ']))
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name.to_owned())
        .filter(|name| !NOT_FOR_PROGRAMS.contains(&name.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_those_of_the_section() {
        let manifest = "[package]\nname = \"x\"\n\n[features]\ndefault = [\"a\"]\n# A comment = no feature.\na = []\n\
                        b = [\n    \"a\",\n]\n\n[dependencies]\nc = \"1\"\n";
        assert_eq!(names_in(manifest), ["a", "b"]);
        assert!(names_in("[dependencies]\na = \"1\"\n").is_empty());
    }

    #[test]
    fn docs_rs_has_all_features_beside_the_default_ones() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = std::fs::read_to_string(root.join("crates/plimsoll/Cargo.toml")).unwrap();
        let list = |begins: &str| -> Vec<String> {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(begins))
                .unwrap();
            line.split('"')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect()
        };
        let defaults = list("default = ");
        let mut features = for_programs(&root, "plimsoll").unwrap();
        features.retain(|name| !defaults.contains(name));
        features.sort_unstable();
        assert_eq!(list("features = "), features);
    }
}
