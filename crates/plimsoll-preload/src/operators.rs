//! The operators of C++ that make and free blocks. Mostly they come down to `malloc` and `free`;
//! those of an allocator that the program is linked with may not, and are taken over here for that.
//!
//! Where there is no memory, the operator that would have been called says so in its own way: by an
//! exception, or a null pointer, or what the program has set.

use std::ffi::c_void;

use crate::next::Next;

/// Memory for one byte is what C++ wants for none.
unsafe fn make(size: usize) -> *mut c_void {
    // SAFETY: any size may be asked for.
    unsafe { plimsoll::preload::malloc(size.max(1)) }
}

unsafe fn make_aligned(size: usize, align: usize) -> *mut c_void {
    // SAFETY: any size may be asked for.
    unsafe { plimsoll::preload::memalign(align, size.max(1)) }
}

macro_rules! makes {
    ($($name:ident($($argument:ident),*) = $make:ident($($passed:ident),*);)*) => {$(
        /// # Safety
        /// As the operator of that name.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C-unwind" fn $name($($argument: usize),*) -> *mut c_void {
            type Operator = unsafe extern "C-unwind" fn($(makes!(@type $argument)),*) -> *mut c_void;
            static NEXT: Next = Next::new(concat!(stringify!($name), "\0"));
            // SAFETY: the caller's; the next function of that name is of that type. What it makes
            // is the allocator's below, and freed there. Nothing here is dropped if it unwinds.
            unsafe {
                let block = $make($($passed),*);
                if !block.is_null() {
                    return block;
                }
                match NEXT.get() {
                    Some(next) => std::mem::transmute::<*mut c_void, Operator>(next)($($argument),*),
                    None => block,
                }
            }
        }
    )*};
    (@type $argument:ident) => { usize };
}

makes! {
    _Znwm(size) = make(size);
    _Znam(size) = make(size);
    _ZnwmRKSt9nothrow_t(size, nothrow) = make(size);
    _ZnamRKSt9nothrow_t(size, nothrow) = make(size);
    _ZnwmSt11align_val_t(size, align) = make_aligned(size, align);
    _ZnamSt11align_val_t(size, align) = make_aligned(size, align);
    _ZnwmSt11align_val_tRKSt9nothrow_t(size, align, nothrow) = make_aligned(size, align);
    _ZnamSt11align_val_tRKSt9nothrow_t(size, align, nothrow) = make_aligned(size, align);
}

macro_rules! frees {
    ($($name:ident;)*) => {$(
        /// # Safety
        /// As the operator of that name. What else it is told, size and alignment, is of no
        /// interest.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name(block: *mut c_void) {
            // SAFETY: the caller's.
            unsafe { plimsoll::preload::free(block) }
        }
    )*};
}

frees! {
    _ZdlPv;
    _ZdaPv;
    _ZdlPvm;
    _ZdaPvm;
    _ZdlPvRKSt9nothrow_t;
    _ZdaPvRKSt9nothrow_t;
    _ZdlPvSt11align_val_t;
    _ZdaPvSt11align_val_t;
    _ZdlPvmSt11align_val_t;
    _ZdaPvmSt11align_val_t;
    _ZdlPvSt11align_val_tRKSt9nothrow_t;
    _ZdaPvSt11align_val_tRKSt9nothrow_t;
}
