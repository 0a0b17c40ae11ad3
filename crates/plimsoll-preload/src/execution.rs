//! The functions by which a process executes another program. Before each call, the report is
//! written, and this library is added to the new program's environment, so that it reports in turn.
//! If the execution fails, the program continues, and another report follows later.
//!
//! In a child, executed programs are not followed, unless children report too; the environment then
//! contains the settings anyway. Calls in a child jump to the C library's function with registers
//! and stack unchanged: the child of a `vfork` shares its parent's memory. Only if the library's file is not
//! visible, as in a sandbox with another root directory, it is removed from the environment: the
//! loader would print an error. That takes no memory but the stack's.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use plimsoll::preload;
use plimsoll_sys::os::{filter, syscall};

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

/// The path of this library, if executed programs find it in their environment.
static INHERITED_LIBRARY: OnceLock<CString> = OnceLock::new();

/// Looks up all functions now, since a later caller may be the child of a `vfork`.
fn find_functions() {
    for next in &FUNCTIONS {
        next.get();
    }
}

/// Stores the environment for executed programs.
pub(crate) fn prepare(variables: Vec<CString>, library: Vec<u8>) {
    find_functions();
    let _ = WANTED.set(Wanted { variables, library });
}

/// Notes that executed programs find this library in their environment.
pub(crate) fn prepare_inherited(library: Vec<u8>) {
    find_functions();
    if let Ok(library) = CString::new(library) {
        let _ = INHERITED_LIBRARY.set(library);
    }
}

/// Returns the library's path if its file is not visible to the calling process. Unknown under a system call filter.
fn invisible_library() -> Option<&'static CStr> {
    let library = INHERITED_LIBRARY.get()?;
    let arguments = [
        libc::AT_FDCWD as usize,
        library.as_ptr() as usize,
        libc::R_OK as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the path is a C string.
    let result = unsafe { syscall::call(libc::SYS_faccessat, arguments) };
    let is_invisible = result < 0 && result != -(libc::EPERM as isize);
    is_invisible.then_some(library.as_c_str())
}

type Strings = *const *const c_char;

impl Call {
    unsafe fn strings(&self, at: usize) -> Strings {
        // SAFETY: this function has the contract of `argument`.
        unsafe { self.argument(at) as Strings }
    }

    /// Appends the arguments from index `from` up to and including a null. Returns the index after it; `None` if the
    /// list is full.
    unsafe fn list(&self, from: usize, to: &mut impl Pointers) -> Option<usize> {
        for at in from.. {
            // SAFETY: a null argument ends the list, by this function's contract, and no argument
            // after it is read.
            let argument = unsafe { self.argument(at) } as *const c_char;
            to.push(argument)?;
            if argument.is_null() {
                return Some(at + 1);
            }
        }
        None
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
            unsafe {
                execute(of, call, &mut Vec::new(), |environment, run| {
                    run(Environment::of(environment, wanted).list.as_ptr())
                });
            }
            return std::ptr::null_mut();
        }
    }
    if let Some(library) = invisible_library() {
        // SAFETY: as above.
        let executed = unsafe {
            execute(of, call, &mut OnStack::new(), |environment, run| {
                let (mut list, mut others) = (OnStack::new(), [0; 4096]);
                if without_library(environment, library, &mut list, &mut others).is_some() {
                    run(list.as_ptr());
                }
            })
        };
        if executed {
            return std::ptr::null_mut();
        }
    }
    FUNCTIONS[of].get().unwrap_or(none as *mut c_void)
}

unsafe extern "C" {
    static environ: Strings;
}

/// A list of C strings.
trait Pointers {
    /// Appends a pointer. Returns `None` if the list is full.
    fn push(&mut self, pointer: *const c_char) -> Option<()>;

    fn as_ptr(&self) -> Strings;
}

impl Pointers for Vec<*const c_char> {
    fn push(&mut self, pointer: *const c_char) -> Option<()> {
        self.push(pointer);
        Some(())
    }

    fn as_ptr(&self) -> Strings {
        self.as_slice().as_ptr()
    }
}

/// A list in the memory of the stack.
struct OnStack {
    pointers: [*const c_char; 1024],
    length: usize,
}

