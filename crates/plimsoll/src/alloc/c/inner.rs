//! The allocator below the door of C: whoever has `malloc` next after this library. That is the C
//! library, or an allocator that the program is linked with, or that is preloaded as well.
//!
//! It is looked up by the first call, which comes from the dynamic loader, long before `main`.

use std::cell::Cell;
use std::ffi::{CStr, c_void};

use crate::primitives::{AtomicBool, AtomicPtr, Ordering};

type Malloc = unsafe extern "C" fn(usize) -> *mut u8;
type Calloc = unsafe extern "C" fn(usize, usize) -> *mut u8;
type Realloc = unsafe extern "C" fn(*mut u8, usize) -> *mut u8;
type Memalign = unsafe extern "C" fn(usize, usize) -> *mut u8;
type Free = unsafe extern "C" fn(*mut u8);
type Usable = unsafe extern "C" fn(*mut u8) -> usize;

/// Who the allocator below is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    /// The C library's.
    Libc,
    /// Another one.
    Other,
    /// The program calls neither: it has an allocator of its own in it, which is not seen.
    OfTheProgram,
}

/// The functions, once they are known.
static FUNCTIONS: [AtomicPtr<()>; 6] = [
    AtomicPtr::new(first_malloc as *mut ()),
    AtomicPtr::new(first_calloc as *mut ()),
    AtomicPtr::new(first_realloc as *mut ()),
    AtomicPtr::new(first_memalign as *mut ()),
    AtomicPtr::new(first_free as *mut ()),
    AtomicPtr::new(first_usable as *mut ()),
];

const NAMES: [&CStr; 6] = [
    c"malloc",
    c"calloc",
    c"realloc",
    c"memalign",
    c"free",
    c"malloc_usable_size",
];

/// Whether blocks have the C library's header before them, in which their size stands: reading that
/// is quicker than to ask.
static HAS_HEADERS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread is in the allocator below, if that is not the C library's: another one
    /// may call its own functions by the names that are taken over here.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the call that came to the door is the allocator's own, and is to go on to it.
#[inline(always)]
pub(super) fn is_inside() -> bool {
    !HAS_HEADERS.load(Ordering::Relaxed) && INSIDE.get()
}

macro_rules! call {
    ($position:literal as $kind:ty, $($argument:expr),*) => {
        if HAS_HEADERS.load(Ordering::Relaxed) {
            function!($position as $kind)($($argument),*)
        } else {
            let before = INSIDE.replace(true);
            let result = function!($position as $kind)($($argument),*);
            INSIDE.set(before);
            result
        }
    };
}

macro_rules! function {
    ($position:literal as $kind:ty) => {
        std::mem::transmute::<*mut (), $kind>(FUNCTIONS[$position].load(Ordering::Relaxed))
    };
}

/// # Safety
/// As the function of that name, as for all of these.
#[inline(always)]
pub(super) unsafe fn malloc(size: usize) -> *mut u8 {
    // SAFETY: the caller's; the function is of that type.
    unsafe { call!(0 as Malloc, size) }
}

#[inline(always)]
pub(super) unsafe fn calloc(size: usize) -> *mut u8 {
    // SAFETY: as above.
    unsafe { call!(1 as Calloc, size, 1) }
}

#[inline(always)]
pub(super) unsafe fn realloc(block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: as above.
    unsafe { call!(2 as Realloc, block, size) }
}

#[inline(always)]
pub(super) unsafe fn memalign(align: usize, size: usize) -> *mut u8 {
    // SAFETY: as above.
    unsafe { call!(3 as Memalign, align, size) }
}

#[inline(always)]
pub(super) unsafe fn free(block: *mut u8) {
    // SAFETY: as above.
    unsafe { call!(4 as Free, block) }
}

/// The bytes that there are in a block, which is what it counts as.
#[inline(always)]
pub(super) unsafe fn usable(block: *mut u8) -> usize {
    if HAS_HEADERS.load(Ordering::Relaxed) {
        // SAFETY: the caller's: it is a block.
        unsafe { in_header(block) }
    } else {
        // SAFETY: as above.
        unsafe { call!(5 as Usable, block) }
    }
}

