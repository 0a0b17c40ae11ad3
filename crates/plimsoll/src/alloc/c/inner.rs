//! The allocator below the door of C: whoever has `malloc` next after this library. That is the C
//! library, or an allocator that the program is linked with, or that is preloaded as well.
//!
//! It is looked up by the first call, which comes from the dynamic loader, long before `main`.

use std::ffi::{CStr, c_void};

use super::sized;
use crate::alloc::thread;
use crate::primitives::{AtomicPtr, AtomicU8, Ordering};

type Malloc = unsafe extern "C" fn(usize) -> *mut u8;
type Calloc = unsafe extern "C" fn(usize, usize) -> *mut u8;
type Realloc = unsafe extern "C" fn(*mut u8, usize) -> *mut u8;
type Memalign = unsafe extern "C" fn(usize, usize) -> *mut u8;
type PosixMemalign = unsafe extern "C" fn(*mut *mut u8, usize, usize) -> i32;
type Free = unsafe extern "C" fn(*mut u8);
type Usable = unsafe extern "C" fn(*mut u8) -> usize;

/// Who the allocator below is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    /// The C library's.
    Libc,
    /// Another one.
    Other,
    /// Another one, which does not say how large its blocks are, or has none with an alignment:
    /// such functions are another allocator's, which knows nothing of its blocks. It is left
    /// alone.
    Unmeasured,
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

/// What is known of the allocator: one of the following.
static KIND: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
/// Blocks have the C library's header before them, in which their size stands: reading that is
/// quicker than to ask.
const HEADERS: u8 = 1;
/// See [`Below::Unmeasured`].
const UNMEASURED: u8 = 2;
/// It is asked how large its blocks are.
const ASKED: u8 = 3;
/// It is asked of blocks that are freed, and takes that as an answer; of what is allocated, it has
/// said so beforehand: see [`sized`].
const SIZED: u8 = 4;

/// Whether this is the common case, in which functions may be called [`WITH_HEADERS`].
#[inline(always)]
pub(super) fn has_headers() -> bool {
    KIND.load(Ordering::Relaxed) == HEADERS
}

/// Whether the call that came to the door is the allocator's own, which calls itself by the names
/// that are taken over here, or one that is not counted: it is to go on to the allocator. Not asked
/// if [`has_headers`].
#[inline(always)]
pub(super) fn is_inside() -> bool {
    if KIND.load(Ordering::Relaxed) >= ASKED {
        // SAFETY: the thread's own storage.
        unsafe { (*thread::inside()).get() != 0 }
    } else {
        is_not_to_be_counted()
    }
}

/// Whether functions may be called [`WITH_SIZES`], by a call that [is not inside](is_inside).
#[inline(always)]
pub(super) fn has_sizes() -> bool {
    // SAFETY: the thread's own storage.
    KIND.load(Ordering::Relaxed) == SIZED && unsafe { (*thread::inside()).get() == 0 }
}

/// Whether the calling thread is in the allocator, if that is not the C library's.
pub(crate) fn is_in_allocator() -> bool {
    // SAFETY: the thread's own storage.
    !has_headers() && unsafe { (*thread::inside()).get() != 0 }
}

#[cold]
#[inline(never)]
fn is_not_to_be_counted() -> bool {
    match KIND.load(Ordering::Relaxed) {
        HEADERS => false,
        UNMEASURED => true,
        // The loader allocates for its message if a function is not found.
        UNKNOWN if !look_up() => true,
        _ => is_inside(),
    }
}

/// How a function of the allocator's is called. In any case:
pub(super) const ANYHOW: u8 = 0;
/// If [`has_headers`].
pub(super) const WITH_HEADERS: u8 = 1;
/// While there is an [`Entered`].
pub(super) const ENTERED: u8 = 2;
/// The same, if [`has_sizes`].
pub(super) const WITH_SIZES: u8 = 3;

/// The thread is in the allocator until this is dropped: for several calls in a row. Does nothing
/// [`WITH_HEADERS`].
pub(super) struct Entered<const HOW: u8>(());

impl<const HOW: u8> Entered<HOW> {
    #[inline(always)]
    pub(super) fn begin() -> Self {
        if HOW != WITH_HEADERS {
            // SAFETY: the thread's own storage.
            unsafe { (*thread::inside()).set(1) };
        }
        Self(())
    }
}

