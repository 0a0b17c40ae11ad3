//! The operators of C++ that make and free blocks.
//!
//! Those of an allocator that the program is linked with may not come down to its `malloc` and
//! `free`, so they are taken over here. Any others are the standard library's, which call `malloc`
//! and `free`, or what a library has put in their place: calls go on to them.
//!
//! Where there is no memory, the operator that was taken over says so in its own way: by an
//! exception, or a null pointer, or what the program has set.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, Ordering};

use plimsoll::preload;

use crate::next::Next;

/// One of the operators.
struct Operator {
    next: Next,
    /// One of the following.
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

    /// The operator that the call goes on to; `None` if it is the allocator's, or there is none.
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
        // Two threads at once find the same.
        let other = self
            .next
            .get()
            .filter(|&next| !preload::is_allocators(next));
        let taken = if other.is_some() { IS_LEFT } else { IS_TAKEN };
        self.taken.store(taken, Ordering::Relaxed);
        other
    }
}

/// Memory for one byte is what C++ wants for none.
unsafe fn make(size: usize) -> *mut c_void {
    // SAFETY: any size may be asked for.
    unsafe { preload::malloc(size.max(1)) }
}

unsafe fn make_aligned(size: usize, align: usize) -> *mut c_void {
    // SAFETY: any size may be asked for.
    unsafe { preload::memalign(align, size.max(1)) }
}

macro_rules! operators {
    (makes: $($name:ident($($argument:ident),*) = $make:ident($($passed:ident),*);)*) => {$(
        /// # Safety
        /// As the operator of that name.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C-unwind" fn $name($($argument: usize),*) -> *mut c_void {
            type This = unsafe extern "C-unwind" fn($(operators!(@word $argument)),*) -> *mut c_void;
            static OPERATOR: Operator = Operator::new(concat!(stringify!($name), "\0"));
            // SAFETY: the caller's; the next function of that name is of that type. What it makes
            // is freed by the operator of its own kind. Nothing here is dropped if it unwinds.
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
        /// As the operator of that name. What else it is told, size and alignment, is of no
        /// interest.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C-unwind" fn $name(block: *mut c_void, $($argument: usize),*) {
            type This = unsafe extern "C-unwind" fn(*mut c_void, $(operators!(@word $argument)),*);
            static OPERATOR: Operator = Operator::new(concat!(stringify!($name), "\0"));
            // SAFETY: the caller's; the next function of that name is of that type.
            unsafe {
                match OPERATOR.other() {
                    Some(other) => {
                        std::mem::transmute::<*mut c_void, This>(other)(block, $($argument),*)
                    }
                    None => preload::free(block),
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
