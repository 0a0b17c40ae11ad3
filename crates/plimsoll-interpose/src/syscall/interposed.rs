//! The interposed `syscall` and `prctl`.

use core::arch::global_asm;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};

use super::{Call, Hook, Mode, NUMBERS};
use crate::arch::syscall::{self, FUTEX, PRCTL};
use crate::define::define;

// The data is defined in assembly, too, and hidden: it is addressed relative to the instruction
// pointer, also in a shared library.
global_asm!(
    r#"
    .hidden plimsoll_interpose_mode
    .globl plimsoll_interpose_mode
    .hidden plimsoll_interpose_hook
    .globl plimsoll_interpose_hook
    .hidden plimsoll_interpose_watcher
    .globl plimsoll_interpose_watcher
    .hidden plimsoll_interpose_watched
    .globl plimsoll_interpose_watched

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
    .zero 7
    .type plimsoll_interpose_watcher, %object
    .size plimsoll_interpose_watcher, 8
plimsoll_interpose_watcher:
    .zero 8
    .zero 40
    .type plimsoll_interpose_watched, %object
    .size plimsoll_interpose_watched, 64
plimsoll_interpose_watched:
    .zero 64
    .text
    "#
);

define! {
    syscall as plimsoll_interpose_syscall in ".text.plimsoll_interpose" =>
    syscall::body!();
    futex = const FUTEX,
    numbers = const NUMBERS,
}

define! {
    prctl in ".text.plimsoll_interpose" =>
    syscall::prctl!();
    prctl = const PRCTL,
}

const _: () = assert!(NUMBERS as usize == 8 * 64);

const _: () = assert!(size_of::<Call>() == 80);

unsafe extern "C" {
    static plimsoll_interpose_mode: AtomicU8;
    static plimsoll_interpose_hook: AtomicPtr<()>;
    static plimsoll_interpose_watcher: AtomicPtr<()>;
    static plimsoll_interpose_watched: [AtomicU32; 16];
}

pub(super) fn set_watcher(hook: Hook) {
    // SAFETY: the symbol is defined above, with this size and alignment.
    unsafe { &plimsoll_interpose_watcher }.store(hook as *mut (), Ordering::Release);
}

pub(super) fn watch(number: u32) {
    // SAFETY: the symbol is defined above, with this size and alignment.
    let words = unsafe { &plimsoll_interpose_watched };
    if let Some(word) = words.get(number as usize / 32) {
        // The hook was set before.
        word.fetch_or(1 << (number % 32), Ordering::SeqCst);
    }
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
