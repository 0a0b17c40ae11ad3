//! A hook that counts and forwards.

use std::arch::asm;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use plimsoll_interpose::{Call, Mode};

static WAITS: AtomicUsize = AtomicUsize::new(0);
static WAKES: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn hook(call: &Call) -> isize {
    // FUTEX_WAKE and FUTEX_WAKE_BITSET, whatever their flags; FUTEX_WAIT and FUTEX_WAIT_BITSET.
    match call.arguments[1] as u32 & 0x7f {
        1 | 10 => WAKES.fetch_add(1, Relaxed),
        0 | 9 => WAITS.fetch_add(1, Relaxed),
        _ => 0,
    };
    // SAFETY: the number and arguments are those of the interposed call, unmodified.
    unsafe { system_call(call.number, call.arguments) }
}

/// # Safety
/// The arguments meet the requirements of the system call.
#[cfg(target_arch = "x86_64")]
unsafe fn system_call(number: usize, arguments: [usize; 6]) -> isize {
    let result;
    // SAFETY: the arguments are valid by this function's contract.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// # Safety
/// The arguments meet the requirements of the system call.
#[cfg(target_arch = "aarch64")]
unsafe fn system_call(number: usize, arguments: [usize; 6]) -> isize {
    let result;
    // SAFETY: the arguments are valid by this function's contract.
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
        );
    }
    result
}

/// Starts counting.
pub fn begin() {
    plimsoll_interpose::set_hook(hook);
    plimsoll_interpose::set_mode(Mode::All);
}

/// Returns the numbers of waits and wakes.
pub fn seen() -> (usize, usize) {
    (WAITS.load(Relaxed), WAKES.load(Relaxed))
}

pub fn report() -> String {
    let (waits, wakes) = seen();
    let linked = plimsoll_interpose::is_linked();
    format!("linked={linked} waits={waits} wakes={wakes}")
}
