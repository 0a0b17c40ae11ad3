//! The threads of each kernel. The argument of each function selects the mended version.
//!
//! Gates force the order of steps in which the bug shows.

use std::mem;
use std::thread::{self, JoinHandle};

use plimsoll::sync::mpsc::{channel, sync_channel};
use plimsoll::sync::{Arc, Barrier, Condvar, Mutex, RwLock};

type Threads = Vec<JoinHandle<()>>;

/// Starts a thread with a name and access to shared state.
fn start<S: Send + Sync + 'static>(
    state: &Arc<S>,
    name: &str,
    work: impl FnOnce(&S) + Send + 'static,
) -> JoinHandle<()> {
    let state = state.clone();
    let thread = thread::Builder::new().name(name.into());
    thread.spawn(move || work(&state)).unwrap()
}

/// The lessor calls the checkpoint under its lock. Mended, it releases the lock before.
pub fn etcd_10492_a_callback_takes_the_lock_of_its_caller(is_mended: bool) -> Threads {
    let leases = Arc::new(Mutex::new(0));
    let counted = leases.clone();
    let checkpoint = move || {
        *counted.lock().unwrap() += 1;
    };
    vec![start(&leases, "renews", move |leases| {
        let held = leases.lock().unwrap();
        let _held = (!is_mended).then_some(held);
        checkpoint();
    })]
}

/// One thread takes the cache of names and then a lease, the other one the lease first. Mended, the
/// former releases the cache before it takes the lease.
pub fn cockroach_7504_two_locks_are_taken_in_opposite_order(is_mended: bool) -> Threads {
    let state = Arc::new((Mutex::new(()), Mutex::new(()), Barrier::new(2)));
    vec![
        start(&state, "acquires", move |(names, lease, gate)| {
            let held = names.lock().unwrap();
            gate.wait();
            let _held = (!is_mended).then_some(held);
            drop(lease.lock().unwrap());
        }),
        start(&state, "releases", |(names, lease, gate)| {
            let _held = lease.lock().unwrap();
            gate.wait();
            drop(names.lock().unwrap());
        }),
    ]
}

/// A function returns early and leaves the lock locked, as Go does without `defer`. Its thread
/// locks again, and so does another one.
pub fn cockroach_584_an_early_return_keeps_the_lock(is_mended: bool) -> Threads {
    let state = Arc::new((Mutex::new(()), Barrier::new(2)));
    vec![
        start(&state, "bootstraps", move |(gossip, gate)| {
            let held = gossip.lock().unwrap();
            if is_mended {
                drop(held);
            } else {
                mem::forget(held);
            }
            gate.wait();
            drop(gossip.lock().unwrap());
        }),
        start(&state, "gossips", |(gossip, gate)| {
            gate.wait();
            drop(gossip.lock().unwrap());
        }),
    ]
}

/// The owner of a page's lock reads the map of pages in order to release the lock. The next owner
/// holds the map while it waits for the page. Mended, it releases the map before.
pub fn hugo_3251_an_unlock_needs_the_map_that_a_waiter_holds(is_mended: bool) -> Threads {
    let state = Arc::new((RwLock::new(()), Mutex::new(()), Barrier::new(2)));
    vec![
        start(&state, "unlocks", |(map, page, gate)| {
            let held_map = map.write().unwrap();
            let held_page = page.lock().unwrap();
            drop(held_map);
            gate.wait();
            // The other thread holds the map at the second gate.
            gate.wait();
            let _map = map.read().unwrap();
            drop(held_page);
        }),
        start(&state, "locks", move |(map, page, gate)| {
            gate.wait();
            let held = map.write().unwrap();
            gate.wait();
            let _held = (!is_mended).then_some(held);
            drop(page.lock().unwrap());
        }),
    ]
}

