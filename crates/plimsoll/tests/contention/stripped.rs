//! These tests again in a program without names.

use crate::scene::STRIPPED;

/// Where there are no names, locks are known by where one of them is waited for, or by what memory
/// holds.
#[test]
fn without_a_symbol_table_locks_are_known() {
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
        return eprintln!("not done: there is no `strip`");
    }
    let output = std::process::Command::new(&stripped)
        .args([
            "std_",
            "parking_lot_",
            "waits_for_conditions",
            "what_is_blamed",
        ])
        .env(STRIPPED, "1")
        .output()
        .unwrap();
    std::fs::remove_file(&stripped).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("test result: ok. 14 passed"), "{said}");
}
