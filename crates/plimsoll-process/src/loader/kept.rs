//! glibc, whose loader unmaps libraries.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use plimsoll_sys::primitives::{AtomicBool, Ordering};

static IS_KEPT: AtomicBool = AtomicBool::new(false);

/// The head of the loader's description of a loaded object.
#[repr(C)]
struct LinkMap {
    base: usize,
    /// The path by which the loader finds the object again, without a system call.
    name: *const c_char,
    dynamic: *const c_void,
    next: *const Self,
    /// Null for the program, which comes first.
    previous: *const Self,
}

/// Makes the loader keep the object that contains this code until the process ends, if it is a library. Called
/// before the system has an address of this code that no destructor of the library takes away: of a thread or of a
/// signal handler. Not for hooks: it takes the loader's lock.
pub fn keep_this_library() {
    if IS_KEPT.load(Ordering::Relaxed) {
        return;
    }
    let _alone = super::lock();
    if let Some(library) = this_library() {
        keep(library);
    }
    IS_KEPT.store(true, Ordering::Relaxed);
}

/// Returns the path of the library that contains this code; `None` in a program.
fn this_library() -> Option<*const c_char> {
    /// Makes `dladdr1` return the object's description as well.
    const RTLD_DL_LINKMAP: c_int = 2;
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    let mut object = ptr::null_mut();
    // SAFETY: `dladdr1` accepts any address, and writes to both variables.
    let known = unsafe {
        libc::dladdr1(
            this_library as *const c_void,
            found.as_mut_ptr(),
            &raw mut object,
            RTLD_DL_LINKMAP,
        )
    };
    if known == 0 {
        return None;
    }
    // SAFETY: the description of the object that contains this code exists as long as the object.
    let object = unsafe { object.cast::<LinkMap>().as_ref() }?;
    (!object.previous.is_null()).then_some(object.name)
}

fn keep(library: *const c_char) {
    // Static programs do not have the function.
    let open = super::function(c"dlopen");
    if open.is_null() {
        return;
    }
    // SAFETY: the function has this type. The path is a C string of a loaded object. Opening that object again runs
    // no code of it.
    unsafe {
        let open: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void =
            std::mem::transmute(open);
        open(
            library,
            libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE,
        );
    }
}
