//! Memory that the program maps directly, as the feature `mmap` records it.

use plimsoll_checks::profile::read_profile;
use plimsoll_testkit::child;
use std::ffi::c_void;

use plimsoll::profile::{self, Format};
use plimsoll::stats::{Account, reconcile};
use plimsoll::{MappingStats, mapping_stats};

const PAGE: usize = 4096;
const MIB: i64 = 1 << 20;

#[inline(never)]
fn maps_pages(pages: usize) -> *mut c_void {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), pages * PAGE, access, flags, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    memory
}

/// # Safety
/// The pages are mapped, and nothing else uses them.
unsafe fn unmap_pages(memory: *mut c_void, from: usize, pages: usize) {
    // SAFETY: the pages are mapped and unused, by this function's contract.
    let failed = unsafe { libc::munmap(memory.byte_add(from * PAGE), pages * PAGE) };
    assert_eq!(failed, 0);
}

fn since(before: MappingStats) -> [u64; 4] {
    let now = mapping_stats();
    [
        now.calls - before.calls,
        (now.mapped_bytes - before.mapped_bytes) / PAGE as u64,
        (now.unmapped_bytes - before.unmapped_bytes) / PAGE as u64,
        now.mappings - before.mappings,
    ]
}

fn resident(name: &str) -> i64 {
    let reconciliation = reconcile();
    let mut rows = reconciliation.rows.iter();
    let row = rows.find(|row| row.name == name);
    row.map_or(0, |row| row.resident as i64)
}

static ARENA: Account = Account::new("arena");

fn figures() {
    let before = mapping_stats();
    let row = "mapped by the program";
    let resident_before = resident(row);
    let unexplained_before = reconcile().unexplained().unwrap();
    let memory = maps_pages(5120);
    // SAFETY: just mapped.
    unsafe { memory.cast::<u8>().write_bytes(1, 5120 * PAGE) };
    assert_eq!(since(before), [1, 5120, 0, 1]);
    let near = |found: i64, expected: i64| assert!((found - expected).abs() < MIB, "{found}");
    near(resident(row) - resident_before, 20 * MIB);
    // Plimsoll maps files to resolve names; these mappings do not count as the program's.
    let text = profile_text();
    let at = text.find("maps_pages").unwrap_or_else(|| panic!("{text}"));
    assert!(text[at..].contains("memory::mappings::figures"), "{text}");
    assert!(text.contains("1: 20971520 [1: 20971520] @"), "{text}");
    assert_eq!(since(before), [1, 5120, 0, 1]);
    let profile = read_profile("memory");
    let mapped = profile.sample.iter().find(|sample| {
        let names = profile.names(sample);
        names.last() == Some(&"[mappings]") && names[0].ends_with("mappings::maps_pages")
    });
    assert_eq!(mapped.unwrap().value, [20 * MIB]);
    // Memory of an account does not count twice.
    ARENA.reserve(20 << 20);
    ARENA.commit(15 << 20);
    near(resident(row) - resident_before, 5 * MIB);
    near(reconcile().unexplained().unwrap(), unexplained_before);
    ARENA.release(15 << 20);
    // SAFETY: mapped above.
    unsafe {
        unmap_pages(memory, 2560, 1280);
        assert_eq!(since(before), [1, 5120, 1280, 2]);
        near(resident(row) - resident_before, 15 * MIB);
        unmap_pages(memory, 0, 5120);
    }
    assert_eq!(since(before), [1, 5120, 5120, 0]);
    near(resident(row), resident_before);
    assert_eq!(profile::lost_events().mappings, 0);
}

fn profile_text() -> String {
    let mut text = Vec::new();
    let profile = profile::lookup("mmap").expect("the feature is there");
    profile.write_to(&mut text, Format::Text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn mappings_are_counted_named_and_explained() {
    child::run("mappings_are_counted_named_and_explained", "", figures);
}

fn threads() {
    let before = mapping_stats();
    // Concurrent readings: in each, no more bytes are unmapped than were mapped.
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        let reader = scope.spawn(move || {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let stats = mapping_stats();
                assert!(stats.unmapped_bytes <= stats.mapped_bytes, "{stats:?}");
                profile_text();
            }
        });
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let memory = maps_pages(9);
                        // SAFETY: just mapped.
                        unsafe {
                            unmap_pages(memory, 3, 3);
                            unmap_pages(memory, 6, 3);
                            unmap_pages(memory, 0, 3);
                        }
                    }
                })
            })
            .collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        reader.join().unwrap();
        assert!(results.iter().all(Result::is_ok));
    });
    let [calls, mapped, unmapped, left] = since(before);
    // The standard library maps and unmaps a signal stack for each of its threads.
    assert!((2000..=2010).contains(&calls), "{calls}");
    assert_eq!((mapped, left), (unmapped, 0));
}

#[test]
fn threads_are_counted_exactly_and_read_consistently() {
    child::run(
        "threads_are_counted_exactly_and_read_consistently",
        "",
        threads,
    );
}
