//! The functions themselves.

use core::arch::global_asm;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use super::{Begin, Creation, Hook, Routine, Start};
use crate::define::define;

pub(super) fn set_hooks(hook: Hook, begin: Begin) {
    // SAFETY: defined below, with that size and alignment.
    unsafe {
        plimsoll_interpose_begin.store(begin as *mut (), Ordering::Release);
        plimsoll_interpose_create_hook.store(hook as *mut (), Ordering::Release);
    }
}

pub(super) fn is_linked() -> bool {
    core::hint::black_box(pthread_create as *const () as usize)
        == core::hint::black_box(plimsoll_interpose_pthread_create as *const () as usize)
}

/// See [`Creation::make`].
pub(super) unsafe fn create(creation: &Creation, token: Option<*mut c_void>) -> c_int {
    let Start { routine, argument } = match token {
        Some(token) => Start {
            routine: plimsoll_interpose_thread,
            argument: token,
        },
        None => creation.start,
    };
    // SAFETY: the arguments of the caller, who vouches for them.
    unsafe { real()(creation.thread, creation.attributes, routine, argument) }
}

type Create = unsafe extern "C" fn(*mut c_void, *const c_void, Routine, *mut c_void) -> c_int;

unsafe extern "C" {
    static plimsoll_interpose_create_hook: AtomicPtr<()>;
    static plimsoll_interpose_begin: AtomicPtr<()>;
    fn plimsoll_interpose_thread(token: *mut c_void) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// A sanitizer that is linked into the program has a function of the same name, which gives way to
/// this one, and must know of threads: it goes by another name as well. Null if there is none.
fn sanitizers() -> *mut c_void {
    let found;
    // SAFETY: reads the address of a weak symbol from the global offset table.
    unsafe {
        core::arch::asm!(
            ".weak __interceptor_pthread_create",
            "mov {}, qword ptr [rip + __interceptor_pthread_create@GOTPCREL]",
            out(reg) found,
            options(nostack, preserves_flags, readonly),
        );
    }
    found
}

/// `RTLD_NEXT`: what comes after the object that calls.
const NEXT: *mut c_void = usize::MAX as *mut c_void;

/// The C library's function, or what stands for it.
fn real() -> Create {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    extern "C" fn none(_: *mut c_void, _: *const c_void, _: Routine, _: *mut c_void) -> c_int {
        const EAGAIN: c_int = 11;
        EAGAIN
    }
    let mut found = REAL.load(Ordering::Acquire);
    if found.is_null() {
        found = sanitizers();
    }
    if found.is_null() {
        // SAFETY: looks a function up by name. Two at once find the same.
        found = unsafe { dlsym(NEXT, c"pthread_create".as_ptr()) };
    }
    if REAL.load(Ordering::Relaxed).is_null() {
        REAL.store(found, Ordering::Release);
    }
    if found.is_null() {
        return none;
    }
    // SAFETY: the C library's function of that name.
    unsafe { core::mem::transmute::<*mut c_void, Create>(found) }
}

/// A call while there is no hook.
unsafe extern "C" fn go_on(
    thread: *mut c_void,
    attributes: *const c_void,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { real()(thread, attributes, routine, argument) }
}

/// The same for C11's function, which calls the other one inside the C library.
unsafe extern "C" fn go_on_c11(
    thread: *mut c_void,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    type Create = unsafe extern "C" fn(*mut c_void, Routine, *mut c_void) -> c_int;
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let mut found = REAL.load(Ordering::Acquire);
    if found.is_null() {
        // SAFETY: looks a function up by name. Two at once find the same.
        found = unsafe { dlsym(NEXT, c"thrd_create".as_ptr()) };
        REAL.store(found, Ordering::Release);
    }
    if found.is_null() {
        return c11_says(-1);
    }
    // SAFETY: the C library's function of that name; the rest is the caller's.
    unsafe { core::mem::transmute::<*mut c_void, Create>(found)(thread, routine, argument) }
}

/// How C11 says what `pthread_create` returned.
extern "C" fn c11_says(error: c_int) -> c_int {
    const ENOMEM: c_int = 12;
    const SUCCESS: c_int = 0;
    const ERROR: c_int = 2;
    const NO_MEMORY: c_int = 3;
    match error {
        0 => SUCCESS,
        ENOMEM => NO_MEMORY,
        _ => ERROR,
    }
}

// The first two are in assembly for the reasons that `syscall` is; the last so that a thread has no
// frame of it: it ends in a jump.
macro_rules! body {
    ($attributes:literal, $routine:literal, $argument:literal, $end:literal) => {
        concat!(
            r#"
    .cfi_startproc
    cmp qword ptr [rip + plimsoll_interpose_create_hook], 0
    je {go_on}
    // A `Creation`, of seven words, and one that keeps the stack aligned.
    push rbp
    .cfi_def_cfa_offset 16
    .cfi_offset rbp, -16
    mov rbp, rsp
    sub rsp, 64
    .cfi_adjust_cfa_offset 64
    mov [rsp], rdi
    mov qword ptr [rsp + 8], "#,
            $attributes,
            r#"
    mov [rsp + 16], "#,
            $routine,
            r#"
    mov [rsp + 24], "#,
            $argument,
            r#"
    mov rax, [rbp]
    mov [rsp + 32], rax
    lea rax, [rbp + 16]
    mov [rsp + 40], rax
    mov rax, [rbp + 8]
    mov [rsp + 48], rax
    mov rdi, rsp
    call [rip + plimsoll_interpose_create_hook]
    leave
    .cfi_def_cfa rsp, 8
    .cfi_restore rbp
    "#,
            $end,
            r#"
    .cfi_endproc
    "#
        )
    };
}

global_asm!(
    r#"
    .hidden plimsoll_interpose_create_hook
    .globl plimsoll_interpose_create_hook
    .hidden plimsoll_interpose_begin
    .globl plimsoll_interpose_begin
    .hidden plimsoll_interpose_thread
    .globl plimsoll_interpose_thread

    .section .bss.plimsoll_interpose_threads, "aw", @nobits
    .balign 8
    .type plimsoll_interpose_create_hook, @object
    .size plimsoll_interpose_create_hook, 8
plimsoll_interpose_create_hook:
    .zero 8
    .type plimsoll_interpose_begin, @object
    .size plimsoll_interpose_begin, 8
plimsoll_interpose_begin:
    .zero 8

    .section .text.plimsoll_interpose_threads, "ax", @progbits
    .type plimsoll_interpose_thread, @function
    .balign 16
plimsoll_interpose_thread:
    .cfi_startproc
    sub rsp, 8
    .cfi_def_cfa_offset 16
    call [rip + plimsoll_interpose_begin]
    add rsp, 8
    .cfi_def_cfa_offset 8
    mov rdi, [rax + 8]
    jmp [rax]
    .cfi_endproc
    .size plimsoll_interpose_thread, . - plimsoll_interpose_thread
    .text
    "#
);

define! {
    pthread_create as plimsoll_interpose_pthread_create in ".text.plimsoll_interpose_threads" =>
    body!("rsi", "rdx", "rcx", "ret");
    go_on = sym go_on,
}

// A thread's function returns an `int` here; whoever joins takes no more than that of the result.
define! {
    thrd_create in ".text.plimsoll_interpose_threads" =>
    body!("0", "rsi", "rdx", "mov edi, eax\njmp {c11_says}");
    go_on = sym go_on_c11,
    c11_says = sym c11_says,
}

const _: () = assert!(size_of::<Creation>() == 56);
