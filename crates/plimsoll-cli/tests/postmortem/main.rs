//! Post-mortem files of ended processes: `PLIMSOLL=postmortem=FILE`, and `plimsoll report FILE`.
//!
//! The processes run this program again with one of the [`workloads`].

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

#[path = "../command/mod.rs"]
mod command;
mod endings;
mod files;
mod forks;
mod groups;
mod history;
mod hostile;
mod kills;
mod machines;
mod structure;
mod workloads;

use std::fs::File;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};

use plimsoll_postmortem::PostMortem;

/// The variable that names the workload of a process of this program.
const WORK: &str = "PLIMSOLL_TEST_WORK";

/// A process of this program.
struct Process {
    child: Child,
}

impl Process {
    /// Starts a workload with this file and further settings.
    fn start(work: &str, file: &str, settings: &str) -> Self {
        Self::start_with(work, file, settings, |_| {})
    }

    fn start_with(
        work: &str,
        file: &str,
        settings: &str,
        change: impl FnOnce(&mut Command),
    ) -> Self {
        Self::try_start(work, file, settings, change).expect("the test can be run")
    }

    fn try_start(
        work: &str,
        file: &str,
        settings: &str,
        change: impl FnOnce(&mut Command),
    ) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe().expect("the test has a path"));
        command
            .args([
                "workloads::work",
                "--exact",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(WORK, work)
            .env("PLIMSOLL", format!("postmortem={file},{settings}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        change(&mut command);
        let child = command.spawn()?;
        Ok(Self { child })
    }

    /// Waits until the process prints that it is ready.
    fn is_ready(&mut self) {
        let mut said = String::new();
        let out = self.child.stdout.as_mut().expect("piped");
        while !said.ends_with(workloads::READY) {
            let mut byte = [0];
            let read = out.read(&mut byte).expect("a pipe can be read");
            assert!(read > 0, "the process ended before it was ready: {said}");
            said.push(char::from(byte[0]));
        }
    }

    fn kill(mut self) {
        self.child.kill().expect("it is there");
        self.child.wait().expect("it has ended");
    }

    /// Waits for the process's end; returns its status and its standard error.
    fn ends(self) -> (ExitStatus, String) {
        let output = self.child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status, said)
    }
}

fn read(file: &str) -> PostMortem {
    let opened = File::open(file).unwrap_or_else(|error| panic!("{file}: {error}"));
    plimsoll_postmortem::read(&opened).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Checks the invariants of every file, whenever its process ended.
fn totals_add_up(of: &PostMortem) {
    let heap = &of.heap;
    for class in &heap.classes {
        assert!(class.frees <= class.mallocs, "{class:?}");
    }
    let large = &heap.large;
    assert!(large.frees <= large.mallocs, "{large:?}");
    assert!(large.free_bytes <= large.malloc_bytes, "{large:?}");
    let sum =
        |of: fn(&plimsoll_postmortem::ClassCounts) -> u64| heap.classes.iter().map(of).sum::<u64>();
    assert_eq!(heap.mallocs, sum(|class| class.mallocs) + large.mallocs);
    assert_eq!(heap.frees, sum(|class| class.frees) + large.frees);
    assert!(!of.damaged);
    for site in &of.sites {
        let (allocated, freed) = (site.allocated, site.freed);
        assert!(freed.samples <= allocated.samples, "{site:?}");
        assert!(freed.weight <= allocated.weight, "{site:?}");
        assert!(freed.bytes <= allocated.bytes, "{site:?}");
        if site.in_flight == 0 && site.size != 0 {
            // Each sample's weight is rounded to 2^-16, and bytes are rounded down.
            let exact = (u128::from(allocated.weight) * u128::from(site.size)) >> 16;
            let off = exact as i128 - i128::from(allocated.bytes);
            assert!(
                (0..=i128::from(allocated.samples)).contains(&off),
                "{site:?}"
            );
        }
    }
}
