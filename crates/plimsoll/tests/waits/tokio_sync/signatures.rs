//! Changing the path is enough: the same code compiles, and does the same, with tokio's primitives
//! and with Plimsoll's.
//!
//! These types of tokio have no counterpart, so no test here names them: `MappedMutexGuard`,
//! `OwnedMappedMutexGuard`, `RwLockMappedWriteGuard`, `OwnedRwLockMappedWriteGuard`,
//! `OwnedRwLockReadGuard` and `OwnedRwLockWriteGuard`. Nor have the methods that return them, and
//! `downgrade_map`, `try_downgrade_map` and `send_timeout`.

use crate::tokio_sync::scene::Recording;

/// Evaluates to whether a type implements a trait.
macro_rules! has {
    ($type:ty: $trait:path) => {{
        struct Has<T: ?Sized>(std::marker::PhantomData<T>);
        #[allow(dead_code)]
        trait Not {
            const HAS: bool = false;
        }
        impl<T: ?Sized> Not for Has<T> {}
        #[allow(dead_code)]
        impl<T: ?Sized + $trait> Has<T> {
            const HAS: bool = true;
        }
        Has::<$type>::HAS
    }};
}

/// Lists for each type which of the relevant traits it implements.
macro_rules! traits {
    ($($type:ty),* $(,)?) => {
        vec![$((
            stringify!($type),
            [
                has!($type: Send),
                has!($type: Sync),
                has!($type: Unpin),
                has!($type: UnwindSafe),
                has!($type: RefUnwindSafe),
            ],
        )),*]
    };
}

/// Calls `does` twice: while nothing is recorded and while everything is.
fn recorded_and_not(does: impl Fn()) {
    for recording in [Recording::none, Recording::all] {
        let _recording = recording();
        does();
    }
}

macro_rules! with_both {
    ($($item:item)*) => {
        mod tokios {
            use tokio::sync;
            $($item)*
        }
        mod plimsolls {
            use plimsoll::sync::tokio as sync;
            $($item)*
        }
    };
}

