//! The stack of the calling thread, as each system reports it.

use std::ops::Range;

/// Returns the calling thread's stack; `None` if the system does not report it.
#[cfg(target_vendor = "apple")]
pub fn own_stack() -> Option<Range<usize>> {
    // SAFETY: the functions accept the calling thread.
    let (end, size) = unsafe {
        let own = libc::pthread_self();
        let end = libc::pthread_get_stackaddr_np(own) as usize;
        (end, libc::pthread_get_stacksize_np(own))
    };
    Some(end.checked_sub(size)?..end)
}

/// Returns the calling thread's stack; `None` if the system does not report it.
#[cfg(any(
    target_os = "android",
    target_os = "dragonfly",
    target_os = "freebsd",
    target_os = "linux",
    target_os = "netbsd",
))]
pub fn own_stack() -> Option<Range<usize>> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::zeroed();
    let (mut low, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes are used only between initialization and destruction.
    super::errno::keep(|| unsafe {
        if attributes_of_self(attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let found = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        let low = low as usize;
        (found == 0 && low != 0).then_some(low..low.checked_add(size)?)
    })
}

#[cfg(any(target_os = "android", target_os = "linux", target_os = "netbsd"))]
unsafe fn attributes_of_self(attributes: *mut libc::pthread_attr_t) -> i32 {
    // SAFETY: the call initializes the attributes.
    unsafe { libc::pthread_getattr_np(libc::pthread_self(), attributes) }
}

#[cfg(any(target_os = "dragonfly", target_os = "freebsd"))]
unsafe fn attributes_of_self(attributes: *mut libc::pthread_attr_t) -> i32 {
    // SAFETY: the first call initializes the attributes, which the second one fills.
    unsafe {
        if libc::pthread_attr_init(attributes) != 0 {
            return -1;
        }
        let status = libc::pthread_attr_get_np(libc::pthread_self(), attributes);
        if status != 0 {
            libc::pthread_attr_destroy(attributes);
        }
        status
    }
}

/// Returns `None`: this system's function is not supported.
#[cfg(not(any(
    target_vendor = "apple",
    target_os = "android",
    target_os = "dragonfly",
    target_os = "freebsd",
    target_os = "linux",
    target_os = "netbsd",
)))]
pub fn own_stack() -> Option<Range<usize>> {
    None
}
