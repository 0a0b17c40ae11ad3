//! jemalloc's named controls, through `mallctl`.

use std::ffi::CStr;
use std::ptr::null_mut;

use tikv_jemalloc_sys as ffi;

/// The looked-up name of a control, whose numbers can be replaced.
#[derive(Clone, Copy)]
pub(super) struct Name {
    parts: [usize; 6],
    length: usize,
}

impl Name {
    /// Looks a name up; `None` if this jemalloc does not have it.
    pub(super) fn find(name: &CStr) -> Option<Self> {
        let mut found = Self {
            parts: [0; 6],
            length: 6,
        };
        // SAFETY: `parts` has as many elements as `length` states.
        let failed = unsafe {
            ffi::mallctlnametomib(
                name.as_ptr(),
                found.parts.as_mut_ptr(),
                &raw mut found.length,
            )
        };
        (failed == 0).then_some(found)
    }

    /// Returns the name with its part at `place` replaced by the number of an arena or a class.
    pub(super) fn with(mut self, place: usize, number: usize) -> Self {
        self.parts[place] = number;
        self
    }

    /// # Safety
    /// `T` is the type of the control's value.
    pub(super) unsafe fn read<T: Copy>(self) -> Option<T> {
        let mut value = std::mem::MaybeUninit::<T>::uninit();
        let mut size = size_of::<T>();
        // SAFETY: `value` has `size` bytes; jemalloc refuses any other size.
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
        // SAFETY: jemalloc has written the value, and `T` is its type, by this function's contract.
        (failed == 0 && size == size_of::<T>()).then(|| unsafe { value.assume_init() })
    }

    /// # Safety
    /// `T` is the type of the control's value, and the value may be set.
    pub(super) unsafe fn write<T: Copy>(self, mut value: T) -> bool {
        // SAFETY: the value has the given size; its type is right and it may be set, by this
        // function's contract.
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

    /// Runs the control as a command. Returns whether it succeeded.
    pub(super) fn run(self) -> bool {
        // SAFETY: the call passes no memory.
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
/// `T` is the type of the control's value.
pub(super) unsafe fn read<T: Copy>(name: &CStr) -> Option<T> {
    // SAFETY: `T` is the type of the named control, by this function's contract.
    unsafe { Name::find(name)?.read() }
}

/// Returns the size of jemalloc's pages in bytes, which was chosen when it was compiled.
pub(super) fn page_size() -> Option<usize> {
    // SAFETY: the control has this type.
    unsafe { read(c"arenas.page") }
}

/// Reads a control of an arena; `None` if the arena does not exist.
///
/// # Safety
/// `T` is the type of the control's value; part `place` of the name is a number.
pub(super) unsafe fn read_of_arena<T: Copy>(name: &CStr, place: usize, arena: usize) -> Option<T> {
    // SAFETY: `T` is the type of the named control, whose part `place` is a number, by this
    // function's contract.
    unsafe { Name::find(name)?.with(place, arena).read() }
}

/// Returns whether an option has this value.
pub(super) fn option_is(name: &CStr, value: &CStr) -> bool {
    // SAFETY: options that are words have this type; jemalloc's words are static.
    unsafe {
        read::<*const std::ffi::c_char>(name)
            .is_some_and(|is| !is.is_null() && CStr::from_ptr(is) == value)
    }
}
