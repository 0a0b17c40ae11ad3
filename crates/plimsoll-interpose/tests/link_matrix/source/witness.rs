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
    let result;
    // SAFETY: the caller's call, with its arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") call.number => result,
            in("rdi") call.arguments[0],
            in("rsi") call.arguments[1],
            in("rdx") call.arguments[2],
            in("r10") call.arguments[3],
            in("r8") call.arguments[4],
            in("r9") call.arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// Counts from here on.
pub fn begin() {
    plimsoll_interpose::set_hook(hook);
    plimsoll_interpose::set_mode(Mode::All);
}

/// How many waits and wakes there were.
pub fn seen() -> (usize, usize) {
    (WAITS.load(Relaxed), WAKES.load(Relaxed))
}

pub fn report() -> String {
    let (waits, wakes) = seen();
    let linked = plimsoll_interpose::is_linked();
    format!("linked={linked} waits={waits} wakes={wakes}")
}
