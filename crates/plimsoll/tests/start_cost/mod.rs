//! What it costs to start Plimsoll in a program that ends at once, counted by callgrind.

use std::process::Command;

/// Set in the process that is counted; its value says whether Plimsoll is started there.
const MARK: &str = "PLIMSOLL_TEST_STARTS";

/// Waits until the maintenance thread has nothing left to do: it waits in `ppoll`.
fn wait_until_idle() {
    let is_idle = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        tasks.filter_map(Result::ok).any(|task| {
            let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let waits_in = format!("{} ", libc::SYS_ppoll);
            read("comm").trim() == "plimsoll-keeper" && read("syscall").starts_with(&waits_in)
        })
    };
    while !is_idle() {
        std::thread::yield_now();
    }
}

/// The instructions that a process takes, by callgrind.
fn instructions(starts: &str) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().unwrap())
        .args(["start_cost::starting_searches_no_symbol_tables", "--exact"])
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
                eprintln!("skipped: there is no valgrind");
                return;
            }
            let (without, with) = (instructions("no"), instructions("yes"));
            // Without optimization. The symbol tables of this program take a hundred times as many.
            let added = with.saturating_sub(without);
            eprintln!("{without} instructions without, {added} more to start Plimsoll");
            assert!(added < 10_000_000, "{added}");
        }
    }
}
