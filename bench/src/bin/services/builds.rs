//! Builds of the services.

use std::path::{Path, PathBuf};
use std::time::Instant;

use plimsoll_bench::children;

const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/services");

/// Builds a service with Plimsoll or without, into an empty directory if `is_cold`. Returns its program, the size of that
/// without symbols in MB, the entries of the lock file, and the seconds of the build and of another after a change.
pub fn build(name: &str, is_with: bool, is_cold: bool) -> (PathBuf, [f64; 4]) {
    // Without Plimsoll, a service would contain none of its empty crates either.
    let (features, excluded) = match is_with {
        true => (format!("{name},on"), "plimsoll-bench"),
        false => (name.to_owned(), "plimsoll"),
    };
    let directory = format!("target/{}", features.replace(',', "-"));
    // This also downloads the packages, which the time of the build does not contain.
    let entries = shell(&format!(
        "cargo tree --edges normal,build --prefix none --no-dedupe --features {features} \
         | grep -v '^{excluded}' | sort -u | wc -l"
    ));
    if is_cold {
        shell(&format!("rm -rf {directory}"));
    }
    let build = || {
        let start = Instant::now();
        shell(&format!(
            "cargo build --release --bin {name} --features {features} --target-dir {directory}"
        ));
        start.elapsed().as_secs_f64()
    };
    let cold = build();
    shell(&format!("touch src/bin/{name}.rs"));
    let again = build();
    let bytes = shell(&format!(
        "cd {directory} && strip -o stripped release/{name} && stat -c %s stripped"
    ));
    let [entries, bytes] = [entries, bytes].map(|text| children::numbers(&text)[0]);
    let program = Path::new(PACKAGE)
        .join(directory)
        .join("release")
        .join(name);
    (program, [bytes / 1e6, entries, cold, again])
}

/// Runs a line in the folder of the services, and returns its output. Panics if it fails.
fn shell(line: &str) -> String {
    let line = format!("cd '{PACKAGE}' && {line}");
    children::run(Path::new("/bin/sh"), "", &["-c", &line])
}
