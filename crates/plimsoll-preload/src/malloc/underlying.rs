//! The underlying allocator of the `malloc` interposition: the next definition of `malloc` after
//! this library. It belongs to the C library, to an allocator that is linked into the program, or
//! to another preloaded library.
//!
//! The first call looks it up; it comes from the dynamic loader, long before `main`.

use std::ffi::{CStr, c_void};

use plimsoll_process::loader::{self, Exported};
use plimsoll_redirect::redirect::Image;
use plimsoll_sys::arch::FIRST_GLIBC_VERSION;
use plimsoll_sys::primitives::{AtomicPtr, AtomicU8, Ordering};

use super::{program, sized};
use plimsoll_core::alloc::interposition::UnderlyingKind;
use plimsoll_core::internal_scope;
use plimsoll_ledger::size_class;

type Malloc = unsafe extern "C" fn(usize) -> *mut u8;
type Calloc = unsafe extern "C" fn(usize, usize) -> *mut u8;
type Realloc = unsafe extern "C" fn(*mut u8, usize) -> *mut u8;
type Memalign = unsafe extern "C" fn(usize, usize) -> *mut u8;
type PosixMemalign = unsafe extern "C" fn(*mut *mut u8, usize, usize) -> i32;
type Free = unsafe extern "C" fn(*mut u8);
type Usable = unsafe extern "C" fn(*mut u8) -> usize;

/// The underlying functions, after the look-up.
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

/// The known kind of the allocator: one of the following.
static KIND: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
/// Each block follows the C library's header, which holds its size: reading it is faster than a
/// call.
const HEADERS: u8 = 1;
/// See [`UnderlyingKind::Unmeasured`] and [`UnderlyingKind::Redirected`].
const UNMEASURED: u8 = 2;
/// Sizes of blocks come from `malloc_usable_size`.
const ASKED: u8 = 3;
/// Sizes of freed blocks come from `malloc_usable_size` and are passed to the free. Sizes of new
/// blocks come from a table: see [`sized`].
const SIZED: u8 = 4;

/// Returns whether blocks have the C library's headers, the common case: then functions may be
/// called [`WITH_HEADERS`].
#[inline(always)]
pub(super) fn has_headers() -> bool {
    KIND.load(Ordering::Relaxed) == HEADERS
}

/// Returns whether this call comes from inside the allocator, through an interposed name, or must
/// not be counted. Such a call is forwarded to the allocator. Never called if [`has_headers`].
#[inline(always)]
pub(super) fn is_inside() -> bool {
    if KIND.load(Ordering::Relaxed) >= ASKED {
        // SAFETY: `inside` returns the thread's own storage.
        unsafe { (*internal_scope::inside()).get() != 0 }
    } else {
        is_not_to_be_counted()
    }
}

/// Returns whether functions may be called [`WITH_SIZES`], by a call that [is not
/// inside](is_inside).
#[inline(always)]
pub(super) fn has_sizes() -> bool {
    // SAFETY: `inside` returns the thread's own storage.
    KIND.load(Ordering::Relaxed) == SIZED && unsafe { (*internal_scope::inside()).get() == 0 }
}

#[cold]
#[inline(never)]
fn is_not_to_be_counted() -> bool {
    match KIND.load(Ordering::Relaxed) {
        HEADERS => false,
        UNMEASURED => true,
        // If a function is not found, the dynamic loader allocates memory for its error message.
        UNKNOWN if !look_up() => true,
        _ => is_inside(),
    }
}

/// Modes in which the allocator's functions are called. This mode is always allowed.
pub(super) const PLAIN_CALL: u8 = 0;
/// Allowed if [`has_headers`].
pub(super) const WITH_HEADERS: u8 = 1;
/// Allowed while an [`Entered`] exists.
pub(super) const ENTERED: u8 = 2;
/// Allowed while an [`Entered`] exists, if [`has_sizes`].
pub(super) const WITH_SIZES: u8 = 3;

/// Marks the thread as inside the allocator until it is dropped, for several calls in a row. Does
/// nothing [`WITH_HEADERS`].
pub(super) struct Entered<const MODE: u8>(());

impl<const MODE: u8> Entered<MODE> {
    #[inline(always)]
    pub(super) fn begin() -> Self {
        if MODE != WITH_HEADERS {
            // SAFETY: `inside` returns the thread's own storage.
            unsafe { (*internal_scope::inside()).set(1) };
        }
        Self(())
    }
}

