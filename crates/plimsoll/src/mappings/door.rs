//! The calls by which the program maps memory: each is made, and what it did is recorded.
//!
//! What is unmapped is taken out before the call, since another thread may be given the same
//! addresses as soon as it is made; if the call fails, it is put back. What is mapped is recorded
//! after the call. So no record is ever of addresses that somebody else was given.
//!
//! For hooks and signal handlers, at any time: nothing here allocates, locks, waits or fails.

use std::ops::Range;

use plimsoll_interpose::mappings::{Call, Function};

use super::table::{Cut, LIMIT, Left, Note};
use super::{LOST, MAPPINGS, cell};
use crate::alloc::{process, thread::in_own_scope};
use crate::label;
use crate::os::region::PAGE;
use crate::os::syscall::call as system_call;
use crate::primitives::Ordering;
use crate::stack::{self, Bucket, Kind, Registers, Start, TABLE};

/// Makes a call in place of the C library. Returns what the kernel returns.
///
/// # Safety
/// As the function that was called.
pub(crate) unsafe fn called(call: &Call) -> isize {
    match call.function {
        Function::Map => map(call),
        Function::Unmap => unmap(call),
        Function::Remap => remap(call),
    }
}

fn make(call: &Call) -> isize {
    // SAFETY: what the program wants, which vouches for it.
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
        let is_private = flags & libc::MAP_TYPE == libc::MAP_PRIVATE;
        if is_private && flags & libc::MAP_ANONYMOUS != 0 {
            record(call, &range);
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
    let cuts = Cuts::out_of(&range_of(address, length));
    let result = make(call);
    cuts.settle(result == 0);
    result
}

/// `mremap(address, length, new length, flags, new address)`. What grows or moves is unmapped and
/// mapped anew, by who has it do so, as a block is that is reallocated.
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
        // It stays where it is.
        let cuts = Cuts::out_of(&(new.end..old.end));
        let result = make(call);
        cuts.settle(result >= 0);
        return result;
    }
    let (cuts, is_known) = if stays {
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
            record(call, &range);
        }
    }
    at
}

/// Whether there may be a record of that, and the kernel does not refuse it at once.
fn is_possible(address: usize, length: usize) -> bool {
    let end = address.checked_add(length);
    address % PAGE == 0 && length != 0 && end.is_some_and(|end| end <= LIMIT)
}

/// Whole pages, as the kernel takes them.
fn range_of(address: usize, length: usize) -> Range<usize> {
    address..address + length.next_multiple_of(PAGE)
}

/// What was there is not any more.
fn replaced(range: &Range<usize>) {
    Cuts::out_of(range).settle(true);
}

/// Records what the caller has mapped.
fn record(call: &Call, range: &Range<usize>) {
    let of_allocator = is_allocators();
    // What Plimsoll has mapped for itself is known otherwise. Where its own heap has no room, it
    // calls the allocator, whose memory is the program's.
    if in_own_scope() && !of_allocator {
        return;
    }
    if MAPPINGS.begins_at(range.start) {
        // Somebody has unmapped that who is not seen.
        replaced(range);
    }
    open();
    let caller = Registers {
        instruction: call.return_address as u64,
        stack: call.stack_pointer as u64,
        frame: call.frame_pointer as u64,
    };
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
        LOST.fetch_add(1, Ordering::Relaxed);
        gone(bucket, bytes, 1);
    }
}

/// A program may map memory before it allocates any.
fn open() {
    // SAFETY: the thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    process::open();
    // SAFETY: as above.
    unsafe { *errno = before };
}

/// Whether the call comes out of the allocator below the door of C.
fn is_allocators() -> bool {
    #[cfg(feature = "preload")]
    return crate::alloc::c::is_in_allocator();
    #[cfg(not(feature = "preload"))]
    false
}

fn gone(bucket: Bucket, bytes: u64, pieces: u64) {
    TABLE.add(
        bucket,
        &[(cell::BYTES_GONE, bytes), (cell::PIECES_GONE, pieces)],
    );
}

/// How many cuts of a call can be put back.
const KEPT: usize = 8;

/// What was cut out of records by a call, until that was made.
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

    /// Counts what is gone, or if the call has failed, puts it back.
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
    match cut.left {
        Left::Nothing => gone(cut.note.bucket, bytes, 1),
        Left::One => gone(cut.note.bucket, bytes, 0),
        Left::Both => TABLE.add(
            cut.note.bucket,
            &[(cell::BYTES_GONE, bytes), (cell::PIECES, 1)],
        ),
        Left::NoRoom => {
            LOST.fetch_add(1, Ordering::Relaxed);
            gone(cut.note.bucket, bytes, 0);
        }
    }
}

fn put_back(cut: &Cut) {
    if !MAPPINGS.insert(&cut.range, cut.note) {
        LOST.fetch_add(1, Ordering::Relaxed);
        return count(cut);
    }
    let more = match cut.left {
        Left::Nothing => 0,
        Left::One | Left::NoRoom => 1,
        Left::Both => 2,
    };
    TABLE.add(cut.note.bucket, &[(cell::PIECES, more)]);
}
