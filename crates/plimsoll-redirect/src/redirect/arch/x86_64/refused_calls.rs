//! Redirection while the system refuses calls: all functions are redirected, or each is as before.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{PROT_EXEC, PROT_READ, PROT_WRITE, c_long};

use crate::redirect::pages::refusals;
use crate::redirect::{Image, Obstacle, Redirection, redirect};
use plimsoll_sys::os::pages::page_size;

type Function = extern "C" fn() -> u32;

extern "C" fn first_hook() -> u32 {
    101
}

extern "C" fn second_hook() -> u32 {
    102
}

/// Code on two pages, with a function on each. The functions return 1 and 2.
struct Program {
    start: usize,
    image: Image,
}

impl Program {
    /// Maps a program where the memory below it is free, in another place each time.
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0x2000_0000);
        let place = NEXT.fetch_add(1 << 20, Ordering::Relaxed);
        let length = 2 * page_size();
        // SAFETY: the mapping is new, and the functions lie in it.
        let start = unsafe {
            let access = PROT_READ | PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let start = libc::mmap(place as *mut _, length, access, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            for number in [1, 2] {
                // mov eax, number; ret
                let code = [0xb8, number, 0, 0, 0, 0xc3];
                let to = start
                    .cast::<u8>()
                    .add(usize::from(number - 1) * page_size());
                to.copy_from(code.as_ptr(), code.len());
            }
            assert_eq!(libc::mprotect(start, length, PROT_READ | PROT_EXEC), 0);
            start as usize
        };
        Self {
            start,
            image: Image::of_code(start, length),
        }
    }

    fn functions(&self) -> [usize; 2] {
        [self.start, self.start + page_size()]
    }

    fn redirections(&self) -> [Redirection; 2] {
        let [first, second] = self.functions();
        [(first, first_hook as Function), (second, second_hook)].map(|(function, hook)| {
            Redirection {
                function,
                size: 6,
                hook: hook as usize,
                original: 0,
            }
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program was mapped above, and is not executed any more.
        unsafe { libc::munmap(self.start as *mut _, 2 * page_size()) };
    }
}

/// Calls a function. Fails if its memory is not executable, or is writable.
fn result_of(function: usize) -> u32 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        (number(start)..number(end)).contains(&function)
    });
    assert!(line.is_some_and(|line| line.contains(" r-xp ")), "{line:?}");
    // SAFETY: each caller passes a function of a program, whose memory is executable.
    unsafe { std::mem::transmute::<usize, Function>(function)() }
}

/// Redirects the functions of a new program while calls fail. Returns whether they are redirected.
fn is_redirected(refuse: impl FnMut(c_long, &[usize; 6]) -> bool + 'static) -> bool {
    let program = Program::new();
    let mut all = program.redirections();
    // SAFETY: the hooks have the type of the functions, which no thread executes.
    let redirected = refusals::with(refuse, || unsafe { redirect(&program.image, &mut all) });
    let expected = if redirected.is_ok() {
        [101, 102]
    } else {
        [1, 2]
    };
    assert_eq!(
        program.functions().map(result_of),
        expected,
        "{redirected:?}"
    );
    if redirected.is_ok() {
        assert_eq!(all.map(|its| result_of(its.original)), [1, 2]);
    }
    redirected.is_ok()
}

#[test]
fn functions_work_whichever_calls_fail() {
    assert!(is_redirected(|_, _| false));
    let calls = Rc::new(Cell::new(0));
    for first in 0.. {
        for second in first.. {
            calls.set(0);
            let count = calls.clone();
            is_redirected(move |_, _| {
                let at = count.replace(count.get() + 1);
                at == first || at == second
            });
            if calls.get() <= second {
                break;
            }
        }
        if calls.get() <= first {
            break;
        }
    }
    assert!(calls.get() > 10, "the calls were made");
}

/// As a policy does that forbids changed code to be executable.
#[test]
fn functions_work_where_code_may_not_change() {
    for forbidden in [PROT_EXEC, PROT_WRITE] {
        let program = Program::new();
        let range = program.start..program.start + 2 * page_size();
        let mut all = program.redirections();
        let refuse = move |number, arguments: &[usize; 6]| {
            number == libc::SYS_mprotect
                && range.contains(&arguments[0])
                && arguments[2] as i32 & forbidden != 0
        };
        // SAFETY: the hooks have the type of the functions, which no thread executes.
        let redirected = refusals::with(refuse, || unsafe { redirect(&program.image, &mut all) });
        assert_eq!(redirected, Err((0, Obstacle::Denied)));
        assert_eq!(program.functions().map(result_of), [1, 2]);
    }
    for number in [libc::SYS_mmap, libc::SYS_mprotect] {
        assert!(!is_redirected(move |call, _| call == number));
    }
}
