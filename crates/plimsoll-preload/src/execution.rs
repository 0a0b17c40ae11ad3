//! The functions by which a process executes another program. Before each call, the report is
//! written, and this library is added to the new program's environment, so that it reports in turn.
//! If the execution fails, the program continues, and another report follows later.
//!
//! In a child, executed programs are not followed, unless children report too; the environment then
//! contains the settings, unless the program has removed them. Calls in a child jump to the C library's function with
//! registers and stack unchanged: the child of a `vfork` shares its parent's memory. Only two kinds of calls get another
//! environment, which takes no memory but the stack's: the settings are added if they are missing; and if the library's
//! file is not visible, as in a sandbox with another root directory, it is removed, since the loader would print an error.
//!
//! Each execution is entered in the roll of the run, so that a program that writes no report is known.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::reporting;
use plimsoll_process::probe;
use plimsoll_sys::os::region::PAGE;
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
const EXECVEAT: usize = 8;

/// The settings that an executed program inherits: entries `name=value`, and this library's path.
struct Wanted {
    variables: Vec<CString>,
    library: CString,
    /// The entry that loads this library alone.
    preload: CString,
    /// Whether children report, so that the environment of this process contains the settings.
    follows_children: bool,
}

static WANTED: OnceLock<Wanted> = OnceLock::new();

/// Stores the environment for executed programs. Looks up all functions now, since a later caller may be the child of a
/// `vfork`.
pub(crate) fn prepare(variables: Vec<CString>, library: Vec<u8>, follows_children: bool) {
    for next in FUNCTIONS.iter().chain(&SPAWN) {
        next.get();
    }
    let preload = [PRELOAD, &library].concat();
    let (Ok(library), Ok(preload)) = (CString::new(library), CString::new(preload)) else {
        return;
    };
    let _ = WANTED.set(Wanted {
        variables,
        library,
        preload,
        follows_children,
    });
}

impl Wanted {
    /// Returns the error for which the library cannot be loaded; 0 if it can, and under a system call filter.
    fn error_of_library(&self) -> c_int {
        match access(self.library.as_ptr(), libc::R_OK) {
            libc::EPERM => 0,
            error => error,
        }
    }

    /// Returns the error for which a program that this process executes cannot report; 0 if it can.
    fn obstacle(&self) -> reporting::Obstacle {
        let directory = || {
            let value = self.variables.iter().find_map(|variable| {
                let text = variable.as_bytes_with_nul();
                text.strip_prefix(DIRECTORY)
            });
            value.map_or(0, |value| {
                access(value.as_ptr().cast(), libc::W_OK | libc::X_OK)
            })
        };
        match self.error_of_library() {
            0 => directory(),
            error => error,
        }
    }

    /// Returns whether an environment loads this library and has the directory for reports.
    ///
    /// # Safety
    /// `environment` must be null, or a null-terminated list of C strings.
    unsafe fn is_in(&self, environment: Strings) -> bool {
        // SAFETY: this function has the contract of `entries`.
        let mut entries = unsafe { entries(environment) };
        let has_directory = entries.any(|entry| {
            // SAFETY: `entry` is a C string, by this function's contract.
            let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
            text.starts_with(DIRECTORY)
        });
        // SAFETY: this function has the contract of the other.
        has_directory && unsafe { self.is_preloaded_in(environment) }
    }

    /// Returns whether an environment loads this library before all others.
    ///
    /// # Safety
    /// `environment` must be null, or a null-terminated list of C strings.
    unsafe fn is_preloaded_in(&self, environment: Strings) -> bool {
        // SAFETY: this function has the contract of `entries`.
        let mut entries = unsafe { entries(environment) };
        entries.any(|entry| {
            // SAFETY: `entry` is a C string, by this function's contract.
            let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
            let preloaded = text.strip_prefix(PRELOAD);
            let rest = preloaded.and_then(|all| all.strip_prefix(self.library.to_bytes()));
            rest.is_some_and(|rest| matches!(rest.first(), None | Some(b':')))
        })
    }
}

