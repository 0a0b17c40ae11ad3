//! Measures the time to read the stacks of all threads.
//!
//! `threads [ROUNDS] [THREADS]`, by default 15 rounds with 1,000 threads. The threads are blocked
//! in a futex, a sleep, a read or a poll, twelve calls deep. Times the profile `goroutine`: with
//! names of functions, and without names, which is little more than the stacks.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use plimsoll::profile::{self, Detail, Format};
use plimsoll_bench::quantiles::summary;
use plimsoll_bench::{clock, machine};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse().ok());
    let rounds = arguments.next().flatten().unwrap_or(15);
    let threads = arguments.next().flatten().unwrap_or(1000);
    println!("{}\n", machine::describe());
    let interruptions = Arc::new(AtomicI64::new(0));
    let mut pipe = [0; 2];
    // SAFETY: the array has space for the two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    for number in 0..threads {
        let interruptions = Arc::clone(&interruptions);
        std::thread::Builder::new()
            .stack_size(128 << 10)
            .spawn(move || descend(12, &|| block(number % 4, pipe[0], &interruptions)))
            .expect("there is room for a thread");
    }
    until_all_are_blocked(threads);
    println!("| what | wall time in ms | processor time in ms |\n|---|---|---|");
    for (what, detail) in [("stacks", Detail::Addresses), ("with names", Detail::Names)] {
        let (mut wall, mut processor) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            let mut bytes = Vec::new();
            let (start, start_of_thread) = (clock::wall(), clock::thread());
            let goroutine = profile::lookup("goroutine").expect("built in");
            goroutine
                .write_with(&mut bytes, Format::Pprof, detail)
                .expect("memory can be written to");
            // The first round determines how to unwind.
            if round > 0 {
                wall.push((clock::wall() - start) as f64 / 1e6);
                processor.push((clock::thread() - start_of_thread) as f64 / 1e6);
            }
        }
        println!(
            "| {what} | {} | {} |",
            summary(&mut wall),
            summary(&mut processor)
        );
    }
    let mut text = Vec::new();
    let goroutine = profile::lookup("goroutine").expect("built in");
    goroutine
        .write_with(&mut text, Format::Text, Detail::Names)
        .expect("memory can be written to");
    let text = String::from_utf8_lossy(&text);
    let total = text.lines().next().and_then(|head| head.rsplit_once(' '));
    let total: Option<usize> = total.and_then(|(_, total)| total.parse().ok());
    assert!(
        total >= Some(threads),
        "stacks of {total:?} threads of {threads}"
    );
    println!("\n{}", text.lines().next().unwrap_or(""));
    println!("{}", text.lines().last().unwrap_or(""));
    println!(
        "system calls interrupted: {}",
        interruptions.load(Ordering::SeqCst)
    );
}

#[inline(never)]
fn descend(levels: usize, work: &dyn Fn()) {
    let padding = black_box([levels; 4]);
    if levels == 0 {
        work();
    } else {
        descend(levels - 1, work);
    }
    black_box(padding);
}

#[inline(never)]
fn block(way: usize, pipe: i32, interruptions: &AtomicI64) {
    let word = AtomicU32::new(0);
    let time = libc::timespec {
        tv_sec: 3600,
        tv_nsec: 0,
    };
    let mut wanted = libc::pollfd {
        fd: pipe,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut byte = 0u8;
    loop {
        // SAFETY: the arguments outlive each call, which waits for an event that does not happen.
        let result = unsafe {
            match way {
                0 => libc::syscall(libc::SYS_futex, &raw const word, libc::FUTEX_WAIT, 0, 0),
                1 => libc::nanosleep(&raw const time, std::ptr::null_mut()).into(),
                2 => libc::read(pipe, (&raw mut byte).cast(), 1) as i64,
                _ => libc::poll(&raw mut wanted, 1, -1).into(),
            }
        };
        if result < 0 {
            interruptions.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn until_all_are_blocked(threads: usize) {
    let blocked = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("there is /proc");
        let calls = tasks
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("syscall")).ok());
        calls.filter(|call| !call.starts_with("running")).count()
    };
    while blocked() < threads {
        std::thread::sleep(Duration::from_millis(10));
    }
}
