//! Results of the standard library's locks, with this module's guards. Waits are not among these functions: a stack begins
//! at the method of the lock.

use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// Replaces the guard, which the error of a poisoned lock has, too.
#[inline]
pub(super) fn map<G, H>(locked: LockResult<G>, replace: impl FnOnce(G) -> H) -> LockResult<H> {
    match locked {
        Ok(guard) => Ok(replace(guard)),
        Err(poisoned) => Err(PoisonError::new(replace(poisoned.into_inner()))),
    }
}

/// Replaces the guard, which the error of a poisoned lock has, too.
#[inline]
pub(super) fn try_map<G, H>(
    locked: TryLockResult<G>,
    replace: impl FnOnce(G) -> H,
) -> TryLockResult<H> {
    match locked {
        Ok(guard) => Ok(replace(guard)),
        Err(TryLockError::Poisoned(poisoned)) => Err(TryLockError::Poisoned(PoisonError::new(
            replace(poisoned.into_inner()),
        ))),
        Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
    }
}

/// Returns `guard` as the result of a lock.
#[inline]
pub(super) fn from_parts<G>(guard: G, is_poisoned: bool) -> LockResult<G> {
    match is_poisoned {
        false => Ok(guard),
        true => Err(PoisonError::new(guard)),
    }
}
