//! The cost of starting Plimsoll in a program that exits at once, counted by callgrind.

use std::process::Command;

/// Environment variable of the counted process; its value determines whether Plimsoll is started.
const MARK: &str = "PLIMSOLL_TEST_STARTS";

/// Waits until the maintenance thread is idle: it then waits for a word that is 1, for a time. Valgrind's own waits have no
/// time.
fn wait_until_idle() {
    let is_idle = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        tasks.filter_map(Result::ok).any(|task| {
            let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let call = read("syscall");
            let call: Vec<&str> = call.split_whitespace().collect();
            let futex = libc::SYS_futex.to_string();
            read("comm").trim() == "plimsoll-maint"
                && matches!(call[..], [number, _, "0x80", "0x1", time, ..] if number == futex && time != "0x0")
        })
    };
    while !is_idle() {
        std::thread::yield_now();
    }
}

/// Returns the number of instructions that a process executes, counted by callgrind.
fn instructions(starts: &str) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().unwrap())
        .args([
            &*plimsoll_testkit::child::full_name("starting_searches_no_symbol_tables"),
            "--exact",
        ])
        .args(["--nocapture", "--test-threads=1"])
        .env(MARK, starts)
        .env_remove("PLIMSOLL")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let collected = said
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let (_, number) = collected.unwrap_or_else(|| panic!("{said}"));
    number.trim().parse().unwrap()
}

#[test]
fn starting_searches_no_symbol_tables() {
    match std::env::var(MARK).as_deref() {
        Ok("yes") => {
            let _plimsoll = plimsoll::start();
            wait_until_idle();
        }
        Ok(_) => {}
        Err(_) => {
            if Command::new("valgrind").arg("--version").output().is_err() {
                plimsoll_testkit::skip!("valgrind is not installed");
                return;
            }
            let (without, with) = (instructions("no"), instructions("yes"));
            // In a build without optimization. Searching this program's symbol tables takes a
            // hundred times as many.
            let added = with.saturating_sub(without);
            eprintln!("{without} instructions without, {added} more to start Plimsoll");
            assert!(added < 10_000_000, "{added}");
        }
    }
}
