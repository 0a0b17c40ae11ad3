//! The C++ operators that allocate and free memory.
//!
//! The operators of an allocator in the program may not call its `malloc` and `free`, so they are
//! interposed here. All other operators belong to the standard library, which calls `malloc` and
//! `free`, or to a library that replaces them. Calls are passed on to those.
//!
//! When out of memory, the interposed operator is called to report it. It throws an exception,
//! returns a null pointer, or calls the program's new-handler.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::malloc;

use crate::next::Next;

/// An operator.
struct Operator {
    next: Next,
    /// [`UNKNOWN`], [`IS_TAKEN`] or [`IS_LEFT`].
    taken: AtomicU8,
}

const UNKNOWN: u8 = 0;
const IS_TAKEN: u8 = 1;
const IS_LEFT: u8 = 2;

impl Operator {
    const fn new(name: &'static str) -> Self {
        Self {
            next: Next::new(name),
            taken: AtomicU8::new(UNKNOWN),
        }
    }

    /// Returns the operator to which the call is passed on; `None` if it is the allocator's, or if
    /// it does not exist.
    #[inline]
    fn other(&self) -> Option<*mut c_void> {
        match self.taken.load(Ordering::Relaxed) {
            IS_TAKEN => None,
            IS_LEFT => self.next.get(),
            _ => self.find_out(),
        }
    }

    #[cold]
    fn find_out(&self) -> Option<*mut c_void> {
        // Concurrent calls have the same result.
        let other = self.next.get().filter(|&next| !malloc::is_allocators(next));
        let taken = if other.is_some() { IS_LEFT } else { IS_TAKEN };
        self.taken.store(taken, Ordering::Relaxed);
        other
    }
}

/// Allocates a block. C++ requires memory for one byte if the size is 0.
unsafe fn make(size: usize) -> *mut c_void {
    // SAFETY: `malloc::malloc` accepts any size.
    unsafe { malloc::malloc(size.max(1)) }
}

unsafe fn make_aligned(size: usize, align: usize) -> *mut c_void {
    // SAFETY: `malloc::memalign` accepts any size, and checks the alignment.
    unsafe { malloc::memalign(align, size.max(1)) }
}

macro_rules! operators {
    (makes: $($name:ident($($argument:ident),*) = $make:ident($($passed:ident),*);)*) => {$(
        /// # Safety
        /// The requirements of the C++ operator of that name.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C-unwind" fn $name($($argument: usize),*) -> *mut c_void {
            type This = unsafe extern "C-unwind" fn($(operators!(@word $argument)),*) -> *mut c_void;
            static OPERATOR: Operator = Operator::new(concat!(stringify!($name), "\0"));
            // SAFETY: the next function of that name has this type, and the arguments meet this
            // operator's contract. The matching operator below frees the block. Nothing here needs
            // to be dropped if the call unwinds.
            unsafe {
                if let Some(other) = OPERATOR.other() {
                    return std::mem::transmute::<*mut c_void, This>(other)($($argument),*);
                }
                let block = $make($($passed),*);
                if !block.is_null() {
                    return block;
                }
                match OPERATOR.next.get() {
                    Some(next) => std::mem::transmute::<*mut c_void, This>(next)($($argument),*),
                    None => block,
                }
            }
        }
    )*};
    (frees: $($name:ident($($argument:ident),*);)*) => {$(
        /// # Safety
        /// The requirements of the C++ operator of that name. Size and alignment are ignored.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C-unwind" fn $name(block: *mut c_void, $($argument: usize),*) {
            type This = unsafe extern "C-unwind" fn(*mut c_void, $(operators!(@word $argument)),*);
            static OPERATOR: Operator = Operator::new(concat!(stringify!($name), "\0"));
            // SAFETY: the next function of that name has this type. By this operator's contract,
            // `block` is null or live.
            unsafe {
                match OPERATOR.other() {
                    Some(other) => {
                        std::mem::transmute::<*mut c_void, This>(other)(block, $($argument),*)
                    }
                    None => malloc::free(block),
                }
            }
        }
    )*};
    (@word $argument:ident) => { usize };
}

operators! { makes:
    _Znwm(size) = make(size);
    _Znam(size) = make(size);
    _ZnwmRKSt9nothrow_t(size, nothrow) = make(size);
    _ZnamRKSt9nothrow_t(size, nothrow) = make(size);
    _ZnwmSt11align_val_t(size, align) = make_aligned(size, align);
    _ZnamSt11align_val_t(size, align) = make_aligned(size, align);
    _ZnwmSt11align_val_tRKSt9nothrow_t(size, align, nothrow) = make_aligned(size, align);
    _ZnamSt11align_val_tRKSt9nothrow_t(size, align, nothrow) = make_aligned(size, align);
}

operators! { frees:
    _ZdlPv();
    _ZdaPv();
    _ZdlPvm(size);
    _ZdaPvm(size);
    _ZdlPvRKSt9nothrow_t(nothrow);
    _ZdaPvRKSt9nothrow_t(nothrow);
    _ZdlPvSt11align_val_t(align);
    _ZdaPvSt11align_val_t(align);
    _ZdlPvmSt11align_val_t(size, align);
    _ZdaPvmSt11align_val_t(size, align);
    _ZdlPvSt11align_val_tRKSt9nothrow_t(align, nothrow);
    _ZdaPvSt11align_val_tRKSt9nothrow_t(align, nothrow);
}