with_both! {
    use std::cell::Cell;
    use std::collections::HashMap;
    use std::fmt::{Debug, Display};
    use std::future::poll_fn;
    use std::panic::{RefUnwindSafe, UnwindSafe};
    use std::pin::{Pin, pin};
    use std::rc::Rc;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use super::recorded_and_not;

    use sync::futures::{Notified, OwnedNotified};
    use sync::mpsc::error::{SendError, TryRecvError, TrySendError};
    use sync::{
        AcquireError, Mutex, MutexGuard, Notify, OwnedMutexGuard, OwnedSemaphorePermit, RwLock,
        RwLockReadGuard, RwLockWriteGuard, Semaphore, SemaphorePermit, TryAcquireError,
        TryLockError, mpsc, oneshot,
    };

    static MUTEX: Mutex<u32> = Mutex::const_new(1);
    static RWLOCK: RwLock<u32> = RwLock::const_new(1);
    static SEMAPHORE: Semaphore = Semaphore::const_new(1);
    static NOTIFY: Notify = Notify::const_new();

    /// A type that is `Sync` but not `Send`.
    type Fixed = std::sync::MutexGuard<'static, u32>;

    pub fn traits() -> Vec<(&'static str, [bool; 5])> {
        traits![
            Mutex<u32>, Mutex<Cell<u32>>, Mutex<Fixed>, Mutex<Rc<u32>>,
            MutexGuard<'_, u32>, MutexGuard<'_, Cell<u32>>, MutexGuard<'_, Fixed>,
            OwnedMutexGuard<u32>, OwnedMutexGuard<Cell<u32>>, OwnedMutexGuard<Fixed>,
            RwLock<u32>, RwLock<Cell<u32>>, RwLock<Fixed>, RwLock<Rc<u32>>,
            RwLockReadGuard<'_, u32>, RwLockReadGuard<'_, Cell<u32>>, RwLockReadGuard<'_, Fixed>,
            RwLockWriteGuard<'_, u32>, RwLockWriteGuard<'_, Cell<u32>>,
            RwLockWriteGuard<'_, Fixed>,
            Semaphore, SemaphorePermit<'_>, OwnedSemaphorePermit,
            Notify, Notified<'_>, OwnedNotified,
            mpsc::Sender<Cell<u32>>, mpsc::Receiver<Cell<u32>>, mpsc::WeakSender<Cell<u32>>,
            mpsc::Sender<Rc<u32>>, mpsc::Receiver<Rc<u32>>, mpsc::WeakSender<Rc<u32>>,
            mpsc::Permit<'_, Cell<u32>>, mpsc::PermitIterator<'_, Cell<u32>>,
            mpsc::OwnedPermit<Cell<u32>>, mpsc::Permit<'_, Rc<u32>>,
            mpsc::UnboundedSender<Cell<u32>>, mpsc::UnboundedReceiver<Cell<u32>>,
            mpsc::WeakUnboundedSender<Cell<u32>>, mpsc::UnboundedReceiver<Rc<u32>>,
            oneshot::Sender<Cell<u32>>, oneshot::Receiver<Cell<u32>>,
            oneshot::Sender<Rc<u32>>, oneshot::Receiver<Rc<u32>>,
        ]
    }

    /// The type that `make` would return, with its traits.
    struct Made<F>(std::marker::PhantomData<F>);

    fn made<F>(_make: impl FnOnce() -> F) -> Made<F> {
        Made(std::marker::PhantomData)
    }

    impl<F: Send> Made<F> {
        fn send(&self) -> bool {
            true
        }
    }

    impl<F: Sync> Made<F> {
        fn sync(&self) -> bool {
            true
        }
    }

    trait Otherwise {
        fn send(&self) -> bool {
            false
        }

        fn sync(&self) -> bool {
            false
        }
    }

    impl<F> Otherwise for Made<F> {}

    /// Is never called.
    fn some<T>() -> T {
        unreachable!()
    }

    /// Returns for each unnamed future type whether it is `Send` and whether it is `Sync`.
    pub fn traits_of_futures() -> Vec<(&'static str, bool, bool)> {
        macro_rules! of {
            ($($make:expr;)*) => {
                vec![$({
                    let made = made(|| $make);
                    (stringify!($make), made.send(), made.sync())
                }),*]
            };
        }
        type Shared<T> = &'static T;
        of![
            some::<Shared<Mutex<u32>>>().lock();
            some::<Shared<Mutex<Cell<u32>>>>().lock();
            some::<Shared<Mutex<Fixed>>>().lock();
            some::<Arc<Mutex<u32>>>().lock_owned();
            some::<Arc<Mutex<Cell<u32>>>>().lock_owned();
            some::<Arc<Mutex<Fixed>>>().lock_owned();
            some::<Shared<RwLock<u32>>>().read();
            some::<Shared<RwLock<Cell<u32>>>>().read();
            some::<Shared<RwLock<Fixed>>>().read();
            some::<Shared<RwLock<u32>>>().write();
            some::<Shared<RwLock<Cell<u32>>>>().write();
            some::<Shared<RwLock<Fixed>>>().write();
            some::<Shared<Semaphore>>().acquire();
            some::<Shared<Semaphore>>().acquire_many(1);
            some::<Arc<Semaphore>>().acquire_owned();
            some::<Arc<Semaphore>>().acquire_many_owned(1);
            some::<Shared<mpsc::Sender<u32>>>().send(1);
            some::<Shared<mpsc::Sender<Cell<u32>>>>().send(some());
            some::<Shared<mpsc::Sender<Rc<u32>>>>().send(some());
            some::<Shared<mpsc::Sender<Cell<u32>>>>().reserve();
            some::<Shared<mpsc::Sender<Rc<u32>>>>().reserve();
            some::<Shared<mpsc::Sender<Cell<u32>>>>().reserve_many(1);
            some::<mpsc::Sender<Cell<u32>>>().reserve_owned();
            some::<mpsc::Sender<Rc<u32>>>().reserve_owned();
            some::<Shared<mpsc::Sender<Cell<u32>>>>().closed();
            some::<&'static mut mpsc::Receiver<Cell<u32>>>().recv();
            some::<&'static mut mpsc::Receiver<Rc<u32>>>().recv();
            some::<&'static mut mpsc::Receiver<u32>>().recv_many(some(), 1);
            some::<&'static mut mpsc::Receiver<Cell<u32>>>().recv_many(some(), 1);
            some::<&'static mut mpsc::UnboundedReceiver<Cell<u32>>>().recv();
            some::<&'static mut mpsc::UnboundedReceiver<Rc<u32>>>().recv();
            some::<Shared<mpsc::UnboundedSender<Cell<u32>>>>().closed();
            some::<&'static mut oneshot::Sender<Cell<u32>>>().closed();
            some::<&'static mut oneshot::Sender<Rc<u32>>>().closed();
        ]
    }

    /// Polls a future that is ready at once, under any executor.
    fn now<F: Future>(future: F) -> F::Output {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("it is there"),
        }
    }

    fn waits<F: Future>(future: Pin<&mut F>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    fn all_of_a_mutex<T: Debug + Display + Default + PartialEq>(mut mutex: Mutex<T>) -> T {
        {
            let guard: MutexGuard<'_, T> = now(mutex.lock());
            assert_eq!(format!("{guard:?} {guard}"), format!("{0:?} {0}", *guard));
            let tried: Result<MutexGuard<'_, T>, TryLockError> = mutex.try_lock();
            assert_eq!(tried.unwrap_err().to_string(), "operation would block");
            assert!(format!("{mutex:?}").contains("<locked>"));
            assert!(std::ptr::eq(MutexGuard::mutex(&guard), &mutex));
            assert!(waits(pin!(mutex.lock())));
        }
        assert!(*mutex.try_lock().unwrap() != T::default());
        assert!(*mutex.blocking_lock() != T::default());
        let inside: &mut T = mutex.get_mut();
        assert!(*inside != T::default());
        mutex.into_inner()
    }

    #[test]
    fn mutexes_do_the_same() {
        recorded_and_not(|| {
            assert_eq!(all_of_a_mutex(Mutex::new(3)), 3);
            assert_eq!(*now(Mutex::<u8>::default().lock()), 0);
            assert_eq!(format!("{:?}", Mutex::from(3)), "Mutex { data: 3 }");
            *MUTEX.try_lock().unwrap() += 1;
            let any: &Mutex<dyn Debug + Send> = &Mutex::new(5);
            assert_eq!(format!("{:?}", now(any.lock())), "5");
            let some: Arc<Mutex<[u8]>> = Arc::new(Mutex::new([1, 2]));
            now(some.lock())[1] = 3;
            let owned: OwnedMutexGuard<[u8]> = now(some.clone().lock_owned());
            assert!(Arc::ptr_eq(OwnedMutexGuard::mutex(&owned), &some));
            some.clone().try_lock_owned().unwrap_err();
            assert_eq!(format!("{owned:?}"), "[1, 3]");
            drop(owned);
            assert_eq!(some.clone().blocking_lock_owned()[1], 3);
            assert!(some.try_lock().is_ok());
        });
    }

    #[test]
    fn readers_writer_locks_do_the_same() {
        recorded_and_not(|| {
            let mut lock = RwLock::new(3);
            {
                let read: RwLockReadGuard<'_, i32> = now(lock.read());
                let more = lock.try_read().unwrap();
                let more = RwLockReadGuard::map(more, |number| number);
                let more = RwLockReadGuard::try_map(more, |_| None::<&()>).unwrap_err();
                assert_eq!(format!("{more:?} {}", *read), "3 3");
                let write: Result<RwLockWriteGuard<'_, i32>, TryLockError> = lock.try_write();
                write.unwrap_err();
                // Readers queue behind a waiting writer.
                let mut writer = Box::pin(lock.write());
                assert!(waits(writer.as_mut()));
                lock.try_read().unwrap_err();
                assert!(waits(pin!(lock.read())));
                drop((read, more));
                assert_eq!(*now(writer), 3);
            }
            {
                let mut write: RwLockWriteGuard<'_, i32> = now(lock.write());
                *write = 4;
                assert_eq!(format!("{write:?} {write} {lock:?}"), "4 4 RwLock { data: <locked> }");
                let read: RwLockReadGuard<'_, i32> = write.downgrade();
                assert_eq!((*read, *lock.try_read().unwrap()), (4, 4));
                drop(read);
                *lock.blocking_write() += 1;
            }
            assert_eq!(*lock.blocking_read(), 5);
            *lock.get_mut() = 6;
            assert_eq!(format!("{lock:?}"), "RwLock { data: 6 }");
            assert_eq!(lock.into_inner(), 6);
            assert_eq!(*now(RwLock::<u8>::default().read()), *now(RwLock::from(0).read()));
            *RWLOCK.try_write().unwrap() += 1;

            let two = RwLock::with_max_readers((), 2);
            let both = (two.try_read().unwrap(), two.try_read().unwrap());
            two.try_read().unwrap_err();
            two.try_write().unwrap_err();
            drop(both);
            assert!(two.try_write().is_ok());
            static ONE: RwLock<u8> = RwLock::const_with_max_readers(1, 1);
            assert_eq!(*ONE.try_read().unwrap(), 1);
        });
    }

    /// A reader's value may have a shorter lifetime than the lock declares.
    #[allow(dead_code)]
    fn what_is_read_may_live_shorter<'a, 'b>(
        guard: RwLockReadGuard<'a, &'static str>,
        _: &'b str,
    ) -> RwLockReadGuard<'a, &'b str> {
        guard
    }

    #[test]
    fn semaphores_do_the_same() {
        recorded_and_not(|| {
            let semaphore = Arc::new(Semaphore::new(3));
            let one: Result<SemaphorePermit<'_>, AcquireError> = now(semaphore.acquire());
            let mut one = one.unwrap();
            let two = now(semaphore.acquire_many(2)).unwrap();
            let none: Result<SemaphorePermit<'_>, TryAcquireError> = semaphore.try_acquire();
            assert_eq!(none.unwrap_err(), TryAcquireError::NoPermits);
            assert!(waits(pin!(semaphore.acquire())));
            one.merge(two);
            assert_eq!((one.num_permits(), semaphore.available_permits()), (3, 0));
            assert!(std::ptr::eq(one.semaphore(), &*semaphore));
            assert!(one.split(4).is_none());
            one.split(2).unwrap().forget();
            drop(one);
            assert_eq!(semaphore.available_permits(), 1);
            semaphore.add_permits(4);
            assert_eq!((semaphore.forget_permits(1), semaphore.available_permits()), (1, 4));

            let owned: Result<OwnedSemaphorePermit, AcquireError> =
                now(semaphore.clone().acquire_owned());
            let mut owned = owned.unwrap();
            owned.merge(now(semaphore.clone().acquire_many_owned(2)).unwrap());
            assert!(Arc::ptr_eq(owned.semaphore(), &semaphore));
            owned.merge(semaphore.clone().try_acquire_owned().unwrap());
            assert!(semaphore.clone().try_acquire_many_owned(1).is_err());
            assert!(semaphore.try_acquire_many(1).is_err());
            owned.split(1).unwrap().forget();
            assert_eq!(owned.num_permits(), 3);
            drop(owned);
            assert_eq!(semaphore.available_permits(), 3);
            drop(semaphore.blocking_acquire().unwrap());
            drop(semaphore.blocking_acquire_many(2).unwrap());
            drop(semaphore.clone().blocking_acquire_owned().unwrap());
            drop(semaphore.clone().blocking_acquire_many_owned(3).unwrap());
            assert_eq!(SEMAPHORE.available_permits(), 1);
            const { assert!(Semaphore::MAX_PERMITS > 1 << 20) };
            let shown = "Semaphore { ll_sem: Semaphore { permits: 1 } }";
            assert_eq!(format!("{:?}", Semaphore::new(1)), shown);

            let mut waiting = Box::pin(semaphore.acquire_many(4));
            assert!(waits(waiting.as_mut()));
            semaphore.close();
            assert!(semaphore.is_closed() && now(waiting).is_err());
            assert_eq!(semaphore.try_acquire().unwrap_err(), TryAcquireError::Closed);
        });
    }

    #[test]
    fn notifications_do_the_same() {
        recorded_and_not(|| {
            NOTIFY.notify_one();
            now(NOTIFY.notified());
            let notify = Arc::new(Notify::default());
            let mut enabled: Pin<Box<Notified<'_>>> = Box::pin(notify.notified());
            assert!(!enabled.as_mut().enable());
            let mut owned: Pin<Box<OwnedNotified>> = Box::pin(notify.clone().notified_owned());
            assert!(waits(owned.as_mut()));
            let mut last = Box::pin(notify.notified());
            assert!(waits(last.as_mut()));
            notify.notify_last();
            now(last);
            notify.notify_one();
            assert!(enabled.as_mut().enable());
            now(enabled);
            notify.notify_waiters();
            now(owned);
            let mut owned = Box::pin(notify.clone().notified_owned());
            assert!(!owned.as_mut().enable());
            // The future owns its `Notify`.
            drop(notify);
            assert!(waits(owned.as_mut()));
            assert!(waits(pin!(Notify::new().notified())));
        });
    }

    #[test]
    fn bounded_channels_do_the_same() {
        recorded_and_not(|| {
            let (sender, mut receiver): (mpsc::Sender<u32>, mpsc::Receiver<u32>) = mpsc::channel(3);
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
            assert!(waits(pin!(receiver.recv())));
            assert!(receiver.is_empty());
            let sent: Result<(), SendError<u32>> = now(sender.send(1));
            sent.unwrap();
            let permit: mpsc::Permit<'_, u32> = now(sender.reserve()).unwrap();
            assert!(format!("{permit:?}").starts_with("Permit"));
            permit.send(2);
            drop(sender.try_reserve().unwrap());
            sender.try_send(3).unwrap();
            assert_eq!(sender.try_send(4), Err(TrySendError::Full(4)));
            assert_eq!(sender.try_reserve().unwrap_err(), TrySendError::Full(()));
            assert!(waits(pin!(sender.send(4))));
            assert_eq!((receiver.len(), receiver.capacity(), receiver.max_capacity()), (3, 0, 3));
            assert_eq!((sender.capacity(), sender.max_capacity()), (0, 3));
            assert_eq!(now(receiver.recv()), Some(1));
            let mut buffer = Vec::new();
            assert_eq!((now(receiver.recv_many(&mut buffer, 9)), &buffer[..]), (2, &[2, 3][..]));

            let mut permits: mpsc::PermitIterator<'_, u32> = now(sender.reserve_many(2)).unwrap();
            assert_eq!(permits.len(), 2);
            permits.next().unwrap().send(5);
            drop(permits);
            assert_eq!(sender.try_reserve_many(2).unwrap().count(), 2);
            assert!(sender.try_reserve_many(3).is_err());
            now(sender.reserve_many(4)).unwrap_err();
            let other = sender.clone();
            assert!(sender.same_channel(&other));
            assert_eq!((sender.strong_count(), sender.weak_count()), (2, 0));
            let owned: mpsc::OwnedPermit<u32> = now(other.reserve_owned()).unwrap();
            assert!(owned.same_channel_as_sender(&sender));
            let other: mpsc::Sender<u32> = owned.send(6);
            let owned = other.try_reserve_owned().unwrap();
            assert!(owned.same_channel(&owned));
            let other = owned.release();
            let owned = other.try_reserve_owned().unwrap();
            let third = sender.clone();
            assert!(matches!(third.try_reserve_owned(), Err(TrySendError::Full(_))));
            drop(owned);
            let weak: mpsc::WeakSender<u32> = sender.downgrade();
            assert_eq!((weak.strong_count(), weak.clone().weak_count()), (1, 2));
            assert_eq!((receiver.sender_strong_count(), receiver.sender_weak_count()), (1, 1));
            assert_eq!(format!("{weak:?}"), "WeakSender");
            weak.upgrade().unwrap().blocking_send(7).unwrap();
            assert_eq!(receiver.blocking_recv(), Some(5));
            let received = now(poll_fn(|context| receiver.poll_recv(context)));
            assert_eq!(received, Some(6));
            assert_eq!(receiver.blocking_recv_many(&mut buffer, 1), 1);
            assert!(waits(pin!(poll_fn(|context| receiver.poll_recv_many(context, &mut buffer, 1)))));
            assert!(format!("{sender:?} {receiver:?}").starts_with("Sender { chan: Tx"));
            drop(sender);
            assert!(weak.upgrade().is_none() && receiver.is_closed());
            assert_eq!(now(receiver.recv()), None);
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
        });
    }

    #[test]
    fn closed_channels_do_the_same() {
        recorded_and_not(|| {
            let (sender, mut receiver) = mpsc::channel(1);
            now(sender.send(1)).unwrap();
            let mut full = Box::pin(sender.send(2));
            let mut closed = Box::pin(sender.closed());
            assert!(waits(full.as_mut()) && waits(closed.as_mut()));
            receiver.close();
            assert_eq!(now(full), Err(SendError(2)));
            now(closed);
            assert!(sender.is_closed());
            assert_eq!(sender.try_send(3), Err(TrySendError::Closed(3)));
            assert_eq!(sender.blocking_send(3), Err(SendError(3)));
            assert!(matches!(sender.clone().try_reserve_owned(), Err(TrySendError::Closed(_))));
            assert!(now(sender.clone().reserve_owned()).is_err() && now(sender.reserve()).is_err());
            assert_eq!((now(receiver.recv()), now(receiver.recv())), (Some(1), None));

            // The last permit wakes the receiver of a closed channel.
            let (sender, mut receiver) = mpsc::channel::<u32>(1);
            let permit = sender.try_reserve().unwrap();
            receiver.close();
            let mut last = Box::pin(receiver.recv());
            assert!(waits(last.as_mut()));
            drop(permit);
            assert_eq!(now(last), None);

            let (sender, receiver) = mpsc::channel::<Arc<()>>(1);
            let message = Arc::new(());
            sender.try_send(message.clone()).unwrap();
            drop(receiver);
            assert_eq!(Arc::strong_count(&message), 1);
            now(sender.closed());
        });
    }

    #[test]
    fn unbounded_channels_do_the_same() {
        recorded_and_not(|| {
            let (sender, mut receiver): (mpsc::UnboundedSender<u32>, mpsc::UnboundedReceiver<u32>) =
                mpsc::unbounded_channel();
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
            assert!(waits(pin!(receiver.recv())) && receiver.is_empty());
            (0..7).for_each(|number| sender.send(number).unwrap());
            assert_eq!(receiver.len(), 7);
            let mut buffer = Vec::new();
            assert_eq!((now(receiver.recv()), receiver.try_recv()), (Some(0), Ok(1)));
            assert_eq!((receiver.blocking_recv(), now(receiver.recv_many(&mut buffer, 1))), (Some(2), 1));
            assert_eq!(receiver.blocking_recv_many(&mut buffer, 1), 1);
            assert_eq!(now(poll_fn(|context| receiver.poll_recv(context))), Some(5));
            let many = poll_fn(|context| receiver.poll_recv_many(context, &mut buffer, 9));
            assert_eq!((now(many), buffer), (1, vec![3, 4, 6]));
            let weak: mpsc::WeakUnboundedSender<u32> = sender.downgrade();
            assert!(weak.upgrade().unwrap().same_channel(&sender.clone()));
            assert_eq!((sender.strong_count(), sender.weak_count()), (1, 1));
            assert_eq!((weak.clone().strong_count(), weak.weak_count()), (1, 2));
            assert_eq!((receiver.sender_strong_count(), receiver.sender_weak_count()), (1, 1));
            assert!(waits(pin!(sender.closed())) && !sender.is_closed());
            assert!(format!("{sender:?} {receiver:?}").starts_with("UnboundedSender { chan: Tx"));
            receiver.close();
            assert!(receiver.is_closed());
            assert_eq!((sender.send(1), now(receiver.recv())), (Err(SendError(1)), None));
        });
    }

    #[test]
    fn channels_for_one_message_do_the_same() {
        recorded_and_not(|| {
            use oneshot::error::{RecvError, TryRecvError};
            let (sender, mut receiver): (oneshot::Sender<u32>, oneshot::Receiver<u32>) =
                oneshot::channel();
            assert!(format!("{sender:?}").starts_with("Sender { inner: "));
            assert!(format!("{receiver:?}").starts_with("Receiver { inner: "));
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
            assert!(waits(Pin::new(&mut receiver)));
            assert!(receiver.is_empty() && !receiver.is_terminated());
            sender.send(1).unwrap();
            assert_eq!(now(&mut receiver), Ok(1));
            assert!(receiver.is_terminated());

            let (mut sender, mut receiver) = oneshot::channel();
            assert!(waits(pin!(sender.closed())) && !sender.is_closed());
            receiver.close();
            now(sender.closed());
            now(poll_fn(|context| sender.poll_closed(context)));
            assert_eq!((sender.is_closed(), sender.send(2)), (true, Err(2)));
            assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));

            let (sender, receiver) = oneshot::channel::<u32>();
            drop(sender);
            let gone: Result<u32, RecvError> = now(receiver);
            assert_eq!(gone.unwrap_err().to_string(), "channel closed");
            let (sender, mut receiver) = oneshot::channel();
            sender.send(3).unwrap();
            assert_eq!(receiver.try_recv(), Ok(3));
            let (sender, receiver) = oneshot::channel();
            sender.send(4).unwrap();
            assert_eq!(receiver.blocking_recv(), Ok(4));
        });
    }

    /// Blocking calls fail where tokio's do, whether they would have to wait or not.
    #[test]
    fn threads_that_execute_tasks_may_not_block() {
        recorded_and_not(|| {
            fn fails<R>(blocks: impl FnOnce() -> R) {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let blocks = std::panic::AssertUnwindSafe(|| runtime.block_on(async { drop(blocks()) }));
                std::panic::catch_unwind(blocks).expect_err("it may not");
            }
            fails(|| drop(Mutex::new(1).blocking_lock()));
            fails(|| drop(RwLock::new(1).blocking_read()));
            fails(|| drop(RwLock::new(1).blocking_write()));
            fails(|| drop(Semaphore::new(1).blocking_acquire()));
            fails(|| mpsc::channel::<u32>(1).0.blocking_send(1));
            fails(|| mpsc::channel::<u32>(1).1.blocking_recv());
            fails(|| mpsc::unbounded_channel::<u32>().1.blocking_recv());
            fails(|| oneshot::channel::<u32>().1.blocking_recv());
            fails(|| {
                sync::RwLock::with_max_readers(1, 0);
            });
            fails(|| {
                sync::RwLock::with_max_readers(1, u32::MAX);
            });
        });
    }

    /// Types that Plimsoll does not wrap are re-exported.
    #[test]
    fn the_rest_is_there() {
        recorded_and_not(|| {
            let barrier = sync::Barrier::new(1);
            let result: sync::BarrierWaitResult = now(barrier.wait());
            assert!(result.is_leader());
            let cell: sync::OnceCell<u32> = sync::OnceCell::new();
            let set: Result<(), sync::SetError<u32>> = cell.set(1);
            set.unwrap();
            let once: sync::SetOnce<u32> = sync::SetOnce::new();
            let set: Result<(), sync::SetOnceError<u32>> = once.set(1);
            set.unwrap();
            let (sender, receiver) = sync::watch::channel(1);
            sender.send(2).unwrap();
            assert_eq!(*receiver.borrow(), 2);
            assert_eq!(sync::broadcast::channel(1).0.send(1).unwrap(), 1);
            let _: HashMap<u32, TryLockError> = HashMap::new();
        });
    }
}

#[test]
fn types_have_the_same_traits() {
    assert_eq!(plimsolls::traits(), tokios::traits());
    let futures = plimsolls::traits_of_futures();
    assert_eq!(futures, tokios::traits_of_futures());
    // The comparison distinguishes the types.
    assert!(futures.iter().any(|&(_, is_send, _)| is_send));
    assert!(futures.iter().any(|&(_, is_send, _)| !is_send));
}

#[test]
fn primitives_have_the_names_they_were_given() {
    use plimsoll::sync::tokio::{Mutex, Notify, RwLock, Semaphore};
    static MUTEX: Mutex<u32> = Mutex::named("mutex", 0);
    static RWLOCK: RwLock<u32> = RwLock::named("rwlock", 0);
    static SEMAPHORE: Semaphore = Semaphore::named("semaphore", 1);
    static NOTIFY: Notify = Notify::named("notify");
    assert_eq!(MUTEX.name(), Some("mutex"));
    assert_eq!(RWLOCK.name(), Some("rwlock"));
    assert_eq!(SEMAPHORE.name(), Some("semaphore"));
    assert_eq!(NOTIFY.name(), Some("notify"));
    assert_eq!(Mutex::new(1).name(), None);
}
