//! The cold paths of all primitives.
//!
//! A *key* stands for the primitive in the table of waiters. It is the address of the primitive or,
//! for channels, which have no address, a number that is not an address.
//!
//! The functions here are never inlined, so that stacks begin in the caller, with the primitive's
//! own method. A caller that could end with such a call uses [`keeps_its_frame`] after it.

use std::sync::atomic::{Ordering, compiler_fence};

use super::identity::Identity;
use crate::contention::holder::{self, Holder, Waiting};
use crate::contention::{self, Ended, Release, Suspended, Wait, WaitKind};
use plimsoll_core::stack::{Registers, Start};
use plimsoll_tasks::recording;

/// The number that identifies a primitive to its waiters, and its name.
#[derive(Clone, Copy)]
pub(super) struct Key {
    number: usize,
    name: Option<&'static str>,
}

impl Key {
    /// Returns the key of the primitive at an address.
    pub(super) fn new<T: ?Sized>(primitive: &T, name: Option<&'static str>) -> Self {
        Self {
            number: key_of(primitive),
            name,
        }
    }
}

impl From<usize> for Key {
    fn from(number: usize) -> Self {
        Self { number, name: None }
    }
}

impl From<&Identity> for Key {
    fn from(lock: &Identity) -> Self {
        Self::new(lock, lock.name)
    }
}

/// Returns the address of a primitive, as its key.
pub(super) fn key_of<T: ?Sized>(primitive: &T) -> usize {
    (&raw const *primitive).addr()
}

/// Prevents the call before it from becoming a tail call. A tail call would replace the caller's
/// frame, and stacks would begin with the caller's caller. Compiles to no instruction.
#[inline(always)]
pub(super) fn keeps_its_frame() {
    compiler_fence(Ordering::SeqCst);
}

/// Waits for `key` by calling `block`; `ended` returns how the wait ended.
#[cold]
#[inline(never)]
pub(super) fn wait<R>(
    kind: WaitKind,
    key: impl Into<Key>,
    block: impl FnOnce() -> R,
    ended: impl FnOnce(&R) -> Ended,
) -> R {
    if !recording::is_on() {
        return block();
    }
    let stack = Start::Here(Registers::here());
    waited(kind, key.into(), stack, block, ended)
}

/// Waits for a lock, without a time limit, by calling `block`.
#[cold]
#[inline(never)]
pub(super) fn wait_for_lock<R>(kind: WaitKind, lock: &Identity, block: impl FnOnce() -> R) -> R {
    let block = || {
        let _waiting = holder::waiting(&lock.holder, lock.name);
        block()
    };
    if !recording::is_on() {
        return block();
    }
    let stack = Start::Here(Registers::here());
    waited(kind, lock.into(), stack, block, |_| Ended::Acquired)
}

/// Releases the lock `released` and waits for `key`, both by calling `block`. For `blame`, see
/// [`release`].
#[cold]
#[inline(never)]
pub(super) fn release_and_wait<R>(
    blame: impl FnOnce(usize) -> Option<Release>,
    released: impl Into<Key>,
    kind: WaitKind,
    key: impl Into<Key>,
    block: impl FnOnce() -> R,
    ended: impl FnOnce(&R) -> Ended,
) -> R {
    let stack = Start::Here(Registers::here());
    let released = released.into();
    if let Some(release) = blame(released.number) {
        // The lock is still held, but this thread may not run again for a long time.
        release.record_named(released.name, stack);
    }
    waited(kind, key.into(), stack, block, ended)
}

fn waited<R>(
    kind: WaitKind,
    key: Key,
    stack: Start,
    block: impl FnOnce() -> R,
    ended: impl FnOnce(&R) -> Ended,
) -> R {
    let under_way = UnderWay::begin(kind, key, stack);
    let result = {
        let _suspended = contention::suspend();
        block()
    };
    under_way.end(ended(&result));
    result
}

/// A wait in progress. It ends even if the waiting call panics.
pub(super) struct UnderWay {
    wait: Option<Wait>,
    name: Option<&'static str>,
    stack: Start,
}

impl UnderWay {
    pub(super) fn begin(kind: WaitKind, key: Key, stack: Start) -> Self {
        let Key { number, name } = key;
        Self {
            wait: Some(Wait::begin(kind, number, number)),
            name,
            stack,
        }
    }

    pub(super) fn end(mut self, ended: Ended) {
        self.finish(ended);
    }

