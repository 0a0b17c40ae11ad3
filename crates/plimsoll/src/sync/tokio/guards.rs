//! The common implementation of all guards.

/// Implements a guard around a [`Held`](super::permits::Held): access to the protected data, and
/// the release of its share of the lock. Usage: `guard!({generics} type => target, lock)`, with
/// `mut` at the end if the data may be written.
macro_rules! guard {
    ({$($generics:tt)*} $guard:ty => $target:ty, $lock:ty) => {
        impl<$($generics)*> $guard {
            /// Returns the lock; the share of the guard passes to the caller.
            #[inline]
            fn into_lock(this: Self) -> $lock {
                let this = std::mem::ManuallyDrop::new(this);
                // SAFETY: `this` is neither used again nor dropped, so `held` is not duplicated.
                unsafe { std::ptr::read(&this.held) }.into_lock()
            }
        }

        impl<$($generics)*> Drop for $guard {
            #[inline]
            fn drop(&mut self) {
                self.held.give_up();
            }
        }

        impl<$($generics)*> std::ops::Deref for $guard {
            type Target = $target;

            #[inline]
            fn deref(&self) -> &$target {
                // SAFETY: the owner of a share of the lock may read the data. The guard keeps the
                // share, and so the data, for the life of the reference.
                unsafe { self.held.data().as_ref() }
            }
        }

        impl<$($generics)*> std::fmt::Debug for $guard
        where
            $target: std::fmt::Debug,
        {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                (**self).fmt(f)
            }
        }

        impl<$($generics)*> std::fmt::Display for $guard
        where
            $target: std::fmt::Display,
        {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                (**self).fmt(f)
            }
        }
    };
    ({$($generics:tt)*} $guard:ty => $target:ty, $lock:ty, mut) => {
        guard!({$($generics)*} $guard => $target, $lock);

        impl<$($generics)*> std::ops::DerefMut for $guard {
            #[inline]
            fn deref_mut(&mut self) -> &mut $target {
                // SAFETY: the guard owns all of the lock, so no other thread reads or writes the
                // data.
                unsafe { self.held.data().as_mut() }
            }
        }
    };
}

pub(super) use guard;