impl<const HOW: u8> Drop for Entered<HOW> {
    #[inline(always)]
    fn drop(&mut self) {
        if HOW != WITH_HEADERS {
            // SAFETY: the thread's own storage.
            unsafe { (*thread::inside()).set(0) };
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
        if $how != ANYHOW || has_headers() {
            function!($position as $kind)($($argument),*)
        } else {
            let inside = &*thread::inside();
            let before = inside.replace(1);
            let result = function!($position as $kind)($($argument),*);
            inside.set(before);
            result
        }
    };
}

/// # Safety
/// As the function of that name, as for all of these; and it is called as `HOW` says.
#[inline(always)]
pub(super) unsafe fn malloc<const HOW: u8>(size: usize) -> *mut u8 {
    // SAFETY: the caller's; the function is of that type.
    unsafe { call!(HOW, 0 as Malloc, size) }
}

#[inline(always)]
pub(super) unsafe fn calloc<const HOW: u8>(size: usize) -> *mut u8 {
    // SAFETY: as above.
    unsafe { call!(HOW, 1 as Calloc, size, 1) }
}

#[inline(always)]
pub(super) unsafe fn realloc<const HOW: u8>(block: *mut u8, size: usize) -> *mut u8 {
    // SAFETY: as above.
    unsafe { call!(HOW, 2 as Realloc, block, size) }
}

#[inline(always)]
pub(super) unsafe fn memalign<const HOW: u8>(align: usize, size: usize) -> *mut u8 {
    // SAFETY: as above.
    unsafe { call!(HOW, 3 as Memalign, align, size) }
}

#[inline(always)]
pub(super) unsafe fn free<const HOW: u8>(block: *mut u8) {
    // SAFETY: as above.
    unsafe { call!(HOW, 4 as Free, block) }
}

/// The bytes that there are in a block, which is what it counts as.
#[inline(always)]
pub(super) unsafe fn usable<const HOW: u8>(block: *mut u8) -> usize {
    if HOW == WITH_HEADERS || HOW == ANYHOW && has_headers() {
        // SAFETY: the caller's: it is a block.
        unsafe { in_header(block) }
    } else {
        // SAFETY: as above. No allocator allocates for this.
        unsafe { function!(5 as Usable)(block) }
    }
}

/// [`usable`] of a block that was just made for so many bytes, without an alignment.
#[inline(always)]
pub(super) unsafe fn usable_of_new<const HOW: u8>(block: *mut u8, size: usize) -> usize {
    if HOW == WITH_SIZES {
        if let Some(usable) = sized::usable_of(size) {
            return usable;
        }
    }
    // SAFETY: the caller's.
    unsafe { usable::<HOW>(block) }
}

/// [`free`] of a block of which [`usable`] is known.
#[inline(always)]
pub(super) unsafe fn free_usable<const HOW: u8>(block: *mut u8, usable: usize) {
    // SAFETY: the caller's.
    unsafe {
        if HOW == WITH_SIZES {
            sized::free(block, usable);
        } else {
            free::<HOW>(block);
        }
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
    if has_headers() {
        return (size + 8).next_multiple_of(16).max(32) - 8;
    }
    let is_sized = KIND.load(Ordering::Relaxed) == SIZED;
    let said = sized::usable_of(size).filter(|_| is_sized);
    said.unwrap_or_else(|| size.next_multiple_of(16).max(16))
}

/// Who is below, for the program as it is linked. Not for hooks.
pub fn below() -> Below {
    // SAFETY: looks a function up by name.
    let programs = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
    if object_of(programs) != object_of(look_up as *const c_void) && is_defined_there(programs) {
        return Below::OfTheProgram;
    }
    look_up();
    if KIND.load(Ordering::Relaxed) == UNMEASURED {
        Below::Unmeasured
    } else if is_libcs(FUNCTIONS[0].load(Ordering::Relaxed)) {
        Below::Libc
    } else {
        Below::Other
    }
}

/// Whether a function lies in the same object as the allocator's, if that is not left alone.
pub fn is_allocators(function: *const c_void) -> bool {
    look_up()
        && KIND.load(Ordering::Relaxed) != UNMEASURED
        && object_of(function) == object_of(FUNCTIONS[0].load(Ordering::Relaxed).cast())
}

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut u8;
}

/// Where the object lies that has that address; 0 for none.
fn object_of(address: *const c_void) -> usize {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for; zero is a value of the answer.
    unsafe {
        libc::dladdr(address, found.as_mut_ptr());
        found.assume_init().dli_fbase as usize
    }
}

/// Whether a function is in the object in which it was found. In a program that lies at a fixed
/// address, what was found may be its own jump to another object's, by which it compares pointers.
fn is_defined_there(function: *const c_void) -> bool {
    /// The symbol as well.
    const RTLD_DL_SYMENT: libc::c_int = 1;
    const SHN_UNDEF: u16 = 0;
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let mut symbol = std::ptr::null_mut();
    // SAFETY: any address may be asked for; the symbol is one of a loaded object.
    unsafe {
        libc::dladdr1(
            function,
            found.as_mut_ptr(),
            &raw mut symbol,
            RTLD_DL_SYMENT,
        );
        let symbol: *const libc::Elf64_Sym = symbol.cast_const().cast();
        symbol.is_null() || (*symbol).st_shndx != SHN_UNDEF
    }
}

/// The C library has its functions by another name as well.
fn is_libcs(malloc: *mut ()) -> bool {
    malloc == __libc_malloc as *mut ()
}

/// Looks the functions up, if that was not done yet; whether they are known now. They are not if
/// this thread is at it already.
fn look_up() -> bool {
    static LOOKING: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
    if KIND.load(Ordering::Relaxed) != UNKNOWN {
        return true;
    }
    let me = crate::os::thread_pointer() as *mut ();
    if LOOKING.load(Ordering::Relaxed) == me {
        return false;
    }
    // Two threads at once find the same.
    LOOKING.store(me, Ordering::Relaxed);
    for (name, function) in NAMES.iter().zip(&FUNCTIONS) {
        if let Some(found) = next(name) {
            function.store(found, Ordering::Relaxed);
        }
    }
    let kind = kind();
    LOOKING.store(std::ptr::null_mut(), Ordering::Relaxed);
    KIND.store(kind, Ordering::Relaxed);
    true
}

/// The function of that name that comes next after this library's.
fn next(name: &CStr) -> Option<*mut ()> {
    // SAFETY: looks a function up by name.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    (!found.is_null()).then_some(found.cast())
}

/// What kind of allocator it is whose functions were found.
fn kind() -> u8 {
    let malloc = FUNCTIONS[0].load(Ordering::Relaxed);
    if is_libcs(malloc) {
        // SAFETY: blocks of the C library's own.
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
        // The older function is one that allocators have done without.
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
    // SAFETY: of an allocator that has all of these functions.
    } else if unsafe { sized::is_there(|name| next(name).filter(is_its_own)) && sizes_agree() } {
        SIZED
    } else {
        ASKED
    }
}

static POSIX_MEMALIGN: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// `memalign` for an allocator that has only the newer function.
unsafe extern "C" fn memalign_by_posix(align: usize, size: usize) -> *mut u8 {
    let mut block = std::ptr::null_mut();
    // SAFETY: of that type, and found before this is called; the rest is the caller's.
    let error = unsafe {
        let function = POSIX_MEMALIGN.load(Ordering::Relaxed);
        std::mem::transmute::<*mut (), PosixMemalign>(function)(
            &mut block,
            align.max(size_of::<usize>()),
            size,
        )
    };
    if error != 0 {
        // SAFETY: the thread's own.
        unsafe { *libc::__errno_location() = error };
        return std::ptr::null_mut();
    }
    block
}

/// Tries on a block whether the C library's headers are what they have been for decades.
unsafe fn headers_are_as_known() -> bool {
    // SAFETY: a block, used between being made and freed.
    unsafe {
        let block = malloc::<ANYHOW>(100);
        if block.is_null() {
            return false;
        }
        let same = in_header(block) == call!(ANYHOW, 5 as Usable, block)
            && in_header(block) == (100 + 8usize).next_multiple_of(16) - 8;
        free::<ANYHOW>(block);
        same
    }
}

/// Tries on some blocks whether they get what the allocator says beforehand.
unsafe fn sizes_agree() -> bool {
    [0, 1, 24, 100, 1024].into_iter().all(|size| {
        // SAFETY: a block, used between being made and freed.
        unsafe {
            let block = malloc::<ANYHOW>(size);
            let agrees = !block.is_null()
                && sized::usable_of(size) == Some(call!(ANYHOW, 5 as Usable, block));
            free::<ANYHOW>(block);
            agrees
        }
    })
}

macro_rules! first {
    ($name:ident, $position:literal as $kind:ty, ($($argument:ident: $of:ty),*), $($result:ty, $none:expr)?) => {
        /// The first call, which looks the functions up.
        unsafe extern "C" fn $name($($argument: $of),*) $(-> $result)? {
            let found = if look_up() {
                FUNCTIONS[$position].load(Ordering::Relaxed)
            } else {
                std::ptr::null_mut()
            };
            // The loader, which allocates for its message if a function is not found, does without.
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
