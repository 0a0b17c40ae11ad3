//! Code for one processor is in folders named `arch` or `os`, or in tests.

use std::fs;
use std::path::{Path, PathBuf};

/// The attribute and macro argument that selects code for a processor.
const CONDITION: &str = "target_arch";

/// The folders whose code may differ between processors. Tests may expect other results.
const FOLDERS: [&str; 3] = ["arch", "os", "tests"];

/// Returns a line for each mention of a processor in `crates/*/src` outside these folders.
///
/// # Errors
/// A folder or file that cannot be read.
pub(super) fn violations(root: &Path, crates: &[String]) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for name in crates {
        search(
            root,
            &root.join("crates").join(name).join("src"),
            &mut found,
        )?;
    }
    Ok(found)
}

fn search(root: &Path, folder: &Path, found: &mut Vec<String>) -> Result<(), String> {
    for path in sorted_entries(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let stem = name.strip_suffix(".rs");
        if FOLDERS.contains(&stem.unwrap_or(&name)) {
            continue;
        }
        if path.is_dir() {
            search(root, &path, found)?;
        } else if stem.is_some() {
            let text = fs::read_to_string(&path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            let file = path.strip_prefix(root).unwrap_or(&path).display();
            for (number, line) in (1..).zip(text.lines()) {
                if line.contains(CONDITION) {
                    found.push(format!("{file}:{number}: {CONDITION} outside arch and os"));
                }
            }
        }
    }
    Ok(())
}

pub(super) fn sorted_entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error| format!("{}: {error}", folder.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    Ok(paths)
}
