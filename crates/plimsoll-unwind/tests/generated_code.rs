//! Walks through generated code: with frame records, without them, and with other values in the frame
//! pointer. The machine code is for x86-64. On other processors, the tests are skipped.

#![cfg(all(target_os = "linux", not(plimsoll_portable_os)))]

use plimsoll_sys::os::region::PAGE;
use plimsoll_unwind::modules::ModuleList;
use plimsoll_unwind::registers::{Registers, Start};
use plimsoll_unwind::unwind_tables::{Context, walk};
use plimsoll_unwind::walk::{End, Frames, Walk};
use plimsoll_unwind::walk_cache::Trail;

/// `push rbp; mov rbp, rsp; call rdi; pop rbp; ret`: calls a function without arguments.
const WITH_RECORD: &[u8] = &[0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3];

/// `sub rsp, 8; call rdi; add rsp, 8; ret`.
const WITHOUT_RECORD: &[u8] = &[
    0x48, 0x83, 0xec, 0x08, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x08, 0xc3,
];

/// `push rbp; lea rbp, [rsp - 256]; call rdi; pop rbp; ret`: a frame pointer that points to memory that
/// is not in use.
const OTHER_VALUE: &[u8] = &[
    0x55, 0x48, 0x8d, 0xac, 0x24, 0x00, 0xff, 0xff, 0xff, 0xff, 0xd7, 0x5d, 0xc3,
];

/// `push rbp; mov rbp, rdi; call rdi; pop rbp; ret`: a frame pointer that points to code.
const NO_STACK: &[u8] = &[0x55, 0x48, 0x89, 0xfd, 0xff, 0xd7, 0x5d, 0xc3];

/// `push rbp; mov rbp, -8; call rdi; pop rbp; ret`: the address of a record would overflow.
const LAST_WORD: &[u8] = &[
    0x55, 0x48, 0xc7, 0xc5, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xd7, 0x5d, 0xc3,
];

/// `push rbp; mov rbp, rsp; mov rax, rdi; mov rdi, rsi; call rax; pop rbp; ret`: calls a function that
/// calls a function, both generated.
const OUTER: &[u8] = &[
    0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3,
];

/// Maps code for good, and returns its address.
fn generate(code: &[u8]) -> usize {
    // SAFETY: a new mapping has space for the code.
    unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), PAGE, access, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        std::ptr::copy_nonoverlapping(code.as_ptr(), page.cast(), code.len());
        page as usize
    }
}

thread_local! {
    static FOUND: std::cell::RefCell<Option<(Vec<usize>, Walk)>> = const { std::cell::RefCell::new(None) };
}

extern "C" fn walk_here() {
    let modules = ModuleList::from_loader();
    let (mut context, mut trail) = (Context::new_in(), Trail::new());
    let mut frames = vec![0; 128];
    let start = Start::Here(Registers::here());
    let end = walk(
        start,
        &modules,
        &mut context,
        &mut trail,
        Frames::leaf_end(&mut frames),
    );
    frames.truncate(end.frames);
    FOUND.set(Some((frames, end)));
}

/// Walks below the function at `code`, which calls its first argument. Returns the frames from the
/// generated ones on, and the end of the walk.
#[inline(never)]
fn walk_below(code: usize, callee: usize, argument: usize) -> (Vec<usize>, Walk) {
    // SAFETY: the code is a function that calls `callee`.
    let function: extern "C" fn(usize, usize) = unsafe { std::mem::transmute(code) };
    function(callee, argument);
    let (mut frames, walk) = FOUND.take().expect("it was called");
    let of_callee = [code, callee].map(|at| at..at + PAGE);
    let first = frames
        .iter()
        .position(|frame| of_callee.iter().any(|code| code.contains(frame)));
    frames.drain(..first.expect("the walk reached generated code"));
    (frames, walk)
}

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "the machine code is for x86-64")]
fn walks_go_on_through_generated_code() {
    let here = walk_here as extern "C" fn() as usize;
    for code in [WITH_RECORD, WITHOUT_RECORD] {
        let code = generate(code);
        let (frames, walk) = walk_below(code, here, 0);
        assert!((code..code + PAGE).contains(&frames[0]), "{frames:x?}");
        assert_eq!(walk.end, End::Outermost, "{code:x} {frames:x?}");
        assert!(frames.len() > 4, "{frames:x?}");
    }
    let (outer, inner) = (generate(OUTER), generate(WITH_RECORD));
    let (frames, walk) = walk_below(outer, inner, here);
    assert!((inner..inner + PAGE).contains(&frames[0]), "{frames:x?}");
    assert!((outer..outer + PAGE).contains(&frames[1]), "{frames:x?}");
    assert_eq!(walk.end, End::Outermost, "{frames:x?}");
}

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "the machine code is for x86-64")]
fn a_frame_pointer_that_points_elsewhere_ends_the_walk() {
    let here = walk_here as extern "C" fn() as usize;
    for code in [OTHER_VALUE, NO_STACK, LAST_WORD] {
        let (frames, walk) = walk_below(generate(code), here, 0);
        assert_eq!((frames.len(), walk.end), (1, End::Lost), "{frames:x?}");
    }
}
