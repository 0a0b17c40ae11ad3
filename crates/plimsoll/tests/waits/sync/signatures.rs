//! Changing the path is enough: the same code compiles, and does the same, with the primitives of
//! the standard library and of Plimsoll.

macro_rules! with_both {
    ($($item:item)*) => {
        mod the_standard_librarys {
            use std::sync;
            $($item)*
        }
        mod plimsolls {
            use plimsoll::sync;
            $($item)*
        }
    };
}

with_both! {
    use std::fmt::{Debug, Display};
    use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
    use std::time::Duration;

    use sync::{
        Arc, Barrier, BarrierWaitResult, Condvar, LockResult, Mutex, MutexGuard, Once, OnceState,
        PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult,
        WaitTimeoutResult, mpsc,
    };

    static MUTEX: Mutex<u32> = Mutex::new(1);
    static RWLOCK: RwLock<u32> = RwLock::new(1);
    static CONDVAR: Condvar = Condvar::new();
    static ONCE: Once = Once::new();
    static BARRIER: Barrier = Barrier::new(1);

    fn is_send<T: Send + ?Sized>() {}
    fn is_sync<T: Sync + ?Sized>() {}
    fn unwinds<T: UnwindSafe + RefUnwindSafe + ?Sized>() {}
    fn shows<T: Debug>() {}

    /// A type that is not `Send`, like the guard of a mutex, but `Sync`.
    struct Fixed(#[allow(dead_code)] u32, std::marker::PhantomData<MutexGuard<'static, u32>>);

    #[test]
    fn types_have_the_same_traits() {
        is_send::<Mutex<std::cell::Cell<u32>>>();
        is_sync::<Mutex<std::cell::Cell<u32>>>();
        unwinds::<Mutex<std::cell::Cell<u32>>>();
        is_send::<RwLock<u32>>();
        is_sync::<RwLock<u32>>();
        unwinds::<RwLock<std::cell::Cell<u32>>>();
        is_sync::<MutexGuard<'_, Fixed>>();
        is_sync::<RwLockReadGuard<'_, Fixed>>();
        is_sync::<RwLockWriteGuard<'_, Fixed>>();
        is_sync::<Condvar>();
        unwinds::<(Condvar, Once)>();
        is_sync::<(Once, Barrier)>();
        is_send::<(mpsc::Sender<u32>, mpsc::SyncSender<u32>, mpsc::Receiver<u32>)>();
        is_sync::<(mpsc::Sender<u32>, mpsc::SyncSender<u32>)>();
        shows::<(Condvar, Once, Barrier, BarrierWaitResult, WaitTimeoutResult)>();
        shows::<(mpsc::Sender<Fixed>, mpsc::SyncSender<Fixed>, mpsc::Receiver<Fixed>)>();
        shows::<(mpsc::Iter<'_, u32>, mpsc::TryIter<'_, u32>, mpsc::IntoIter<u32>)>();
    }

    fn all_of_a_mutex<T: Debug + Display + Default + PartialEq>(mut mutex: Mutex<T>) -> T {
        {
            let locked: LockResult<MutexGuard<'_, T>> = mutex.lock();
            let guard = locked.unwrap();
            assert_eq!(format!("{guard:?} {guard}"), format!("{0:?} {0}", *guard));
            let tried: TryLockResult<MutexGuard<'_, T>> = mutex.try_lock();
            assert!(matches!(tried, Err(TryLockError::WouldBlock)));
            assert!(format!("{mutex:?}").contains("<locked>"));
        }
        assert!(*mutex.try_lock().unwrap() != T::default());
        let inside: &mut T = mutex.get_mut().unwrap();
        assert!(*inside != T::default());
        mutex.into_inner().unwrap()
    }

    #[test]
    fn mutexes_do_the_same() {
        assert_eq!(all_of_a_mutex(Mutex::new(3)), 3);
        assert_eq!(*Mutex::<u8>::default().lock().unwrap(), 0);
        assert_eq!(format!("{:?}", Mutex::from(3)), "Mutex { data: 3, poisoned: false, .. }");
        *MUTEX.lock().unwrap() += 1;
        let any: &Mutex<dyn Debug> = &Mutex::new(5);
        assert_eq!(format!("{:?}", any.lock().unwrap()), "5");
        let some: Arc<Mutex<[u8]>> = Arc::new(Mutex::new([1, 2]));
        some.lock().unwrap()[1] = 3;
    }

    #[test]
    fn readers_writer_locks_do_the_same() {
        let mut lock = RwLock::new(3);
        {
            let read: LockResult<RwLockReadGuard<'_, i32>> = lock.read();
            let read = read.unwrap();
            let more: TryLockResult<RwLockReadGuard<'_, i32>> = lock.try_read();
            assert_eq!(format!("{:?} {}", more.unwrap(), *read), "3 3");
            let write: TryLockResult<RwLockWriteGuard<'_, i32>> = lock.try_write();
            assert!(matches!(write, Err(TryLockError::WouldBlock)));
        }
        {
            let write: LockResult<RwLockWriteGuard<'_, i32>> = lock.write();
            *write.unwrap() = 4;
        }
        {
            let write = lock.try_write().unwrap();
            assert!(matches!(lock.try_read(), Err(TryLockError::WouldBlock)));
            assert_eq!(format!("{write:?} {write}"), "4 4");
        }
        *lock.get_mut().unwrap() = 5;
        assert_eq!(format!("{lock:?}"), "RwLock { data: 5, poisoned: false, .. }");
        assert_eq!(lock.into_inner().unwrap(), 5);
        assert_eq!(*RwLock::<u8>::default().read().unwrap(), *RwLock::from(0).read().unwrap());
        *RWLOCK.write().unwrap() += 1;
    }

    fn panics(f: impl FnOnce()) {
        catch_unwind(AssertUnwindSafe(f)).unwrap_err();
    }

    #[test]
    fn a_panic_poisons() {
        let mut mutex = Mutex::new(1);
        panics(|| {
            let mut guard = mutex.lock().unwrap();
            *guard = 2;
            std::panic::resume_unwind(Box::new("a panic"));
        });
        assert!(mutex.is_poisoned());
        assert_eq!(*mutex.lock().unwrap_err().into_inner(), 2);
        let Err(TryLockError::Poisoned(poisoned)) = mutex.try_lock() else {
            panic!("it is poisoned");
        };
        assert_eq!(**poisoned.get_ref(), 2);
        drop(poisoned);
        assert_eq!(*mutex.get_mut().unwrap_err().into_inner(), 2);
        let condition = Condvar::new();
        let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = condition.wait_timeout(guard, Duration::ZERO);
        assert!(waited.unwrap_err().into_inner().1.timed_out());
        mutex.clear_poison();
        assert!(!mutex.is_poisoned());
        assert_eq!(*mutex.lock().unwrap(), 2);

        let lock = RwLock::new(1);
        // Readers do not poison.
        panics(|| {
            let _guard = lock.read().unwrap();
            std::panic::resume_unwind(Box::new("a panic"));
        });
        assert!(!lock.is_poisoned());
        panics(|| {
            let _guard = lock.write().unwrap();
            std::panic::resume_unwind(Box::new("a panic"));
        });
        assert!(lock.is_poisoned());
        assert_eq!(*lock.read().unwrap_err().into_inner(), 1);
        assert_eq!(*lock.write().unwrap_err().into_inner(), 1);
        assert!(matches!(lock.try_read(), Err(TryLockError::Poisoned(_))));
        assert!(matches!(lock.try_write(), Err(TryLockError::Poisoned(_))));
        lock.clear_poison();
        assert_eq!(lock.into_inner().unwrap(), 1);

        let once = Once::new();
        panics(|| once.call_once(|| std::panic::resume_unwind(Box::new("a panic"))));
        panics(|| once.call_once(|| {}));
        once.call_once_force(|state: &OnceState| assert!(state.is_poisoned()));
        assert!(once.is_completed());

        // A lock taken by a thread that is already panicking is not poisoned.
        struct Locks<'a>(&'a Mutex<i32>);
        impl Drop for Locks<'_> {
            fn drop(&mut self) {
                *self.0.lock().unwrap() += 1;
            }
        }
        panics(|| {
            let _locks = Locks(&mutex);
            std::panic::resume_unwind(Box::new("a panic"));
        });
        assert_eq!(*mutex.lock().unwrap(), 3);
    }

    #[test]
    fn conditions_do_the_same() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *MUTEX.lock().unwrap() = 100;
                CONDVAR.notify_one();
                CONDVAR.notify_all();
            });
            let guard = MUTEX.lock().unwrap();
            let guard = CONDVAR.wait_while(guard, |number| *number != 100).unwrap();
            drop(guard);
        });
        let (condition, mutex) = (Condvar::default(), Mutex::new(()));
        let guard = mutex.lock().unwrap();
        let short = Duration::from_millis(1);
        let (guard, result): (MutexGuard<'_, ()>, WaitTimeoutResult) =
            condition.wait_timeout(guard, short).unwrap();
        let _either = result.timed_out();
        let (guard, result) = condition.wait_timeout_while(guard, short, |_| true).unwrap();
        assert!(result.timed_out());
        let (_guard, result) = condition.wait_timeout_while(guard, short, |_| false).unwrap();
        assert!(!result.timed_out());
        let wait = |guard| -> LockResult<MutexGuard<'static, u32>> { CONDVAR.wait(guard) };
        let _ = wait;
    }

    #[test]
    fn once_and_barriers_do_the_same() {
        let mut times = 0;
        for _ in 0..2 {
            ONCE.call_once(|| times += 1);
        }
        assert_eq!((times, ONCE.is_completed()), (1, true));
        let result: BarrierWaitResult = BARRIER.wait();
        assert!(result.is_leader());
    }

    #[test]
    fn channels_do_the_same() {
        let (sender, receiver): (mpsc::Sender<u32>, mpsc::Receiver<u32>) = mpsc::channel();
        assert_eq!(receiver.try_recv(), Err(mpsc::TryRecvError::Empty));
        let short = Duration::from_millis(1);
        assert_eq!(receiver.recv_timeout(short), Err(mpsc::RecvTimeoutError::Timeout));
        let other = sender.clone();
        for number in 0..6 {
            sender.send(number).unwrap();
        }
        assert_eq!(receiver.recv(), Ok(0));
        assert_eq!(receiver.recv_timeout(short), Ok(1));
        assert_eq!(receiver.iter().next(), Some(2));
        assert_eq!(IntoIterator::into_iter(&receiver).next(), Some(3));
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [4, 5]);
        drop((sender, other));
        assert_eq!(receiver.recv(), Err(mpsc::RecvError));
        assert_eq!(receiver.recv_timeout(short), Err(mpsc::RecvTimeoutError::Disconnected));
        assert_eq!(receiver.into_iter().count(), 0);

        let (sender, receiver) = mpsc::sync_channel::<u32>(1);
        assert_eq!(sender.try_send(1), Ok(()));
        assert_eq!(sender.try_send(2), Err(mpsc::TrySendError::Full(2)));
        std::thread::scope(|scope| {
            let sender = sender.clone();
            scope.spawn(move || sender.send(3).unwrap());
            assert_eq!((receiver.recv(), receiver.recv()), (Ok(1), Ok(3)));
        });
        drop(receiver);
        assert_eq!(sender.send(4), Err(mpsc::SendError(4)));
        assert_eq!(sender.try_send(4), Err(mpsc::TrySendError::Disconnected(4)));

        let (sender, receiver) = mpsc::sync_channel::<u32>(0);
        std::thread::scope(|scope| {
            scope.spawn(move || sender.send(5).unwrap());
            assert_eq!(receiver.recv(), Ok(5));
        });
    }
}

#[test]
fn locks_have_the_names_they_were_given() {
    use plimsoll::sync::{Condvar, Mutex, RwLock};
    static MUTEX: Mutex<u32> = Mutex::named("mutex", 0);
    static RWLOCK: RwLock<u32> = RwLock::named("rwlock", 0);
    static CONDVAR: Condvar = Condvar::named("condvar");
    assert_eq!(MUTEX.name(), Some("mutex"));
    assert_eq!(RWLOCK.name(), Some("rwlock"));
    assert_eq!(CONDVAR.name(), Some("condvar"));
    assert_eq!(Mutex::new(1).name(), None);
}