/// The stopper waits for its worker under the lock that the worker needs. Mended, it releases the
/// lock before.
#[cfg(target_env = "gnu")]
pub fn cockroach_1055_a_stop_awaits_a_worker_that_needs_its_lock(is_mended: bool) -> Threads {
    let stopper = Arc::new(Mutex::new(()));
    let shared = stopper.clone();
    vec![start(&stopper, "stops", move |stopper| {
        let held = stopper.lock().unwrap();
        let worker = start(&shared, "works", |stopper| drop(stopper.lock().unwrap()));
        let _held = (!is_mended).then_some(held);
        worker.join().unwrap();
    })]
}

/// A reader reads again in a function that it calls, after a writer began to wait. Mended, the
/// function relies on the first read lock.
pub fn cockroach_3710_a_second_read_waits_behind_a_writer(is_mended: bool) -> Threads {
    let state = Arc::new((RwLock::new(()), Barrier::new(2)));
    vec![
        start(&state, "scans", move |(store, gate)| {
            let _held = store.read().unwrap();
            gate.wait();
            wait_for_writer(store);
            if !is_mended {
                drop(store.read().unwrap());
            }
        }),
        start(&state, "truncates", |(store, gate)| {
            gate.wait();
            drop(store.write().unwrap());
        }),
    ]
}

/// Waits until a writer waits for a lock that a reader holds.
fn wait_for_writer(lock: &RwLock<()>) {
    while lock.try_read().is_ok() {
        thread::yield_now();
    }
}

/// A function returns an error and leaves the lock locked for reading. Its thread then writes.
pub fn etcd_5509_an_error_path_keeps_a_read_lock(is_mended: bool) -> Threads {
    let client = Arc::new(RwLock::new(()));
    vec![start(&client, "closes", move |client| {
        let held = client.read().unwrap();
        if is_mended {
            drop(held);
        } else {
            mem::forget(held);
        }
        drop(client.write().unwrap());
    })]
}

/// As with cockroach 584, but the thread that keeps the lock ends.
pub fn moby_17176_the_owner_of_a_lock_has_ended(is_mended: bool) -> Threads {
    let state = Arc::new((Mutex::new(()), Barrier::new(2)));
    vec![
        start(&state, "cleans", move |(devices, gate)| {
            let held = devices.lock().unwrap();
            if is_mended {
                drop(held);
            } else {
                mem::forget(held);
            }
            gate.wait();
        }),
        start(&state, "deletes", |(devices, gate)| {
            gate.wait();
            drop(devices.lock().unwrap());
        }),
    ]
}

/// A writer sends under its lock. The monitor, which has the receiver, locks before it drops the
/// receiver. Mended, it drops the receiver without the lock.
pub fn kubernetes_6632_a_sender_holds_the_lock_of_its_receiver(is_mended: bool) -> Threads {
    let (sender, receiver) = sync_channel(0);
    let state = Arc::new((Mutex::new(()), Barrier::new(2)));
    vec![
        start(&state, "writes frames", move |(frames, gate)| {
            let _held = frames.lock().unwrap();
            gate.wait();
            let _result = sender.send(());
        }),
        start(&state, "monitors", move |(frames, gate)| {
            gate.wait();
            let _held = (!is_mended).then(|| frames.lock().unwrap());
            drop(receiver);
        }),
    ]
}

/// The caller returns before the answer, and something keeps the receiver. Mended, it drops the
/// receiver, so the sender fails.
pub fn grpc_660_a_kept_receiver_is_never_read(is_mended: bool) -> Threads {
    let (sender, receiver) = sync_channel(0);
    if is_mended {
        drop(receiver);
    } else {
        mem::forget(receiver);
    }
    vec![start(&Arc::new(()), "answers", move |()| {
        let _result = sender.send(());
    })]
}

/// A thread owns both ends, and sends more than the channel holds before it receives. Mended, it
/// receives in between.
pub fn cockroach_24808_a_thread_fills_a_channel_that_it_drains_later(is_mended: bool) -> Threads {
    vec![start(&Arc::new(()), "starts", move |()| {
        let (sender, receiver) = sync_channel(1);
        sender.send(()).unwrap();
        if is_mended {
            receiver.recv().unwrap();
        }
        sender.send(()).unwrap();
        receiver.recv().unwrap();
    })]
}

