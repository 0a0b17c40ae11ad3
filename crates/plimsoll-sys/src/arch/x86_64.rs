//! Linux on x86-64.

use std::arch::asm;
use std::ffi::{CStr, c_long, c_void};

use super::ControlBlock;

/// The version of the oldest functions of the GNU C library.
pub const FIRST_GLIBC_VERSION: &CStr = c"GLIBC_2.2.5";

/// The clock source of the kernel that is this processor's counter.
pub const CLOCK_SOURCE: &str = "tsc";

/// The number by which filters of system calls know this processor.
pub const FILTER_ARCHITECTURE: u32 = 0xc000_003e;

/// The position of a thread's control block.
pub const CONTROL_BLOCK: ControlBlock = ControlBlock::AtPointer;

/// Returns the thread pointer: never 0, and different in all threads that live.
#[inline]
pub fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: the ABI keeps the thread pointer at %fs:0.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
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
    // SAFETY: the arguments are valid by this function's contract. The kernel clobbers rcx and r11
    // only.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
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
            "mov {}, qword ptr [rip + __rseq_offset@GOTPCREL]",
            out(reg) offset,
            options(nostack, preserves_flags, readonly),
        );
    }
    // SAFETY: glibc exports `const ptrdiff_t __rseq_offset`; a null pointer is not read.
    (!offset.is_null()).then(|| unsafe { *offset })
}

/// Returns the time stamp counter.
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: every processor of this architecture has the counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Returns `None`: the frequency has to be measured.
#[inline]
pub fn ticks_per_second() -> Option<u64> {
    None
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
            "mov {}, [{}]",
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
    // SAFETY: `r12` keeps the original stack pointer across the call, because it is callee-saved.
    unsafe {
        asm!(
            "xchg rsp, r12",
            "call {function}",
            "mov rsp, r12",
            function = in(reg) function,
            inout("r12") top => _,
            in("rdi") argument,
            clobber_abi("C"),
        );
    }
}

/// The descriptor of a sequence from label 774 to 775, and its restart at 771.
///
/// The descriptor has the version, flags, start, length, and the address at which an interrupted
/// sequence continues. The restart follows the signature that the C library registered: an instruction
/// that traps, so that no other code can jump here.
#[macro_export]
macro_rules! sequence_descriptor {
    () => {
        r#"
    .pushsection .data.rel.ro.plimsoll_sequences, "aw"
    .balign 32
773:
    .long 0, 0
    .quad 774b, 775b - 774b, 776f
    .popsection
    .pushsection .text.unlikely.plimsoll_sequences, "ax"
    .byte 0x0f, 0xb9, 0x3d
    .long 0x53053053
776:
    jmp 771b
    .popsection
        "#
    };
}
