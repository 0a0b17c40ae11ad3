//! The functions by which a program moves the end of its data segment. That memory is recorded like
//! mappings. The C library's `malloc` obtains memory in the same segment, by internal calls.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use plimsoll_core::alloc::mappings::{self, DataCaller, move_data_end};
use plimsoll_interpose::mappings::Call;

use crate::next::Next;

type Sbrk = unsafe extern "C" fn(isize) -> *mut c_void;
type Brk = unsafe extern "C" fn(*mut c_void) -> c_int;

// No other object shall replace it.
std::arch::global_asm!(".hidden plimsoll_interpose_first_mapping_hook");

/// The hook of mappings until the start, for allocators that map memory in their constructors. The crate
/// `plimsoll-interpose` refers to it by this name.
///
/// # Safety
/// As the function that was called.
#[unsafe(no_mangle)]
unsafe extern "C" fn plimsoll_interpose_first_mapping_hook(call: &Call) -> isize {
    // SAFETY: the contracts are the same.
    unsafe { mappings::called(call) }
}

static SBRK: Next = Next::new("sbrk\0");
static BRK: Next = Next::new("brk\0");

/// # Safety
/// The requirements of the C function of that name.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sbrk(increment: isize) -> *mut c_void {
    std::arch::naked_asm!(crate::arch::with_caller!(), called = sym sbrk_called)
}

/// # Safety
/// The requirements of the C function of that name.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brk(end: *mut c_void) -> c_int {
    std::arch::naked_asm!(crate::arch::with_caller!(), called = sym brk_called)
}

unsafe extern "C" fn sbrk_called(
    increment: isize,
    instruction: usize,
    stack: usize,
    frame: usize,
) -> *mut c_void {
    let Some(next) = next_sbrk() else {
        return refused();
    };
    // SAFETY: the program makes this call.
    let make = || unsafe { next(increment) };
    if increment == 0 {
        return make();
    }
    let before = end_of(next);
    let caller = DataCaller {
        instruction,
        stack,
        frame,
    };
    let after = before.wrapping_add_signed(increment);
    // The kernel leaves the end where it was if it lay below the segment, and the C library reports no failure then.
    let is_made = |&start: &*mut c_void| start != refused() && end_of(next) != before;
    move_data_end(before, after, caller, make, is_made)
}

unsafe extern "C" fn brk_called(
    end: *mut c_void,
    instruction: usize,
    stack: usize,
    frame: usize,
) -> c_int {
    let (Some(next), Some(sbrk)) = (BRK.get(), next_sbrk()) else {
        return -1;
    };
    let caller = DataCaller {
        instruction,
        stack,
        frame,
    };
    // SAFETY: `next` is the C library's function of that name, which has this type; the program makes this call.
    let make = || unsafe { std::mem::transmute::<*mut c_void, Brk>(next)(end) };
    let before = end_of(sbrk);
    let is_made = |&result: &c_int| result == 0 && end_of(sbrk) != before;
    move_data_end(before, end as usize, caller, make, is_made)
}

fn next_sbrk() -> Option<Sbrk> {
    // SAFETY: the C library's function of that name has this type.
    SBRK.get()
        .map(|next| unsafe { std::mem::transmute::<*mut c_void, Sbrk>(next) })
}

/// Returns the end of the data segment.
fn end_of(sbrk: Sbrk) -> usize {
    // SAFETY: the increment of zero moves nothing.
    unsafe { sbrk(0) as usize }
}

/// The result of `sbrk` if the system refuses the memory.
fn refused() -> *mut c_void {
    null_mut::<c_void>().wrapping_byte_sub(1)
}
