//! Reconciliation of resident memory: measured rows, and a rest that no row explains.

use plimsoll_testkit::child;
use std::hint::black_box;
use std::sync::{Arc, Barrier};

use plimsoll::http;
use plimsoll::stats::{Account, Basis, Reconciliation, reconcile};

const MIB: i64 = 1 << 20;

/// A touched mapping that Plimsoll does not see, because it calls the kernel directly: the feature
/// `mmap` interposes only the function `mmap`.
struct Mapped {
    memory: *mut libc::c_void,
    bytes: usize,
}

impl Mapped {
    fn new(bytes: usize) -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, which is written to within its length.
        let memory = unsafe {
            let memory = libc::syscall(libc::SYS_mmap, 0, bytes, access, flags, -1, 0);
            assert!(memory > 0);
            let memory = memory as *mut libc::c_void;
            memory.cast::<u8>().write_bytes(7, bytes);
            memory
        };
        Self { memory, bytes }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and used by nothing else.
        unsafe { libc::munmap(self.memory, self.bytes) };
    }
}

fn resident(reconciliation: &Reconciliation, name: &str) -> i64 {
    let mut rows = reconciliation.rows.iter();
    let row = rows.find(|row| row.name == name);
    row.map_or(0, |row| row.resident as i64)
}

fn unexplained(reconciliation: &Reconciliation) -> i64 {
    reconciliation.unexplained().expect("/proc is mounted")
}

#[track_caller]
fn assert_near(found: i64, expected: i64) {
    assert!(
        (found - expected).abs() < MIB / 2,
        "{found} is not near {expected}"
    );
}

static ARENA: Account = Account::new("arena");

fn unowned_memory() {
    let before = reconcile();
    // In a small process, at most this much belongs to the loader and the like.
    assert_near(unexplained(&before), 0);
    let mapped = Mapped::new(30 << 20);
    let unknown = reconcile();
    assert_near(unexplained(&unknown) - unexplained(&before), 30 * MIB);
    assert!(unknown.unexplained_share().unwrap() > 0.5);
    // An account for the memory gives it an owner.
    ARENA.reserve(40 << 20);
    ARENA.commit(30 << 20);
    let known = reconcile();
    assert_near(unexplained(&known), unexplained(&before));
    let row = known.rows.iter().find(|row| row.name == "arena").unwrap();
    assert_eq!(
        (row.sys, row.resident, row.basis),
        (Some(40 << 20), 30 << 20, Basis::Reported)
    );
    // The memory is gone, but the account still counts it: the rows exceed the resident memory.
    drop(mapped);
    let wrong = reconcile();
    assert_near(unexplained(&wrong) - unexplained(&before), -30 * MIB);
    ARENA.release(30 << 20);
    assert_near(unexplained(&reconcile()), unexplained(&before));
}

#[test]
fn a_mapping_is_unexplained_until_it_has_an_account() {
    child::run(
        "a_mapping_is_unexplained_until_it_has_an_account",
        "",
        unowned_memory,
    );
}

fn the_heap() {
    let before = reconcile();
    // Some blocks come from arenas, and some have separate mappings.
    let mut blocks: Vec<Vec<u8>> = (0..20_000).map(|_| vec![1; 1024]).collect();
    let large: Vec<Vec<u8>> = (0..10).map(|_| vec![1; 2 << 20]).collect();
    let elsewhere = std::thread::spawn(|| {
        let blocks: Vec<Vec<u8>> = (0..10_000).map(|_| vec![1; 1024]).collect();
        blocks
    });
    let elsewhere = elsewhere.join().unwrap();
    let full = reconcile();
    let held = "heap: held or fragmented";
    let in_use = |reconciliation: &Reconciliation| {
        resident(reconciliation, "heap: blocks in use")
            + resident(reconciliation, "heap: sampled blocks")
    };
    let grown = in_use(&full) - in_use(&before);
    let vectors = 30_000 * size_of::<Vec<u8>>() as i64;
    assert_near(grown, 30_000 * 1024 + 20 * MIB + vectors);
    assert_near(unexplained(&full), unexplained(&before));
    // Frees every other block: the allocator holds the memory between the rest.
    let mut number = 0;
    blocks.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    let cheese = reconcile();
    assert_near(in_use(&full) - in_use(&cheese), 10_000 * 1024);
    let more = resident(&cheese, held) - resident(&full, held);
    assert!(more > 9_000_000, "{cheese}");
    assert_near(unexplained(&cheese), unexplained(&before));
    black_box((blocks, large, elsewhere));
}

