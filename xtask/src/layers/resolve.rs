//! Resolves the paths of source files to the modules that define the names.

use std::collections::BTreeMap;
use std::path::Path;

use super::source::{Crate, Module};

/// One name that a module takes from another module.
pub(crate) struct Import<'a> {
    pub(crate) from_crate: &'a Crate,
    pub(crate) from_path: &'a [String],
    pub(crate) to_crate: &'a Crate,
    pub(crate) to_path: &'a [String],
    /// The path as written.
    pub(crate) name: String,
    /// Whether the path names a module that only re-exports the item, outside of the module that
    /// defines it.
    pub(crate) is_through_other_module: bool,
}

impl Import<'_> {
    pub(crate) fn crosses_modules(&self) -> bool {
        self.from_crate.name != self.to_crate.name || self.from_path.first() != self.to_path.first()
    }

    pub(crate) fn importing_file(&self, root: &Path) -> String {
        relative(&self.from_crate.modules[self.from_path].file, root)
    }

    pub(crate) fn imported_file(&self, root: &Path) -> String {
        relative(&self.to_crate.modules[self.to_path].file, root)
    }

    pub(crate) fn to_module(&self) -> String {
        let mut module = self.to_crate.name.clone();
        for part in self.to_path {
            module = module + "::" + part;
        }
        module
    }
}

fn relative(file: &Path, root: &Path) -> String {
    let shown = file.strip_prefix(root).unwrap_or(file);
    shown.display().to_string()
}

/// Resolves paths in a set of crates.
pub(crate) struct Resolver<'a> {
    crates: &'a [Crate],
    by_import_name: BTreeMap<String, &'a Crate>,
}

/// The target of a path: the crate, the module, and the modules of `use` declarations on the way.
struct Target<'a> {
    owner: &'a Crate,
    path: &'a [String],
    through: Vec<(&'a str, &'a [String])>,
}

impl<'a> Resolver<'a> {
    pub(crate) fn new(crates: &'a [Crate]) -> Self {
        let by_import_name = crates.iter().map(|one| (one.name.replace('-', "_"), one));
        Self {
            crates,
            by_import_name: by_import_name.collect(),
        }
    }

    /// Returns every import between different modules of the crates.
    pub(crate) fn imports(&self) -> Vec<Import<'a>> {
        let mut imports = Vec::new();
        for from_crate in self.crates {
            for (from_path, module) in &from_crate.modules {
                for path in &module.paths {
                    let Some(target) = self.target(from_crate, from_path, path, 0) else {
                        continue;
                    };
                    if std::ptr::eq(target.owner, from_crate) && target.path == from_path {
                        continue;
                    }
                    let home = target.path.first();
                    let is_foreign = |(owner, through): &(&str, &[String])| {
                        *owner == target.owner.name
                            && through.first() != home
                            && *through != &from_path[..]
                    };
                    imports.push(Import {
                        from_crate,
                        from_path,
                        to_crate: target.owner,
                        to_path: target.path,
                        name: path.join("::"),
                        is_through_other_module: target.through.iter().any(is_foreign),
                    });
                }
            }
        }
        imports
    }

    /// Returns the module that defines what `path` names in the module `from` of `owner`.
    fn target(
        &self,
        owner: &'a Crate,
        from: &'a [String],
        path: &[String],
        depth: usize,
    ) -> Option<Target<'a>> {
        let (first, rest) = path.split_first()?;
        if depth > 16 {
            return None;
        }
        if first == "crate" {
            return self.descend(owner, &[], rest, depth);
        }
        if let Some(other) = self.by_import_name.get(first)
            && (!std::ptr::eq(*other, owner) || !owner.modules.contains_key(&vec![first.clone()]))
        {
            return self.descend(other, &[], rest, depth);
        }
        // The path begins with a child module, or with a name that this module imports.
        let module = owner.modules.get(from)?;
        if owner.modules.contains_key(&joined(from, first)) {
            return self.descend(owner, from, path, depth);
        }
        let alias = module.reexports.get(first)?;
        if alias.first() == Some(first) && alias.len() == 1 {
            return None;
        }
        let full: Vec<String> = alias.iter().chain(rest).cloned().collect();
        self.target(owner, from, &full, depth + 1)
    }

    fn descend(
        &self,
        owner: &'a Crate,
        from: &[String],
        path: &[String],
        depth: usize,
    ) -> Option<Target<'a>> {
        let (at, module) = owner.modules.get_key_value(from)?;
        let here = |through| {
            Some(Target {
                owner,
                path: at,
                through,
            })
        };
        let Some((first, rest)) = path.split_first() else {
            return here(Vec::new());
        };
        let child = joined(from, first);
        if owner.modules.contains_key(&child) && !is_item_with_module_name(module, first, rest) {
            return self.descend(owner, &child, rest, depth);
        }
        if module.items.contains(first) {
            return here(Vec::new());
        }
        if depth > 16 {
            return None;
        }
        if let Some(full) = module.reexports.get(first) {
            let full: Vec<String> = full.iter().chain(rest).cloned().collect();
            if let Some(mut target) = self.target(owner, at, &full, depth + 1) {
                target.through.push((&owner.name, at));
                return Some(target);
            }
            // The name is imported from a crate outside the project.
            return here(Vec::new());
        }
        for glob in &module.glob_reexports {
            let full: Vec<String> = glob.iter().chain(path).cloned().collect();
            if let Some(mut target) = self.target(owner, at, &full, depth + 1)
                && target.owner.modules[target.path].items.contains(first)
            {
                target.through.push((&owner.name, at));
                return Some(target);
            }
        }
        here(Vec::new())
    }
}

/// Returns whether `first` is a function with the same name as a module, such as `config::config`.
fn is_item_with_module_name(module: &Module, first: &String, rest: &[String]) -> bool {
    rest.is_empty() && module.items.contains(first)
}

fn joined(path: &[String], last: &str) -> Vec<String> {
    let mut joined = path.to_vec();
    joined.push(last.to_owned());
    joined
}
