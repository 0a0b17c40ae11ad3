//! `cargo xtask item-names`: whether the items exist that texts name.
//!
//! The compiler checks the paths of code. Nothing checks those in strings, by which profiles hide functions and tests look
//! for them, nor those in comments and documents: after a move, such a string matches no function, and its test passes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::cross::plain;

/// Files whose texts name items of other versions or of other programs, and this one.
const EXCLUDED: [&str; 3] = [
    ":!CHANGELOG.md",
    ":!*/fixtures/*",
    ":!xtask/src/item_names.rs",
];

/// Prints each name of an item that does not exist, and fails if there is one.
///
/// # Errors
/// The number of these names, or git cannot be run.
pub fn check(root: &Path) -> Result<(), String> {
    let mut git = plain("git", root);
    git.args(["ls-files", "--", "*.rs", "*.md"]).args(EXCLUDED);
    let output = git.output().map_err(|error| format!("git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git ls-files: {}", output.status));
    }
    let mut sources = Sources::new(root.join("crates"));
    let mut number = 0;
    for file in String::from_utf8_lossy(&output.stdout).lines() {
        // A file that git lists may have been deleted.
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        for (line, text) in text.lines().enumerate() {
            let is_text =
                |name: &Name| !file.ends_with(".rs") || name.is_symbol || name.is_in_comment;
            for name in names_in(text).into_iter().filter(is_text) {
                if !sources.have(&name) {
                    println!("{file}:{}: {}", line + 1, name.segments.join("::"));
                    number += 1;
                }
            }
        }
    }
    match number {
        0 => Ok(()),
        number => Err(format!("{number} names of items that do not exist")),
    }
}

/// The name of an item, as a text has it.
#[derive(Debug, PartialEq, Eq)]
struct Name {
    /// The crate, modules, and what is in the last one.
    segments: Vec<String>,
    /// Whether it is the name of a symbol: its path is where the item is defined, not where it is exported.
    is_symbol: bool,
    /// Whether two slashes precede it.
    is_in_comment: bool,
}

/// Returns the names of items of this project in a line. A string that begins with a name has that of a symbol.
fn names_in(line: &str) -> Vec<Name> {
    let mut names = Vec::new();
    for (at, _) in line.match_indices("plimsoll") {
        let before = line[..at].chars().next_back();
        if before.is_some_and(|before| is_of_name(before) || before == ':' || before == '-') {
            continue;
        }
        let rest = &line[at..];
        let end = rest.find(|c| !is_of_name(c) && c != ':');
        let path = &rest[..end.unwrap_or(rest.len())];
        let segments = path.split("::").take_while(|segment| !segment.is_empty());
        let segments: Vec<String> = segments
            .map(|segment| segment.trim_end_matches(':').to_owned())
            .collect();
        if segments.len() > 1 {
            names.push(Name {
                segments,
                is_symbol: line[..at].ends_with('"') || line[..at].ends_with("\"<"),
                is_in_comment: line[..at].contains("//"),
            });
        }
    }
    names
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The sources of all crates, as they are asked for.
struct Sources {
    crates: PathBuf,
    /// The text of each folder or file of modules.
    texts: HashMap<PathBuf, String>,
}

impl Sources {
    fn new(crates: PathBuf) -> Self {
        Self {
            crates,
            texts: HashMap::new(),
        }
    }

    /// Returns whether an item exists, as far as modules that are files tell. Names of crates elsewhere exist.
    fn have(&mut self, name: &Name) -> bool {
        let Some((crate_name, path)) = name.segments.split_first() else {
            return true;
        };
        let mut module = self.crates.join(crate_name.replace('_', "-")).join("src");
        if !module.is_dir() {
            return true;
        }
        let Some(first) = path.first() else {
            return true;
        };
        let root = self.text(&module.join("lib.rs")).to_owned();
        if !name.is_symbol {
            // Items of the root, exported ones among them. What they contain may be exported once more.
            let globs = root.lines().filter_map(|line| {
                let glob = line.trim().strip_prefix("pub use ")?;
                glob.strip_suffix("::*;")
            });
            let is_in_glob = globs.into_iter().any(|glob| {
                let file = module.join(format!("{glob}.rs"));
                match file.is_file() {
                    true => has_word(self.text(&file), first),
                    // It has the names that the other items of the root have.
                    false => glob != "plimsoll_off",
                }
            });
            return is_in_glob
                || has_word(&root, first)
                || has_word(self.text(&module), &format!("macro_rules! {first}"));
        }
        let is_defined = |kind: &str| has_word(&root, &format!("{kind} {first}"));
        let is_in_root = ["fn", "mod", "struct", "enum"].into_iter().any(is_defined);
        let mut items = path.iter().peekable();
        while let Some(item) = items.peek() {
            let (folder, file) = (module.join(item), module.join(format!("{item}.rs")));
            module = match (folder.is_dir(), file.is_file()) {
                (true, _) => folder,
                (false, true) => file,
                (false, false) => break,
            };
            items.next();
        }
        // The rest is defined in the last module.
        let is_file = items.len() < path.len();
        (is_file || is_in_root) && items.all(|item| has_word(self.text(&module), item))
    }

    /// Returns the text of a file, or of all files in a folder.
    fn text(&mut self, path: &Path) -> &str {
        if !self.texts.contains_key(path) {
            let mut text = std::fs::read_to_string(path).unwrap_or_default();
            let beside = std::fs::read_to_string(path.with_extension("rs"));
            text.push_str(&beside.unwrap_or_default());
            add_folder(path, &mut text);
            self.texts.insert(path.to_owned(), text);
        }
        &self.texts[path]
    }
}

fn add_folder(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => add_folder(&path, text),
            false => text.push_str(&std::fs::read_to_string(path).unwrap_or_default()),
        }
    }
}

