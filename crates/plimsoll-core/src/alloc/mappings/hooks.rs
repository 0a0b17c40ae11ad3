//! Hooks of the calls by which the program maps memory: each makes the call and records its effect.
//!
//! Unmapped ranges leave the table before the call, since another thread may receive the addresses
//! immediately after; if the call fails, they are put back. Mapped ranges are recorded after the
//! call. So no record covers addresses that the system gave to another thread, unless a concurrent cut of the record was
//! suspended for long: see [`super::table`].
//!
//! For hooks and signal handlers, at any time: nothing here allocates, locks, waits or fails. The
//! function that `wakeup::before_release` calls may, in a process of one thread.

use std::ops::Range;

use plimsoll_interpose::mappings::{self, Call, Function};

use plimsoll_sys::os::region::page_size;
use plimsoll_sys::os::syscall::forward as system_call;

use super::table::{Cut, LIMIT, Note, Remainder};
use super::{MAPPINGS, cell};
use crate::alloc::process;
use crate::internal_scope;
use crate::label;
use crate::stack::{self, Bucket, Kind, Registers, Start, TABLE};

/// Registers the hook, which records all later mappings. For hooks.
pub(super) fn start() {
    mappings::set_hook(called);
}

/// Makes a call in place of the C library. Returns what the kernel returns.
///
/// # Safety
/// As the function that was called.
pub unsafe extern "C" fn called(call: &Call) -> isize {
    match call.function {
        Function::Map => map(call),
        Function::Unmap => unmap(call),
        Function::Remap => remap(call),
    }
}

fn make(call: &Call) -> isize {
    // SAFETY: the program made this call; its arguments are passed on unchanged.
    unsafe { system_call(call.function.number(), call.arguments) }
}

/// `mmap(address, length, access, flags, file, offset)`.
fn map(call: &Call) -> isize {
    let [_, length, _, flags, ..] = call.arguments;
    let flags = flags as i32;
    let at = make(call);
    if at >= 0 {
        let range = range_of(at as usize, length);
        if flags & libc::MAP_FIXED != 0 {
            replaced(&range);
        }
        if flags & libc::MAP_ANONYMOUS != 0 {
            record(caller_of(call), &range);
        }
    }
    at
}

/// `munmap(address, length)`.
fn unmap(call: &Call) -> isize {
    let [address, length, ..] = call.arguments;
    if !is_possible(address, length) {
        return make(call);
    }
    crate::wakeup::before_release(length);
    let cuts = Cuts::out_of(&range_of(address, length));
    let result = make(call);
    cuts.settle(result == 0);
    result
}

/// `mremap(address, length, new length, flags, new address)`. A mapping that grows or moves counts
/// as unmapped and mapped anew by the caller, as `realloc` frees and allocates a block.
fn remap(call: &Call) -> isize {
    let [address, length, new_length, flags, ..] = call.arguments;
    let flags = flags as i32;
    let moves_to = flags & libc::MREMAP_FIXED != 0;
    let stays = flags & libc::MREMAP_DONTUNMAP != 0;
    if !is_possible(address, new_length) || !is_possible(address, length.max(1)) {
        return make(call);
    }
    let (old, new) = (range_of(address, length), range_of(address, new_length));
    if new.len() <= old.len() && !moves_to && !stays {
        // The mapping stays at its address.
        let cuts = Cuts::out_of(&(new.end..old.end));
        let result = make(call);
        cuts.settle(result >= 0);
        return result;
    }
    // A shared mapping of length 0 is mapped a second time.
    let (cuts, is_known) = if stays || length == 0 {
        (Cuts::NONE, MAPPINGS.note_of(address).is_some())
    } else {
        let cuts = Cuts::out_of(&old);
        let is_known = !cuts.is_empty();
        (cuts, is_known)
    };
    let at = make(call);
    cuts.settle(at >= 0);
    if at >= 0 {
        let range = range_of(at as usize, new_length);
        if moves_to {
            replaced(&range);
        }
        if is_known {
            record(caller_of(call), &range);
        }
    }
    at
}

/// The caller of a function that moves the end of the data segment.
#[derive(Clone, Copy, Debug)]
pub struct DataCaller {
    /// The return address of the call.
    pub instruction: usize,
    /// The stack pointer after the call returns.
    pub stack: usize,
    /// The caller's frame pointer register.
    pub frame: usize,
}

/// Makes a call of the program that moves the end of its data segment from `before` to `after`, and records its effect
/// if the result `is_made`. A page belongs to the call that first reaches it, so small calls need not map any.
pub fn move_data_end<R>(
    before: usize,
    after: usize,
    caller: DataCaller,
    make: impl FnOnce() -> R,
    is_made: impl FnOnce(&R) -> bool,
) -> R {
    let page = page_size();
    if before >= LIMIT - page || after >= LIMIT - page {
        return make();
    }
    let [old, new] = [before, after].map(|end| end.next_multiple_of(page));
    if new < old {
        crate::wakeup::before_release(old - new);
        let cuts = Cuts::out_of(&(new..old));
        let result = make();
        cuts.settle(is_made(&result));
        return result;
    }
    let result = make();
    if new > old && is_made(&result) {
        let caller = Registers {
            instruction: caller.instruction as u64,
            stack: caller.stack as u64,
            frame: caller.frame as u64,
            link: 0,
        };
        record(caller, &(old..new));
    }
    result
}

