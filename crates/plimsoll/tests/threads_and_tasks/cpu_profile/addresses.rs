//! The addresses of locations: the interrupted instruction at the leaf, and one less than the return address elsewhere.

use std::arch::asm;
use std::hint::black_box;

use plimsoll_testkit::child;

use super::{in_some_attempt, record, thread_cpu};

/// The size of the first of the two instructions of the loop.
const FIRST: u64 = if cfg!(target_arch = "x86_64") { 3 } else { 4 };

/// Runs a loop of two instructions, and returns its address.
#[inline(never)]
fn counts_down() -> u64 {
    let address: u64;
    // SAFETY: the code changes two registers and the flags. The loop begins at the next instruction, whose address
    // the first one computes.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!(
            "lea {address}, [rip]",
            "2:",
            "dec {turns}",
            "jnz 2b",
            address = out(reg) address,
            turns = inout(reg) 1_000_000_u64 => _,
            options(nomem, nostack)
        );
        #[cfg(target_arch = "aarch64")]
        asm!(
            "adr {address}, . + 4",
            "2:",
            "subs {turns}, {turns}, #1",
            "b.ne 2b",
            address = out(reg) address,
            turns = inout(reg) 1_000_000_u64 => _,
            options(nomem, nostack)
        );
    }
    address
}

/// The address of the loop, and the return addresses of [`innermost`] and [`middle`].
#[derive(Default)]
struct Known {
    start: u64,
    returns: [u64; 2],
}

#[inline(never)]
fn innermost(nanoseconds: u64) -> Known {
    let mut frames = [std::ptr::null_mut(); 3];
    // SAFETY: the C library writes at most that many addresses.
    let written = unsafe { libc::backtrace(frames.as_mut_ptr(), 3) };
    assert_eq!(written, 3);
    let mut start = 0;
    let end = thread_cpu() + nanoseconds;
    while thread_cpu() < end {
        start = counts_down();
    }
    // The first frame is this function's.
    let returns = [frames[1] as u64, frames[2] as u64];
    Known { start, returns }
}

#[inline(never)]
fn middle(nanoseconds: u64) -> Known {
    black_box(innermost(nanoseconds))
}

#[inline(never)]
fn outermost(nanoseconds: u64) -> Known {
    black_box(middle(nanoseconds))
}

#[test]
fn locations_are_instructions_at_the_leaf_and_calls_elsewhere() {
    let name = "locations_are_instructions_at_the_leaf_and_calls_elsewhere";
    child::run(name, "", || {
        in_some_attempt(|| {
            let mut known = Known::default();
            let profile = record(|| known = outermost(200_000_000));
            let Known { start, returns } = known;
            let mut found = 0;
            for sample in &profile.sample {
                let ids = sample.location_id.iter();
                let addresses: Vec<u64> = ids
                    .map(|&id| profile.location[id as usize - 1].address)
                    .collect();
                // An address that is off by one would be in this range, too.
                if !(start - 1..start + FIRST + 2).contains(&addresses[0]) {
                    continue;
                }
                let leaf = addresses[0];
                assert!(
                    [start, start + FIRST].contains(&leaf),
                    "{leaf:#x} in the loop at {start:#x}"
                );
                // The frame between them belongs to `innermost`.
                assert!(addresses.len() > 4, "{addresses:x?}");
                let calls = returns.map(|address| address - 1);
                assert_eq!(addresses[2..4], calls, "{addresses:x?}");
                found += 1;
            }
            found > 0
        });
    });
}