/// A loop receives until the channel is closed, but something keeps a sender. Mended, it drops the
/// sender.
pub fn kubernetes_70277_a_kept_sender_never_closes_its_channel(is_mended: bool) -> Threads {
    let (sender, receiver) = channel::<()>();
    if is_mended {
        drop(sender);
    } else {
        mem::forget(sender);
    }
    vec![start(&Arc::new(()), "polls", move |()| {
        assert_eq!(receiver.iter().count(), 0);
    })]
}

/// Each of two threads sends to the other one, which does not receive. Mended, one of the channels
/// holds a message.
pub fn cockroach_2448_two_threads_send_to_each_other(is_mended: bool) -> Threads {
    let (event, events) = sync_channel(0);
    let (callback, callbacks) = sync_channel(usize::from(is_mended));
    let gate = Arc::new(Barrier::new(2));
    vec![
        start(&gate, "raft", move |gate| {
            gate.wait();
            event.send(()).unwrap();
            callbacks.recv().unwrap();
        }),
        start(&gate, "store", move |gate| {
            gate.wait();
            callback.send(()).unwrap();
            events.recv().unwrap();
        }),
    ]
}

#[derive(Default)]
struct Plugin {
    is_active: bool,
    has_failed: bool,
}

/// A failure is notified, but the waiter checks for success only. Mended, it checks for both.
pub fn moby_30408_a_notification_changes_nothing_that_the_waiter_checks(
    is_mended: bool,
) -> Threads {
    let state = Arc::new((Mutex::new(Plugin::default()), Condvar::new()));
    vec![
        start(&state, "activates", move |(plugin, changed)| {
            let plugin = plugin.lock().unwrap();
            let is_over = |plugin: &Plugin| plugin.is_active || (is_mended && plugin.has_failed);
            drop(changed.wait_while(plugin, |plugin| !is_over(plugin)));
        }),
        start(&state, "fails", |(plugin, changed)| {
            plugin.lock().unwrap().has_failed = true;
            changed.notify_all();
        }),
    ]
}

/// A worker waits for work under a read lock. A writer waits for that lock, and the thread that has
/// work waits behind the writer. Mended, the worker releases the lock before it waits.
pub fn kubernetes_58107_a_condition_is_awaited_under_another_lock(is_mended: bool) -> Threads {
    let state = Arc::new((
        RwLock::new(()),
        Mutex::new(false),
        Condvar::new(),
        Barrier::new(2),
    ));
    vec![
        start(&state, "pulls", move |(workers, has_work, added, gate)| {
            let held = workers.read().unwrap();
            gate.wait();
            let _held = (!is_mended).then_some(held);
            let has_work = has_work.lock().unwrap();
            drop(added.wait_while(has_work, |has_work| !*has_work));
        }),
        start(&state, "syncs", |(workers, _, _, gate)| {
            gate.wait();
            drop(workers.write().unwrap());
        }),
        start(&state, "puts", move |(workers, has_work, added, _)| {
            if !is_mended {
                wait_for_writer(workers);
            }
            let _held = workers.read().unwrap();
            *has_work.lock().unwrap() = true;
            added.notify_all();
        }),
    ]
}

/// A manager starts two plugins, and waits for both after it started the first. Mended, it waits
/// after it started both. Go has a `WaitGroup`, for which a barrier stands.
pub fn moby_25384_a_group_is_awaited_before_all_have_started(is_mended: bool) -> Threads {
    let group = Arc::new(Barrier::new(3));
    let shared = group.clone();
    vec![start(&group, "initializes", move |group| {
        for plugin in 1..=2 {
            drop(start(&shared, "plugin", |group| {
                group.wait();
            }));
            if plugin == 2 || !is_mended {
                group.wait();
            }
        }
    })]
}
