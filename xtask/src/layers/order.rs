//! The order of crates and modules, from the tables of `ARCHITECTURE.md`.

use std::fs;
use std::path::Path;

/// Crates and their modules, each list from the lowest to the highest.
pub(crate) struct Order {
    crates: Vec<(String, Vec<String>)>,
}

impl Order {
    /// Reads headings of the form ``### `crate` `` and the tables below them, whose rows begin with
    /// ``| `module` |``.
    ///
    /// # Errors
    /// The file cannot be read or has no such heading.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let text =
            fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut crates: Vec<(String, Vec<String>)> = Vec::new();
        let mut is_in_crate = false;
        for line in text.lines() {
            if line.starts_with('#') {
                let name = line.strip_prefix("### ").and_then(quoted);
                is_in_crate = name.is_some();
                crates.extend(name.map(|name| (name.to_owned(), Vec::new())));
            } else if is_in_crate
                && let Some(module) = line.strip_prefix("| ").and_then(quoted)
                && let Some((_, modules)) = crates.last_mut()
            {
                modules.push(module.to_owned());
            }
        }
        if crates.is_empty() {
            return Err(format!("{}: no heading names a crate", file.display()));
        }
        Ok(Self { crates })
    }

    /// Returns the crates, from the lowest.
    pub(crate) fn crates(&self) -> impl Iterator<Item = &str> {
        self.crates.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the place of a crate, from 0 for the lowest.
    pub(crate) fn crate_place(&self, name: &str) -> Option<usize> {
        self.crates().position(|other| other == name)
    }

    /// Returns the place of a module in its crate, from 0 for the lowest.
    pub(crate) fn module(&self, name: &str, module: &str) -> Option<usize> {
        let (_, modules) = self.crates.iter().find(|(other, _)| other == name)?;
        modules.iter().position(|other| other == module)
    }
}

/// Returns the text between the backquotes with which `text` begins.
fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('`')?.split('`').next()
}
