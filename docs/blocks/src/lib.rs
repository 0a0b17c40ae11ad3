//! Tests of the Markdown pages: with the feature `blocks`, every Rust block compiles as a program;
//! cargo accepts every TOML block as part of a manifest; links between pages lead to existing pages.

#[cfg(all(doctest, feature = "blocks"))]
mod rust {
    include!(concat!(env!("OUT_DIR"), "/rust.rs"));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// The place and text of each block.
    const TOML: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/toml.rs"));

    #[test]
    fn cargo_understands_every_toml_block() {
        let name = format!("plimsoll-documentation-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(directory.join("src")).unwrap();
        fs::write(directory.join("src/lib.rs"), "").unwrap();
        assert!(!TOML.is_empty());
        let plimsoll = concat!(
            "path = \"",
            env!("CARGO_MANIFEST_DIR"),
            "/../../crates/plimsoll\""
        );
        for (place, block) in TOML {
            let block = block.replace("path = \"...\"", plimsoll);
            let head = "[workspace]\n[package]\nname = \"program\"\nversion = \"1.0.0\"\nedition = \"2024\"\n";
            fs::write(directory.join("Cargo.toml"), format!("{head}{block}")).unwrap();
            let output = Command::new(env!("CARGO"))
                .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
                .current_dir(&directory)
                .output()
                .unwrap();
            let complaints = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{place}: {complaints}");
            assert!(!complaints.contains("unused"), "{place}: {complaints}");
        }
        fs::remove_dir_all(&directory).unwrap();
    }

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// Returns the pages at the root and below `docs`.
    fn pages() -> Vec<PathBuf> {
        let folders = [
            "",
            "bench",
            "contrib",
            "docs",
            "docs/guides",
            "docs/reference",
        ];
        let files = folders.map(|folder| fs::read_dir(root().join(folder)).unwrap());
        let paths = files.into_iter().flatten().map(|file| file.unwrap().path());
        paths
            .filter(|path| path.extension().is_some_and(|of| of == "md"))
            .collect()
    }

    /// Returns the anchors of a page's headings, by the rules of code forges.
    fn anchors(page: &str) -> Vec<String> {
        let headings = page.lines().filter(|line| line.starts_with('#'));
        headings
            .map(|line| {
                let title = line.trim_start_matches('#').trim().to_lowercase();
                let kept = title
                    .chars()
                    .filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
                kept.collect::<String>().replace(' ', "-")
            })
            .collect()
    }

    #[test]
    fn every_link_between_pages_leads_somewhere() {
        let mut links = 0;
        for path in pages() {
            let page = fs::read_to_string(&path).unwrap();
            for rest in page.split("](").skip(1) {
                let link = rest.split([')', ' ']).next().unwrap();
                if link.contains("://") || link.starts_with("mailto:") {
                    continue;
                }
                let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = match file {
                    "" => path.clone(),
                    file => path.parent().unwrap().join(file),
                };
                assert!(target.exists(), "{}: {link}", path.display());
                if !anchor.is_empty() {
                    let anchors = anchors(&fs::read_to_string(&target).unwrap());
                    let found = anchors.iter().any(|heading| heading == anchor);
                    assert!(found, "{}: {link}", path.display());
                }
                links += 1;
            }
        }
        assert!(links > 50, "{links} links found");
    }

    /// Appends the text of all Rust files in a folder, except for built ones.
    fn sources(folder: &Path, text: &mut String) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("target") && !path.ends_with("node_modules") {
                sources(&path, text);
            } else if path.extension().is_some_and(|of| of == "rs") {
                text.push_str(&fs::read_to_string(&path).unwrap());
            }
        }
    }

    /// Checks a table whose second column names tests.
    fn names_tests(page: &str) {
        let page: Vec<&str> = page.lines().collect();
        let is_heading = |at: usize| page.get(at + 1).is_some_and(|next| next.starts_with("|--"));
        let rows = page.iter().enumerate();
        let rows = rows.filter(|(at, line)| line.starts_with("| ") && !is_heading(*at));
        let rows: Vec<&str> = rows.map(|(_, line)| *line).collect();
        assert!(rows.len() > 10, "{} rows", rows.len());
        let mut all = String::new();
        sources(&root().join("crates"), &mut all);
        let lines: Vec<&str> = all.lines().map(str::trim).collect();
        let is_test = |name: &str| {
            let function = format!("fn {name}() {{");
            let mut places = (1..lines.len()).filter(|&at| lines[at] == function);
            places.any(|at| {
                let attributes = lines[..at].iter().rev();
                attributes
                    .take_while(|line| line.starts_with("#["))
                    .any(|line| *line == "#[test]")
            })
        };
        for row in rows {
            let tests = row.split('|').nth(2).unwrap().split('`').skip(1).step_by(2);
            let missing: Vec<&str> = tests.clone().filter(|test| !is_test(test)).collect();
            assert!(tests.count() > 0, "{row}");
            assert!(missing.is_empty(), "{missing:?}");
        }
    }

    #[test]
    fn every_promise_of_security_names_tests_that_exist() {
        names_tests(&fs::read_to_string(root().join("SECURITY.md")).unwrap());
    }

    #[test]
    fn every_test_beside_one_of_gos_exists() {
        let page = fs::read_to_string(root().join("docs/go-parity.md")).unwrap();
        let mut number = 0;
        for span in page.split('`').skip(1).step_by(2) {
            let parts = span.split_once(": ");
            let parts = parts.filter(|(package, _)| package.starts_with("plimsoll"));
            let Some((package, test)) = parts else {
                continue;
            };
            let (file, name) = test.rsplit_once("::").unwrap_or((test, ""));
            let text = fs::read_to_string(root().join("crates").join(package).join(file));
            // A macro may have the name as its argument.
            assert!(text.is_ok_and(|text| text.contains(name)), "{span}");
            number += 1;
        }
        assert!(number > 100, "{number} tests");
    }

    #[test]
    fn every_situation_of_a_program_names_tests_that_exist() {
        let page = fs::read_to_string(root().join("docs/reference/run.md")).unwrap();
        let (_, situations) = page.split_once("\n## Situations\n").unwrap();
        names_tests(situations.split("\n## ").next().unwrap());
    }
}