    fn finish(&mut self, ended: Ended) {
        if let Some(wait) = self.wait.take() {
            wait.end_named(self.name, ended, self.stack);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.finish(Ended::Acquired);
    }
}

/// Releases the lock `key` by calling `unlock`, and records the charge for its waiters, which
/// `blame` computes: [`contention::release_key`], or [`contention::release_by_reader`]. The lock
/// may be deallocated once `unlock` was called.
#[cold]
#[inline(never)]
pub(super) fn release<R>(
    blame: impl FnOnce(usize) -> Option<Release>,
    key: impl Into<Key>,
    unlock: impl FnOnce() -> R,
) -> R {
    released(blame, key.into(), unlock, Start::Here(Registers::here()))
}

/// Releases a lock whose [owner is noted](Holder::is_noted); as [`release`] if anything is
/// recorded.
#[cold]
#[inline(never)]
pub(super) fn release_noted<R>(lock: &Identity, unlock: impl FnOnce() -> R) -> R {
    lock.holder.given_up();
    if !recording::is_on() {
        return unlock();
    }
    let stack = Start::Here(Registers::here());
    released(contention::release_key, lock.into(), unlock, stack)
}

fn released<R>(
    blame: impl FnOnce(usize) -> Option<Release>,
    key: Key,
    unlock: impl FnOnce() -> R,
    stack: Start,
) -> R {
    let Some(release) = blame(key.number) else {
        return unlock();
    };
    let result = {
        let _suspended = contention::suspend();
        unlock()
    };
    release.record_named(key.name, stack);
    result
}

/// Wakes the waiters for `key`, which is not a lock, by calling `wake`.
#[inline]
pub(super) fn wake<R>(key: usize, wake: impl FnOnce() -> R) -> R {
    if recording::is_on() {
        stamp(key);
    }
    wake()
}

/// Ends the waits for `key`, which is not a lock. Its waiters are about to be woken.
#[cold]
#[inline(never)]
pub(super) fn stamp(key: usize) {
    // No thread is charged.
    let _none = contention::release_key(key);
}

/// Calls `call`, which waits for the thread that `holder` names, until it calls [`Started::run`]
/// itself, or another thread that did so has finished.
#[cold]
#[inline(never)]
pub(super) fn call(kind: WaitKind, holder: &Holder, call: impl FnOnce(Started<'_>)) {
    let waiting = holder::waiting(holder, None);
    let recorded = if recording::is_on() {
        let stack = Start::Here(Registers::here());
        let suspended = contention::suspend();
        let under_way = UnderWay::begin(kind, key_of(holder).into(), stack);
        Some((suspended, under_way))
    } else {
        None
    };
    let mut wait = Some((waiting, recorded));
    call(Started {
        wait: &mut wait,
        holder,
    });
    if let Some((_waiting, Some((suspended, under_way)))) = wait {
        drop(suspended);
        under_way.end(Ended::Woken);
    }
}

/// The permission to run the work, which one thread receives.
pub(super) struct Started<'a> {
    wait: &'a mut Option<(Waiting, Option<(Suspended, UnderWay)>)>,
    holder: &'a Holder,
}

impl Started<'_> {
    /// Ends the wait and runs `work`, which is the program's own code.
    pub(super) fn run<R>(self, work: impl FnOnce() -> R) -> R {
        drop(self.wait.take());
        let _doing = Doing::begin(self.holder);
        work()
    }
}

/// A guard: the calling thread runs the work for which others wait, until it is dropped. The
/// waiters are stamped even if the work panics.
struct Doing<'a>(&'a Holder);

impl<'a> Doing<'a> {
    fn begin(holder: &'a Holder) -> Self {
        // The owner is noted in any case, since this is not a fast path.
        holder.note();
        Self(holder)
    }
}

impl Drop for Doing<'_> {
    fn drop(&mut self) {
        self.0.given_up();
        wake(key_of(self.0), || {});
    }
}

#[cfg(test)]
mod tests {
    use crate::contention;
    use crate::sync::{Condvar, Mutex, RwLock, mpsc};
    use plimsoll_tasks::recording;

    /// A waiter in another test may by chance have the same home, but not every time.
    #[track_caller]
    fn reads_no_clock<T>(make: impl Fn() -> T, operation: impl Fn(&T)) {
        let none = (0..50).any(|_| {
            let primitive = Box::new(make());
            let before = plimsoll_sys::os::clock::reads();
            operation(&primitive);
            plimsoll_sys::os::clock::reads() == before
        });
        assert!(none);
    }

    #[test]
    fn no_clock_is_read_without_waiters() {
        contention::set_mutex_fraction(1);
        assert!(recording::is_on());
        reads_no_clock(|| Mutex::new(0), |mutex| *mutex.lock().unwrap() += 1);
        reads_no_clock(|| RwLock::new(0), |lock| *lock.write().unwrap() += 1);
        reads_no_clock(|| RwLock::new(0), |lock| drop(lock.read().unwrap()));
        reads_no_clock(Condvar::new, Condvar::notify_all);
        reads_no_clock(mpsc::channel, |(sender, receiver)| {
            sender.send(1).unwrap();
            receiver.recv().unwrap();
        });
        contention::set_mutex_fraction(0);
    }
}
