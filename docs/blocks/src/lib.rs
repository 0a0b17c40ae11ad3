//! The code blocks of `README.md` and `docs/*.md`, each as a documentation test: with the feature
//! `blocks`, `cargo test -p plimsoll-documentation` compiles every Rust block as a program of its
//! own, and has cargo read every TOML block as a part of a manifest.

#[cfg(all(doctest, feature = "blocks"))]
mod rust {
    include!(concat!(env!("OUT_DIR"), "/rust.rs"));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    /// Where each block is, and the block.
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
}