impl<const MODE: u8> Drop for Entered<MODE> {
    #[inline(always)]
    fn drop(&mut self) {
        if MODE != WITH_HEADERS {
            // SAFETY: `inside` returns the thread's own storage.
            unsafe { (*internal_scope::inside()).set(0) };
        }
    }
}

macro_rules! function {
    ($position:literal as $kind:ty) => {
        std::mem::transmute::<*mut (), $kind>(FUNCTIONS[$position].load(Ordering::Relaxed))
    };
}

macro_rules! call {
    ($how:expr, $position:literal as $kind:ty, $($argument:expr),*) => {
        if $how != PLAIN_CALL || has_headers() {
            function!($position as $kind)($($argument),*)
        } else {
            let inside = &*internal_scope::inside();
            let before = inside.replace(1);
            let result = function!($position as $kind)($($argument),*);
            inside.set(before);
            result
        }
    };
}

/// # Safety
/// For all of these: as for the function of that name; and `MODE` is allowed for this call.
#[inline(always)]
pub(super) unsafe fn malloc<const MODE: u8>(size: usize) -> *mut u8 {
    // SAFETY: the function found under C's name has C's type; the arguments meet C's contract, by
    // this function's contract.
    unsafe { call!(MODE, 0 as Malloc, size) }
}

#[inline(always)]
pub(super) unsafe fn calloc<const MODE: u8>(size: usize) -> *mut u8 {
    // SAFETY: the function found under C's name has C's type; the arguments meet C's contract, by
    // this function's contract.
    unsafe { call!(MODE, 1 as Calloc, size, 1) }
}

#[inline(always)]
pub(super) unsafe fn realloc<const MODE: u8>(block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: the function found under C's name has C's type; the arguments meet C's contract, by
    // this function's contract.
    unsafe { call!(MODE, 2 as Realloc, block, size) }
}

#[inline(always)]
pub(super) unsafe fn memalign<const MODE: u8>(align: usize, size: usize) -> *mut u8 {
    // SAFETY: the function found under C's name has C's type; the arguments meet C's contract, by
    // this function's contract.
    unsafe { call!(MODE, 3 as Memalign, align, size) }
}

#[inline(always)]
pub(super) unsafe fn free<const MODE: u8>(block: *mut u8) {
    // SAFETY: the function found under C's name has C's type; the arguments meet C's contract, by
    // this function's contract.
    unsafe { call!(MODE, 4 as Free, block) }
}

/// Returns the usable size of a block, at which it counts.
#[inline(always)]
pub(super) unsafe fn usable<const MODE: u8>(block: *mut u8) -> usize {
    if MODE == WITH_HEADERS || MODE == PLAIN_CALL && has_headers() {
        // SAFETY: `block` is live, by this function's contract, and its allocator keeps a header.
        unsafe { in_header(block) }
    } else {
        // SAFETY: `block` is live, by this function's contract. No allocator allocates in this
        // function.
        unsafe { function!(5 as Usable)(block) }
    }
}

/// Returns the [`usable`] size of a new block that was requested with `size` bytes and no
/// alignment.
#[inline(always)]
pub(super) unsafe fn usable_of_new<const MODE: u8>(block: *mut u8, size: usize) -> usize {
    if MODE == WITH_SIZES
        && let Some(usable) = sized::usable_of(size)
    {
        return usable;
    }
    // SAFETY: `block` is live: it was just allocated.
    unsafe { usable::<MODE>(block) }
}

/// Returns a [`usable`] size up to [`size_class::LARGEST_STEP`] rounded up to its class. A header has multiples of 8
/// alone, which the compiler does not see.
#[inline(always)]
pub(super) unsafe fn small<const MODE: u8>(usable: usize) -> usize {
    if MODE == WITH_HEADERS {
        // SAFETY: a multiple of 8, by this function's contract.
        unsafe { std::hint::assert_unchecked(usable.is_multiple_of(8)) };
    }
    usable
}

/// Frees a block whose [`usable`] size is known.
#[inline(always)]
pub(super) unsafe fn free_usable<const MODE: u8>(block: *mut u8, usable: usize) {
    // SAFETY: `block` is live and has that usable size, by this function's contract.
    unsafe {
        if MODE == WITH_SIZES {
            sized::free(block, usable);
        } else {
            free::<MODE>(block);
        }
    }
}

