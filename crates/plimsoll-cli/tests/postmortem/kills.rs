//! `kill -9` at a random instant, under load.

use std::time::{Duration, Instant};

use crate::command::Directory;
use crate::{Process, read, totals_add_up};

/// Kills `times` processes, each a random time after it is ready, with the ledger's protocols in
/// turn.
fn kill(times: u64, seed: u64) {
    let directory = Directory::new("postmortem-kill");
    let file = directory.path("file");
    let protocols = ["auto", "per-thread", "fenced"];
    let mut random = seed;
    let (mut in_flight, mut counting) = (0, 0);
    for (time, protocol) in (0..times).zip(protocols.iter().cycle()) {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let settings = format!("heap_rate=4k,ledger={protocol}");
        let mut process = Process::start("churn", &file, &settings);
        process.is_ready();
        let until = Instant::now() + Duration::from_micros((random >> 33) % 60_000);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        process.kill();
        let left = read(&file);
        totals_add_up(&left);
        in_flight += left.in_flight();
        counting += left.threads_counting;
        // Some megabytes are in use, sampled at a rate of 4 KiB.
        let (exact, estimated) = (left.heap.live_bytes(), left.estimated_in_use().bytes);
        assert!(exact > 0 && left.heap.frees > 0);
        let off = exact.abs_diff(estimated);
        // Allows six standard errors, with the variance of a rate of 4 KiB as upper bound, plus
        // counted blocks whose events were not recorded yet.
        let allowed = 6.0 * (exact as f64 * 4096.0).sqrt() + 4.0 * 200_000.0;
        assert!(
            (off as f64) < allowed,
            "{time}: {exact} bytes, {estimated} estimated, {off} off, of {allowed}"
        );
        let program = std::env::current_exe().unwrap();
        assert_eq!(left.program, program.to_str().unwrap());
    }
    println!("{times} kills: {in_flight} samples and {counting} operations were in flight");
}

#[test]
fn a_killed_process_leaves_a_file_that_adds_up() {
    kill(30, 1);
}

#[test]
#[ignore = "takes minutes"]
fn a_thousand_killed_processes_leave_files_that_add_up() {
    kill(1000, 2);
}
