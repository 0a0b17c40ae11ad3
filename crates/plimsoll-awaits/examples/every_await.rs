//! A program whose tasks wait for everything that tokio offers. `plimsoll tasks` reads it in tests.
//!
//! It prints a line for each task, then `ready`, and then waits for its input to end:
//!
//! ```text
//! TASK NAME LEAF
//! ```
//!
//! where TASK is tokio's number and LEAF the beginning of the name of what the task waits for at last. With an argument, it
//! runs as many more tasks that always change what they await; with the argument `current`, all on the current thread; with
//! `local`, in a `LocalSet`.

mod waiting;

use std::future::Future;
use std::io::Read as _;
use std::pin::Pin;
use std::time::Duration;

use tokio::task::JoinHandle;
use waiting::Spawns;

struct Plain;

impl Spawns for Plain {
    fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        tokio::spawn(future)
    }

    fn begins() {}
}

struct Local;

impl Spawns for Local {
    fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        tokio::task::spawn_local(future)
    }

    fn begins() {}
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

fn main() {
    let has = |wanted: &str| std::env::args().any(|argument| argument == wanted);
    let (is_current, is_local) = (has("current"), has("local"));
    let mut builder = match is_current || is_local {
        true => tokio::runtime::Builder::new_current_thread(),
        false => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let local = tokio::task::LocalSet::new();
    match is_local {
        true => local.block_on(&runtime, waiting::start::<Local>()),
        false => runtime.block_on(waiting::start::<Plain>()),
    }
    let changing = std::env::args().nth(1);
    let changing: u64 = changing.map_or(0, |number| number.parse().expect("a number"));
    for seed in 0..changing {
        runtime.spawn(changes(seed));
    }
    let waits = async {
        println!("ready");
        tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0; 1]))
            .await
            .expect("it does not panic")
            .expect("a pipe");
    };
    match is_local {
        true => local.block_on(&runtime, waits),
        false => runtime.block_on(waits),
    }
    runtime.shutdown_background();
}
