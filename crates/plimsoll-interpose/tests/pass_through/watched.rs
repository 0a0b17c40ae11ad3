//! Calls that are watched go to their hook, made by `syscall` or by `prctl`.

use std::cell::Cell;

use plimsoll_interpose::{Call, NUMBERS};

use crate::harness::{UNTOUCHED, call, direct, errno, set_errno};

const PRCTL: usize = libc::SYS_prctl as usize;
const GETPRIORITY: usize = libc::SYS_getpriority as usize;

thread_local! {
    static LAST: Cell<Option<Call>> = const { Cell::new(None) };
}

unsafe extern "C" fn watcher(call: &Call) -> isize {
    LAST.set(Some(*call));
    // SAFETY: the call is the program's own.
    unsafe { direct(call.number as u32 as usize, call.arguments) }
}

fn watch(number: usize) {
    plimsoll_interpose::set_watcher(watcher);
    plimsoll_interpose::watch(number as u32);
}

/// Returns the name of the calling thread, by `prctl`.
fn name() -> [u8; 16] {
    let mut name = [0; 16];
    // SAFETY: the kernel writes at most 16 bytes.
    let result = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    assert_eq!(result, 0);
    name
}

#[test]
fn a_watched_prctl_has_its_arguments_and_its_result() {
    let before = name();
    watch(PRCTL);
    set_errno(UNTOUCHED);
    assert_eq!(name(), before);
    assert_eq!(errno(), UNTOUCHED);
    let call = LAST.take().expect("the watcher saw the call");
    assert_eq!(call.number as u32 as usize, PRCTL);
    assert_eq!(call.arguments[0] as i32, libc::PR_GET_NAME);
    assert!(call.return_address != 0 && call.stack_pointer % 16 == 0);
    // All five arguments, and an error.
    // SAFETY: the kernel refuses the option.
    let result = unsafe { libc::prctl(-1, 0x1111_usize, 0x2222_usize, 0x3333_usize, 0x4444_usize) };
    assert_eq!((result, errno()), (-1, libc::EINVAL));
    let call = LAST.take().expect("the watcher saw the call");
    assert_eq!(call.arguments[1..5], [0x1111, 0x2222, 0x3333, 0x4444]);
    assert_eq!(call.arguments[0] as i32, -1);
}

#[test]
fn a_watched_number_goes_to_the_watcher_and_others_do_not() {
    watch(GETPRIORITY);
    // Numbers beyond the table change nothing.
    for number in [NUMBERS, NUMBERS + GETPRIORITY as u32, u32::MAX] {
        plimsoll_interpose::watch(number);
    }
    for number in [GETPRIORITY, GETPRIORITY | 1 << 40] {
        // SAFETY: the call takes no pointers.
        let result = unsafe { call(number, [0, 0, 7, 8, 9, 10]) };
        assert!(result.is_ok());
        let seen = LAST.take().expect("the watcher saw the call");
        assert_eq!((seen.number, seen.arguments), (number, [0, 0, 7, 8, 9, 10]));
    }
    for number in [
        libc::SYS_getuid as usize,
        GETPRIORITY + 32,
        GETPRIORITY + NUMBERS as usize,
    ] {
        // SAFETY: zeros are no valid pointers, with which the kernel fails.
        let _ = unsafe { call(number, [usize::MAX; 6]) };
        assert!(LAST.take().is_none(), "{number}");
    }
}
