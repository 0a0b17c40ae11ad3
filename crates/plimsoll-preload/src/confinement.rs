//! The functions by which a process confines itself: it changes its user, its root directory, its namespaces or its
//! limits. Before each call, the library prepares the report, which the process could not write later.
//!
//! System call filters are observed by `plimsoll-interpose`, which interposes `prctl` and `syscall`.

use std::ffi::{c_int, c_void};

use crate::reporting;
use plimsoll_process::probe;
use plimsoll_sys::os::{self, syscall};

use crate::next::Next;

macro_rules! confines {
    ($before:expr => $($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// # Safety
        /// The requirements of the C function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            type Function = unsafe extern "C" fn($($type),*) -> c_int;
            static NEXT: Next = Next::new(concat!(stringify!($name), "\0"));
            $before;
            match NEXT.get() {
                // SAFETY: `next` is the C library's function of that name, which has this type and gets the caller's
                // arguments.
                Some(next) => unsafe {
                    std::mem::transmute::<*mut c_void, Function>(next)($($argument),*)
                },
                None => {
                    // SAFETY: the pointer is valid, and belongs to the calling thread.
                    unsafe { *libc::__errno_location() = libc::ENOSYS };
                    -1
                }
            }
        }
    )*};
}

/// The open files at which a limit is low: a report needs some.
const FEW_FILES: libc::rlim_t = 64;

/// Prepares the report if a limit would keep the process from writing it, and gives address space back that a limit would
/// count.
fn before_limit(process: libc::pid_t, resource: c_int, limit: *const libc::rlimit) {
    let resource = resource as libc::__rlimit_resource_t;
    let is_valid = limit.is_aligned() && probe::readable(limit as usize);
    let is_own = process == 0 || process == os::process_id() as libc::pid_t;
    let concerns = [libc::RLIMIT_AS, libc::RLIMIT_FSIZE, libc::RLIMIT_NOFILE].contains(&resource);
    if !is_valid || !is_own || !concerns {
        return;
    }
    // SAFETY: the limit is aligned, and the page in which it begins is readable. Its second half may be on the next page,
    // and is not read.
    let allowed = unsafe { (&raw const (*limit).rlim_cur).read() };
    let least = match resource {
        libc::RLIMIT_AS => {
            if allowed != libc::RLIM_INFINITY {
                reporting::before_address_space_limit(allowed as usize);
            }
            return;
        }
        libc::RLIMIT_FSIZE => libc::RLIM_INFINITY,
        _ => FEW_FILES,
    };
    if allowed < least {
        reporting::before_confinement();
    }
}

macro_rules! limits {
    ($($set:ident, $set_of_process:ident;)*) => {$(
        /// # Safety
        /// The requirements of the C function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(resource: c_int, limit: *const libc::rlimit) -> c_int {
            // SAFETY: the caller's limit is null or readable, and the kernel checks it.
            unsafe {
                before_limit(0, resource, limit);
                set_limit(0, resource, limit, std::ptr::null_mut())
            }
        }

        /// # Safety
        /// The requirements of the C function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_of_process(
            process: libc::pid_t,
            resource: c_int,
            limit: *const libc::rlimit,
            before: *mut libc::rlimit,
        ) -> c_int {
            // SAFETY: the caller's limits are null or valid, and the kernel checks them.
            unsafe {
                before_limit(process, resource, limit);
                set_limit(process, resource, limit, before)
            }
        }
    )*};
}

limits! {
    setrlimit, prlimit;
    setrlimit64, prlimit64;
}

/// Makes the system call, as the C library does.
unsafe fn set_limit(
    process: libc::pid_t,
    resource: c_int,
    limit: *const libc::rlimit,
    before: *mut libc::rlimit,
) -> c_int {
    let arguments = [
        process as usize,
        resource as usize,
        limit as usize,
        before as usize,
        0,
        0,
    ];
    // SAFETY: the arguments are those of the program's own call.
    let result = unsafe { syscall::forward(libc::SYS_prlimit64, arguments) };
    if result < 0 {
        // SAFETY: the pointer is valid, and belongs to the calling thread.
        unsafe { *libc::__errno_location() = -result as c_int };
        return -1;
    }
    result as c_int
}

/// As [`reporting::before_confinement`], for calls after which children may be in another namespace.
fn before_namespace() {
    reporting::before_confinement();
    reporting::note_namespace();
}

/// The parts that only a process of one thread may separate. A new user namespace implies some of them.
const OF_ONE_THREAD: c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWTIME
    | libc::CLONE_VM
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD;

/// The namespaces that only a process of one thread may enter.
const ENTERED_BY_ONE_THREAD: c_int = libc::CLONE_NEWNS | libc::CLONE_NEWUSER | libc::CLONE_NEWTIME;

fn before_unshare(what: c_int) {
    before_namespace();
    if what & OF_ONE_THREAD != 0 {
        reporting::leave_one_thread();
    }
}

fn before_setns(_: c_int, kind: c_int) {
    before_namespace();
    // Without a kind, the file decides.
    if kind == 0 || kind & ENTERED_BY_ONE_THREAD != 0 {
        reporting::leave_one_thread();
    }
}

confines! { reporting::before_confinement() =>
    chroot(path: *const libc::c_char);
    setuid(user: libc::uid_t);
    seteuid(user: libc::uid_t);
    setreuid(real: libc::uid_t, effective: libc::uid_t);
    setresuid(real: libc::uid_t, effective: libc::uid_t, saved: libc::uid_t);
}

confines! { before_unshare(what) =>
    unshare(what: c_int);
}

confines! { before_setns(file, kind) =>
    setns(file: c_int, kind: c_int);
}
