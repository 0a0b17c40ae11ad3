//! Walks stacks by the unwinder of Windows, which knows every function's frame. Replaces the chain
//! of frame pointers, which programs do not keep there.
//!
//! The functions of the system do not allocate. They read the tables of loaded modules without a
//! lock, and those of generated code under a lock of the system.

use std::ffi::c_void;
use std::ops::Range;

use plimsoll_process::thread_stack;

use crate::registers::Registers;
use crate::walk::{End, Frames, Walk};
use crate::walk_cache::Trail;

/// The system's `CONTEXT`: the registers of a frame.
#[repr(C, align(16))]
struct Context {
    unused: [u64; 19],
    stack: u64,
    frame: u64,
    others: [u64; 10],
    instruction: u64,
    rest: [u64; 122],
}

const _: () = assert!(size_of::<Context>() == 1232);
const _: () = assert!(std::mem::offset_of!(Context, stack) == 0x98);
const _: () = assert!(std::mem::offset_of!(Context, instruction) == 0xf8);

unsafe extern "system" {
    fn RtlLookupFunctionEntry(
        instruction: u64,
        image: *mut u64,
        history: *mut c_void,
    ) -> *mut c_void;
    fn RtlVirtualUnwind(
        handlers: u32,
        image: u64,
        instruction: u64,
        function: *mut c_void,
        context: *mut Context,
        handler_data: *mut *mut c_void,
        establisher: *mut u64,
        pointers: *mut c_void,
    ) -> *mut c_void;
}

/// Fills `frames`, from the leaf, with return addresses. Frames that extend beyond `limit` are left
/// out.
pub fn walk(start: Registers, limit: usize, mut frames: Frames<'_>) -> Walk {
    let Some(stack) = thread_stack::own() else {
        return Walk {
            frames: 0,
            end: End::Lost,
        };
    };
    let mut context = Context {
        unused: [0; 19],
        stack: start.stack,
        frame: start.frame,
        others: [0; 10],
        instruction: start.instruction,
        rest: [0; 122],
    };
    let mut depth = 0;
    let end = loop {
        let Some(place) = frames.place(depth) else {
            break End::Full;
        };
        let below = context.stack;
        // SAFETY: the context holds the registers of a live frame of this thread: those that this
        // function received, or those that the last call computed from them.
        if !unsafe { step(&mut context, &stack) } {
            break End::Lost;
        }
        if context.instruction == 0 || context.stack > limit as u64 {
            break End::Outermost;
        }
        if context.stack <= below {
            break End::Lost;
        }
        *place = context.instruction as usize;
        depth += 1;
    };
    frames.finish(depth, end)
}

/// Walks as [`walk`] does. The words on which the walk depends are unknown, so the walk is not one
/// that can be cached.
pub fn walk_noted(start: Registers, limit: usize, frames: Frames<'_>, _: &mut Trail) -> Walk {
    let walk = walk(start, limit, frames);
    match walk.end {
        End::Outermost => Walk {
            end: End::Full,
            ..walk
        },
        End::Full | End::Lost | End::Stale => walk,
    }
}

/// Replaces the registers of a frame by its caller's. Returns `false` if the frame is unknown.
///
/// # Safety
/// The registers are those of a live frame of the calling thread.
unsafe fn step(context: &mut Context, stack: &Range<usize>) -> bool {
    if !stack.contains(&(context.stack as usize)) || context.stack % 8 != 0 {
        return false;
    }
    let (mut image, mut establisher) = (0, 0);
    let mut handler_data = std::ptr::null_mut();
    // SAFETY: all places are writable. The system's tables describe where the frame's function, if
    // they list it, saved registers in its frame.
    unsafe {
        let instruction = context.instruction;
        let function = RtlLookupFunctionEntry(instruction, &raw mut image, std::ptr::null_mut());
        if function.is_null() {
            return false;
        }
        RtlVirtualUnwind(
            0,
            image,
            instruction,
            function,
            context,
            &raw mut handler_data,
            &raw mut establisher,
            std::ptr::null_mut(),
        );
    }
    true
}
