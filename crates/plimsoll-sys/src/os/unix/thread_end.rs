//! Destructors that run when a thread ends, at every kind of thread end.
//!
//! The C library knows a destructor by its address. So before a library that contains Plimsoll is unloaded, its keys
//! are deleted: threads that end later run no destructor of it.

use std::ffi::c_void;
use std::ptr;

use crate::primitives::{AtomicPtr, AtomicUsize, Ordering};

/// A function that receives the ending thread's value of a key.
pub type Destructor = unsafe extern "C" fn(*mut c_void);

/// A key of the C library. Each thread has a value for it, null at first. `const`-constructible.
pub struct Key {
    /// The C library's key plus 1; 0 before [`Key::prepare`].
    number: AtomicUsize,
}

/// The number of keys whose values C libraries keep in the thread itself. For others they may
/// allocate, which hooks must not do.
const KEYS_WITHOUT_ALLOCATION: usize = 32;

/// The keys that have been prepared.
static PREPARED: [AtomicPtr<Key>; 16] = [const { AtomicPtr::new(ptr::null_mut()) }; 16];

/// The loader calls this before it unloads the library that contains it, and at the end of the process.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_UNLOADING: extern "C" fn() = delete_all;

/// Deletes the keys. The values of running threads stay, without a destructor.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
extern "C" fn delete_all() {
    for key in &PREPARED {
        // SAFETY: the list holds references to statics.
        if let Some(key) = unsafe { key.load(Ordering::Acquire).as_ref() } {
            key.delete();
        }
    }
}

impl Default for Key {
    fn default() -> Self {
        Self::new()
    }
}

impl Key {
    /// Creates a key that no thread can use yet.
    #[inline]
    pub const fn new() -> Self {
        Self {
            number: AtomicUsize::new(0),
        }
    }

    /// Makes the key usable: `destructor` will receive the value of each ending thread that is not
    /// null. Call it once. Returns `false` if the system has no key whose values take no
    /// allocation.
    pub fn prepare(&'static self, destructor: Destructor) -> bool {
        let this = ptr::from_ref(self).cast_mut();
        let is_listed = PREPARED.iter().any(|entry| {
            let free = ptr::null_mut();
            let listed = entry.compare_exchange(free, this, Ordering::AcqRel, Ordering::Acquire);
            listed.is_ok() || listed == Err(this)
        });
        if !is_listed {
            return false;
        }
        let mut key = 0;
        // SAFETY: `key` is writable, and the destructor has the required type.
        if unsafe { libc::pthread_key_create(&raw mut key, Some(destructor)) } != 0 {
            return false;
        }
        if key as usize >= KEYS_WITHOUT_ALLOCATION {
            // SAFETY: the key was made above, and no thread has a value for it.
            unsafe { libc::pthread_key_delete(key) };
            return false;
        }
        self.number.store(key as usize + 1, Ordering::Release);
        true
    }

    /// Makes the key unusable, as before [`Key::prepare`].
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn delete(&self) {
        if let Some(key) = self.number.swap(0, Ordering::AcqRel).checked_sub(1) {
            // SAFETY: `prepare` made the key, and this call alone has taken it.
            unsafe { libc::pthread_key_delete(key as libc::pthread_key_t) };
        }
    }

    /// Returns whether the key is usable.
    #[inline]
    pub fn is_prepared(&self) -> bool {
        self.number.load(Ordering::Acquire) != 0
    }

    /// Returns the calling thread's value.
    #[inline]
    pub fn get(&self) -> *mut c_void {
        match self.number.load(Ordering::Acquire).checked_sub(1) {
            // SAFETY: `prepare` made the key.
            Some(key) => unsafe { libc::pthread_getspecific(key as libc::pthread_key_t) },
            None => std::ptr::null_mut(),
        }
    }

    /// Sets the calling thread's value, without allocation. Returns `false` if the destructor will not run.
    ///
    /// # Safety
    /// The destructor may be called with `value`.
    #[inline]
    pub unsafe fn set(&self, value: *const c_void) -> bool {
        match self.number.load(Ordering::Acquire).checked_sub(1) {
            // SAFETY: `prepare` made the key, and its destructor accepts the value by this
            // function's contract.
            Some(key) => unsafe {
                libc::pthread_setspecific(key as libc::pthread_key_t, value) == 0
            },
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static KEY: Key = Key::new();
    static ENDED: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn ended(value: *mut c_void) {
        ENDED.fetch_add(value as usize, Ordering::Relaxed);
    }

    #[test]
    fn the_destructor_receives_the_value_of_an_ended_thread() {
        // SAFETY: the destructor accepts any value.
        let set = |value: usize| unsafe { KEY.set(value as *const c_void) };
        assert!(!set(1) && KEY.get().is_null() && !KEY.is_prepared());
        assert!(KEY.prepare(ended) && KEY.is_prepared());
        let thread = std::thread::spawn(move || {
            assert!(KEY.get().is_null());
            assert!(set(5));
            assert_eq!(KEY.get() as usize, 5);
        });
        thread.join().unwrap();
        // Joining comes after the destructors of the C library.
        assert_eq!(ENDED.load(Ordering::Relaxed), 5);
        keys_with_allocation_are_refused();
    }

    /// Part of the test above: no other thread may take keys meanwhile.
    fn keys_with_allocation_are_refused() {
        static LATE: Key = Key::new();
        let keys: Vec<_> = (0..KEYS_WITHOUT_ALLOCATION)
            .map(|_| {
                let mut key = 0;
                // SAFETY: `key` is writable.
                let failed = unsafe { libc::pthread_key_create(&raw mut key, None) };
                assert_eq!(failed, 0);
                key
            })
            .collect();
        assert!(!LATE.prepare(ended) && !LATE.is_prepared());
        // SAFETY: the destructor accepts any value.
        assert!(!unsafe { LATE.set(std::ptr::dangling()) } && LATE.get().is_null());
        for key in keys {
            // SAFETY: the key was made above.
            unsafe { libc::pthread_key_delete(key) };
        }
    }
}
