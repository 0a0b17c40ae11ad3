//! What all primitives do when they leave their quick path.
//!
//! A *key* stands for the primitive in the table of waiters: its address, or for channels, which
//! have none, a number that is no address.
//!
//! The functions here are never inlined, so that stacks begin in the caller, with the primitive's
//! own method. A caller that could end with such a call uses [`keeps_its_frame`] after it.

use std::sync::atomic::{Ordering, compiler_fence};

use super::identity::Identity;
use crate::contention::holder::{self, Holder, Waiting};
use crate::contention::{self, Ended, Release, Suspended, Wait, WaitKind};
use crate::stack::{Registers, Start};

/// What a primitive is known by to those who wait, and what it is called.
#[derive(Clone, Copy)]
pub(super) struct Key {
    number: usize,
    name: Option<&'static str>,
}

impl Key {
    /// That of what is at an address.
    pub(super) fn of<T: ?Sized>(primitive: &T, name: Option<&'static str>) -> Self {
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
        Self::of(lock, lock.name)
    }
}

/// The key of what is at an address.
pub(super) fn key_of<T: ?Sized>(primitive: &T) -> usize {
    (&raw const *primitive).addr()
}

/// To be called after a call that must not be the last thing its caller does: it would replace the
/// caller's frame, and stacks would begin with the caller's caller. No instruction comes of it.
#[inline(always)]
pub(super) fn keeps_its_frame() {
    compiler_fence(Ordering::SeqCst);
}

/// Waits for `key` by calling `block`; `ended` says how that ended.
#[cold]
#[inline(never)]
pub(super) fn wait<R>(
    kind: WaitKind,
    key: impl Into<Key>,
    block: impl FnOnce() -> R,
    ended: impl FnOnce(&R) -> Ended,
) -> R {
    if !contention::is_on() {
        return block();
    }
    let stack = Start::Here(Registers::here());
    waited(kind, key.into(), stack, block, ended)
}

/// Waits for a lock, for as long as it takes, by calling `block`.
#[cold]
#[inline(never)]
pub(super) fn wait_for_lock<R>(kind: WaitKind, lock: &Identity, block: impl FnOnce() -> R) -> R {
    let block = || {
        let _waiting = holder::waiting(&lock.holder, lock.name);
        block()
    };
    if !contention::is_on() {
        return block();
    }
    let stack = Start::Here(Registers::here());
    waited(kind, lock.into(), stack, block, |_| Ended::Acquired)
}

/// Gives up the lock `released` and waits for `key`, both by calling `block`. `blame` is as for
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
        // The lock is still held, but it may be long until this thread runs again.
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

/// A wait that is left even if what it waits with panics.
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

/// Gives up the lock `key` by calling `unlock`, and is blamed for those who wait for it, who are
/// found by `blame`: [`contention::release_key`], or [`contention::release_by_reader`]. The lock
/// may be gone once `unlock` was called.
#[cold]
#[inline(never)]
pub(super) fn release<R>(
    blame: impl FnOnce(usize) -> Option<Release>,
    key: impl Into<Key>,
    unlock: impl FnOnce() -> R,
) -> R {
    released(blame, key.into(), unlock, Start::Here(Registers::here()))
}

/// Gives up a lock that [has a holder](Holder::is_noted): as [`release`] if anything is recorded.
#[cold]
#[inline(never)]
pub(super) fn release_noted<R>(lock: &Identity, unlock: impl FnOnce() -> R) -> R {
    lock.holder.given_up();
    if !contention::is_on() {
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

/// Lets go on, by calling `wake`, who waits for `key`, which is no lock.
#[inline]
pub(super) fn wake<R>(key: usize, wake: impl FnOnce() -> R) -> R {
    if contention::is_on() {
        stamp(key);
    }
    wake()
}

/// Whoever waits for `key`, which is no lock, is about to be woken: its wait is over.
#[cold]
#[inline(never)]
pub(super) fn stamp(key: usize) {
    // Nobody is blamed.
    let _none = contention::release_key(key);
}

/// Uses a lock of a primitive's own, which is not to be seen.
pub(super) fn unseen<R>(operation: impl FnOnce() -> R) -> R {
    let _suspended = contention::suspend();
    operation()
}

/// Calls `call`, which waits for what `holder` does until it calls [`Started::run`], or until some
/// other thread that did so is done.
#[cold]
#[inline(never)]
pub(super) fn call(kind: WaitKind, holder: &Holder, call: impl FnOnce(Started<'_>)) {
    let stack = Start::Here(Registers::here());
    let mut wait = Some((
        holder::waiting(holder, None),
        contention::suspend(),
        UnderWay::begin(kind, key_of(holder).into(), stack),
    ));
    call(Started {
        wait: &mut wait,
        holder,
    });
    if let Some((_waiting, suspended, under_way)) = wait {
        drop(suspended);
        under_way.end(Ended::Woken);
    }
}

/// What the thread has that is the one to do it.
pub(super) struct Started<'a> {
    wait: &'a mut Option<(Waiting, Suspended, UnderWay)>,
    holder: &'a Holder,
}

impl Started<'_> {
    /// Does it, with `work`, which is the program's own code.
    pub(super) fn run<R>(self, work: impl FnOnce() -> R) -> R {
        drop(self.wait.take());
        let _doing = Doing::begin(self.holder);
        work()
    }
}

/// While it lives, the calling thread does what others wait for. They are woken even if that
/// panics.
pub(super) struct Doing<'a>(&'a Holder);

impl<'a> Doing<'a> {
    pub(super) fn begin(holder: &'a Holder) -> Self {
        // Whether owners are noted or not: this is no fast path.
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
    use crate::sync::{Condvar, Mutex, RwLock, Semaphore, mpsc};

    /// Whoever waits in some other test may by chance be looked for in the same place; but not
    /// every time.
    #[track_caller]
    fn reads_no_clock<T>(make: impl Fn() -> T, operation: impl Fn(&T)) {
        let none = (0..50).any(|_| {
            let primitive = Box::new(make());
            let before = crate::os::clock::reads();
            operation(&primitive);
            crate::os::clock::reads() == before
        });
        assert!(none);
    }

    #[test]
    fn no_clock_is_read_where_nobody_waits() {
        contention::set_mutex_fraction(1);
        assert!(contention::is_on());
        reads_no_clock(|| Mutex::new(0), |mutex| *mutex.lock().unwrap() += 1);
        reads_no_clock(|| RwLock::new(0), |lock| *lock.write().unwrap() += 1);
        reads_no_clock(|| RwLock::new(0), |lock| drop(lock.read().unwrap()));
        reads_no_clock(Condvar::new, Condvar::notify_all);
        reads_no_clock(|| Semaphore::new(1), |semaphore| drop(semaphore.acquire()));
        reads_no_clock(mpsc::channel, |(sender, receiver)| {
            sender.send(1).unwrap();
            receiver.recv().unwrap();
        });
        contention::set_mutex_fraction(0);
    }
}
