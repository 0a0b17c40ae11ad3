//! Measures how long it takes to write a heap profile of many stacks.
//!
//! `export [ROUNDS [STACKS...]]`, 7 rounds with 1,000 and 10,000 stacks by default. Functions of
//! this program allocate from that many different call paths, of 16 frames and the frames below
//! them, and every allocation is sampled. Meanwhile, and while profiles are written, a second
//! thread allocates without pause. `symbols` measures programs with much debug information.

use std::hint::black_box;

use plimsoll::profile::{self, Detail, Format};
use plimsoll_bench::load::{Load, Work};
use plimsoll_bench::quantiles::median;
use plimsoll_bench::{clock, machine};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

fn main() {
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .map(|number| number.parse().expect("a number"))
        .collect();
    let rounds = numbers.first().copied().unwrap_or(7);
    let stacks = match numbers.get(1..) {
        None | Some([]) => &[1000, 10_000][..],
        Some(stacks) => stacks,
    };
    println!("{}\n", machine::describe());
    println!("writing the heap profile to memory, medians of {rounds} rounds");
    println!(
        "| stacks | records | table KiB | format | names | KiB | wall ms | cpu ms |\n|---|---|---|---|---|---|---|---|"
    );
    let _load = Load::start(1, Work::RandomSizes);
    let heap = profile::lookup("heap").expect("built in");
    let mut made = 0;
    for &stacks in stacks {
        let rate = profile::set_heap_rate(1);
        for path in made..stacks {
            call(path, LEVELS);
        }
        made = made.max(stacks);
        profile::set_heap_rate(rate);
        let records = heap.count();
        assert!(records >= made, "{records} records of {made} stacks");
        let table = plimsoll::mem_stats().buck_hash_sys >> 10;
        for (format, name) in [(Format::Pprof, "pprof.gz"), (Format::Text, "text")] {
            for detail in [Detail::Full, Detail::Names, Detail::Addresses] {
                let (mut wall, mut cpu, mut length) = (Vec::new(), Vec::new(), 0);
                for _ in 0..rounds {
                    let mut bytes = Vec::with_capacity(length);
                    let (wall_before, cpu_before) = (clock::wall(), clock::thread());
                    let written = heap.write_with(&mut bytes, format, detail);
                    cpu.push((clock::thread() - cpu_before) as f64 / 1e6);
                    wall.push((clock::wall() - wall_before) as f64 / 1e6);
                    written.expect("writing to memory cannot fail");
                    length = bytes.len();
                }
                println!(
                    "| {made} | {} | {table} | {name} | {detail:?} | {} | {:.1} | {:.1} |",
                    heap.count(),
                    length >> 10,
                    median(&mut wall),
                    median(&mut cpu)
                );
            }
        }
    }
}

/// Levels of two frames each, with a choice of four functions: enough for 65,536 paths.
const LEVELS: u32 = 8;

/// Follows the path in `path`, two bits per level, and keeps a block that is allocated at its end.
#[inline(never)]
fn call(path: usize, levels: u32) {
    if levels == 0 {
        std::mem::forget(black_box(Box::new([1u8; 48])));
        return;
    }
    let (next, levels) = (path >> 2, levels - 1);
    match path & 3 {
        0 => north(next, levels),
        1 => east(next, levels),
        2 => south(next, levels),
        _ => west(next, levels),
    }
    black_box(levels);
}

macro_rules! ways {
    ($($name:ident $number:literal)*) => {
        $(
            #[inline(never)]
            fn $name(path: usize, levels: u32) {
                call(path, levels);
                black_box($number);
            }
        )*
    };
}

ways! { north 1 east 2 south 3 west 4 }
