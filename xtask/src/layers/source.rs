//! Source files: the module tree of a crate, and the paths that each file names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// The path of a module from the root of its crate; empty for the root itself.
pub(crate) type ModulePath = Vec<String>;

/// A module of a crate: a file, or a module within a file.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// The file of the module.
    pub(crate) file: PathBuf,
    /// Re-exports: each name here, and the path for which it stands.
    pub(crate) reexports: BTreeMap<String, Vec<String>>,
    /// The modules of which it re-exports all public items.
    pub(crate) glob_reexports: Vec<Vec<String>>,
    /// The names of the items that it defines.
    pub(crate) items: Vec<String>,
    /// The paths that it names, as written, except that `self` and `super` are resolved.
    pub(crate) paths: Vec<Vec<String>>,
}

/// The modules of one crate.
#[derive(Debug, Default)]
pub(crate) struct Crate {
    /// The name by which other crates import it.
    pub(crate) name: String,
    /// Its modules, by path.
    pub(crate) modules: BTreeMap<ModulePath, Module>,
}

impl Crate {
    /// Reads the crate whose root file is `root`.
    ///
    /// # Errors
    /// The file that cannot be read or parsed.
    pub(crate) fn read(name: &str, root: &Path) -> Result<Self, String> {
        let mut read = Self {
            name: name.to_owned(),
            ..Self::default()
        };
        let folder = root.parent().expect("a file is in a folder").to_owned();
        read.add_file(Vec::new(), root.to_owned(), &folder)?;
        Ok(read)
    }

    /// Adds the file of module `path`, whose children are in `folder`.
    fn add_file(&mut self, path: ModulePath, file: PathBuf, folder: &Path) -> Result<(), String> {
        let text =
            fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let parsed =
            syn::parse_file(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        self.add_items(path, &file, folder, &parsed.items)
    }

    fn add_items(
        &mut self,
        path: ModulePath,
        file: &Path,
        folder: &Path,
        items: &[syn::Item],
    ) -> Result<(), String> {
        let mut module = Module {
            file: file.to_owned(),
            ..Module::default()
        };
        let mut children = Vec::new();
        for item in items {
            if is_left_out(attributes(item)) {
                continue;
            }
            if let Some(name) = defined_name(item) {
                module.items.push(name);
            }
            match item {
                syn::Item::Mod(child) => children.push(child),
                syn::Item::Use(declaration) => {
                    let is_public = !matches!(declaration.vis, syn::Visibility::Inherited);
                    let mut add = |mut full: Vec<String>, alias: String| {
                        full = absolute(&full, &path);
                        if is_public && alias == "*" {
                            module.glob_reexports.push(full.clone());
                        } else {
                            // A private import is an alias in the rest of the module.
                            module.reexports.insert(alias, full.clone());
                        }
                        module.paths.push(full);
                    };
                    each_leaf(&declaration.tree, &mut Vec::new(), &mut add);
                }
                _ => {
                    let mut paths = Paths::default();
                    paths.visit_item(item);
                    let found = paths.found.iter().map(|found| absolute(found, &path));
                    module.paths.extend(found);
                }
            }
        }
        // Several definitions exist for different configurations: the first provides the file, and
        // all contribute items and paths.
        let entry = self.modules.entry(path.clone()).or_default();
        if entry.file.as_os_str().is_empty() {
            entry.file = module.file;
        }
        entry.reexports.extend(module.reexports);
        entry.glob_reexports.extend(module.glob_reexports);
        entry.items.extend(module.items);
        entry.paths.extend(module.paths);
        for child in children {
            self.add_child(&path, file, folder, child)?;
        }
        Ok(())
    }

    fn add_child(
        &mut self,
        parent: &ModulePath,
        file: &Path,
        folder: &Path,
        child: &syn::ItemMod,
    ) -> Result<(), String> {
        let name = child.ident.to_string();
        let mut path = parent.clone();
        path.push(name.clone());
        let below = folder.join(&name);
        if let Some((_, items)) = &child.content {
            return self.add_items(path, file, &below, items);
        }
        if let Some(relative) = path_attribute(&child.attrs) {
            let file_folder = file.parent().expect("a file is in a folder");
            return self.add_file(path, file_folder.join(relative), &below);
        }
        let beside = folder.join(format!("{name}.rs"));
        let file = if beside.exists() {
            beside
        } else {
            below.join("mod.rs")
        };
        self.add_file(path, file, &below)
    }
}

/// Returns whether code with these attributes is only for tests or models.
fn is_left_out(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<TokenStream>()
                .is_ok_and(|condition| {
                    let condition = condition.to_string().replace(' ', "");
                    matches!(condition.as_str(), "test" | "loom")
                        || condition.starts_with("all(test,")
                        || condition.starts_with("all(loom,")
                })
    })
}

