//! A program in Rust whose allocator is linked in. The same file is the test, which runs it below
//! `plimsoll run`.

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

/// Counts the calls of an allocator.
pub struct Counted<A>(pub A);

static MADE: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);

// SAFETY: all calls are passed on.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counted<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MADE.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller meets the same contract.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        MADE.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller meets the same contract.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        MADE.fetch_add(1, Ordering::Relaxed);
        FREED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller meets the same contract.
        unsafe { self.0.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        FREED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller meets the same contract.
        unsafe { self.0.dealloc(block, layout) }
    }
}

/// Its value makes the program work so often.
const ROUNDS: &str = "PLIMSOLL_TEST_ROUNDS";

/// An over-aligned block.
#[repr(align(256))]
struct Aligned([u8; 700]);

fn work(rounds: usize) {
    let threads = [(); 2].map(|()| {
        std::thread::spawn(move || {
            for round in 0..rounds {
                let mut grown = Vec::new();
                for at in 0..round % 4000 {
                    grown.push(at as u64);
                }
                grown.shrink_to_fit();
                black_box(&grown);
                black_box(vec![0_u8; 1 + round * 7 % 70_000]);
                black_box(Box::new(Aligned([1; 700])).0[round % 700]);
                black_box(String::from("text") + &round.to_string());
                let mut large = Vec::<u8>::with_capacity(30_000 + round);
                large.reserve_exact(300_000 + round);
                black_box(&large);
            }
        })
    });
    for thread in threads {
        thread.join().expect("a thread works");
    }
}

/// Returns what a run counts, and what the program says.
fn counts(rounds: usize, rate: &str, name: &str) -> [[i64; 3]; 2] {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["run", "--json", "--heap-rate", rate, "--"])
        .arg(&program)
        .env(ROUNDS, rounds.to_string())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = errors
        .lines()
        .find_map(|line| serde_json::from_str(line).ok())
        .unwrap_or_else(|| panic!("no report: {errors}"));
    assert_eq!(report["allocator"], "redirected", "{name}: {report}");
    assert_eq!(report["obstacle"], Value::Null);
    assert_eq!(report["exact"], true);
    let number = |name: &str| report[name].as_i64().unwrap();
    let live = number("malloc_bytes") - number("free_bytes");
    let said = String::from_utf8(output.stdout).unwrap();
    let said: Vec<i64> = said
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    let counted = [number("mallocs"), number("frees"), live];
    [counted, [said[0], said[1], 0]]
}

/// The program, or the test of it.
pub fn main(name: &str) {
    if let Ok(rounds) = std::env::var(ROUNDS) {
        work(rounds.parse().unwrap());
        println!("{MADE:?} {FREED:?}");
        return;
    }
    for rate in ["0", "512k", "1"] {
        let rounds = if rate == "1" { 200 } else { 3000 };
        let [less, more] = [1, rounds].map(|rounds| counts(rounds, rate, name));
        // The C library's own blocks are the same in both.
        let grown = [0, 1].map(|of| [0, 1, 2].map(|at| more[of][at] - less[of][at]));
        assert_eq!(grown[0], grown[1], "{name}, rate {rate}: {less:?} {more:?}");
        assert!(grown[0][0] > 10 * rounds as i64);
    }
    println!("{name}: every block is counted");
}