impl OnStack {
    fn new() -> Self {
        Self {
            pointers: [std::ptr::null(); 1024],
            length: 0,
        }
    }
}

impl Pointers for OnStack {
    fn push(&mut self, pointer: *const c_char) -> Option<()> {
        *self.pointers.get_mut(self.length)? = pointer;
        self.length += 1;
        Some(())
    }

    fn as_ptr(&self) -> Strings {
        self.pointers.as_ptr()
    }
}

/// Makes the call with another environment: `with_environment` receives the caller's, and calls its second argument
/// with the list to use. `arguments` is an empty list. Returns, if the call failed, true; false if it was not made.
unsafe fn execute(
    of: usize,
    call: &Call,
    arguments: &mut impl Pointers,
    with_environment: impl FnOnce(Strings, &mut dyn FnMut(Strings)),
) -> bool {
    type WithPath = unsafe extern "C" fn(usize, Strings, Strings) -> c_int;
    type At = unsafe extern "C" fn(usize, usize, Strings, Strings, usize) -> c_int;
    // SAFETY: `call` is a call of function number `of`, by this function's contract. Each function
    // is called with its own type.
    unsafe {
        let (function, arguments, environment) = match of {
            EXECVE | EXECVPE | FEXECVE => (of, call.strings(1), call.strings(2)),
            EXECV => (EXECVE, call.strings(1), environ),
            EXECVP => (EXECVPE, call.strings(1), environ),
            EXECL | EXECLP | EXECLE => {
                let Some(behind) = call.list(1, arguments) else {
                    return false;
                };
                match of {
                    EXECL => (EXECVE, arguments.as_ptr(), environ),
                    EXECLP => (EXECVPE, arguments.as_ptr(), environ),
                    _ => (EXECVE, arguments.as_ptr(), call.strings(behind)),
                }
            }
            _ => (of, call.strings(2), call.strings(3)),
        };
        let Some(next) = FUNCTIONS[function].get() else {
            return false;
        };
        let mut is_made = false;
        with_environment(environment, &mut |environment| {
            is_made = true;
            if function == of && ![EXECVE, EXECVPE, FEXECVE].contains(&of) {
                let next = std::mem::transmute::<*mut c_void, At>(next);
                let (directory, path, flags) =
                    (call.argument(0), call.argument(1), call.argument(4));
                next(directory, path, arguments, environment, flags);
            } else {
                let next = std::mem::transmute::<*mut c_void, WithPath>(next);
                next(call.argument(0), arguments, environment);
            }
        });
        is_made
    }
}

/// Copies an environment without this library, which is the first of those that are preloaded. `others` is for the
/// entry with the others. Returns `None` if there is too much.
///
/// # Safety
/// `environment` must be null, or a null-terminated list of C strings.
unsafe fn without_library(
    environment: Strings,
    library: &CStr,
    list: &mut OnStack,
    others: &mut [u8; 4096],
) -> Option<()> {
    let mut at = environment;
    // SAFETY: `environment` is null or a null-terminated list of C strings, by this function's contract.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let entry = *at;
            at = at.add(1);
            let text = CStr::from_ptr(entry).to_bytes();
            let preloaded = text.strip_prefix(PRELOAD);
            match preloaded.and_then(|all| all.strip_prefix(library.to_bytes())) {
                None => list.push(entry)?,
                Some([]) => {}
                Some(rest) => {
                    let rest = rest.strip_prefix(b":")?;
                    let end = PRELOAD.len() + rest.len();
                    others.get_mut(..PRELOAD.len())?.copy_from_slice(PRELOAD);
                    others.get_mut(PRELOAD.len()..end)?.copy_from_slice(rest);
                    *others.get_mut(end)? = 0;
                    list.push(others.as_ptr().cast())?;
                }
            }
        }
    }
    list.push(std::ptr::null())
}

const PRELOAD: &[u8] = b"LD_PRELOAD=";

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
        let mut preload = [PRELOAD, &wanted.library].concat();
        let mut list = Vec::new();
        let mut at = environment;
        // SAFETY: `environment` is null or a null-terminated list of C strings, by this function's
        // contract.
        unsafe {
            while !at.is_null() && !(*at).is_null() {
                let entry = *at;
                match CStr::from_ptr(entry).to_bytes().strip_prefix(PRELOAD) {
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
