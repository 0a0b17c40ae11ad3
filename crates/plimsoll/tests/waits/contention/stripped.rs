//! Runs these tests again in a program without names.

use crate::contention::scene::STRIPPED;

/// Without names, Plimsoll recognizes locks by the place of one of their waits, or by the content
/// of their memory.
#[test]
fn locks_are_known_without_a_symbol_table() {
    if std::env::var_os(STRIPPED).is_some() {
        return;
    }
    let here = std::env::current_exe().unwrap();
    let stripped = std::env::temp_dir().join(format!("plimsoll-stripped-{}", std::process::id()));
    let strip = std::process::Command::new("strip")
        .arg("-o")
        .args([&stripped, &here])
        .status();
    if !strip.is_ok_and(|status| status.success()) {
        return plimsoll_testkit::skip!("`strip` is not installed");
    }
    let output = std::process::Command::new(&stripped)
        .args([
            "std_",
            "parking_lot_",
            "waits_for_conditions",
            "blame_equals_waits",
        ])
        // Skips the other modules of this binary.
        .args(["--skip", "sync::", "--skip", "pthread::"])
        .env(STRIPPED, "1")
        .output()
        .unwrap();
    std::fs::remove_file(&stripped).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("test result: ok. 14 passed"), "{said}");
}