/// Returns the error of the system for an access to a path; 0 if it is possible.
fn access(path: *const c_char, mode: c_int) -> c_int {
    let arguments = [
        libc::AT_FDCWD as usize,
        path as usize,
        mode as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the path is a C string.
    let result = unsafe { syscall::call(libc::SYS_faccessat, arguments) };
    -result as c_int
}

type Strings = *const *const c_char;

impl Call {
    unsafe fn strings(&self, at: usize) -> Strings {
        // SAFETY: this function has the contract of `argument`.
        unsafe { self.argument(at) as Strings }
    }

    /// Appends the arguments from index `from` up to and including a null. Returns `None` if the list is full.
    unsafe fn list(&self, from: usize, to: &mut impl Pointers) -> Option<()> {
        for at in from.. {
            // SAFETY: a null argument ends the list, by this function's contract, and no argument
            // after it is read.
            let argument = unsafe { self.argument(at) } as *const c_char;
            to.push(argument)?;
            if argument.is_null() {
                return Some(());
            }
        }
        None
    }
}

/// The longest name of a program that is noted, with its end.
const MAX_NAME: usize = 512;

/// Copies the C string at an address, which the program may have chosen badly. Takes no memory but the stack's.
fn with_name<R>(address: usize, then: impl FnOnce(&[u8]) -> R) -> R {
    let mut name = [0; MAX_NAME];
    let (mut length, mut readable) = (0, 0);
    while address != 0 && length < MAX_NAME {
        let at = address.wrapping_add(length);
        let page = at - at % PAGE;
        if page != readable && !probe::readable(page) {
            break;
        }
        readable = page;
        // SAFETY: the page is readable. The program may change the byte, which is read once.
        match unsafe { (at as *const u8).read_volatile() } {
            0 => break,
            byte => name[length] = byte,
        }
        length += 1;
    }
    then(&name[..length])
}

/// Returns the function to which the entry point jumps; null if the call was made and has failed.
unsafe extern "C" fn called(of: usize, call: &Call) -> *mut c_void {
    extern "C" fn none() -> c_int {
        // SAFETY: the pointer is valid, and belongs to the calling thread.
        unsafe { *libc::__errno_location() = libc::ENOSYS };
        -1
    }
    if let Some(wanted) = WANTED.get() {
        // SAFETY: `call` is a call of function number `of`, since its entry point called this.
        if unsafe { observed(of, call, wanted) } {
            return std::ptr::null_mut();
        }
    }
    FUNCTIONS[of].get().unwrap_or(none as *mut c_void)
}

/// Notes an execution, and makes the call if it needs another environment. Returns whether it was made, and has failed.
unsafe fn observed(of: usize, call: &Call, wanted: &Wanted) -> bool {
    // SAFETY: each of the functions has that argument.
    let name = unsafe { call.argument(usize::from(of == EXECVEAT)) };
    let name = if of == FEXECVE { 0 } else { name };
    if reporting::reports() {
        // A program that inherits a system call filter is not observed.
        let is_restricted = filter::is_restricted();
        let obstacle = if is_restricted {
            libc::EPERM
        } else {
            wanted.obstacle()
        };
        with_name(name, |name| reporting::report_execution(name, obstacle));
        if !is_restricted {
            // SAFETY: `call` is a call of function number `of`, by this function's contract. The closure gets its
            // environment.
            let has_failed = unsafe {
                execute(of, call, &mut Vec::new(), |environment, run| {
                    if obstacle == 0 && !wanted.is_in(environment) {
                        run(Environment::from_environment(environment, wanted)
                            .list
                            .as_ptr());
                    }
                })
            };
            if has_failed {
                reporting::note_failed_execution();
                return true;
            }
        }
    } else if wanted.follows_children {
        let obstacle = wanted.obstacle();
        with_name(name, |name| {
            reporting::note_execution_in_child(name, obstacle)
        });
    }
    if !wanted.follows_children {
        return false;
    }
    let can_load = wanted.error_of_library() == 0;
    // SAFETY: as above.
    unsafe {
        let environment = environment(of, call);
        let has_to_change = match can_load {
            true => !filter::is_restricted() && !wanted.is_in(environment),
            false => wanted.is_preloaded_in(environment),
        };
        has_to_change && execute_on_stack(of, call, wanted, can_load)
    }
}

/// Returns the environment of a call.
unsafe fn environment(of: usize, call: &Call) -> Strings {
    // SAFETY: `call` is a call of function number `of`, by this function's contract.
    unsafe {
        match of {
            EXECVE | EXECVPE | FEXECVE => call.strings(2),
            EXECV | EXECVP | EXECL | EXECLP => environ,
            EXECLE => {
                let mut last = 1;
                while call.argument(last) != 0 {
                    last += 1;
                }
                call.strings(last + 1)
            }
            _ => call.strings(3),
        }
    }
}

/// Makes the call with settings and library, or without the library, in lists on the stack: a child of `vfork` allocates
/// nothing. Not inlined, since its stack may be small, and few calls need another environment. Returns as [`execute`].
#[inline(never)]
unsafe fn execute_on_stack(of: usize, call: &Call, wanted: &Wanted, can_load: bool) -> bool {
    // SAFETY: this function has the contract of `execute`. The closure gets the environment of the call.
    unsafe {
        execute(of, call, &mut OnStack::new(), |environment, run| {
            let (mut list, mut others) = (OnStack::new(), [0; 4096]);
            let changed = match can_load {
                true => with_settings(environment, wanted, &mut list, &mut others),
                false => without_library(environment, &wanted.library, &mut list, &mut others),
            };
            if changed.is_some() {
                run(list.as_ptr());
            }
        })
    }
}

/// Calls that start another process with a program.
static SPAWN: [Next; 2] = [Next::new("posix_spawn\0"), Next::new("posix_spawnp\0")];

macro_rules! spawns {
    ($($position:literal = $name:ident;)*) => {$(
        /// # Safety
        /// The requirements of the C function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            process: *mut libc::pid_t,
            path: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            arguments: Strings,
            environment: Strings,
        ) -> c_int {
            type Spawn = unsafe extern "C" fn(
                *mut libc::pid_t, *const c_char, *const c_void, *const c_void, Strings, Strings,
            ) -> c_int;
            let Some(next) = SPAWN[$position].get() else {
                return libc::ENOSYS;
            };
            let wanted = WANTED.get().filter(|wanted| {
                // SAFETY: by C's contract, the environment is null or a null-terminated list of C strings.
                let needs_settings = || unsafe { !wanted.is_in(environment) };
                wanted.follows_children
                    && reporting::reports()
                    && !filter::is_restricted()
                    && needs_settings()
                    && wanted.obstacle() == 0
            });
            // SAFETY: `next` is the C library's function of that name, which has this type and gets the caller's
            // arguments, or an environment that lives during the call.
            let result = unsafe {
                let next = std::mem::transmute::<*mut c_void, Spawn>(next);
                let spawn = |environment| {
                    next(process, path, actions, attributes, arguments, environment)
                };
                match wanted {
                    Some(wanted) => spawn(Environment::from_environment(environment, wanted).list.as_ptr()),
                    None => spawn(environment),
                }
            };
            if result == 0 && !process.is_null() {
                // SAFETY: the C library has written the number.
                let process = unsafe { process.read() };
                with_name(path as usize, |name| reporting::note_spawned(process as u32, name));
            }
            result
        }
    )*};
}

