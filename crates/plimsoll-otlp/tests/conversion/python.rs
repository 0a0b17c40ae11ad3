//! The decoder of the package `opentelemetry-proto` for Python.

use std::process::Command;

/// Returns the lines of a request, as `canonical` writes them, if a Python is named.
///
/// # Panics
/// If the named Python fails.
pub(crate) fn decoded(name: &str, body: &[u8]) -> Option<Vec<String>> {
    let Some(python) = std::env::var_os("PLIMSOLL_OTLP_PYTHON") else {
        plimsoll_testkit::skip!(
            "PLIMSOLL_OTLP_PYTHON is not set: only the crate opentelemetry-proto decodes"
        );
        return None;
    };
    let file = std::env::temp_dir().join(format!("plimsoll-otlp-{}-{name}", std::process::id()));
    std::fs::write(&file, body).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conversion/decode.py");
    let output = Command::new(&python).arg(script).arg(&file).output();
    let output = output.unwrap_or_else(|error| panic!("{python:?}: {error}"));
    std::fs::remove_file(&file).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{python:?}: {errors}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    Some(text.lines().map(str::to_owned).collect())
}
