//! The program of the guide "It is slow now, and I cannot restart it". It does not contain Plimsoll.
//!
//! Eight workers handle orders, and write a record of each to standard output. The one that writes holds a lock: if the
//! records are not read, all workers wait.

use std::io::Write as _;
use std::sync::Mutex;

static RECORDS: Mutex<()> = Mutex::new(());

fn write_record(order: u64) {
    let _alone = RECORDS.lock().unwrap();
    let record = format!("{order:512}\n");
    std::io::stdout().write_all(record.as_bytes()).unwrap();
}

fn price(order: u64) -> u64 {
    (0..1000).fold(order, |sum, number| sum.rotate_left(5) ^ number)
}

fn handle(order: u64) {
    write_record(price(order));
}

fn main() {
    let workers = (0..8).map(|worker| {
        let thread = std::thread::Builder::new().name(format!("worker-{worker}"));
        let work = move || (worker..).step_by(8).for_each(handle);
        thread.spawn(work).unwrap()
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.join().unwrap();
    }
}