spawns! {
    0 = posix_spawn;
    1 = posix_spawnp;
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
        let (function, arguments) = match of {
            EXECVE | EXECVPE | FEXECVE => (of, call.strings(1)),
            EXECV => (EXECVE, call.strings(1)),
            EXECVP => (EXECVPE, call.strings(1)),
            EXECL | EXECLP | EXECLE => {
                if call.list(1, arguments).is_none() {
                    return false;
                }
                let function = if of == EXECLP { EXECVPE } else { EXECVE };
                (function, arguments.as_ptr())
            }
            _ => (of, call.strings(2)),
        };
        let environment = environment(of, call);
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
    // SAFETY: this function has the contract of `entries`.
    for entry in unsafe { entries(environment) } {
        // SAFETY: `entry` is a C string, by this function's contract.
        let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
        let preloaded = text.strip_prefix(PRELOAD);
        match preloaded.and_then(|all| all.strip_prefix(library.to_bytes())) {
            None => list.push(entry)?,
            Some([]) => {}
            Some(rest) => {
                let rest = rest.strip_prefix(b":")?;
                list.push(joined(&[PRELOAD, rest], others)?)?;
            }
        }
    }
    list.push(std::ptr::null())
}

/// Copies an environment, with the settings in place of others. `others` is for the entry that preloads libraries, if
/// there are others. Returns `None` if there is too much.
///
/// # Safety
/// `environment` must be null, or a null-terminated list of C strings.
unsafe fn with_settings(
    environment: Strings,
    wanted: &Wanted,
    list: &mut OnStack,
    others: &mut [u8; 4096],
) -> Option<()> {
    let mut preload = wanted.preload.as_ptr();
    // SAFETY: this function has the contract of `entries`.
    for entry in unsafe { entries(environment) } {
        // SAFETY: `entry` is a C string, by this function's contract.
        let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
        match text.strip_prefix(PRELOAD) {
            Some([]) => {}
            Some(rest) => {
                let library = wanted.library.to_bytes();
                preload = joined(&[PRELOAD, library, b":", rest], others)?;
            }
            None if text.starts_with(SETTINGS) => {}
            None => list.push(entry)?,
        }
    }
    list.push(preload)?;
    for variable in &wanted.variables {
        list.push(variable.as_ptr())?;
    }
    list.push(std::ptr::null())
}