#[test]
fn the_heap_consists_of_used_and_held_memory() {
    child::run("the_heap_consists_of_used_and_held_memory", "", the_heap);
}

/// Blocks of C code in the same allocator: small ones, and some with mappings of their own.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn blocks_of_other_code() {
    let other =
        |reconciliation: &Reconciliation| resident(reconciliation, "heap: blocks of other code");
    let free =
        |reconciliation: &Reconciliation| resident(reconciliation, "heap: held or fragmented");
    let in_use = |reconciliation: &Reconciliation| {
        resident(reconciliation, "heap: blocks in use")
            + resident(reconciliation, "heap: sampled blocks")
    };
    let own: Vec<Vec<u8>> = (0..10_000).map(|_| vec![1; 1000]).collect();
    let before = reconcile();
    let allocate = |count, size| {
        let block = |_| {
            // SAFETY: the block is as long as what is written to it.
            unsafe {
                let block = libc::malloc(size);
                assert!(!block.is_null());
                block.cast::<u8>().write_bytes(1, size);
                block
            }
        };
        (0..count).map(block).collect::<Vec<_>>()
    };
    let small = allocate(50_000, 1000);
    let large = allocate(10, 2 << 20);
    // A chunk of 1,000 bytes takes 1,008.
    let expected = 50_000 * 1008 + 20 * MIB;
    let full = reconcile();
    assert_near(other(&full) - other(&before), expected);
    assert_near(free(&full), free(&before));
    // The list of the blocks is the program's.
    let list = 8 * (small.capacity() + large.capacity()) as i64;
    assert_near(in_use(&full) - in_use(&before), list);
    assert_near(unexplained(&full), unexplained(&before));
    let profile = plimsoll::profile::lookup("memory").unwrap().snapshot();
    let of_category = |name: &str| -> i64 {
        let records = profile.records();
        let records = records.filter(|record| record.categories().any(|category| category == name));
        records.map(|record| record.values()[0]).sum()
    };
    assert_near(of_category("[heap: blocks of other code]"), other(&full));
    assert_near(
        of_category("[heap: free, held by the allocator]"),
        free(&full),
    );
    // Every other block is free afterwards, and its neighbours keep its memory.
    for block in small.iter().step_by(2).chain(&large) {
        // SAFETY: allocated above, and freed once.
        unsafe { libc::free(*block) };
    }
    let holes = reconcile();
    assert_near(other(&holes) - other(&before), 25_000 * 1008);
    assert_near(free(&holes) - free(&before), 25_000 * 1008);
    for block in small.iter().skip(1).step_by(2) {
        // SAFETY: allocated above, and freed once.
        unsafe { libc::free(*block) };
    }
    black_box(own);
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn live_blocks_of_c_code_are_not_free_memory() {
    child::run(
        "live_blocks_of_c_code_are_not_free_memory",
        "",
        blocks_of_other_code,
    );
}

#[inline(never)]
fn deep(kib: usize) -> usize {
    let mut room = [0u8; 1024];
    black_box(&mut room)[0] = kib as u8;
    let below = if kib > 1 { deep(kib - 1) } else { 0 };
    below + usize::from(black_box(&room)[0])
}

fn touched_stacks() {
    let before = reconcile();
    let barrier = Barrier::new(9);
    std::thread::scope(|scope| {
        let threads = [(); 8].map(|()| {
            scope.spawn(|| {
                deep(1000);
                barrier.wait();
                barrier.wait();
            })
        });
        barrier.wait();
        let during = reconcile();
        barrier.wait();
        let grown = resident(&during, "stacks") - resident(&before, "stacks");
        // A frame takes a little more than a KiB.
        assert!((8 * MIB..14 * MIB).contains(&grown), "{grown}");
        let sys = |reconciliation: &Reconciliation| {
            let mut rows = reconciliation.rows.iter();
            rows.find(|row| row.name == "stacks").unwrap().sys.unwrap()
        };
        assert!(sys(&during) >= sys(&before) + 8 * (2 << 20));
        assert_near(unexplained(&during), unexplained(&before));
        // Joins the threads: a scope can end while its threads are still exiting.
        for thread in threads {
            thread.join().unwrap();
        }
    });
    let after = reconcile();
    assert_near(resident(&after, "stacks"), resident(&before, "stacks"));
    assert_near(unexplained(&after), unexplained(&before));
}