/// Returns whether a text has words that begin with these: a name in a string may be a prefix.
fn has_word(text: &str, words: &str) -> bool {
    let mut found = text.match_indices(words);
    found.any(|(at, _)| !text[..at].chars().next_back().is_some_and(is_of_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Vec<(String, bool)> {
        let names = names_in(line).into_iter();
        let names = names.filter(|name| name.is_symbol || name.is_in_comment);
        names
            .map(|name| (name.segments.join("::"), name.is_symbol))
            .collect()
    }

    #[test]
    fn names_are_found_in_texts_and_strings() {
        let name = |name: &str, is_symbol| (name.to_owned(), is_symbol);
        for (line, expected) in [
            (
                "/// `plimsoll::hook` sees it.",
                vec![name("plimsoll::hook", false)],
            ),
            (
                r#"for own in ["plimsoll::symbol", "plimsoll_core::alloc::"] {"#,
                vec![
                    name("plimsoll::symbol", true),
                    name("plimsoll_core::alloc", true),
                ],
            ),
            (
                "\"<plimsoll_core::alloc::Alloc<A> as core::alloc::GlobalAlloc>::alloc\"",
                vec![name("plimsoll_core::alloc::Alloc", true)],
            ),
            (
                "// plimsoll: a message, cargo::plimsoll::x, plimsoll-core::x",
                vec![],
            ),
            ("let x = plimsoll_x::y();", vec![]),
        ] {
            assert_eq!(found(line), expected, "{line}");
        }
    }

    #[test]
    fn names_of_moved_items_are_missing() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        let mut sources = Sources::new(crates);
        for (name, is_symbol, exists) in [
            ("plimsoll::start", true, true),
            ("plimsoll::dhat", false, true),
            ("plimsoll::dhat", true, false),
            ("plimsoll::ledger", false, false),
            ("plimsoll::assert_no_alloc", false, true),
            ("plimsoll_core::alloc::Alloc", true, true),
            ("plimsoll_core::alloc::mappings::table", true, true),
            ("plimsoll_core::ledger", true, false),
            ("plimsoll_waits::sync::mutex::Mutex::lock_noted", true, true),
            ("plimsoll_waits::sync::mutex::Mutex::lock_seen", true, false),
            ("plimsoll_elsewhere::x", true, true),
        ] {
            let segments = name.split("::").map(str::to_owned).collect();
            let name = Name {
                segments,
                is_symbol,
                is_in_comment: false,
            };
            assert_eq!(sources.have(&name), exists, "{name:?}");
        }
    }
}
