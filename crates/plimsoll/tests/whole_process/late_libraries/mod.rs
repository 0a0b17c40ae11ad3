//! Stacks through libraries that are loaded while the module list is being refreshed.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll::profile;

use crate::process::{allocate_in_callback, build_plugin};
use plimsoll_testkit::child;

const LIBRARIES: usize = 50;

/// How long to wait for the maintenance thread, which takes less than a millisecond.
const PATIENCE: Duration = Duration::from_secs(60);

/// Loads a copy of the plugin `original`, which is never unloaded, and returns its function.
fn load_copy(
    directory: &Path,
    original: &CString,
    number: usize,
) -> extern "C" fn(extern "C" fn()) {
    let copy = directory.join(format!("copy{number}.so"));
    std::fs::copy(original.to_str().unwrap(), &copy).unwrap();
    let path = CString::new(copy.as_os_str().as_bytes()).unwrap();
    // SAFETY: `build_plugin` built the library with this function; it is never closed.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!library.is_null());
        std::mem::transmute(libc::dlsym(library, c"stormy".as_ptr()))
    }
}

/// Waits until sampled allocations through `call` have stacks that are not cut. Reads no profile,
/// because that would refresh the module list.
fn wait_until_whole(call: extern "C" fn(extern "C" fn()), loaded: usize) {
    let cut = || profile::lost_events().cut_stacks;
    let begun = Instant::now();
    loop {
        let before = cut();
        for _ in 0..10 {
            call(allocate_in_callback);
        }
        if cut() == before {
            return;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "stacks are cut for good after {loaded} libraries"
        );
        std::thread::yield_now();
    }
}

fn storm() {
    let directory = std::env::temp_dir().join(format!("plimsoll-storm-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let plugin = build_plugin(&directory, "stormy", 10);
    let _plimsoll = plimsoll::start();
    assert_eq!(profile::lost_events().cut_stacks, 0);
    for number in 0..LIBRARIES {
        let call = load_copy(&directory, &plugin, number);
        // Both threads walk stacks with the old list while the first such walk causes its refresh.
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| wait_until_whole(call, number + 1));
            }
        });
    }
    // At least the first library was called before the list contained it.
    assert!(profile::lost_events().cut_stacks > 0);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn stacks_become_whole_again_after_any_number_of_libraries() {
    child::run(
        "late_libraries::stacks_become_whole_again_after_any_number_of_libraries",
        "heap_rate=1,unwinder=tables",
        storm,
    );
}
