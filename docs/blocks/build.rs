//! Finds the fenced code blocks of the documentation.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = Path::new("../..");
    let mut files = vec![root.join("README.md")];
    for folder in ["docs", "docs/guides", "docs/reference"] {
        let docs = fs::read_dir(root.join(folder)).unwrap();
        let docs = docs.map(|entry| entry.unwrap().path());
        files.extend(docs.filter(|path| path.extension().is_some_and(|of| of == "md")));
    }
    files.sort();
    println!("cargo::rerun-if-changed=../../docs");
    let (mut rust, mut toml) = (String::new(), String::from("&["));
    for file in files {
        println!("cargo::rerun-if-changed={}", file.display());
        let text = fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(root).unwrap().to_str().unwrap();
        for (line, language, block) in blocks(&text) {
            match language {
                // A separate crate, because several set the global allocator; not run, because some
                // serve pages.
                "rust" => {
                    let block = format!("```rust,no_run,standalone_crate\n{block}```");
                    let module = name.trim_end_matches(".md").to_lowercase();
                    let module = module.replace(['/', '-'], "_");
                    writeln!(rust, "#[doc = {block:?}]\nmod {module}_{line} {{}}").unwrap();
                }
                "toml" => write!(toml, "({:?}, {block:?}),", format!("{name}:{line}")).unwrap(),
                "" | "text" | "console" | "sh" => {}
                // Part of a file that a test compiles, because the framework is not a dependency here.
                file if file.starts_with("rust ") => {
                    let file = &file["rust ".len()..];
                    println!("cargo::rerun-if-changed=../../{file}");
                    let source = fs::read_to_string(root.join(file)).unwrap();
                    for part in block.split("\n\n") {
                        let found = is_in(part, &source);
                        assert!(
                            found,
                            "{name}:{line}: {file} does not contain this:\n{part}"
                        );
                    }
                }
                other => panic!("{name}:{line}: a code block of {other}, which is not checked"),
            }
        }
    }
    toml.push(']');
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    fs::write(out.join("rust.rs"), rust).unwrap();
    fs::write(out.join("toml.rs"), toml).unwrap();
}

/// Reports whether a source has these lines in succession, apart from the indentation.
fn is_in(part: &str, source: &str) -> bool {
    let trimmed = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    format!("\n{}\n", trimmed(source)).contains(&format!("\n{}\n", trimmed(part)))
}

/// Returns the line, language and content of each block.
fn blocks(text: &str) -> Vec<(usize, &str, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, &str, String)> = None;
    for (at, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(language), None) => open = Some((at + 1, language.trim(), String::new())),
            (None, Some((.., block))) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a code block that does not end");
    blocks
}