fn path_attribute(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let syn::Meta::NameValue(pair) = &attribute.meta else {
            return None;
        };
        let syn::Expr::Lit(literal) = &pair.value else {
            return None;
        };
        match &literal.lit {
            syn::Lit::Str(text) if pair.path.is_ident("path") => Some(text.value()),
            _ => None,
        }
    })
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn defined_name(item: &syn::Item) -> Option<String> {
    let name = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Calls `add` with each path of a `use` declaration, and its name in the declaring module.
fn each_leaf(
    tree: &syn::UseTree,
    before: &mut Vec<String>,
    add: &mut impl FnMut(Vec<String>, String),
) {
    match tree {
        syn::UseTree::Path(path) => {
            before.push(path.ident.to_string());
            each_leaf(&path.tree, before, add);
            before.pop();
        }
        syn::UseTree::Name(name) if name.ident == "self" => {
            add(before.clone(), before.last().cloned().unwrap_or_default());
        }
        syn::UseTree::Name(name) => {
            let mut full = before.clone();
            full.push(name.ident.to_string());
            add(full, name.ident.to_string());
        }
        syn::UseTree::Rename(rename) => {
            let mut full = before.clone();
            if rename.ident != "self" {
                full.push(rename.ident.to_string());
            }
            add(full, rename.rename.to_string());
        }
        syn::UseTree::Glob(_) => add(before.clone(), "*".to_owned()),
        syn::UseTree::Group(group) => {
            for tree in &group.items {
                each_leaf(tree, before, add);
            }
        }
    }
}

/// Returns the path with `self` and `super` at its beginning resolved from `module`.
fn absolute(path: &[String], module: &[String]) -> Vec<String> {
    let mut base: Option<Vec<String>> = None;
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        match (first.as_str(), &mut base) {
            ("self", None) => base = Some(module.to_vec()),
            ("super", None) => base = Some(module[..module.len().saturating_sub(1)].to_vec()),
            ("super", Some(base)) => {
                base.pop();
            }
            _ => break,
        }
        rest = after;
    }
    match base {
        None => path.to_vec(),
        Some(base) => {
            let mut full = vec!["crate".to_owned()];
            full.extend(base);
            full.extend(rest.iter().cloned());
            full
        }
    }
}

/// All paths of more than one segment, in code and in the arguments of macros.
#[derive(Default)]
struct Paths {
    found: Vec<Vec<String>>,
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            let segments = path.segments.iter();
            self.found
                .push(segments.map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, declaration: &'ast syn::ItemUse) {
        let mut add = |full, _| self.found.push(full);
        each_leaf(&declaration.tree, &mut Vec::new(), &mut add);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.add_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_left_out(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_left_out(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }
}

impl Paths {
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.end(&mut path);
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' && colons < 2 => colons += 1,
                TokenTree::Group(group) => {
                    self.end(&mut path);
                    self.add_tokens(group.stream());
                    colons = 0;
                }
                _ => {
                    self.end(&mut path);
                    colons = 0;
                }
            }
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Vec<String>) {
        if path.len() > 1 {
            self.found.push(path.clone());
        }
        path.clear();
    }
}
