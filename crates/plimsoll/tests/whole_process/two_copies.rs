//! Two copies of Plimsoll in one process: one in the program, and one in a shared library. They
//! share the threads, the threads' restartable sequences, and the underlying allocator. Blocks
//! cross between them: each side fills, reads, and passes on the blocks of the other. All threads
//! do so, and free each block through the copy that made it.
//!
//! Freeing a block through the other copy is undefined: each copy is a global allocator, and
//! `GlobalAlloc::dealloc` accepts only blocks of the same allocator.
#![cfg(target_os = "linux")]

#[path = "two_copies/border.rs"]
mod border;

use plimsoll_testkit::{child, examples};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use border::Border;

/// Returns the path of the library. `cargo test` builds it as an example beside the tests; for a
/// single test, this function builds it.
fn library() -> PathBuf {
    let arguments = ["--package", "plimsoll", "--example", "second_copy"];
    examples::path_of_built("libsecond_copy.so", env!("CARGO_MANIFEST_DIR"), &arguments)
}

fn second_copy() -> Border {
    let path = CString::new(library().as_os_str().as_bytes()).expect("no zero in a path");
    // SAFETY: only initializers of the standard library run; the function has this type.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        let function = libc::dlsym(library, c"second_copy".as_ptr());
        assert!(!function.is_null(), "{path:?} has no such function");
        let function: extern "C" fn() -> Border = std::mem::transmute(function);
        function()
    }
}

/// Sizes in classes that the test harness does not use. Blocks this small, if sampled, lie in an
/// address range that each copy reserves separately.
const SIZES: [usize; 5] = [3_150, 6_700, 13_500, 27_000, 32_000];

/// Sizes to which blocks are resized: one in another class, and one above all classes.
const RESIZED: [usize; 2] = [18_900, 70_001];

/// A block that passes between threads.
#[derive(Clone, Copy)]
struct Block {
    address: usize,
    size: usize,
    align: usize,
    owner: Border,
}

impl Block {
    fn make(owner: Border, size: usize, align: usize, zeroed: bool) -> Self {
        let make = if zeroed {
            owner.make_zeroed
        } else {
            owner.make
        };
        let address = make(size, align) as usize;
        assert!(address != 0 && address % align == 0);
        let block = Self {
            address,
            size,
            align,
            owner,
        };
        assert!(!zeroed || block.has_all(0));
        // SAFETY: a live block of this size, which only this thread uses.
        unsafe { (block.address as *mut u8).write_bytes(block.mark(), size) };
        block
    }

    fn mark(self) -> u8 {
        (self.size % 251) as u8 + 1
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: a live block of this size, filled since, which one thread at a time uses.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.size) }
    }

    /// Reports whether the block is filled with this byte, by a sample of the bytes of each page.
    fn has_all(self, wanted: u8) -> bool {
        let some = self.bytes().iter().step_by(61).chain(self.bytes().last());
        some.copied().all(|byte| byte == wanted)
    }

    /// Checks the bytes, resizes the block if `resized` is not 0, and frees it.
    fn end(mut self, resized: usize) {
        let mark = self.mark();
        assert!(self.has_all(mark), "{} bytes", self.size);
        // SAFETY: a block of this copy, with its layout.
        unsafe {
            if resized != 0 {
                let block = self.address as *mut u8;
                let moved = (self.owner.resize)(block, self.size, self.align, resized);
                self.address = moved as usize;
                let kept = Self {
                    size: self.size.min(resized),
                    ..self
                };
                assert!(kept.has_all(mark), "{resized} bytes from {}", self.size);
                self.size = resized;
            }
            (self.owner.free)(self.address as *mut u8, self.size, self.align);
        }
    }
}

const THREADS: usize = 3;
const ROUNDS: usize = 20;

/// Each thread makes blocks of both copies and passes them to the next thread, which frees them.
fn pass_around(copies: [Border; 2]) {
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| mpsc::channel::<Block>()).unzip();
    thread::scope(|scope| {
        for (at, receiver) in receivers.into_iter().enumerate() {
            let next = senders[(at + 1) % THREADS].clone();
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    for (number, copy) in copies.into_iter().enumerate() {
                        for size in SIZES {
                            let align = 1 << (round % 7);
                            let block = Block::make(copy, size, align, (round + number) % 3 == 0);
                            next.send(block).expect("the next thread waits for it");
                        }
                    }
                }
                drop(next);
                for (number, block) in receiver.iter().take(ROUNDS * 2 * SIZES.len()).enumerate() {
                    let resized = [0, RESIZED[0], RESIZED[1]][number % 3];
                    block.end(resized);
                }
            });
        }
    });
}

/// The child of a fork has both copies, and frees blocks of its parent.
fn fork(copies: [Border; 2]) {
    let blocks = copies.map(|copy| Block::make(copy, SIZES[0], 16, false));
    // SAFETY: the child allocates and frees, which Plimsoll and the underlying allocator allow
    // after a fork.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        for (copy, block) in copies.into_iter().zip(blocks) {
            let before = (copy.counts)(SIZES[0]);
            block.end(0);
            Block::make(copy, SIZES[0], 8, true).end(RESIZED[1]);
            let after = (copy.counts)(SIZES[0]);
            if [after.mallocs - before.mallocs, after.frees - before.frees] != [1, 2] {
                // SAFETY: ends the process.
                unsafe { libc::_exit(1) };
            }
        }
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    let status = plimsoll_testkit::child::wait(child);
    assert_eq!(status, 0, "the child's blocks or counts are wrong");
    for block in blocks {
        block.end(0);
    }
}

fn both_count_their_own() {
    let copies = [border::border(), second_copy()];
    let read = || copies.map(|copy| SIZES.map(|size| (copy.counts)(size)));
    let before = read();
    pass_around(copies);
    let after = read();
    for (copy, (before, after)) in before.into_iter().zip(after).enumerate() {
        for ((size, before), after) in SIZES.into_iter().zip(before).zip(after) {
            let counted = [after.mallocs - before.mallocs, after.frees - before.frees];
            let made = (THREADS * ROUNDS) as u64;
            assert_eq!(counted, [made; 2], "copy {copy}, {size} bytes");
        }
    }
    // Blocks of C come from the underlying allocator, so they may cross without either copy.
    //
    // SAFETY: a block of the C library, freed there.
    unsafe { libc::free(libc::malloc(100)) };
    fork(copies);
}

#[test]
fn blocks_cross_between_two_copies() {
    for settings in [
        "ledger=auto,heap_rate=1",
        "ledger=auto,heap_rate=16k",
        "ledger=per-thread,heap_rate=1",
        "ledger=fenced,heap_rate=1",
    ] {
        child::run(
            "blocks_cross_between_two_copies",
            settings,
            both_count_their_own,
        );
    }
}
