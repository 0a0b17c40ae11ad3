//! A process of this program that leaks, and whose threads wait for a lock.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use plimsoll::sync::Mutex;

/// The variable that makes a process of this program work.
const WORK: &str = "PLIMSOLL_TEST_SCHEMAS";

/// The text before the address of the pages.
const READY: &str = "pages at ";

/// A process of this program, which is killed on drop.
pub struct Process {
    child: Child,
    pub address: String,
}

impl Process {
    /// Starts the process, and waits until it has a verdict on its leak.
    pub fn start(settings: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "workload::work",
                "--exact",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(WORK, "1")
            .env("PLIMSOLL", settings)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| {
            let line = line.unwrap();
            let (_, address) = line.split_once(READY)?;
            Some(address.to_owned())
        });
        let address = address.expect("the process is ready");
        Self { child, address }
    }

    pub fn kill(self) {}
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[inline(never)]
fn remembers() {
    std::mem::forget(black_box(vec![1_u8; 1000]));
}

/// Not a test: does nothing unless [`Process::start`] runs it.
#[test]
fn work() {
    if std::env::var_os(WORK).is_none() {
        return;
    }
    let plimsoll = plimsoll::start();
    let lock = Arc::new(Mutex::new(()));
    let _held = lock.lock();
    let waiting = Arc::clone(&lock);
    std::thread::spawn(move || {
        let _label = plimsoll::label::with([("tenant", "acme")]);
        drop(waiting.lock());
    });
    // The process ends with the test, even if that cannot kill it.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let mut readings = 0;
    let mut until = u64::MAX;
    loop {
        let growth = plimsoll::history::growth();
        for _ in 0..20 * (growth.readings - readings) {
            remembers();
        }
        readings = growth.readings;
        if until == u64::MAX && growth.leaks().next().is_some() {
            // The post-mortem file has the verdicts of each sixth reading.
            until = readings + 7;
        }
        if readings >= until {
            println!("{READY}{}", plimsoll.http_address().unwrap());
            until = u64::MAX - 1;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
