//! The interposed functions.

use core::arch::global_asm;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::{Call, Function, Hook};
use crate::arch::mappings::{self, MAP, REMAP, UNMAP};
use crate::define::define;

global_asm!(
    r#"
    .hidden plimsoll_interpose_mapping_hook
    .globl plimsoll_interpose_mapping_hook

    // Null if nothing defines that symbol. See `mappings`. Not `.weak`, because link-time optimization
    // may put the definition into the same object. Not `.hidden`, with which the compiler's assembler
    // makes the reference strong.
    .weakref plimsoll_interpose_maybe_hook, plimsoll_interpose_first_mapping_hook

    .section .data.plimsoll_interpose_mappings, "aw", %progbits
    .balign 8
    .type plimsoll_interpose_mapping_hook, %object
    .size plimsoll_interpose_mapping_hook, 8
plimsoll_interpose_mapping_hook:
    .quad plimsoll_interpose_maybe_hook
    .text
    "#
);

unsafe extern "C" {
    static plimsoll_interpose_mapping_hook: AtomicPtr<()>;
}

pub(super) fn set_hook(hook: Hook) {
    // SAFETY: the symbol is defined above, with this size and alignment.
    unsafe { &plimsoll_interpose_mapping_hook }.store(hook as *mut (), Ordering::Release);
}

define! {
    mmap as plimsoll_interpose_mmap in ".text.plimsoll_interpose_mappings" =>
    mappings::body!();
    function = const Function::Map as usize,
    number = const MAP,
}

define! {
    mmap64 as plimsoll_interpose_mmap64 in ".text.plimsoll_interpose_mappings" =>
    mappings::body!();
    function = const Function::Map as usize,
    number = const MAP,
}

define! {
    munmap as plimsoll_interpose_munmap in ".text.plimsoll_interpose_mappings" =>
    mappings::body!();
    function = const Function::Unmap as usize,
    number = const UNMAP,
}

define! {
    mremap as plimsoll_interpose_mremap in ".text.plimsoll_interpose_mappings" =>
    mappings::body!();
    function = const Function::Remap as usize,
    number = const REMAP,
}

const _: () = assert!(size_of::<Call>() == 80);

pub(super) fn number(function: Function) -> i64 {
    match function {
        Function::Map => MAP,
        Function::Unmap => UNMAP,
        Function::Remap => REMAP,
    }
}

pub(super) fn are_linked() -> bool {
    let same = |function: unsafe extern "C" fn(), own: unsafe extern "C" fn()| {
        core::hint::black_box(function as *const () as usize)
            == core::hint::black_box(own as *const () as usize)
    };
    same(mmap, plimsoll_interpose_mmap)
        && same(mmap64, plimsoll_interpose_mmap64)
        && same(munmap, plimsoll_interpose_munmap)
        && same(mremap, plimsoll_interpose_mremap)
}
