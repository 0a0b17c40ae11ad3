//! Results, `errno`, and arguments.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, mpsc};

use plimsoll_interpose::Mode;

use super::harness::{
    FUTEX, Fourth, PRIVATE, answer_next, call, count, counted, direct, futex, in_each_mode,
    in_mode, last, thread_number, until_asleep, wait, wake,
};

const GARBAGE: usize = 0xdead_beef << 32;

/// Returns a file in memory with this content.
fn file(content: &[u8]) -> OwnedFd {
    // SAFETY: the descriptor is new and has no other owner; the bytes are readable.
    unsafe {
        let descriptor = libc::memfd_create(c"plimsoll".as_ptr(), libc::MFD_CLOEXEC);
        assert_ne!(descriptor, -1);
        let written = libc::write(descriptor, content.as_ptr().cast(), content.len());
        assert_eq!(written, content.len() as isize);
        OwnedFd::from_raw_fd(descriptor)
    }
}

#[test]
fn the_program_calls_this_crate() {
    const { assert!(plimsoll_interpose::IN_FORCE) };
    assert!(plimsoll_interpose::is_linked());
}

/// Libraries that are loaded later must find the name. Static programs have no dynamic linker.
#[test]
#[cfg(not(target_feature = "crt-static"))]
fn the_dynamic_linker_finds_the_programs_function_first() {
    // SAFETY: `dlsym` only looks up a name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"syscall".as_ptr()) };
    assert_eq!(found as usize, libc::syscall as *const () as usize);
}

#[test]
fn a_contended_lock_of_the_standard_library_comes_by() {
    in_mode(Mode::All, || {
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().expect("no holder panics");
        let (number, thread_numbers) = mpsc::channel();
        let waiter = std::thread::spawn({
            let lock = Arc::clone(&lock);
            move || {
                number.send(thread_number()).expect("the receiver exists");
                let ((), seen) = counted(|| drop(lock.lock().expect("no holder panics")));
                seen
            }
        });
        until_asleep(thread_numbers.recv().expect("the thread sends its number"));
        let ((), woken) = counted(|| drop(held));
        assert_eq!(woken, 1, "a wake");
        assert!(waiter.join().expect("does not panic") >= 1, "a wait");
    });
}

#[test]
fn calls_that_are_not_futex_never_reach_the_hook() {
    in_mode(Mode::All, || {
        let before = count();
        // SAFETY: `getppid` takes no arguments, and the kernel ignores the zeros.
        let (parent, direct) = unsafe {
            (
                libc::syscall(libc::SYS_getppid),
                direct(libc::SYS_getppid as usize, [0; 6]),
            )
        };
        assert_eq!(parent, direct as libc::c_long);
        assert_eq!(count(), before);
    });
}

#[test]
fn errors_of_any_call_are_the_kernels() {
    in_each_mode(|| {
        // SAFETY: the kernel refuses each of these calls.
        unsafe {
            let close = libc::SYS_close as usize;
            assert_eq!(call(close, [usize::MAX, 0, 0, 0, 0, 0]), Err(libc::EBADF));
            assert_eq!(call(100_000, [0; 6]), Err(libc::ENOSYS));
            assert_eq!(
                call(libc::SYS_kill as usize, [0, 1_000, 0, 0, 0, 0]),
                Err(libc::EINVAL)
            );
        }
        0
    });
}

#[test]
fn errors_of_futex_calls_are_the_kernels() {
    in_each_mode(|| {
        let word = AtomicU32::new(7);
        assert_eq!(wait(&word, 8), Err(libc::EAGAIN));
        assert_eq!(
            futex(&word, 99, 0, Fourth::None, None, 0),
            Err(libc::ENOSYS)
        );

        let wrong = libc::timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000_000,
        };
        let operation = libc::FUTEX_WAIT | PRIVATE;
        assert_eq!(
            futex(&word, operation, 7, Fourth::Timeout(&wrong), None, 0),
            Err(libc::EINVAL)
        );

        let short = libc::timespec {
            tv_sec: 0,
            tv_nsec: 1,
        };
        assert_eq!(
            futex(&word, operation, 7, Fourth::Timeout(&short), None, 0),
            Err(libc::ETIMEDOUT)
        );

        // SAFETY: the address is invalid, so the kernel reads nothing.
        unsafe {
            assert_eq!(
                call(FUTEX, [8, operation as usize, 0, 0, 0, 0]),
                Err(libc::EFAULT)
            );
        }
        5
    });
}

#[test]
fn success_leaves_errno_alone() {
    in_each_mode(|| {
        let word = AtomicU32::new(0);
        // `call` asserts that `errno` is unchanged.
        assert_eq!(wake(&word, 1), Ok(0));
        // SAFETY: `getpid` takes no arguments.
        let process = unsafe { call(libc::SYS_getpid as usize, [0; 6]) };
        assert_eq!(process, Ok(std::process::id() as usize));
        1
    });
}

