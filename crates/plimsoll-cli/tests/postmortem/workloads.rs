//! The workloads of processes that end.

use std::ffi::CString;
use std::hint::black_box;
use std::io::Write;
use std::sync::Mutex;
use std::time::Duration;

/// The line that a workload prints when it is ready.
pub const READY: &str = "ready\n";

/// Runs the workload that the environment names; without one, does nothing.
#[test]
fn work() {
    let Ok(work) = std::env::var(super::WORK) else {
        return;
    };
    match &*work {
        "churn" => churn(3),
        "leak" => {
            leak(400);
            ready();
            wait();
        }
        "leak and exit" => {
            leak(400);
            std::process::exit(7);
        }
        "leak and abort" => {
            leak(400);
            std::process::abort();
        }
        "leak and segfault" => {
            leak(400);
            // SAFETY: deliberately invalid: the write must end the process by SIGSEGV.
            unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
        }
        "leak and _exit" => {
            leak(400);
            // SAFETY: `_exit` takes no pointers.
            unsafe { libc::_exit(0) };
        }
        "grow" => loop {
            grow();
        },
        "grow in a group" => super::groups::grow_in_a_group(),
        "rise and fall" => {
            drop(rise(600));
            leak(100);
            ready();
            wait();
        }
        "labels" => {
            let _tenant = plimsoll::label::with([("tenant", "acme")]);
            leak(400);
            ready();
            wait();
        }
        "spread" => {
            spread();
            ready();
            wait();
        }
        "late library" => late_library(),
        "set too late" => {
            // SAFETY: no other thread reads the environment.
            unsafe { std::env::set_var("PLIMSOLL", "postmortem=/nowhere/late") };
            let _plimsoll = plimsoll::start();
        }
        "fork" => super::forks::fork_and_count(),
        "close all and fork" => super::forks::close_all_and_fork(),
        "clone" => super::forks::clone_and_count(),
        "rise and fall with a history" => super::history::rise_and_fall(),
        "start and grow" => super::history::start_and_grow(),
        "without a history" => super::history::without(),
        "leak slowly" => super::history::leak_slowly(),
        "fork with a history" => super::history::fork_with_readings(),
        "spread with a history" => super::history::spread_with_readings(),
        "fork while others allocate" => super::forks::fork_under_load(),
        other => panic!("unknown workload {other}"),
    }
}

pub fn ready() {
    let mut out = std::io::stdout();
    out.write_all(READY.as_bytes()).unwrap();
    out.flush().unwrap();
}

pub fn wait() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Keeps `blocks` blocks of 10,000 bytes for good.
#[inline(never)]
pub fn leak(blocks: usize) {
    for _ in 0..blocks {
        let block = black_box(vec![1; 10_000]);
        KEPT.lock().unwrap().push(block);
    }
}

/// Allocates at more sites and sizes than a table of 1 MiB can record.
pub fn spread() {
    for depth in 0..60 {
        deeper(depth, &|| {
            for size in (8..1024).step_by(8) {
                drop(black_box(Vec::<u8>::with_capacity(size)));
            }
        });
    }
}

#[inline(never)]
fn deeper(depth: usize, work: &dyn Fn()) {
    if depth == 0 {
        work();
    } else {
        deeper(depth - 1, work);
    }
    black_box(depth);
}

/// Keeps blocks whose allocations pass through a library that is loaded at run time.
fn late_library() {
    extern "C" fn allocate() {
        leak(1);
    }
    let _plimsoll = plimsoll::start();
    let path = CString::new(std::env::var("PLIMSOLL_TEST_LIBRARY").unwrap()).unwrap();
    // SAFETY: the test built the library, with a function of this name and type.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null());
        let function = libc::dlsym(library, c"by_way_of".as_ptr());
        assert!(!function.is_null());
        let by_way_of: extern "C" fn(extern "C" fn()) = std::mem::transmute(function);
        by_way_of(allocate);
        ready();
        // A later capture finds the new library and requests that its name be recorded.
        loop {
            std::thread::sleep(Duration::from_millis(5));
            by_way_of(allocate);
        }
    }
}

/// Keeps a block of 100,000 bytes, which stays almost unwritten.
#[inline(never)]
fn grow() {
    let block = black_box(Vec::with_capacity(100_000));
    KEPT.lock().unwrap().push(block);
}

#[inline(never)]
fn rise(blocks: usize) -> Vec<Vec<u8>> {
    (0..blocks).map(|_| black_box(vec![1; 20_000])).collect()
}

/// Allocates, reallocates and frees in threads, some of which end; threads exchange blocks. Another
/// thread reads the profile, which folds the counts.
fn churn(threads: u64) -> ! {
    static SHARED: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    let work = |seed: u64, rounds: u64| {
        let mut random = seed;
        let mut kept: Vec<Vec<u8>> = Vec::new();
        for _ in 0..rounds {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let size = match random >> 61 {
                0 => (random >> 40) as usize % 200_000,
                1 => (random >> 40) as usize % 20_000,
                _ => (random >> 40) as usize % 500,
            };
            match (random >> 56) % 8 {
                0 | 1 if !kept.is_empty() => {
                    let at = (random >> 20) as usize % kept.len();
                    kept[at].reserve_exact(size);
                }
                2 => {
                    let mut shared = SHARED.lock().unwrap();
                    shared.push(Vec::with_capacity(size));
                    if shared.len() > 100 {
                        shared.swap_remove((random >> 20) as usize % 100);
                    }
                }
                _ => kept.push(Vec::with_capacity(size)),
            }
            if kept.len() > 60 {
                kept.swap_remove((random >> 20) as usize % 60);
            }
        }
    };
    for seed in 0..threads {
        std::thread::spawn(move || work(seed + 1, u64::MAX));
    }
    std::thread::spawn(|| {
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let heap = plimsoll::profile::lookup("heap").expect("built in");
            let detail = plimsoll::profile::Detail::Addresses;
            let format = plimsoll::profile::Format::Pprof;
            heap.write_with(&mut bytes, format, detail)
                .expect("memory can be written to");
        }
    });
    ready();
    for seed in 100.. {
        std::thread::spawn(move || work(seed, 2000)).join().unwrap();
    }
    unreachable!("the iterator is endless")
}
