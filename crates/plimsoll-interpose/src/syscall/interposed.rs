//! The interposed `syscall`.

use core::arch::global_asm;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use super::{Call, Hook, Mode};
use crate::arch::syscall::{self, FUTEX};
use crate::define::define;

// The data is defined in assembly, too, and hidden: it is addressed relative to the instruction
// pointer, also in a shared library.
global_asm!(
    r#"
    .hidden plimsoll_interpose_mode
    .globl plimsoll_interpose_mode
    .hidden plimsoll_interpose_hook
    .globl plimsoll_interpose_hook

    .section .bss.plimsoll_interpose, "aw", %nobits
    .balign 64
    .type plimsoll_interpose_hook, %object
    .size plimsoll_interpose_hook, 8
plimsoll_interpose_hook:
    .zero 8
    .type plimsoll_interpose_mode, %object
    .size plimsoll_interpose_mode, 1
plimsoll_interpose_mode:
    .zero 1
    .zero 55
    .text
    "#
);

define! {
    syscall as plimsoll_interpose_syscall in ".text.plimsoll_interpose" =>
    syscall::body!();
    futex = const FUTEX,
}

const _: () = assert!(size_of::<Call>() == 80);

unsafe extern "C" {
    static plimsoll_interpose_mode: AtomicU8;
    static plimsoll_interpose_hook: AtomicPtr<()>;
}

pub(super) fn set_hook(hook: Hook) {
    // SAFETY: the symbol is defined above, with this size and alignment.
    unsafe { &plimsoll_interpose_hook }.store(hook as *mut (), Ordering::Release);
}

pub(super) fn hook() -> Option<Hook> {
    // SAFETY: the symbol is defined above, with this size and alignment.
    let hook = unsafe { &plimsoll_interpose_hook }.load(Ordering::Acquire);
    // SAFETY: a null pointer is `None`. Any other value was stored by `set_hook`, from a `Hook`.
    unsafe { core::mem::transmute::<*mut (), Option<Hook>>(hook) }
}

pub(super) fn set_mode(mode: Mode) {
    // SAFETY: the symbol is defined above, with this size and alignment. The store is sequentially
    // consistent, so a thread that has set the mode can rely on the interception of later calls.
    // The hook was set before.
    unsafe { &plimsoll_interpose_mode }.store(mode as u8, Ordering::SeqCst);
}

pub(super) fn is_linked() -> bool {
    core::hint::black_box(syscall as *const () as usize)
        == core::hint::black_box(plimsoll_interpose_syscall as *const () as usize)
}