/// At least the minimum of the C library, which is 16 KiB on x86-64 and 128 KiB on aarch64.
const STACK: usize = if libc::PTHREAD_STACK_MIN > 100 << 10 {
    libc::PTHREAD_STACK_MIN
} else {
    100 << 10
};

/// Stacks that are blocks of the heap, next to a heap with holes. The memory of the holes could be
/// mistaken for the stacks'.
fn stacks_of_blocks() {
    static BARRIER: std::sync::OnceLock<Barrier> = std::sync::OnceLock::new();
    extern "C" fn works(_: *mut libc::c_void) -> *mut libc::c_void {
        drop(black_box(vec![1]));
        deep(60);
        let barrier = BARRIER.get().unwrap();
        barrier.wait();
        barrier.wait();
        std::ptr::null_mut()
    }
    // Otherwise blocks of 128 KiB have separate mappings.
    // SAFETY: no other thread allocates yet.
    let set = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 4 * STACK as i32) };
    assert_eq!(set, 1);
    let mut number = 0;
    let mut holes: Vec<Vec<u8>> = (0..20_000).map(|_| vec![1; 1000]).collect();
    holes.retain(|_| {
        number += 1;
        number % 8 == 0
    });
    let mut stacks: Vec<Vec<u8>> = (0..100).map(|_| vec![1; STACK]).collect();
    let in_use = |reconciliation: &Reconciliation| {
        resident(reconciliation, "heap: blocks in use")
            + resident(reconciliation, "heap: sampled blocks")
    };
    let before = reconcile();
    let barrier = BARRIER.get_or_init(|| Barrier::new(stacks.len() + 1));
    let threads: Vec<libc::pthread_t> = stacks
        .iter_mut()
        .map(|stack| {
            let mut attributes = std::mem::MaybeUninit::uninit();
            // SAFETY: zero is a value of the thread's type, a number or a pointer. The attributes are initialized before use and destroyed after it; the stack
            // stays until the thread is joined.
            unsafe {
                let mut thread: libc::pthread_t = std::mem::zeroed();
                let attributes = attributes.as_mut_ptr();
                libc::pthread_attr_init(attributes);
                let set = libc::pthread_attr_setstack(attributes, stack.as_mut_ptr().cast(), STACK);
                assert_eq!(set, 0);
                let created =
                    libc::pthread_create(&raw mut thread, attributes, works, std::ptr::null_mut());
                assert_eq!(created, 0);
                libc::pthread_attr_destroy(attributes);
                thread
            }
        })
        .collect();
    barrier.wait();
    let during = reconcile();
    barrier.wait();
    for thread in threads {
        // SAFETY: created above.
        unsafe { libc::pthread_join(thread, std::ptr::null_mut()) };
    }
    let grown = resident(&during, "stacks") - resident(&before, "stacks");
    assert_near(grown, 100 * STACK as i64);
    // Before, these stacks counted as blocks in use.
    let blocks = in_use(&during) - in_use(&before);
    assert_near(blocks, -(100 * STACK as i64));
    let sum = |reconciliation: &Reconciliation| reconciliation.explained() as i64;
    let kernel = |reconciliation: &Reconciliation| reconciliation.kernel.unwrap().resident as i64;
    assert_near(
        sum(&during) - sum(&before),
        kernel(&during) - kernel(&before),
    );
    black_box((holes, stacks));
}

#[test]
fn a_block_that_is_a_stack_is_in_one_row() {
    child::run(
        "a_block_that_is_a_stack_is_in_one_row",
        "",
        stacks_of_blocks,
    );
}

/// With a post-mortem, Plimsoll's tables are in a mapped file.
fn post_mortem() {
    let reconciliation = reconcile();
    assert_eq!(
        resident(&reconciliation, "shared memory"),
        0,
        "{reconciliation}"
    );
    let mut rows = reconciliation.rows.iter();
    let plimsoll = rows.find(|row| row.name == "plimsoll").unwrap();
    assert!(Some(plimsoll.resident) <= plimsoll.sys, "{reconciliation}");
    let stats = plimsoll::mem_stats();
    let sys = stats.mcache_sys + stats.buck_hash_sys + stats.other_sys;
    assert!(plimsoll.resident <= sys && sys < 16 << 20, "{sys}");
    labels();
    let reconciliation = reconcile();
    assert_eq!(
        resident(&reconciliation, "shared memory"),
        0,
        "{reconciliation}"
    );
}

