//! The interposed function.

use core::arch::global_asm;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::Hook;
use crate::arch::vfork;
use crate::define::define;

global_asm!(
    r#"
    .hidden plimsoll_interpose_before_vfork
    .globl plimsoll_interpose_before_vfork
    .hidden plimsoll_interpose_after_vfork
    .globl plimsoll_interpose_after_vfork

    .section .bss.plimsoll_interpose_vfork, "aw", %nobits
    .balign 8
    .type plimsoll_interpose_before_vfork, %object
    .size plimsoll_interpose_before_vfork, 8
plimsoll_interpose_before_vfork:
    .zero 8
    .type plimsoll_interpose_after_vfork, %object
    .size plimsoll_interpose_after_vfork, 8
plimsoll_interpose_after_vfork:
    .zero 8
    .text
    "#
);

unsafe extern "C" {
    static plimsoll_interpose_before_vfork: AtomicPtr<()>;
    static plimsoll_interpose_after_vfork: AtomicPtr<()>;
}

pub(super) fn set_hooks(before: Hook, after: Hook) {
    // SAFETY: the symbols are defined above, with this size and alignment.
    unsafe {
        plimsoll_interpose_after_vfork.store(after as *mut (), Ordering::Release);
        plimsoll_interpose_before_vfork.store(before as *mut (), Ordering::Release);
    }
}

define! {
    vfork in ".text.plimsoll_interpose_vfork" =>
    vfork::body!();
}
