//! aarch64, whose programs cannot make the processor trap after each instruction.
//!
//! All instructions of the function are replaced by breakpoints. A trap puts the function back as it
//! was, and on return replaces the instructions again that have not been executed.

use std::arch::asm;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

/// x19 to x29.
pub const REGISTERS: usize = 11;
pub const FRAME_POINTER: usize = 10;
pub const FRAME_POINTER_NUMBER: c_int = 29;
// Only one test binary uses it.
#[allow(dead_code)]
pub const JUMP: usize = 4;

macro_rules! caller {
    () => {
        r#"
    .cfi_startproc
    stp x29, x30, [sp, -112]!
    .cfi_def_cfa_offset 112
    .cfi_offset x29, -112
    .cfi_offset x30, -104
    stp x19, x20, [sp, 16]
    .cfi_offset x19, -96
    .cfi_offset x20, -88
    stp x21, x22, [sp, 32]
    .cfi_offset x21, -80
    .cfi_offset x22, -72
    stp x23, x24, [sp, 48]
    .cfi_offset x23, -64
    .cfi_offset x24, -56
    stp x25, x26, [sp, 64]
    .cfi_offset x25, -48
    .cfi_offset x26, -40
    stp x27, x28, [sp, 80]
    .cfi_offset x27, -32
    .cfi_offset x28, -24
    str x0, [sp, 96]
    mov x9, x0
    mov x10, sp
    str x10, [x9, 64]
    adr x10, 3f
    str x10, [x9, 80]
    ldp x0, x1, [x9, 8]
    ldp x2, x3, [x9, 24]
    ldp x4, x5, [x9, 40]
    ldr x6, [x9, 56]
    ldp x19, x20, [x9, 96]
    ldp x21, x22, [x9, 112]
    ldp x23, x24, [x9, 128]
    ldp x25, x26, [x9, 144]
    ldp x27, x28, [x9, 160]
    ldr x29, [x9, 176]
    ldr x9, [x9]
    blr x9
3:
    ldr x9, [sp, 96]
    mov x10, sp
    str x10, [x9, 72]
    stp x19, x20, [x9, 96]
    stp x21, x22, [x9, 112]
    stp x23, x24, [x9, 128]
    stp x25, x26, [x9, 144]
    stp x27, x28, [x9, 160]
    str x29, [x9, 176]
    ldp x19, x20, [sp, 16]
    ldp x21, x22, [sp, 32]
    ldp x23, x24, [sp, 48]
    ldp x25, x26, [sp, 64]
    ldp x27, x28, [sp, 80]
    ldp x29, x30, [sp], 112
    .cfi_def_cfa_offset 0
    ret
    .cfi_endproc
    "#
    };
}

pub(crate) use caller;

pub fn instruction(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.pc as usize
}

/// `brk 0`.
const BREAKPOINT: u32 = 0xd420_0000;

/// An instruction of the function.
struct Instruction {
    original: AtomicU32,
    is_executed: AtomicBool,
}

static INSTRUCTIONS: [Instruction; 256] = [const {
    Instruction {
        original: AtomicU32::new(0),
        is_executed: AtomicBool::new(false),
    }
}; 256];

/// The function, and the number of its instructions.
static FUNCTION: AtomicUsize = AtomicUsize::new(0);
static LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Makes all instructions of the function trap, once each.
pub fn begin(function: usize, size: usize) {
    let length = size / 4;
    assert!(length <= INSTRUCTIONS.len());
    protect(function, size, libc::PROT_WRITE);
    FUNCTION.store(function, Relaxed);
    LENGTH.store(length, SeqCst);
    for (address, instruction) in instructions() {
        let original = word(address).load(Relaxed);
        instruction.original.store(original, Relaxed);
        instruction.is_executed.store(false, Relaxed);
    }
    plant();
}

pub fn end() {
    pause();
    let length = LENGTH.swap(0, SeqCst);
    protect(FUNCTION.load(Relaxed), 4 * length, 0);
}

/// Puts the function back as it was.
pub fn pause() {
    for (address, instruction) in instructions() {
        write(address, instruction.original.load(Relaxed));
    }
}

pub fn go_on(at: usize) {
    let number = (at - FUNCTION.load(Relaxed)) / 4;
    INSTRUCTIONS[number].is_executed.store(true, Relaxed);
    plant();
}

/// Waits until the thread that steps has ended or is in a trap: then this one executes the function.
pub fn leave(at: usize) {
    while word(at).load(SeqCst) == BREAKPOINT {
        std::hint::spin_loop();
    }
}

fn plant() {
    for (address, instruction) in instructions() {
        if !instruction.is_executed.load(Relaxed) {
            write(address, BREAKPOINT);
        }
    }
}

/// Returns the instructions of the function, with their addresses.
fn instructions() -> impl Iterator<Item = (usize, &'static Instruction)> {
    let addresses = (FUNCTION.load(Relaxed)..).step_by(4);
    addresses.zip(&INSTRUCTIONS[..LENGTH.load(SeqCst)])
}

fn word(address: usize) -> &'static AtomicU32 {
    // SAFETY: instructions are aligned, and functions of the program exist until it ends.
    unsafe { AtomicU32::from_ptr(address as *mut u32) }
}

/// Replaces an instruction of the function, which `begin` made writable.
fn write(address: usize, instruction: u32) {
    word(address).store(instruction, SeqCst);
    // SAFETY: the instructions only make the caches of data and instructions agree.
    unsafe {
        asm!(
            "dc cvau, {0}",
            "dsb ish",
            "ic ivau, {0}",
            "dsb ish",
            "isb",
            in(reg) address,
            options(nostack, preserves_flags),
        );
    }
}

fn protect(function: usize, size: usize, write: c_int) {
    // SAFETY: `sysconf` has no requirements.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let start = function & !(page - 1);
    let access = libc::PROT_READ | libc::PROT_EXEC | write;
    // SAFETY: the pages remain readable and executable, as code of the program must be.
    let result = unsafe { libc::mprotect(start as *mut _, function + size - start, access) };
    assert_eq!(result, 0);
}
