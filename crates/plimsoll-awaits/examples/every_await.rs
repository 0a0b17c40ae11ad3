//! A program whose tasks wait for everything that tokio offers. `plimsoll tasks` reads it in tests.
//!
//! It prints a line for each task, then `ready`, and then waits for its input to end:
//!
//! ```text
//! TASK NAME LEAF
//! ```
//!
//! where TASK is tokio's number and LEAF the beginning of the name of what the task waits for at last. With an argument, it
//! runs as many more tasks that always change what they await; with the argument `current`, all on the current thread.

use std::future::Future;
use std::io::Read as _;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Notify, RwLock, Semaphore, broadcast, mpsc, oneshot, watch};

const LONG: Duration = Duration::from_secs(100_000);

/// Awaits in three functions, of which the innermost is generic.
async fn outermost<F: Future>(future: F) -> F::Output {
    second(future).await
}

async fn second<F: Future>(future: F) -> F::Output {
    future.await
}

/// Starts a task that waits, and prints its line.
fn waits<F>(name: &str, leaf: &str, future: F)
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    let task = tokio::spawn(async move {
        outermost(future).await;
    });
    println!("{} {name} {leaf}", task.id());
}

/// Waits in one function or another, boxed or not.
async fn changes(seed: u64) {
    let mut state = seed;
    loop {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        match state >> 62 {
            0 => left(Duration::from_micros(state >> 54)).await,
            1 => boxed_right(state).await,
            2 => tokio::task::yield_now().await,
            _ => {
                tokio::select! {
                    () = left(Duration::from_micros(50)) => {}
                    () = boxed_right(state) => {}
                }
            }
        }
    }
}

async fn left(duration: Duration) {
    tokio::time::sleep(duration).await;
}

fn boxed_right(state: u64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let padding = [state; 40];
        left(Duration::from_micros(padding[7] >> 56)).await;
        assert_eq!(padding[39], state);
    })
}

async fn start() {
    waits(
        "sleep",
        "tokio::time::sleep::Sleep",
        tokio::time::sleep(LONG),
    );
    let slow = tokio::time::timeout(LONG, tokio::time::sleep(LONG));
    waits("timeout", "tokio::time::sleep::Sleep", slow);
    let mut interval = tokio::time::interval_at(tokio::time::Instant::now() + LONG, LONG);
    waits("interval", "tokio::time::sleep::Sleep", async move {
        interval.tick().await
    });
    let (sender, mut receiver) = mpsc::channel::<u8>(1);
    waits(
        "receive",
        "tokio::sync::mpsc::bounded::Receiver<T>::recv",
        async move {
            let _sender = sender;
            receiver.recv().await
        },
    );
    let (sender, receiver) = mpsc::channel::<u8>(1);
    sender.send(1).await.expect("there is room");
    waits(
        "send",
        "tokio::sync::batch_semaphore::Acquire",
        async move {
            let _receiver = receiver;
            sender.send(2).await
        },
    );
    let (sender, receiver) = oneshot::channel::<u8>();
    waits(
        "oneshot",
        "tokio::sync::oneshot::Receiver<u8>",
        async move {
            let _sender = sender;
            receiver.await
        },
    );
    let (sender, mut receiver) = watch::channel(1_u8);
    receiver.borrow_and_update();
    waits("watch", "tokio::sync::notify::Notified", async move {
        let _sender = sender;
        receiver.changed().await
    });
    let (sender, mut receiver) = broadcast::channel::<u8>(1);
    waits("broadcast", "tokio::sync::broadcast::Recv<", async move {
        let _sender = sender;
        receiver.recv().await
    });

    let mutex = Arc::new(Mutex::new(1));
    std::mem::forget(mutex.clone().lock_owned().await);
    waits(
        "mutex",
        "tokio::sync::batch_semaphore::Acquire",
        async move {
            drop(mutex.lock().await);
        },
    );
    let lock = Arc::new(RwLock::new(1));
    std::mem::forget(lock.clone().write_owned().await);
    waits(
        "rwlock",
        "tokio::sync::batch_semaphore::Acquire",
        async move {
            drop(lock.read().await);
        },
    );
    let semaphore = Arc::new(Semaphore::new(0));
    waits(
        "semaphore",
        "tokio::sync::batch_semaphore::Acquire",
        async move {
            drop(semaphore.acquire().await);
        },
    );
    let notify = Notify::new();
    waits("notify", "tokio::sync::notify::Notified", async move {
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
    waits(
        "accept",
        "tokio::runtime::io::scheduled_io::Readiness",
        async move {
            drop(listener.accept().await);
        },
    );
    waits("read", "tokio::io::util::read::Read<", async move {
        let _client = client;
        tokio::io::AsyncReadExt::read(&mut server, &mut [0; 8]).await
    });

    let sleeper = tokio::spawn(outermost(tokio::time::sleep(LONG)));
    waits("join", "tokio::runtime::task::join::JoinHandle<", sleeper);
    let boxed: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(tokio::time::sleep(LONG));
    waits("boxed", "tokio::time::sleep::Sleep", boxed);
    waits("join!", "tokio::time::sleep::Sleep", async {
        tokio::join!(tokio::time::sleep(LONG), std::future::pending::<()>())
    });
    waits("select!", "tokio::time::sleep::Sleep", async {
        tokio::select! {
            () = tokio::time::sleep(LONG) => {}
            () = second(tokio::time::sleep(LONG)) => {}
        }
    });
    waits(
        "pending",
        "core::future::pending::Pending<()>",
        std::future::pending::<()>(),
    );
}

fn main() {
    let is_current = std::env::args().any(|argument| argument == "current");
    let mut builder = match is_current {
        true => tokio::runtime::Builder::new_current_thread(),
        false => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(start());
    let changing = std::env::args().nth(1);
    let changing: u64 = changing.map_or(0, |number| number.parse().expect("a number"));
    for seed in 0..changing {
        runtime.spawn(changes(seed));
    }
    // Tasks have their awaits once they were polled.
    runtime.block_on(async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        println!("ready");
        tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0; 1]))
            .await
            .expect("it does not panic")
            .expect("a pipe");
    });
    runtime.shutdown_background();
}