/// Returns the usable size from the C library's header: the size of the whole chunk, with three
/// flags in its low bits. A separately mapped chunk (the second flag) has two words before the
/// block, and is as large as a page at least. Any other chunk may also use the first word of the next one.
#[inline(always)]
unsafe fn in_header(block: *mut u8) -> usize {
    let header = block.cast::<usize>().wrapping_sub(1);
    // SAFETY: glibc's allocator stores the size in the word before every live block.
    let usable = (unsafe { header.read() } & !7).wrapping_sub(8);
    if usable <= size_class::LARGEST_STEP {
        return usable;
    }
    unlikely();
    // SAFETY: as before. Read anew, so that no register keeps the flags of small chunks.
    let flags = unsafe { header.read_volatile() };
    usable - ((flags & 2) << 2)
}

#[cold]
const fn unlikely() {}

/// Returns the kind of underlying allocator of the linked program. Not for hooks.
pub fn underlying_kind() -> UnderlyingKind {
    if program::is_redirected() {
        return UnderlyingKind::Redirected;
    }
    // SAFETY: looks a function up by name.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
    if precedes_this(first) {
        return UnderlyingKind::Program;
    }
    look_up();
    if KIND.load(Ordering::Relaxed) == UNMEASURED || is_replaced_by_valgrind() {
        UnderlyingKind::Unmeasured
    } else if is_libcs(FUNCTIONS[0].load(Ordering::Relaxed)) {
        UnderlyingKind::Libc
    } else {
        UnderlyingKind::Other
    }
}

/// Returns whether a tool of valgrind executes its own functions in place of this library's: its object is loaded. The
/// tools that replace no allocator load only `vgpreload_core`.
fn is_replaced_by_valgrind() -> bool {
    let mut is_replaced = false;
    loader::each_object(|object| {
        let path = object.name.to_bytes();
        let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        is_replaced = file.starts_with(b"vgpreload_") && !file.starts_with(b"vgpreload_core");
        !is_replaced
    });
    is_replaced
}

/// Returns whether a function lies in the same object as the underlying allocator. False for
/// [`UnderlyingKind::Unmeasured`].
pub fn is_allocators(function: *const c_void) -> bool {
    look_up()
        && KIND.load(Ordering::Relaxed) != UNMEASURED
        && object_of(function) == object_of(FUNCTIONS[0].load(Ordering::Relaxed).cast())
}

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut u8;
}

