//! Measures the cost of a sample: capturing a stack, counting it in the table, and the free.
//!
//! `sample [ROUNDS]`, 15 rounds by default. Times pairs of an allocation and its free, all sampled
//! (`set_heap_rate(1)`), minus the same pairs without sampling. Rounds alternate and have 20,000
//! pairs at one site, so that everything is warm. The recorded stack has exactly as many frames as
//! the row states: the program reads that from the profile. They include the frames of the
//! allocator and of the thread's root. Each unwinder runs in a separate process.
//!
//! The program fails if it measured nothing: the sample of the probe is missing, or its stack is
//! not as deep as the recursion. Frame pointers can only be followed in a program that was built
//! with them: `RUSTFLAGS="-C force-frame-pointers=yes" cargo run --profile lto -p plimsoll-bench
//! --bin sample`.

use std::ffi::c_void;
use std::hint::black_box;

use plimsoll::profile::{self, Detail, Format};
use plimsoll_bench::arguments::number;
use plimsoll_bench::rounds::alternate;
use plimsoll_bench::{children, clock, machine, table};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

/// The ways of unwinding, with their targets.
const UNWINDERS: [(&str, &str); 2] = [("frame-pointers", "< 400"), ("tables", "< 800")];
const DEPTH: usize = 20;

const PAIRS: usize = 20_000;
const SIZE: usize = 64;

fn main() {
    let first = std::env::args().nth(1).unwrap_or_default();
    let unwinder = UNWINDERS.iter().find(|(name, _)| *name == first);
    if let Some((unwinder, target)) = unwinder {
        let rounds = number(2, 15);
        return on_a_bare_thread(&mut || measure(unwinder, target, rounds));
    }
    let rounds = number(1, 15);
    machine::print();
    println!("processor time in ns, median of {rounds} alternating rounds");
    table::head("| unwinder | frames | sample | target |");
    for (unwinder, _) in UNWINDERS {
        let settings = format!("unwinder={unwinder}");
        let row = children::again(&settings, &[unwinder, &rounds.to_string()]);
        print!("{row}");
    }
}

fn measure(unwinder: &str, target: &str, rounds: usize) {
    // Two probes: the number of frames below the recursion, and a check that the recursion is
    // recorded.
    let (least, ten) = (recorded_depth(0), recorded_depth(10));
    if ten != least + 10 {
        assert_eq!(
            unwinder,
            "frame-pointers",
            "10 calls more added {} frames to the stack of the probe",
            ten as isize - least as isize
        );
        println!("| {unwinder} | not measured: this program was built without them | | |");
        return;
    }
    let recursion = DEPTH.saturating_sub(least);
    let recorded = recorded_depth(recursion);
    descend(recursion, &mut || {
        let difference = alternate::<1>(rounds, |_| {
            let [with, without] = [1, 0].map(|rate| {
                profile::set_heap_rate(rate);
                pairs(PAIRS / 10, SIZE);
                let start = clock::thread();
                pairs(PAIRS, SIZE);
                (clock::thread() - start) as f64 / PAIRS as f64
            });
            with - without
        });
        let [sample] = difference.medians();
        println!("| {unwinder} | {recorded} | {sample:.0} | {target} |");
    });
}

/// Returns the number of frames that the profile shows for a stack in which [`pairs`] is called at
/// this depth. Panics if the profile lacks the stack.
fn recorded_depth(recursion: usize) -> usize {
    // Sizes above 32 KiB are distinguished to the byte, and no other block here is as large.
    static SIZES: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(1_000_001);
    let size = SIZES.fetch_add(2, std::sync::atomic::Ordering::Relaxed);
    descend(recursion, &mut || {
        profile::set_heap_rate(1);
        pairs(1, size);
        profile::set_heap_rate(0);
    });
    let mut text = Vec::new();
    let heap = profile::lookup("heap").expect("built in");
    let written = heap.write_with(&mut text, Format::Text, Detail::Addresses);
    written.expect("writing to memory cannot fail");
    let text = String::from_utf8_lossy(&text);
    let wanted = format!("[1: {size}] @");
    let addresses = text
        .lines()
        .skip(1)
        .find_map(|row| Some(row.split_once(&wanted)?.1));
    let addresses = addresses.unwrap_or_else(|| panic!("no sample of {size} bytes: {text}"));
    addresses.split_whitespace().count()
}

#[inline(never)]
fn pairs(count: usize, size: usize) {
    for _ in 0..count {
        drop(black_box(Vec::<u8>::with_capacity(black_box(size))));
    }
}

/// Calls `work` below `depth` further frames.
#[inline(never)]
fn descend(depth: usize, work: &mut dyn FnMut()) {
    if depth == 0 {
        work();
    } else {
        descend(depth - 1, work);
    }
    // Work after the call, without which the call would be a jump.
    black_box(depth);
}

/// Runs `work` on a thread of the C library, which has fewer frames at its root than the standard
/// library's.
fn on_a_bare_thread(work: &mut dyn FnMut()) {
    extern "C" fn run(work: *mut c_void) -> *mut c_void {
        // SAFETY: the pointer is to `work` below, which lives and is not used otherwise until the
        // thread has ended.
        let work = unsafe { &mut *work.cast::<&mut dyn FnMut()>() };
        work();
        std::ptr::null_mut()
    }
    let mut work = work;
    // SAFETY: the thread is joined before `work` ends; a panic on it aborts the program.
    unsafe {
        let mut thread = std::mem::zeroed();
        let argument = (&raw mut work).cast();
        let failed = libc::pthread_create(&raw mut thread, std::ptr::null(), run, argument);
        assert_eq!(failed, 0, "a thread can be had");
        libc::pthread_join(thread, std::ptr::null_mut());
    }
}