#[test]
fn results_are_as_wide_as_a_register() {
    in_each_mode(|| {
        let file = file(b"");
        let far = 1_usize << 40;
        let arguments = [
            file.as_raw_fd() as usize,
            far,
            libc::SEEK_SET as usize,
            0,
            0,
            0,
        ];
        // SAFETY: seeks in this test's own file.
        let position = unsafe { call(libc::SYS_lseek as usize, arguments) };
        assert_eq!(position, Ok(far));
        0
    });
}

/// A seek in a process's memory accepts positions up to the end of the address space, which look
/// like errors.
#[test]
fn results_end_where_errors_begin() {
    let memory = std::fs::File::open("/proc/self/mem").expect("its own");
    in_each_mode(|| {
        let seek = |position: isize| {
            let file = memory.as_raw_fd() as usize;
            let arguments = [file, position as usize, libc::SEEK_SET as usize, 0, 0, 0];
            // SAFETY: seeking reads no memory.
            unsafe { call(libc::SYS_lseek as usize, arguments) }
        };
        assert_eq!(seek(-4097), Ok(-4097_isize as usize));
        assert_eq!(seek(-4096), Ok(-4096_isize as usize));
        assert_eq!(seek(-4095), Err(4095));
        0
    });
}

#[test]
fn the_hooks_result_replaces_the_kernels() {
    in_mode(Mode::All, || {
        let word = AtomicU32::new(0);
        for result in [0, 1, isize::MAX, isize::MIN, -4096] {
            answer_next(result);
            assert_eq!(wake(&word, 1), Ok(result as usize), "{result}");
        }
        for error in [1, libc::EINTR, 4095] {
            answer_next(-(error as isize));
            assert_eq!(wake(&word, 1), Err(error));
        }
    });
}

#[test]
fn all_six_arguments_of_a_mapping_arrive() {
    const PAGE: usize = 4096;
    let mut content = vec![b'a'; PAGE];
    content.resize(2 * PAGE, b'b');
    let file = file(&content);
    in_each_mode(|| {
        // SAFETY: the fixed mapping replaces pages that were just reserved for it; they are read,
        // then unmapped.
        unsafe {
            let room = libc::mmap(
                ptr::null_mut(),
                PAGE,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(room, libc::MAP_FAILED);
            let mapped = call(
                libc::SYS_mmap as usize,
                [
                    room as usize,
                    PAGE,
                    libc::PROT_READ as usize,
                    (libc::MAP_PRIVATE | libc::MAP_FIXED) as usize,
                    file.as_raw_fd() as usize,
                    PAGE,
                ],
            );
            assert_eq!(mapped, Ok(room as usize));
            let mapped = std::slice::from_raw_parts(room.cast::<u8>(), PAGE);
            assert!(mapped.iter().all(|&byte| byte == b'b'));
            libc::munmap(room, PAGE);
        }
        0
    });
}

#[test]
fn garbage_in_upper_halves_is_the_kernels_to_ignore() {
    in_each_mode(|| {
        let word = AtomicU32::new(7);
        let address = word.as_ptr() as usize;
        let operation = (libc::FUTEX_WAIT_BITSET | PRIVATE) as usize;
        let short = libc::timespec {
            tv_sec: 0,
            tv_nsec: 1,
        };
        let arguments = [
            address,
            GARBAGE | operation,
            GARBAGE | 7,
            ptr::from_ref(&short) as usize,
            GARBAGE | 1,
            GARBAGE | 1,
        ];
        // SAFETY: the word and the timeout outlive the calls.
        unsafe {
            assert_eq!(call(FUTEX, arguments), Err(libc::ETIMEDOUT));
            let mut changed = arguments;
            changed[2] = GARBAGE | 8;
            assert_eq!(call(FUTEX, changed), Err(libc::EAGAIN));
            // An empty bit set is refused: only the lower half of the last argument counts.
            let mut nothing = arguments;
            nothing[5] = GARBAGE;
            assert_eq!(call(FUTEX, nothing), Err(libc::EINVAL));
        }
        3
    });
}

#[test]
fn garbage_above_the_number_is_answered_as_without_this_crate() {
    in_each_mode(|| {
        let word = AtomicU32::new(0);
        let arguments = [
            word.as_ptr() as usize,
            (libc::FUTEX_WAKE | PRIVATE) as usize,
            1,
            0,
            0,
            0,
        ];
        // SAFETY: a wake reads no memory of this thread, and no thread waits.
        let (through, directly) = unsafe {
            (
                call(GARBAGE | FUTEX, arguments),
                direct(GARBAGE | FUTEX, arguments),
            )
        };
        assert_eq!(
            through.map_or_else(|errno| -(errno as isize), |woken| woken as isize),
            directly
        );
        1
    });
}

#[test]
fn the_hook_gets_the_callers_arguments() {
    in_mode(Mode::All, || {
        let arguments = [1, 2, 3, 4, 5, 6].map(|index| index | GARBAGE);
        answer_next(0);
        // SAFETY: the hook returns a result, so the call does not reach the kernel.
        unsafe { call(GARBAGE | FUTEX, arguments) }.expect("as the hook answers");
        assert_eq!(last().call.number, GARBAGE | FUTEX);
        assert_eq!(last().call.arguments, arguments);
    });
}