/// Returns the base address of the object that contains `address`; 0 if none does.
fn object_of(address: *const c_void) -> usize {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` accepts any address; zero is a valid result.
    unsafe {
        libc::dladdr(address, found.as_mut_ptr());
        found.assume_init().dli_fbase as usize
    }
}

/// Returns whether the first `malloc` belongs to another object than this code. In a program at a fixed
/// address, the look-up may return the program's own jump stub to another object's function, which
/// serves for comparisons of pointers.
fn precedes_this(malloc: *const c_void) -> bool {
    let this = look_up as *const c_void;
    // The loader's function for this reads all symbols of the object: a program may have very many.
    if let Some(program) = Image::of_program().filter(|program| program.contains(malloc as usize)) {
        return !program.contains(this as usize) && program.symbol(c"malloc").is_some();
    }
    let is_defined = || Exported::at(malloc as usize).is_none_or(|function| function.is_defined);
    object_of(malloc) != object_of(this) && is_defined()
}

/// Returns whether `malloc` is the C library's, which also exports it under another name. Allocators such as
/// mimalloc have functions of both names; only the C library's have its version.
fn is_libcs(malloc: *mut ()) -> bool {
    if malloc != __libc_malloc as *mut () {
        return false;
    }
    // SAFETY: looks a function up by two names that end with a zero.
    let libcs = unsafe {
        libc::dlvsym(
            libc::RTLD_NEXT,
            c"malloc".as_ptr(),
            FIRST_GLIBC_VERSION.as_ptr(),
        )
    };
    libcs.is_null() || libcs.cast() == malloc
}

/// Looks the functions up if that was not done yet. Returns whether they are known; false if this
/// thread is already looking them up.
fn look_up() -> bool {
    static LOOKING: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
    if KIND.load(Ordering::Relaxed) != UNKNOWN {
        return true;
    }
    let me = plimsoll_sys::os::thread_pointer() as *mut ();
    if LOOKING.load(Ordering::Relaxed) == me {
        return false;
    }
    // Two concurrent look-ups find the same functions.
    LOOKING.store(me, Ordering::Relaxed);
    for (name, function) in NAMES.iter().zip(&FUNCTIONS) {
        if let Some(found) = next(name) {
            function.store(found, Ordering::Relaxed);
        }
    }
    let kind = kind();
    if kind != HEADERS {
        // The loader allocated a message for each function that it did not find, which is not counted. So its free
        // must not be counted either: the first call returns the message, and the second one frees it.
        for _ in 0..2 {
            // SAFETY: `dlerror` has no preconditions.
            unsafe { libc::dlerror() };
        }
    }
    LOOKING.store(std::ptr::null_mut(), Ordering::Relaxed);
    KIND.store(kind, Ordering::Relaxed);
    true
}

/// Returns the next definition of a function after this library's.
fn next(name: &CStr) -> Option<*mut ()> {
    // SAFETY: looks a function up by name.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    (!found.is_null()).then_some(found.cast())
}

/// Returns the kind of the allocator whose functions were found.
fn kind() -> u8 {
    if program::is_redirected() {
        return UNMEASURED;
    }
    let malloc = FUNCTIONS[0].load(Ordering::Relaxed);
    if is_libcs(malloc) {
        // SAFETY: the functions that were found belong to the C library.
        return if unsafe { headers_are_as_known() } {
            HEADERS
        } else {
            ASKED
        };
    }
    let its_own = object_of(malloc.cast());
    let is_its_own = |function: &*mut ()| object_of(function.cast()) == its_own;
    let [_, _, _, memalign, _, usable] = &FUNCTIONS;
    let aligns = is_its_own(&memalign.load(Ordering::Relaxed))
        // Some allocators lack this older function.
        || if let Some(found) = next(c"posix_memalign").filter(is_its_own) {
            POSIX_MEMALIGN.store(found, Ordering::Relaxed);
            memalign.store(memalign_by_posix as *mut (), Ordering::Relaxed);
            true
        } else if let Some(found) = next(c"aligned_alloc").filter(is_its_own) {
            memalign.store(found, Ordering::Relaxed);
            true
        } else {
            false
        };
    if !(aligns && is_its_own(&usable.load(Ordering::Relaxed))) {
        UNMEASURED
    // SAFETY: all of these functions were found in one allocator.
    } else if unsafe { sized::is_there(|name| next(name).filter(is_its_own)) && sizes_agree() } {
        SIZED
    } else {
        ASKED
    }
}

static POSIX_MEMALIGN: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// `memalign` for an allocator that only has the newer function.
unsafe extern "C" fn memalign_by_posix(align: usize, size: usize) -> *mut u8 {
    let mut block = std::ptr::null_mut();
    // SAFETY: `kind` found a function of that type before it installed this one; the arguments meet
    // C's contract, by this function's contract.
    let error = unsafe {
        let function = POSIX_MEMALIGN.load(Ordering::Relaxed);
        std::mem::transmute::<*mut (), PosixMemalign>(function)(
            &mut block,
            align.max(size_of::<usize>()),
            size,
        )
    };
    if error != 0 {
        // SAFETY: `errno` is the thread's own variable.
        unsafe { *libc::__errno_location() = error };
        return std::ptr::null_mut();
    }
    block
}

/// Tests on one block whether the C library's headers have the known form.
unsafe fn headers_are_as_known() -> bool {
    // SAFETY: the block is used only between its allocation and its free.
    unsafe {
        let block = malloc::<PLAIN_CALL>(100);
        if block.is_null() {
            return false;
        }
        let same = in_header(block) == call!(PLAIN_CALL, 5 as Usable, block)
            && in_header(block) == (100 + 8usize).next_multiple_of(16) - 8;
        free::<PLAIN_CALL>(block);
        same
    }
}

/// Tests on some blocks whether their usable sizes match the table in [`sized`].
unsafe fn sizes_agree() -> bool {
    [0, 1, 24, 100, 1024].into_iter().all(|size| {
        // SAFETY: the block is used only between its allocation and its free.
        unsafe {
            let block = malloc::<PLAIN_CALL>(size);
            let agrees = !block.is_null()
                && sized::usable_of(size) == Some(call!(PLAIN_CALL, 5 as Usable, block));
            free::<PLAIN_CALL>(block);
            agrees
        }
    })
}

macro_rules! first {
    ($name:ident, $position:literal as $kind:ty, ($($argument:ident: $of:ty),*), $($result:ty, $none:expr)?) => {
        /// Looks the functions up at the first call, and calls the one that was found.
        unsafe extern "C" fn $name($($argument: $of),*) $(-> $result)? {
            let found = if look_up() {
                FUNCTIONS[$position].load(Ordering::Relaxed)
            } else {
                std::ptr::null_mut()
            };
            // The loader allocates for its message if a function is not found; it copes with
            // failure.
            if found.is_null() || found == $name as *mut () {
                return $($none)?;
            }
            // SAFETY: the function found under C's name has C's type; the arguments meet C's
            // contract, by this function's contract.
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
