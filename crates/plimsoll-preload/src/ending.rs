//! The ways in which a program ends, or becomes another: before each, the report is written.
//!
//! By `exit`, and by the end of `main`, after all else that is done then; by `_exit`, `_Exit` and
//! `quick_exit` when they are called; and before a call of the `exec` family. If that fails, the
//! program goes on, and there will be another report. The child of a `vfork`, which borrows this
//! process's memory, passes through all of them untouched.

use std::ffi::{c_int, c_void};

use plimsoll::preload;

use crate::next::Next;

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;

extern "C" fn at_end() {
    preload::report("exit");
}

macro_rules! ends {
    ($($name:ident;)*) => {$(
        /// # Safety
        /// As C's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(status: c_int) -> ! {
            static NEXT: Next = Next::new(concat!(stringify!($name), "\0"));
            preload::report(stringify!($name));
            if let Some(next) = NEXT.get() {
                // SAFETY: the C library's function of that name; it does not come back.
                unsafe {
                    std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int)>(next)(status)
                };
            }
            loop {
                // SAFETY: what those functions come down to.
                unsafe { libc::syscall(libc::SYS_exit_group, status) };
            }
        }
    )*};
}

ends! {
    _exit;
    _Exit;
    quick_exit;
}

/// The functions by which a process executes another program. Some take any number of arguments, so
/// nothing is known of them here but that they are in registers and on the stack, where they are
/// left.
static EXECUTE: [Next; 9] = [
    Next::new("execve\0"),
    Next::new("execv\0"),
    Next::new("execvp\0"),
    Next::new("execvpe\0"),
    Next::new("execl\0"),
    Next::new("execlp\0"),
    Next::new("execle\0"),
    Next::new("fexecve\0"),
    Next::new("execveat\0"),
];

/// Looks up what must not be looked up later: the child of a `vfork` may be who calls.
pub(crate) fn prepare() {
    for next in &EXECUTE {
        next.get();
    }
}

/// Before a call of [`EXECUTE`]: where it goes on.
extern "C" fn before_execution(of: usize) -> *mut c_void {
    extern "C" fn none() -> c_int {
        // SAFETY: the thread's own.
        unsafe { *libc::__errno_location() = libc::ENOSYS };
        -1
    }
    preload::report("exec");
    EXECUTE[of].get().unwrap_or(none as *mut c_void)
}

macro_rules! executes {
    ($($position:literal = $name:ident;)*) => {$(
        /// # Safety
        /// As C's.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "push rax",
                ".cfi_adjust_cfa_offset 56",
                concat!("mov edi, ", $position),
                "call {before}",
                "mov r11, rax",
                "pop rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                ".cfi_adjust_cfa_offset -56",
                "jmp r11",
                ".cfi_endproc",
                before = sym before_execution,
            )
        }
    )*};
}

executes! {
    0 = execve;
    1 = execv;
    2 = execvp;
    3 = execvpe;
    4 = execl;
    5 = execlp;
    6 = execle;
    7 = fexecve;
    8 = execveat;
}
