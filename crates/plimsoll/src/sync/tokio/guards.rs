//! What all guards have in common.

/// Implements for a guard around a [`Held`](super::permits::Held) that it shows what it protects,
/// and gives up its share of the lock: `guard!({generics} type => target, lock)`, with `mut` at the
/// end if it may be written to.
macro_rules! guard {
    ({$($generics:tt)*} $guard:ty => $target:ty, $lock:ty) => {
        impl<$($generics)*> $guard {
            /// The lock, of which the caller has the share of the guard.
            #[inline]
            fn into_lock(this: Self) -> $lock {
                let this = std::mem::ManuallyDrop::new(this);
                // SAFETY: `this` is not used any more, and is not dropped.
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
                // SAFETY: whoever has a share of the lock may read; it is had as long as the guard,
                // and so is the data.
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
                // SAFETY: the guard has all of the lock, so nobody else reads or writes.
                unsafe { self.held.data().as_mut() }
            }
        }
    };
}

pub(super) use guard;
