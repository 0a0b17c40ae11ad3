//! The tasks of each kernel. The argument of each function selects the mended version.
//!
//! The runtime first polls tasks in the order in which they were spawned.

use std::cell::Cell;
use std::mem;
use std::rc::Rc;

use plimsoll::sync::tokio::{Mutex, Notify, RwLock, mpsc, oneshot};
use plimsoll::task::TrackExt;
use tokio::task::{spawn_local, yield_now};

fn spawn(name: &str, future: impl Future<Output = ()> + 'static) {
    drop(spawn_local(future.tracked_as(name)));
}

/// One task locks the cache and then the watch, the other one the watch first. Mended, the former
/// releases the cache before.
pub fn kubernetes_13135_two_tasks_lock_in_opposite_order(is_mended: bool) {
    let state = Rc::new((Mutex::new(()), Mutex::new(())));
    let shared = state.clone();
    spawn("caches", async move {
        let (cache, watch) = &*state;
        let held = cache.lock().await;
        yield_now().await;
        let _held = (!is_mended).then_some(held);
        drop(watch.lock().await);
    });
    spawn("watches", async move {
        let (cache, watch) = &*shared;
        let _held = watch.lock().await;
        yield_now().await;
        drop(cache.lock().await);
    });
}

/// A task leaves the lock locked and locks it again. Another task waits behind it.
pub fn grpc_795_a_second_stop_keeps_the_lock(is_mended: bool) {
    let server = Rc::new(Mutex::new(()));
    let shared = server.clone();
    spawn("stops", async move {
        let held = server.lock().await;
        if is_mended {
            drop(held);
        } else {
            mem::forget(held);
        }
        drop(server.lock().await);
    });
    spawn("serves", async move { drop(shared.lock().await) });
}

/// A task waits until the reader of its stream has ended. The reader waits for a message of that
/// task. Mended, the task closes the stream before it waits.
pub fn grpc_1275_two_tasks_await_each_others_message(is_mended: bool) {
    spawn("closes", async move {
        let (stream, messages) = oneshot::channel::<()>();
        let ended = Rc::new(Cell::new(None::<oneshot::Receiver<()>>));
        let shared = ended.clone();
        spawn("reads", async move {
            let (end, ended) = oneshot::channel::<()>();
            shared.set(Some(ended));
            let _message = messages.await;
            drop(end);
        });
        yield_now().await;
        let ended = ended.take().unwrap();
        let stream = (!is_mended).then_some(stream);
        let _ended = ended.await;
        drop(stream);
    });
}

/// A task sends under its lock. The receiver locks before it receives. Mended, it receives without
/// the lock.
pub fn etcd_6873_a_sender_holds_the_lock_of_its_receiver(is_mended: bool) {
    let (sender, mut receiver) = mpsc::channel(1);
    let watchers = Rc::new(Mutex::new(()));
    let shared = watchers.clone();
    spawn("broadcasts", async move {
        let _held = watchers.lock().await;
        sender.send(()).await.unwrap();
        sender.send(()).await.unwrap();
    });
    spawn("coalesces", async move {
        let _held = if is_mended {
            None
        } else {
            Some(shared.lock().await)
        };
        while receiver.recv().await.is_some() {}
    });
}

/// A task is notified before it waits. `notify_waiters` wakes present waiters only. Mended,
/// `notify_one` keeps the notification for the next waiter.
pub fn kubernetes_11298_a_notification_comes_before_the_wait(is_mended: bool) {
    let notify = Rc::new(Notify::new());
    let shared = notify.clone();
    spawn("serves", async move {
        yield_now().await;
        notify.notified().await;
    });
    spawn("notifies", async move {
        if is_mended {
            shared.notify_one();
        } else {
            shared.notify_waiters();
        }
    });
}

/// A reader reads again after a writer began to wait. Mended, it relies on the first read lock.
pub fn cockroach_6181_a_second_read_waits_behind_a_writer(is_mended: bool) {
    let cache = Rc::new(RwLock::new(()));
    let shared = cache.clone();
    spawn("looks up", async move {
        let _held = cache.read().await;
        yield_now().await;
        if !is_mended {
            drop(cache.read().await);
        }
    });
    spawn("inserts", async move { drop(shared.write().await) });
}
