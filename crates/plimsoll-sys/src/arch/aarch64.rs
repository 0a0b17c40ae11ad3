//! Linux on aarch64.

use std::arch::asm;
use std::ffi::{CStr, c_long, c_void};

use super::ControlBlock;

/// The version of the oldest functions of the GNU C library.
pub const FIRST_GLIBC_VERSION: &CStr = c"GLIBC_2.17";

/// The clock source of the kernel that is this processor's counter.
pub const CLOCK_SOURCE: &str = "arch_sys_counter";

/// The number by which filters of system calls know this processor.
pub const FILTER_ARCHITECTURE: u32 = 0xc000_00b7;

/// The position of a thread's control block.
pub const CONTROL_BLOCK: ControlBlock = ControlBlock::BelowPointer;

/// Returns the thread pointer: never 0, and different in all threads that live.
#[inline]
pub fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: the ABI keeps the thread pointer in this register.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

/// Makes a system call and returns the kernel's result: `-4095..=-1` is a negated error number.
///
/// # Safety
/// The arguments are valid for `number`, as for `syscall(2)`.
#[inline]
pub unsafe fn system_call(number: c_long, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the arguments are valid by this function's contract. The kernel preserves all
    // registers but x0.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") arguments[0] => result,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x4") arguments[4],
            in("x5") arguments[5],
            options(nostack),
        );
    }
    result
}

/// Returns the offset of the kernel's `struct rseq` from the thread pointer; `None` if the C library
/// does not export it (glibc before 2.35, musl).
pub fn rseq_area_offset() -> Option<isize> {
    let offset: *const isize;
    // SAFETY: reads the address of a weak data symbol from the global offset table, which is 0 if
    // the C library does not have the symbol.
    unsafe {
        asm!(
            ".weak __rseq_offset",
            "adrp {0}, :got:__rseq_offset",
            "ldr {0}, [{0}, :got_lo12:__rseq_offset]",
            out(reg) offset,
            options(nostack, preserves_flags, readonly),
        );
    }
    // SAFETY: glibc exports `const ptrdiff_t __rseq_offset`; a null pointer is not read.
    (!offset.is_null()).then(|| unsafe { *offset })
}

/// Returns the virtual counter.
#[inline]
pub fn ticks() -> u64 {
    let ticks;
    // SAFETY: the kernel lets programs read the counter. Without the barrier, the processor may read
    // it earlier than the instructions before it.
    unsafe {
        asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nostack, preserves_flags));
    }
    ticks
}

/// Returns the frequency of the counter in hertz, which the firmware sets.
pub fn ticks_per_second() -> Option<u64> {
    let frequency: u64;
    // SAFETY: the kernel lets programs read the register.
    unsafe {
        asm!("mrs {}, cntfrq_el0", out(reg) frequency, options(nomem, nostack, preserves_flags));
    }
    (frequency > 0).then_some(frequency)
}

/// Reads a word that other functions may own. The load is an instruction of this function, so tools
/// that check the program's accesses do not see it.
///
/// # Safety
/// The address is aligned and readable.
#[inline(always)]
pub unsafe fn read_word(address: usize) -> usize {
    let word;
    // SAFETY: reads one word, which is readable by this function's contract.
    unsafe {
        asm!(
            "ldr {}, [{}]",
            out(reg) word, in(reg) address,
            options(nostack, preserves_flags, readonly)
        );
    }
    word
}

/// Calls a function on another stack.
///
/// # Safety
/// `top` is the end of unused memory and a multiple of 16, `argument` has the type that the function
/// takes, and the function does not unwind.
pub unsafe fn call_on_stack(
    top: usize,
    function: extern "C" fn(*mut c_void),
    argument: *mut c_void,
) {
    // SAFETY: `x20` keeps the original stack pointer across the call, because it is callee-saved.
    unsafe {
        asm!(
            "mov x20, sp",
            "mov sp, {top}",
            "blr {function}",
            "mov sp, x20",
            top = in(reg) top,
            function = in(reg) function,
            out("x20") _,
            in("x0") argument,
            clobber_abi("C"),
        );
    }
}

/// The descriptor of a sequence from label 774 to 775, and its restart at 771, after the instruction
/// `$undo`, if given.
///
/// The descriptor has the version, flags, start, length, and the address at which an interrupted
/// sequence continues. The restart follows the signature that the C library registered: an instruction
/// that traps, so that no other code can jump here.
#[macro_export]
macro_rules! sequence_descriptor {
    ($($undo:literal)?) => {
        concat!(
            r#"
    .pushsection .data.rel.ro.plimsoll_sequences, "aw"
    .balign 32
773:
    .long 0, 0
    .quad 774b, 775b - 774b, 776f
    .popsection
    .pushsection .text.unlikely.plimsoll_sequences, "ax"
    .inst 0xd428bc00
776:
    "#,
            $($undo,)?
            r#"
    b 771b
    .popsection
        "#
        )
    };
}
