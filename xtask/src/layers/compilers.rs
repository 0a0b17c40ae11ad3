//! Syntax that the oldest supported compiler lacks, in crates that programs depend on. The linter reports newer functions
//! of the library only.

use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ExprBinary};

use super::processors::sorted_entries;

/// The line of a manifest by which a crate supports the workspace's oldest compiler. Those of the command state a later one.
const OLDEST: &str = "rust-version.workspace = true";

/// Returns a line for each file with a chain of conditions that contains `let`, which Rust 1.88 introduced.
///
/// # Errors
/// A file that cannot be read or parsed.
pub(super) fn violations(root: &Path, crates: &[String]) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for name in crates {
        let folder = root.join("crates").join(name);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        if manifest.lines().any(|line| line == OLDEST) {
            search(root, &folder.join("src"), &mut found)?;
        }
    }
    Ok(found)
}

fn search(root: &Path, folder: &Path, found: &mut Vec<String>) -> Result<(), String> {
    for path in sorted_entries(folder)? {
        if path.is_dir() {
            search(root, &path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
            let text = fs::read_to_string(&path).map_err(|error| failed(&error))?;
            // A file that is included into others may be a part only.
            let Ok(file) = syn::parse_file(&text) else {
                continue;
            };
            let mut chains = Chains(0);
            chains.visit_file(&file);
            if chains.0 > 0 {
                let file = path.strip_prefix(root).unwrap_or(&path).display();
                found.push(format!(
                    "{file}: {} conditions with `&&` and `let`",
                    chains.0
                ));
            }
        }
    }
    Ok(())
}

/// The number of chains.
struct Chains(usize);

impl<'ast> Visit<'ast> for Chains {
    fn visit_expr_binary(&mut self, expression: &'ast ExprBinary) {
        let sides = [&expression.left, &expression.right];
        let has_let = sides.iter().any(|side| matches!(&***side, Expr::Let(_)));
        self.0 += usize::from(matches!(expression.op, BinOp::And(_)) && has_let);
        visit::visit_expr_binary(self, expression);
    }
}