/// Sets more sets of labels than the post-mortem has room to record. Prints by how much Plimsoll's
/// own memory grows.
fn labels() {
    let before = plimsoll::mem_stats().other_sys;
    for number in 0..8000 {
        let value = format!("{number:0100}");
        drop(plimsoll::label::with([("tenant", &*value)]));
    }
    eprintln!("more: {}", plimsoll::mem_stats().other_sys - before);
}

#[test]
fn a_post_mortem_is_in_plimsolls_own_account() {
    const NAME: &str = "a_post_mortem_is_in_plimsolls_own_account";
    let file = std::env::temp_dir().join(format!("plimsoll-reconcile-{}", std::process::id()));
    let settings = format!("postmortem={}", file.display());
    let in_child = || match std::env::var("PLIMSOLL") {
        Ok(settings) if settings.contains("postmortem") => post_mortem(),
        _ => labels(),
    };
    let with = child::stderr_of(NAME, settings, in_child);
    let Some(with) = with else { return };
    let _ = std::fs::remove_file(file);
    let without = child::stderr_of(NAME, "heap_rate=0", in_child).expect(
        "this is the parent \
                                                                          process",
    );
    let [with, without] = [with, without].map(|stderr| {
        let mut lines = stderr.lines();
        let more = lines.find_map(|line| line.strip_prefix("more: "));
        more.expect("the table contains the row")
            .parse::<i64>()
            .unwrap()
    });
    // The post-mortem has room for 1 MiB of notes, of which a quarter was in use from the start.
    assert_near(with - without, 3 * MIB / 4);
}

fn kept_stacks() {
    let before = reconcile();
    for _ in 0..2 {
        let barrier = Arc::new(Barrier::new(100));
        let threads = [(); 100].map(|()| {
            let barrier = barrier.clone();
            std::thread::spawn(move || barrier.wait())
        });
        // Joins the threads, so that none is still exiting.
        for thread in threads {
            thread.join().unwrap();
        }
    }
    let after = reconcile();
    let kept = resident(&after, "stacks: cached for new threads");
    // The C library keeps up to 40 MiB of address space for stacks, with a page or more of each
    // resident.
    assert!(kept >= 10 * 4096, "{after}");
    let more = unexplained(&after) - unexplained(&before);
    assert!(more < 100 << 10, "{more}: {before}{after}");
}

#[test]
fn memory_kept_for_ended_threads_is_explained() {
    child::run(
        "memory_kept_for_ended_threads_is_explained",
        "",
        kept_stacks,
    );
}

#[test]
fn only_touched_stack_pages_are_resident() {
    child::run("only_touched_stack_pages_are_resident", "", touched_stacks);
}

fn pages() {
    let _mapped = Mapped::new(8 << 20);
    let text = http::handle("GET", "/debug/plimsoll/memory", "");
    assert_eq!(text.status, 200);
    let text = String::from_utf8(text.body).unwrap();
    let lines = [
        "heap: blocks in use",
        "stacks",
        "plimsoll",
        "unexplained",
        "kernel: resident",
    ];
    for name in lines {
        let mut lines = text.lines();
        assert!(lines.any(|line| line.starts_with(name)), "{name}\n{text}");
    }
    let json = http::handle("GET", "/debug/plimsoll/memory", "format=json");
    let json: serde_json::Value = serde_json::from_slice(&json.body).unwrap();

    let rows = json["rows"].as_array().unwrap();
    let sum: u64 = rows
        .iter()
        .map(|row| row["resident"].as_u64().unwrap())
        .sum();
    assert_eq!(json["explained"], sum);
    let rest = json["unexplained"].as_i64().unwrap();
    assert_eq!(json["kernel"]["resident"].as_i64(), Some(sum as i64 + rest));
    assert!(rest >= 8 * MIB, "{rest}");
    // Plimsoll itself answers the request, and still recognizes the allocator.
    assert!(
        rows.iter()
            .any(|row| row["name"] == "heap: held or fragmented")
    );
}

#[test]
fn the_page_is_a_table_or_json() {
    child::run("the_page_is_a_table_or_json", "", pages);
}