/// What the C library's header says: the size of the whole chunk, with three flags in its low bits.
/// A chunk with a mapping of its own (the second flag) has two words before the block, another one
/// gets a word of the next.
#[inline(always)]
unsafe fn in_header(block: *mut u8) -> usize {
    // SAFETY: the caller's.
    let word = unsafe { block.cast::<usize>().sub(1).read() };
    let overhead = 8 + ((word & 2) << 2);
    (word & !7).wrapping_sub(overhead)
}

/// What a small block of `size` bytes would get.
pub(super) fn usable_of(size: usize) -> usize {
    if HAS_HEADERS.load(Ordering::Relaxed) {
        (size + 8).next_multiple_of(16).max(32) - 8
    } else {
        size.next_multiple_of(16).max(16)
    }
}

/// Who is below, for the program as it is linked. Not for hooks.
pub fn below() -> Below {
    // SAFETY: looks a function up by name.
    let programs = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
    if object_of(programs) != object_of(find as *const c_void) {
        Below::OfTheProgram
    } else if is_libcs(find(0)) {
        Below::Libc
    } else {
        Below::Other
    }
}

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut u8;
}

/// Where the object lies that has that address.
fn object_of(address: *const c_void) -> usize {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for; zero is a value of the answer.
    unsafe {
        libc::dladdr(address, found.as_mut_ptr());
        found.assume_init().dli_fbase as usize
    }
}

/// The C library has its functions by another name as well.
fn is_libcs(malloc: *mut ()) -> bool {
    malloc == __libc_malloc as *mut ()
}

/// A function, looked up if that was not done yet; null if this thread is at it already.
fn find(position: usize) -> *mut () {
    static LOOKING: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
    let me = crate::os::thread_pointer() as *mut ();
    if LOOKING.load(Ordering::Relaxed) == me {
        // The loader allocates for its message if a function is not found. It does without.
        return std::ptr::null_mut();
    }
    // Two threads at once find the same.
    LOOKING.store(me, Ordering::Relaxed);
    for (name, function) in NAMES.iter().zip(&FUNCTIONS) {
        // SAFETY: looks a function up by name.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        if !found.is_null() {
            function.store(found.cast(), Ordering::Relaxed);
        }
    }
    LOOKING.store(std::ptr::null_mut(), Ordering::Relaxed);
    let malloc = FUNCTIONS[0].load(Ordering::Relaxed);
    if is_libcs(malloc) && !HAS_HEADERS.load(Ordering::Relaxed) {
        // SAFETY: blocks of the C library's own.
        HAS_HEADERS.store(unsafe { headers_are_as_known() }, Ordering::Relaxed);
    }
    FUNCTIONS[position].load(Ordering::Relaxed)
}

/// Tries on a block whether the C library's headers are what they have been for decades.
unsafe fn headers_are_as_known() -> bool {
    // SAFETY: a block, used between being made and freed.
    unsafe {
        let block = malloc(100);
        if block.is_null() {
            return false;
        }
        let same = in_header(block) == call!(5 as Usable, block)
            && in_header(block) == (100 + 8usize).next_multiple_of(16) - 8;
        free(block);
        same
    }
}

macro_rules! first {
    ($name:ident, $position:literal as $kind:ty, ($($argument:ident: $of:ty),*), $($result:ty, $none:expr)?) => {
        /// The first call, which looks the functions up.
        unsafe extern "C" fn $name($($argument: $of),*) $(-> $result)? {
            let found = find($position);
            if found.is_null() || found == $name as *mut () {
                return $($none)?;
            }
            // SAFETY: the caller's; the function is of that type.
            unsafe { std::mem::transmute::<*mut (), $kind>(found)($($argument),*) }
        }
    };
}

first!(first_malloc, 0 as Malloc, (size: usize), *mut u8, std::ptr::null_mut());
first!(first_calloc, 1 as Calloc, (count: usize, each: usize), *mut u8, std::ptr::null_mut());
first!(first_realloc, 2 as Realloc, (block: *mut u8, size: usize), *mut u8, std::ptr::null_mut());
first!(first_memalign, 3 as Memalign, (align: usize, size: usize), *mut u8, std::ptr::null_mut());
first!(first_free, 4 as Free, (block: *mut u8),);
first!(first_usable, 5 as Usable, (block: *mut u8), usize, 0);
