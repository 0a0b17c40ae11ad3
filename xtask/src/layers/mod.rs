//! `cargo xtask layers`: imports point down only, between crates and between modules.
//!
//! The tables in `ARCHITECTURE.md` define the order. Each crate has a table under a heading
//! `### \`crate\``, whose first column lists the crate's modules from the lowest to the highest.
//! The headings order the crates themselves. A module may import from modules in rows above its
//! own, and from crates above its own crate. Code for one processor is in folders named `arch` or
//! `os`. No crate is larger than its maximum.

mod compilers;
mod order;
mod processors;
mod resolve;
mod sizes;
mod source;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use order::Order;
use resolve::{Import, Resolver};
use source::Crate;

/// Prints each import that points up or through a facade, and fails if there is one. With
/// `prints_edges`, prints every import between modules first.
///
/// # Errors
/// Returns the number of printed violations, a file that cannot be read, or a module without a row.
pub(crate) fn check(root: &Path, prints_edges: bool) -> Result<(), String> {
    let violations = violations(root, |import| {
        if prints_edges && import.crosses_modules() {
            println!(
                "{}\t{}\t{}\t{}",
                import.importing_file(root),
                import.imported_file(root),
                import.to_module(),
                import.name
            );
        }
    })?;
    for violation in &violations {
        println!("{violation}");
    }
    println!("layers: {} violations", violations.len());
    match violations.len() {
        0 => Ok(()),
        number => Err(format!("{number} violations of the layers")),
    }
}

/// Returns a line for each pair of files of which the first imports from the second against the
/// layers, for each mention of a processor outside `arch` and `os`, for
/// each crate that is too large, and for syntax that the oldest compiler lacks. Calls `visit` with every import.
fn violations(root: &Path, visit: impl Fn(&Import<'_>)) -> Result<Vec<String>, String> {
    let order = Order::read(&root.join("ARCHITECTURE.md"))?;
    let mut crates = Vec::new();
    for name in order.crates() {
        let folder = root.join("crates").join(name).join("src");
        let file = ["lib.rs", "main.rs"]
            .map(|file| folder.join(file))
            .into_iter()
            .find(|file| file.exists())
            .ok_or_else(|| format!("ARCHITECTURE.md lists {name}, which has no source file"))?;
        crates.push(Crate::read(name, &file)?);
    }
    let folders = crate_folders(root)?;
    let missing = missing_rows(&order, &folders, &crates);
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Err(format!("ARCHITECTURE.md has no row for: {missing}"));
    }
    let mut found = BTreeMap::<(String, String, &str), BTreeSet<String>>::new();
    for import in Resolver::new(&crates).imports() {
        visit(&import);
        if let Some(violation) = violation(&order, &import) {
            let key = (
                import.importing_file(root),
                import.imported_file(root),
                violation,
            );
            found.entry(key).or_default().insert(import.name);
        }
    }
    let line = |((from, to, violation), names): (_, BTreeSet<String>)| {
        let (from, to, violation): (String, String, &str) = (from, to, violation);
        let names: Vec<String> = names.into_iter().collect();
        format!("{from} -> {to}: {violation}: {}", names.join(", "))
    };
    let mut lines: Vec<String> = found.into_iter().map(line).collect();
    lines.extend(processors::violations(root, &folders)?);
    lines.extend(sizes::violations(root, &folders)?);
    lines.extend(compilers::violations(root, &folders)?);
    Ok(lines)
}

/// Returns the names of the folders in `crates`, sorted.
fn crate_folders(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("crates");
    let failed = |error| format!("{}: {error}", folder.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.path().join("src").is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Returns the crates and modules that the tables lack.
fn missing_rows(order: &Order, folders: &[String], crates: &[Crate]) -> Vec<String> {
    let mut missing = Vec::new();
    for folder in folders {
        if order.crate_place(folder).is_none() {
            missing.push(folder.clone());
        }
    }
    for one in crates {
        for path in one.modules.keys() {
            if let [module] = &path[..]
                && order.module(&one.name, module).is_none()
            {
                missing.push(format!("{}::{module}", one.name));
            }
        }
    }
    missing
}

/// Returns how an import violates the layers, or `None`.
fn violation(order: &Order, import: &Import<'_>) -> Option<&'static str> {
    let (from, to) = (&import.from_crate.name, &import.to_crate.name);
    if from != to {
        return (order.crate_place(to) >= order.crate_place(from)).then_some("a higher crate");
    }
    let (Some(from_module), Some(to_module)) = (import.from_path.first(), import.to_path.first())
    else {
        // The root is the crate's facade: it may import everything, and nothing may import from it.
        return (import.to_path.is_empty() && !import.from_path.is_empty())
            .then_some("the crate's facade");
    };
    if from_module == to_module {
        return None;
    }
    if import.is_through_other_module {
        return Some("through another module's re-export");
    }
    (order.module(to, to_module) >= order.module(from, from_module)).then_some("a higher module")
}
