//! The common implementation of all guards.

/// Implements a guard around a [`Held`](super::permits::Held): access to the protected data, and
/// the release of its share of the lock. Usage: `guard!({generics} type)`, with `mut` at the end if
/// the data, a `T`, may be written.
macro_rules! guard {
    ({$($generics:tt)*} $guard:ty) => {
        impl<$($generics)*> Drop for $guard {
            #[inline]
            fn drop(&mut self) {
                self.held.give_up();
            }
        }

        impl<$($generics)*> std::ops::Deref for $guard {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                // SAFETY: the owner of a share of the lock may read the data. The guard keeps the
                // share, and so the data, for the life of the reference.
                unsafe { self.held.data().as_ref() }
            }
        }

        impl<$($generics)*> std::fmt::Debug for $guard
        where
            T: std::fmt::Debug,
        {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                (**self).fmt(f)
            }
        }

        impl<$($generics)*> std::fmt::Display for $guard
        where
            T: std::fmt::Display,
        {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                (**self).fmt(f)
            }
        }
    };
    ({$($generics:tt)*} $guard:ty, mut) => {
        guard!({$($generics)*} $guard);

        impl<$($generics)*> std::ops::DerefMut for $guard {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                // SAFETY: the guard owns all of the lock, so no other thread reads or writes the
                // data.
                unsafe { self.held.data().as_mut() }
            }
        }
    };
}

pub(super) use guard;
