//! What a library needs that is preloaded into programs which know nothing of Plimsoll. Not for
//! programs.
//!
//! There is no thread of Plimsoll's in such a program until it has several of its own, or the pages
//! or a limit on memory are wanted: it may count its threads, and the C library is quicker where
//! there is one.

mod counting;
mod inherited;
mod report;

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{OsString, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

pub use crate::alloc::c::{
    Below, below, calloc, free, is_allocators, malloc, memalign, posix_memalign, realloc,
    reallocarray, usable_size,
};

pub(crate) use counting::Counting;
pub use counting::put_off;

use crate::alloc::{c, process};
use crate::os::privileges;
use crate::primitives::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use crate::stats::backend;
use crate::{config, keeper, own, own_thread, postmortem, settings};

/// The allocator of the library itself: what it allocates is Plimsoll's own, whoever calls it.
#[derive(Clone, Copy, Debug)]
pub struct OwnHeap;

// SAFETY: blocks come from one of two heaps that keep to the contract, and are given back to the
// one that has their address.
unsafe impl GlobalAlloc for OwnHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = own::alloc(layout, false);
        if block.is_null() {
            // SAFETY: the caller's.
            return unsafe { c::allocate_uncounted(layout) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe {
            if own::contains(block as usize) {
                own::free(block, layout);
            } else {
                c::free_uncounted(block);
            }
        }
    }
}

/// The directory that reports are written to.
static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();

/// The process that is reported on; a process that is forked from it is another.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Whether what the settings say was set off.
static SET_OFF: AtomicBool = AtomicBool::new(false);

/// What the environment said at the beginning, before it was made to say nothing.
static SETTINGS: OnceLock<Option<OsString>> = OnceLock::new();

/// See [`SETTINGS`].
pub(crate) fn settings() -> Option<OsString> {
    let settings = SETTINGS.get_or_init(settings::from_environment);
    settings.clone()
}

/// Sets the process up, if no allocation has done that. Before anything is allocated here, which
/// would come to be the program's allocator's.
pub fn open() {
    process::open();
}

/// Returns whether the environment may say what is to be done: not in a process with privileges
/// that the user that started it lacks.
pub fn may_obey_environment() -> bool {
    !privileges::are_elevated()
}

/// Begins, before `main`: from now on there is something to be reported, to files in `directory`.
/// With `children`, processes that are forked from this one report as well.
pub fn begin(directory: PathBuf, children: bool) {
    postmortem::prepare();
    let _own = own::scope();
    let _ = DIRECTORY.set(directory);
    PROCESS.store(own_process(), Ordering::Relaxed);
    report::begin();
    notice_end_of_first();
    // SAFETY: looks a variable up by name.
    let said = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    SINGLE_THREADED.store(said.cast(), Ordering::Relaxed);
    CHILDREN.store(children, Ordering::Relaxed);
    // Nobody else says what is below the door of C.
    if below() == Below::Libc {
        backend::notice(&backend::System::PLAIN);
    }
    if config::wants_thread() {
        set_off();
    }
}

/// Whether processes that are forked from this one report as well.
static CHILDREN: AtomicBool = AtomicBool::new(false);

/// In the child of a fork, when everything else is ready in it: its own life begins.
pub(crate) fn after_fork_in_child() {
    if !CHILDREN.load(Ordering::Relaxed) {
        return;
    }
    PROCESS.store(own_process(), Ordering::Relaxed);
    let _counting = Counting::begin();
    let _own = own::scope();
    report::begin();
    inherited::take_down();
    #[cfg(feature = "http")]
    if let Some(address) = config::serve_in_child() {
        note_address(address);
    }
}

/// Notes where the pages are served and the name of the process, in a file of the directory for
/// reports that is named after the process's number.
#[cfg(feature = "http")]
fn note_address(address: std::net::SocketAddr) {
    if let Some(directory) = DIRECTORY.get() {
        let process = own_process();
        let beside = directory.join(format!("{process}.http.part"));
        let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let written = std::fs::write(&beside, format!("{address}\n{name}"));
        let _ = written
            .and_then(|()| std::fs::rename(&beside, directory.join(format!("{process}.http"))));
    }
}

fn own_process() -> i32 {
    // SAFETY: no arguments. Not the C library's function, which may know no better.
    unsafe { libc::syscall(libc::SYS_getpid) as i32 }
}

/// Does what the settings say, once. It is put off until there are several threads, unless there is
/// to be one of Plimsoll's.
pub(crate) fn set_off() {
    if reports() && !SET_OFF.swap(true, Ordering::Relaxed) {
        let _counting = Counting::begin();
        let _own = own::scope();
        let started = config::start();
        #[cfg(feature = "http")]
        if let Some(address) = started.http_address() {
            note_address(address);
        }
        // For as long as the process lives.
        std::mem::forget(started);
    }
}

/// A capture may have met code that is not known. While there is one thread, nobody else can have
/// the loader's lock, so it can be looked for at once; later, there is a thread for that. A signal
/// handler that came while this thread is at something of Plimsoll's leaves it.
pub(crate) fn look_if_alone(counting: &Counting) {
    if counting.is_outermost()
        && PROCESS.load(Ordering::Relaxed) != 0
        && !SET_OFF.load(Ordering::Relaxed)
        && is_single_threaded()
    {
        keeper::look_if_wanted();
    }
}

/// Where the C library says whether there is one thread; null if it does not.
static SINGLE_THREADED: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// Whether no thread was created by the C library, as far as that says.
fn is_single_threaded() -> bool {
    let said = SINGLE_THREADED.load(Ordering::Relaxed);
    // SAFETY: a variable of the C library's, which others set while this thread is creating one.
    said.is_null() || unsafe { said.read_volatile() } != 0
}

/// Whether the first thread has ended, as by `pthread_exit`, and the program has not.
static FIRST_HAS_ENDED: AtomicBool = AtomicBool::new(false);

/// Has it noticed when the calling thread ends, which is the first.
fn notice_end_of_first() {
    let mut key = 0;
    // SAFETY: makes a key with a destructor of the right type, which gets what is set here.
    unsafe {
        if libc::pthread_key_create(&raw mut key, Some(first_ends)) == 0 {
            libc::pthread_setspecific(key, (&raw const FIRST_HAS_ENDED).cast());
        }
    }
}

extern "C" fn first_ends(_: *mut c_void) {
    FIRST_HAS_ENDED.store(true, Ordering::Relaxed);
    keeper::call_to_end();
}

/// How long it takes at most until it is seen that the program has no thread any more, once the
/// first has ended.
pub(crate) fn last_thread_after() -> Option<Duration> {
    let ended = FIRST_HAS_ENDED.load(Ordering::Relaxed);
    ended.then_some(Duration::from_millis(200))
}

/// A program whose `main` has ended by `pthread_exit` ends with its last thread, which the C
/// library takes Plimsoll's for. What it would do then is done here. For the keeper.
pub(crate) fn end_if_no_thread_is_left() {
    if !has_ended(Path::new("/proc/self")) {
        return;
    }
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return;
    };
    let is_left = |thread: &std::fs::DirEntry| {
        let number = thread.file_name();
        let number = number.to_str().and_then(|number| number.parse().ok());
        !number.is_some_and(own_thread::is_own) && !has_ended(&thread.path())
    };
    if !threads.flatten().any(|thread| is_left(&thread)) {
        abandon_what_is_under_way();
        // SAFETY: what is done at the end may do whatever it does in any thread.
        unsafe { libc::exit(0) };
    }
}

/// Whether a thread has ended; or is gone.
fn has_ended(thread: &Path) -> bool {
    let Ok(stat) = std::fs::read(thread.join("stat")) else {
        return true;
    };
    // Its name is in brackets, and may have some in it.
    let name_ends = stat.iter().rposition(|&byte| byte == b')');
    let state = name_ends.and_then(|at| stat.get(at + 2));
    matches!(state, Some(b'Z' | b'X'))
}

/// Whether this process is one that reports.
pub fn reports() -> bool {
    PROCESS.load(Ordering::Relaxed) == own_process()
}

/// Writes the report, in place of one that is there: what ends the process is said in a word, such
/// as `exit` or `signal 15`. Does nothing in a process that does not report.
pub fn report(ending: &str) {
    if let Some(directory) = DIRECTORY.get().filter(|_| reports()) {
        let _counting = Counting::begin();
        let _own = own::scope();
        report::write(directory, ending);
    }
}

/// In a signal handler that ends the process: what the thread was about is left as it is.
pub fn abandon_what_is_under_way() {
    crate::alloc::thread::leave_all_own_scopes();
}