/// Joins pieces to a C string in a buffer. Returns `None` if it is too small.
fn joined(pieces: &[&[u8]], to: &mut [u8]) -> Option<*const c_char> {
    let mut end = 0;
    for piece in pieces.iter().chain(&[&b"\0"[..]]) {
        to.get_mut(end..end + piece.len())?.copy_from_slice(piece);
        end += piece.len();
    }
    Some(to.as_ptr().cast())
}

/// Returns the entries of an environment.
///
/// # Safety
/// `environment` must be null, or a null-terminated list of C strings, and not change meanwhile.
unsafe fn entries(environment: Strings) -> impl Iterator<Item = *const c_char> {
    let mut at = environment;
    std::iter::from_fn(move || {
        // SAFETY: `at` is null or points into a null-terminated list, by this function's contract.
        unsafe {
            let entry = if at.is_null() { std::ptr::null() } else { *at };
            at = at.wrapping_add(1);
            (!entry.is_null()).then_some(entry)
        }
    })
}

/// The beginning of the entry that preloads libraries.
const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// The beginning of the settings, of which one is the directory for reports.
const SETTINGS: &[u8] = b"PLIMSOLL_RUN";
const DIRECTORY: &[u8] = b"PLIMSOLL_RUN_TO=";

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
    unsafe fn from_environment(environment: Strings, wanted: &Wanted) -> Self {
        let mut preload = wanted.preload.to_bytes().to_vec();
        let mut list = Vec::new();
        // SAFETY: this function has the contract of `entries`.
        for entry in unsafe { entries(environment) } {
            // SAFETY: `entry` is a C string, by this function's contract.
            let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
            match text.strip_prefix(PRELOAD) {
                Some([]) => {}
                Some(others) => {
                    preload.push(b':');
                    preload.extend_from_slice(others);
                }
                None if text.starts_with(SETTINGS) => {}
                None => list.push(entry),
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
