//! What jemalloc can be asked and told by name: `mallctl`.

use std::ffi::CStr;
use std::ptr::null_mut;

use tikv_jemalloc_sys as ffi;

/// A name that has been looked up, so that numbers in it can be put in.
#[derive(Clone, Copy)]
pub(super) struct Name {
    parts: [usize; 6],
    length: usize,
}

impl Name {
    /// `None` if this jemalloc does not have it.
    pub(super) fn find(name: &CStr) -> Option<Self> {
        let mut found = Self {
            parts: [0; 6],
            length: 6,
        };
        // SAFETY: there is room for as many parts as is said.
        let failed = unsafe {
            ffi::mallctlnametomib(
                name.as_ptr(),
                found.parts.as_mut_ptr(),
                &raw mut found.length,
            )
        };
        (failed == 0).then_some(found)
    }

    /// The name with a number, of an arena or a class, as its part at `place`.
    pub(super) fn with(mut self, place: usize, number: usize) -> Self {
        self.parts[place] = number;
        self
    }

    /// # Safety
    /// `T` is the type of what has this name.
    pub(super) unsafe fn read<T: Copy>(self) -> Option<T> {
        let mut value = std::mem::MaybeUninit::<T>::uninit();
        let mut size = size_of::<T>();
        // SAFETY: there is room for a value of the size that is said; jemalloc refuses any other.
        let failed = unsafe {
            ffi::mallctlbymib(
                self.parts.as_ptr(),
                self.length,
                value.as_mut_ptr().cast(),
                &raw mut size,
                null_mut(),
                0,
            )
        };
        // SAFETY: jemalloc has written it, and the caller vouches for its type.
        (failed == 0 && size == size_of::<T>()).then(|| unsafe { value.assume_init() })
    }

    /// # Safety
    /// `T` is the type of what has this name, and the value one that may be set.
    pub(super) unsafe fn write<T: Copy>(self, mut value: T) -> bool {
        // SAFETY: the value is as long as is said; the caller vouches for the rest.
        let failed = unsafe {
            ffi::mallctlbymib(
                self.parts.as_ptr(),
                self.length,
                null_mut(),
                null_mut(),
                (&raw mut value).cast(),
                size_of::<T>(),
            )
        };
        failed == 0
    }

    /// Does what has this name.
    pub(super) fn run(self) -> bool {
        // SAFETY: nothing is read or written.
        let failed = unsafe {
            ffi::mallctlbymib(
                self.parts.as_ptr(),
                self.length,
                null_mut(),
                null_mut(),
                null_mut(),
                0,
            )
        };
        failed == 0
    }
}

/// # Safety
/// `T` is the type of what has this name.
pub(super) unsafe fn read<T: Copy>(name: &CStr) -> Option<T> {
    // SAFETY: the caller's.
    unsafe { Name::find(name)?.read() }
}

/// What a name of one of an arena's numbers stands for, if the arena is there.
///
/// # Safety
/// `T` is the type of what has this name, whose part `place` is a number.
pub(super) unsafe fn read_of_arena<T: Copy>(name: &CStr, place: usize, arena: usize) -> Option<T> {
    // SAFETY: the caller's.
    unsafe { Name::find(name)?.with(place, arena).read() }
}

/// Whether an option has this value.
pub(super) fn option_is(name: &CStr, value: &CStr) -> bool {
    // SAFETY: that is the type of options that are words; jemalloc's words last.
    unsafe {
        read::<*const std::ffi::c_char>(name)
            .is_some_and(|is| !is.is_null() && CStr::from_ptr(is) == value)
    }
}
