//! A shared library that contains Plimsoll, for the test `unloading`, whose program does not.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

/// Starts Plimsoll with its CPU samples, and drops it.
#[unsafe(no_mangle)]
pub extern "C" fn start_and_drop() {
    drop(plimsoll::config().cpu_rate(500).start());
}

/// Allocates and frees blocks of several sizes.
#[unsafe(no_mangle)]
pub extern "C" fn allocate() {
    for size in 1..2_000 {
        std::hint::black_box(vec![1_u8; size]);
    }
}

/// Reads the stacks of all threads, for which Plimsoll interrupts them.
#[unsafe(no_mangle)]
pub extern "C" fn read_stacks() {
    let profile = plimsoll::profile::lookup("goroutine").expect("a built-in profile");
    let mut written = Vec::new();
    let result = profile.write_to(&mut written, plimsoll::profile::Format::Pprof);
    assert!(result.is_ok() && !written.is_empty());
}