/// Returns whether such a range may have a record, and the kernel does not refuse it immediately.
fn is_possible(address: usize, length: usize) -> bool {
    let end = address.checked_add(length);
    address % page_size() == 0 && length != 0 && end.is_some_and(|end| end <= LIMIT)
}

/// Returns the range in whole pages, as the kernel rounds it.
fn range_of(address: usize, length: usize) -> Range<usize> {
    address..address + length.next_multiple_of(page_size())
}

/// Removes the records of a range whose mappings were replaced.
fn replaced(range: &Range<usize>) {
    Cuts::out_of(range).settle(true);
}

fn caller_of(call: &Call) -> Registers {
    Registers {
        instruction: call.return_address as u64,
        stack: call.stack_pointer as u64,
        frame: call.frame_pointer as u64,
        link: 0,
    }
}

/// Records a mapping that the caller made.
fn record(caller: Registers, range: &Range<usize>) {
    let of_allocator = is_allocators();
    // Other accounts cover the memory that Plimsoll maps for itself. When Plimsoll's heap is full,
    // it calls the allocator, whose memory is the program's.
    if internal_scope::is_inside() && !of_allocator {
        return;
    }
    if MAPPINGS.begins_at(range.start) {
        // The range was unmapped by a call that was not intercepted.
        replaced(range);
    }
    open();
    let start = Start::Caller(caller);
    let bucket = stack::site_from(Kind::Mapping, 0, label::current(), start);
    let note = Note {
        bucket,
        of_allocator,
    };
    let bytes = range.len() as u64;
    TABLE.add(
        bucket,
        &[(cell::CALLS, 1), (cell::BYTES, bytes), (cell::PIECES, 1)],
    );
    if !MAPPINGS.insert(range, note) {
        super::count_lost();
        gone(bucket, bytes, 1);
    }
}

/// Sets the process up: a program may map memory before its first allocation. Keeps `errno`.
fn open() {
    // SAFETY: `errno` is the thread's own variable.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: `errno` is the address of the thread's own variable.
    let before = unsafe { *errno };
    process::open();
    // SAFETY: `errno` is the address of the thread's own variable.
    unsafe { *errno = before };
}

/// Returns whether the call comes from the underlying allocator of the `malloc` interposition.
fn is_allocators() -> bool {
    // SAFETY: `inside` returns the thread's own storage.
    unsafe { (*internal_scope::inside()).get() != 0 }
}

fn gone(bucket: Bucket, bytes: u64, pieces: u64) {
    TABLE.add(
        bucket,
        &[(cell::BYTES_GONE, bytes), (cell::PIECES_GONE, pieces)],
    );
}

/// The maximum number of cuts of a call that can be put back.
const KEPT: usize = 8;

/// The parts that a call removed from records, until its result is known.
struct Cuts([Option<Cut>; KEPT]);

impl Cuts {
    const NONE: Self = Self([const { None }; KEPT]);

    fn out_of(range: &Range<usize>) -> Self {
        let mut cuts = Self::NONE;
        MAPPINGS.cut(range, |cut| {
            match cuts.0.iter_mut().find(|kept| kept.is_none()) {
                Some(free) => *free = Some(cut),
                None => count(&cut),
            }
        });
        cuts
    }

    fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }

    /// Counts the parts as gone, or puts them back if the call failed.
    fn settle(&self, is_gone: bool) {
        for cut in self.0.iter().flatten() {
            if is_gone {
                count(cut);
            } else {
                put_back(cut);
            }
        }
    }
}

fn count(cut: &Cut) {
    let bytes = cut.range.len() as u64;
    match cut.remainder {
        Remainder::Empty => gone(cut.note.bucket, bytes, 1),
        Remainder::OnePart => gone(cut.note.bucket, bytes, 0),
        Remainder::TwoParts => TABLE.add(
            cut.note.bucket,
            &[(cell::BYTES_GONE, bytes), (cell::PIECES, 1)],
        ),
        Remainder::Truncated => {
            super::count_lost();
            gone(cut.note.bucket, bytes, 0);
        }
    }
}

fn put_back(cut: &Cut) {
    if !MAPPINGS.insert(&cut.range, cut.note) {
        super::count_lost();
        return count(cut);
    }
    let more = match cut.remainder {
        Remainder::Empty => 0,
        Remainder::OnePart | Remainder::Truncated => 1,
        Remainder::TwoParts => 2,
    };
    TABLE.add(cut.note.bucket, &[(cell::PIECES, more)]);
}
