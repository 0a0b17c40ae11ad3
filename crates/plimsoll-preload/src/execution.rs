//! The functions by which a process becomes another program: before each, the report is written,
//! and what the process becomes has this library preloaded as well, so that it reports in its turn.
//! If it cannot be executed, the program goes on as it was, and there will be another report.
//!
//! In a child, what it executes is nobody's business, unless children report too: then the
//! environment says so anyway. There, the C library's function is jumped to with registers and
//! stack as they were; the child of a `vfork` borrows the memory of its parent.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use plimsoll::preload;

use crate::next::Next;

/// The functions, by their numbers.
static FUNCTIONS: [Next; 9] = [
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

const EXECVE: usize = 0;
const EXECV: usize = 1;
const EXECVP: usize = 2;
const EXECVPE: usize = 3;
const EXECL: usize = 4;
const EXECLP: usize = 5;
const EXECLE: usize = 6;
const FEXECVE: usize = 7;

/// What set this library off: `name=value`, and the path of the library.
struct Wanted {
    variables: Vec<CString>,
    library: Vec<u8>,
}

static WANTED: OnceLock<Wanted> = OnceLock::new();

/// Notes what the next program is to be told, and looks up what must not be looked up later: the
/// child of a `vfork` may be who calls.
pub(crate) fn prepare(variables: Vec<CString>, library: Vec<u8>) {
    for next in &FUNCTIONS {
        next.get();
    }
    let _ = WANTED.set(Wanted { variables, library });
}

type Strings = *const *const c_char;

/// The arguments of a call, as the caller passed them: six in registers, the others on the stack.
#[repr(C)]
struct Call {
    /// What is restored when the C library's function is jumped to.
    rax: usize,
    /// From the last to the first.
    registers: [usize; 6],
    return_address: usize,
    stack: [usize; 0],
}

impl Call {
    /// The argument of that number.
    ///
    /// # Safety
    /// There are that many.
    unsafe fn argument(&self, at: usize) -> usize {
        match self.registers.len().checked_sub(1 + at) {
            Some(register) => self.registers[register],
            // SAFETY: the caller's.
            None => unsafe { self.stack.as_ptr().add(at - self.registers.len()).read() },
        }
    }

    unsafe fn strings(&self, at: usize) -> Strings {
        // SAFETY: the caller's.
        unsafe { self.argument(at) as Strings }
    }

    /// The arguments from that number on up to a null, that included, and the number behind it.
    unsafe fn list(&self, from: usize) -> (Vec<*const c_char>, usize) {
        let mut list = Vec::new();
        loop {
            // SAFETY: the caller's: there is a null.
            let argument = unsafe { self.argument(from + list.len()) } as *const c_char;
            list.push(argument);
            if argument.is_null() {
                let behind = from + list.len();
                return (list, behind);
            }
        }
    }
}

/// Returns where the call goes on; null if it was made, and has failed.
unsafe extern "C" fn called(of: usize, call: &Call) -> *mut c_void {
    extern "C" fn none() -> c_int {
        // SAFETY: the thread's own.
        unsafe { *libc::__errno_location() = libc::ENOSYS };
        -1
    }
    if preload::reports() {
        preload::report("exec");
        if let Some(wanted) = WANTED.get() {
            // SAFETY: the caller's: it is a call of that function.
            unsafe { execute(of, call, wanted) };
            return std::ptr::null_mut();
        }
    }
    FUNCTIONS[of].get().unwrap_or(none as *mut c_void)
}

unsafe extern "C" {
    static environ: Strings;
}

/// Makes the call with what is wanted in the environment. Comes back if it fails.
unsafe fn execute(of: usize, call: &Call, wanted: &Wanted) {
    type WithPath = unsafe extern "C" fn(usize, Strings, Strings) -> c_int;
    type At = unsafe extern "C" fn(usize, usize, Strings, Strings, usize) -> c_int;
    // SAFETY: the caller's; the functions are of these types.
    unsafe {
        let with_path = |function: usize, arguments: Strings, environment: Strings| {
            if let Some(next) = FUNCTIONS[function].get() {
                let environment = Environment::of(environment, wanted);
                std::mem::transmute::<*mut c_void, WithPath>(next)(
                    call.argument(0),
                    arguments,
                    environment.list.as_ptr(),
                );
            }
        };
        match of {
            EXECVE | EXECVPE | FEXECVE => with_path(of, call.strings(1), call.strings(2)),
            EXECV => with_path(EXECVE, call.strings(1), environ),
            EXECVP => with_path(EXECVPE, call.strings(1), environ),
            EXECL => with_path(EXECVE, call.list(1).0.as_ptr(), environ),
            EXECLP => with_path(EXECVPE, call.list(1).0.as_ptr(), environ),
            EXECLE => {
                let (arguments, behind) = call.list(1);
                with_path(EXECVE, arguments.as_ptr(), call.strings(behind));
            }
            _ => {
                if let Some(next) = FUNCTIONS[of].get() {
                    let environment = Environment::of(call.strings(3), wanted);
                    std::mem::transmute::<*mut c_void, At>(next)(
                        call.argument(0),
                        call.argument(1),
                        call.strings(2),
                        environment.list.as_ptr(),
                        call.argument(4),
                    );
                }
            }
        }
    }
}

/// An environment with what is wanted in it.
struct Environment {
    list: Vec<*const c_char>,
    _preload: CString,
}

impl Environment {
    /// # Safety
    /// `environment` is null, or a list of strings up to a null.
    unsafe fn of(environment: Strings, wanted: &Wanted) -> Self {
        const NAME: &[u8] = b"LD_PRELOAD=";
        let mut preload = [NAME, &wanted.library].concat();
        let mut list = Vec::new();
        let mut at = environment;
        // SAFETY: the caller's.
        unsafe {
            while !at.is_null() && !(*at).is_null() {
                let entry = *at;
                match CStr::from_ptr(entry).to_bytes().strip_prefix(NAME) {
                    Some(others) if !others.is_empty() => {
                        preload.push(b':');
                        preload.extend_from_slice(others);
                    }
                    Some(_) => {}
                    None => list.push(entry),
                }
                at = at.add(1);
            }
        }
        // Neither part has a null in it.
        let preload = CString::new(preload).unwrap_or_default();
        list.push(preload.as_ptr());
        list.extend(wanted.variables.iter().map(|variable| variable.as_ptr()));
        list.push(std::ptr::null());
        Self {
            list,
            _preload: preload,
        }
    }
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
                "mov rsi, rsp",
                "call {called}",
                "mov r11, rax",
                "pop rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                ".cfi_adjust_cfa_offset -56",
                "test r11, r11",
                "jz 2f",
                "jmp r11",
                "2:",
                "mov eax, -1",
                "ret",
                ".cfi_endproc",
                called = sym called,
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
