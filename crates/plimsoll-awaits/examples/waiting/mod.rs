//! Tasks that wait for everything that tokio offers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::{self, FuturesUnordered};
use tokio::sync::{Mutex, Notify, RwLock, Semaphore, broadcast, mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

/// How tasks are spawned.
pub trait Spawns {
    fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static;

    /// Called in each task when it begins.
    fn begins();
}

const LONG: Duration = Duration::from_secs(100_000);

/// Awaits in three functions, of which the innermost is generic.
async fn outermost<F: Future>(future: F) -> F::Output {
    second(future).await
}

async fn second<F: Future>(future: F) -> F::Output {
    future.await
}

/// Starts a task that waits, and prints its line.
fn waits<S, F>(name: &str, leaf: &str, future: F)
where
    S: Spawns,
    F: Future + Send + 'static,
    F::Output: Send,
{
    let task = S::spawn(async move {
        S::begins();
        outermost(future).await;
    });
    println!("{} {name} {leaf}", task.id());
}

/// Starts the tasks, and prints a line for each.
pub async fn start<S: Spawns>() {
    waits::<S, _>(
        "sleep",
        "tokio::time::sleep::Sleep",
        tokio::time::sleep(LONG),
    );
    let slow = tokio::time::timeout(LONG, tokio::time::sleep(LONG));
    waits::<S, _>("timeout", "tokio::time::sleep::Sleep", slow);
    let mut interval = tokio::time::interval_at(tokio::time::Instant::now() + LONG, LONG);
    waits::<S, _>("interval", "tokio::time::sleep::Sleep", async move {
        interval.tick().await
    });
    let (sender, mut receiver) = mpsc::channel::<u8>(1);
    waits::<S, _>(
        "receive",
        "tokio::sync::mpsc::bounded::Receiver<T>::recv",
        async move {
            let _sender = sender;
            receiver.recv().await
        },
    );
    let (sender, receiver) = mpsc::channel::<u8>(1);
    sender.send(1).await.expect("there is room");
    waits::<S, _>(
        "send",
        "tokio::sync::batch_semaphore::Acquire",
        async move {
            let _receiver = receiver;
            sender.send(2).await
        },
    );
    let (sender, receiver) = oneshot::channel::<u8>();
    waits::<S, _>(
        "oneshot",
        "tokio::sync::oneshot::Receiver<u8>",
        async move {
            let _sender = sender;
            receiver.await
        },
    );
    let (sender, mut receiver) = watch::channel(1_u8);
    receiver.borrow_and_update();
    waits::<S, _>("watch", "tokio::sync::notify::Notified", async move {
        let _sender = sender;
        receiver.changed().await
    });
    let (sender, mut receiver) = broadcast::channel::<u8>(1);
    waits::<S, _>("broadcast", "tokio::sync::broadcast::Recv<", async move {
        let _sender = sender;
        receiver.recv().await
    });

    let mutex = Arc::new(Mutex::new(1));
    std::mem::forget(mutex.clone().lock_owned().await);
    waits::<S, _>(
        "mutex",
        "tokio::sync::batch_semaphore::Acquire",
        async move {
            drop(mutex.lock().await);
        },
    );
    let lock = Arc::new(RwLock::new(1));
    std::mem::forget(lock.clone().write_owned().await);
    waits::<S, _>(
        "rwlock",
        "tokio::sync::batch_semaphore::Acquire",
        async move {
            drop(lock.read().await);
        },
    );
    let semaphore = Arc::new(Semaphore::new(0));
    waits::<S, _>(
        "semaphore",
        "tokio::sync::batch_semaphore::Acquire",
        async move {
            drop(semaphore.acquire().await);
        },
    );
    let notify = Notify::new();
    waits::<S, _>("notify", "tokio::sync::notify::Notified", async move {
        notify.notified().await;
    });

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let client = tokio::net::TcpStream::connect(address)
        .await
        .expect("it listens");
    let (mut server, _) = listener.accept().await.expect("a client");
    waits::<S, _>(
        "accept",
        "tokio::runtime::io::scheduled_io::Readiness",
        async move {
            drop(listener.accept().await);
        },
    );
    waits::<S, _>("read", "tokio::io::util::read::Read<", async move {
        let _client = client;
        tokio::io::AsyncReadExt::read(&mut server, &mut [0; 8]).await
    });

    let sleeper = tokio::spawn(outermost(tokio::time::sleep(LONG)));
    waits::<S, _>("join", "tokio::runtime::task::join::JoinHandle<", sleeper);
    let boxed: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(tokio::time::sleep(LONG));
    waits::<S, _>("boxed", "tokio::time::sleep::Sleep", boxed);
    waits::<S, _>("join!", "tokio::time::sleep::Sleep", async {
        tokio::join!(tokio::time::sleep(LONG), std::future::pending::<()>())
    });
    waits::<S, _>("select!", "tokio::time::sleep::Sleep", async {
        tokio::select! {
            () = tokio::time::sleep(LONG) => {}
            () = second(tokio::time::sleep(LONG)) => {}
        }
    });
    waits::<S, _>("join_all", "tokio::time::sleep::Sleep", async {
        join_all([(); 3].map(|()| tokio::time::sleep(LONG))).await
    });
    waits::<S, _>("unordered", "tokio::time::sleep::Sleep", async {
        let all: FuturesUnordered<_> = (0..500).map(|_| tokio::time::sleep(LONG)).collect();
        all.collect::<Vec<()>>().await
    });
    waits::<S, _>("stream", "tokio::time::sleep::Sleep", async {
        let mut stream = Box::pin(stream::once(tokio::time::sleep(LONG)));
        stream.next().await
    });
    waits::<S, _>(
        "join_set",
        "tokio::runtime::task::join::JoinHandle<",
        async {
            let mut set = JoinSet::new();
            set.spawn(outermost(tokio::time::sleep(LONG)));
            set.join_next().await
        },
    );
    waits::<S, _>(
        "pending",
        "core::future::pending::Pending<()>",
        std::future::pending::<()>(),
    );
}
