//! The interposed functions.

#[cfg(not(all(target_env = "musl", target_feature = "crt-static")))]
#[path = "shared_library.rs"]
mod c_library;
#[cfg(all(target_env = "musl", target_feature = "crt-static"))]
#[path = "static_musl.rs"]
mod c_library;

use core::arch::global_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use super::{Begin, Creation, Hook, Routine, Start};
use crate::arch::threads;
use crate::define::define;

pub(super) fn set_hooks(hook: Hook, begin: Begin) {
    // SAFETY: the symbols are defined below, with this size and alignment.
    unsafe {
        plimsoll_interpose_begin.store(begin as *mut (), Ordering::Release);
        plimsoll_interpose_create_hook.store(hook as *mut (), Ordering::Release);
    }
}

pub(super) fn is_linked() -> bool {
    core::hint::black_box(pthread_create as *const () as usize)
        == core::hint::black_box(plimsoll_interpose_pthread_create as *const () as usize)
}

/// Implements [`Creation::make`].
pub(super) unsafe fn create(creation: &Creation, token: Option<*mut c_void>) -> c_int {
    let Start { routine, argument } = match token {
        Some(token) => Start {
            routine: plimsoll_interpose_thread,
            argument: token,
        },
        None => creation.start,
    };
    // SAFETY: the arguments come from the program's call of `pthread_create`. If there is a token,
    // `plimsoll_interpose_thread` accepts it.
    unsafe { c_library::real()(creation.thread, creation.attributes, routine, argument) }
}

type Create = unsafe extern "C" fn(*mut c_void, *const c_void, Routine, *mut c_void) -> c_int;

unsafe extern "C" {
    static plimsoll_interpose_create_hook: AtomicPtr<()>;
    static plimsoll_interpose_begin: AtomicPtr<()>;
    fn plimsoll_interpose_thread(token: *mut c_void) -> *mut c_void;
}

/// Passes a call on while no hook is set.
unsafe extern "C" fn go_on(
    thread: *mut c_void,
    attributes: *const c_void,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the arguments come from an unmodified call of `pthread_create`.
    unsafe { c_library::real()(thread, attributes, routine, argument) }
}

/// Converts a result of `pthread_create` to C11's codes.
extern "C" fn c11_says(error: c_int) -> c_int {
    // What the C library says if there is no memory: EAGAIN in musl, ENOMEM in glibc.
    const LACKS_MEMORY: c_int = if cfg!(target_env = "musl") { 11 } else { 12 };
    const SUCCESS: c_int = 0;
    const ERROR: c_int = 2;
    const NO_MEMORY: c_int = 3;
    match error {
        0 => SUCCESS,
        LACKS_MEMORY => NO_MEMORY,
        _ => ERROR,
    }
}

// The first function of a thread ends in a jump, so that it leaves no frame on the thread's stack.
global_asm!(
    r#"
    .hidden plimsoll_interpose_create_hook
    .globl plimsoll_interpose_create_hook
    .hidden plimsoll_interpose_begin
    .globl plimsoll_interpose_begin
    .hidden plimsoll_interpose_thread
    .globl plimsoll_interpose_thread

    .section .bss.plimsoll_interpose_threads, "aw", %nobits
    .balign 8
    .type plimsoll_interpose_create_hook, %object
    .size plimsoll_interpose_create_hook, 8
plimsoll_interpose_create_hook:
    .zero 8
    .type plimsoll_interpose_begin, %object
    .size plimsoll_interpose_begin, 8
plimsoll_interpose_begin:
    .zero 8

    .section .text.plimsoll_interpose_threads, "ax", %progbits
    .type plimsoll_interpose_thread, %function
    .balign 16
plimsoll_interpose_thread:
    "#,
    threads::begin!(),
    r#"
    .size plimsoll_interpose_thread, . - plimsoll_interpose_thread
    .text
    "#
);

define! {
    pthread_create as plimsoll_interpose_pthread_create in ".text.plimsoll_interpose_threads" =>
    threads::pthread_create!();
    go_on = sym go_on,
}

// The function of a C11 thread returns an `int`. The joining thread reads only that part of the
// result.
define! {
    thrd_create in ".text.plimsoll_interpose_threads" =>
    threads::thrd_create!();
    go_on = sym c_library::go_on_c11,
    c11_says = sym c11_says,
}

const _: () = assert!(size_of::<Creation>() == 56);
