//! Free memory that is idle is returned to the system.

use std::hint::black_box;
use std::time::{Duration, Instant};

use plimsoll::metrics::{self, Sample, Value};
use plimsoll_testkit::child;

const MIB: u64 = 1 << 20;

/// The memory that becomes idle.
const IDLE: u64 = 96 * MIB;

/// After this time, the test fails.
const HANG: Duration = Duration::from_secs(60);

/// Returns the bytes that were returned to the system so far.
fn returned() -> u64 {
    let mut samples = [Sample::new("/plimsoll/memory/returned:bytes")];
    metrics::read(&mut samples);
    match samples[0].value {
        Value::Uint64(bytes) => bytes,
        _ => panic!("{:?}", samples[0]),
    }
}

/// Allocates and frees blocks, between others that stay. The C library keeps the free memory.
fn leave_idle_memory() -> Vec<Vec<u8>> {
    let size = 8 << 10;
    let mut blocks: Vec<Vec<u8>> = (0..IDLE / size)
        .map(|_| black_box(vec![1; size as usize]))
        .collect();
    let mut at = 0;
    blocks.retain(|_| {
        at += 1;
        at % 64 == 0
    });
    blocks
}

#[test]
fn idle_memory_is_returned_if_that_is_wanted() {
    child::run(
        "idle_memory_is_returned_if_that_is_wanted",
        "give_back=200ms",
        || {
            let plimsoll = plimsoll::start();
            let kept = leave_idle_memory();
            let began = Instant::now();
            while returned() < IDLE / 2 {
                assert!(began.elapsed() < HANG, "{}", returned());
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(kept.iter().all(|block| block.iter().all(|&byte| byte == 1)));
            drop(plimsoll);
        },
    );
}

#[test]
fn what_the_program_returns_counts_as_well() {
    child::run("what_the_program_returns_counts_as_well", "off", || {
        let kept = leave_idle_memory();
        assert_eq!(returned(), 0);
        plimsoll::stats::free_os_memory();
        assert!(returned() > IDLE / 2, "{}", returned());
        drop(kept);
    });
}
