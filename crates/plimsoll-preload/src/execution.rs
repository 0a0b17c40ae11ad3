//! The functions by which a process executes another program. Before each call, the report is
//! written, and this library is added to the new program's environment, so that it reports in turn.
//! If the execution fails, the program continues, and another report follows later.
//!
//! In a child, executed programs are not followed, unless children report too; the environment then
//! contains the settings anyway. Calls in a child jump to the C library's function with registers
//! and stack unchanged: the child of a `vfork` shares its parent's memory.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use plimsoll::preload;
use plimsoll_sys::os::filter;

use crate::arch::Call;
use crate::next::Next;

/// The functions, by number.
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

/// The settings that an executed program inherits: entries `name=value`, and this library's path.
struct Wanted {
    variables: Vec<CString>,
    library: Vec<u8>,
}

static WANTED: OnceLock<Wanted> = OnceLock::new();

/// Stores the environment for executed programs. Also looks up all functions now, since a later
/// caller may be the child of a `vfork`.
pub(crate) fn prepare(variables: Vec<CString>, library: Vec<u8>) {
    for next in &FUNCTIONS {
        next.get();
    }
    let _ = WANTED.set(Wanted { variables, library });
}

type Strings = *const *const c_char;

impl Call {
    unsafe fn strings(&self, at: usize) -> Strings {
        // SAFETY: this function has the contract of `argument`.
        unsafe { self.argument(at) as Strings }
    }

    /// Returns the arguments from index `from` up to and including a null, and the index after it.
    unsafe fn list(&self, from: usize) -> (Vec<*const c_char>, usize) {
        let mut list = Vec::new();
        loop {
            // SAFETY: a null argument ends the list, by this function's contract, and no argument
            // after it is read.
            let argument = unsafe { self.argument(from + list.len()) } as *const c_char;
            list.push(argument);
            if argument.is_null() {
                let behind = from + list.len();
                return (list, behind);
            }
        }
    }
}

/// Returns the function to which the entry point jumps; null if the call was made and has failed.
unsafe extern "C" fn called(of: usize, call: &Call) -> *mut c_void {
    extern "C" fn none() -> c_int {
        // SAFETY: the pointer is valid, and belongs to the calling thread.
        unsafe { *libc::__errno_location() = libc::ENOSYS };
        -1
    }
    if preload::reports() {
        preload::report("exec");
        // A program that inherits a system call filter is not observed.
        if let Some(wanted) = WANTED.get().filter(|_| !filter::is_restricted()) {
            // SAFETY: `call` is a call of function number `of`, since its entry point called this.
            unsafe { execute(of, call, wanted) };
            return std::ptr::null_mut();
        }
    }
    FUNCTIONS[of].get().unwrap_or(none as *mut c_void)
}

unsafe extern "C" {
    static environ: Strings;
}

/// Makes the call with the settings in the environment. Returns only if it fails.
unsafe fn execute(of: usize, call: &Call, wanted: &Wanted) {
    type WithPath = unsafe extern "C" fn(usize, Strings, Strings) -> c_int;
    type At = unsafe extern "C" fn(usize, usize, Strings, Strings, usize) -> c_int;
    // SAFETY: `call` is a call of function number `of`, by this function's contract. Each function
    // is called with its own type.
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

/// An environment that includes the settings.
struct Environment {
    list: Vec<*const c_char>,
    _preload: CString,
}

impl Environment {
    /// Adds the settings to an environment.
    ///
    /// # Safety
    /// `environment` must be null, or a null-terminated list of C strings.
    unsafe fn of(environment: Strings, wanted: &Wanted) -> Self {
        const NAME: &[u8] = b"LD_PRELOAD=";
        let mut preload = [NAME, &wanted.library].concat();
        let mut list = Vec::new();
        let mut at = environment;
        // SAFETY: `environment` is null or a null-terminated list of C strings, by this function's
        // contract.
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
        // Neither part contains a NUL byte.
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
        /// The requirements of the C function of that name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                crate::arch::executes!(),
                position = const $position,
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
