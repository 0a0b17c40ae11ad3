//! Tasks that wait, on each kind of runtime.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

use crate::scene::{self, HELD, Told, WAITERS};

/// A runtime of each kind, one after the other.
pub fn runtimes() -> impl Iterator<Item = Runtime> {
    [Builder::new_current_thread(), Builder::new_multi_thread()]
        .into_iter()
        .map(|mut builder| {
            let built = builder.worker_threads(2).enable_time().build();
            built.expect("a runtime can be made")
        })
}

/// What the profile of that name says of all with `function` in the stack, less what tokio's own
/// locks keep its threads waiting.
pub fn told(profile: &str, function: &str) -> Told {
    scene::told_at(profile, function, |leaf| {
        // Where names of inlined functions are not to be had, in tests neither are those locks.
        cfg!(not(feature = "symbolize")) || leaf.contains("plimsoll::sync::tokio::")
    })
}

/// How long tasks waited at most, on the average of those of both runtimes.
#[derive(Clone, Copy, Default)]
pub struct Wall {
    /// Until they were let go.
    pub held: Duration,
    /// Until the last of them was done: those before may have kept it waiting.
    pub done: Duration,
}

impl From<Duration> for Wall {
    fn from(time: Duration) -> Self {
        Self {
            held: time,
            done: time,
        }
    }
}

/// Does it on a runtime of each kind, both times in the task that a thread executes for itself.
pub fn on_each_runtime<W: Into<Wall>>(does: impl AsyncFn() -> W) -> Wall {
    runtimes().fold(Wall::default(), |sum, runtime| {
        let wall = runtime.block_on(does()).into();
        Wall {
            held: sum.held + wall.held / 2,
            done: sum.done + wall.done / 2,
        }
    })
}

/// Counts futures that are not ready when they are polled first.
#[derive(Clone, Default)]
pub struct Pending(Arc<AtomicUsize>);

impl Pending {
    /// The same future, counted.
    pub async fn counting<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        let mut is_first = true;
        poll_fn(|context| {
            let polled = future.as_mut().poll(context);
            if polled.is_pending() && std::mem::take(&mut is_first) {
                self.0.fetch_add(1, Ordering::Release);
            }
            polled
        })
        .await
    }

    /// Until so many are.
    pub async fn until(&self, count: usize) {
        let start = Instant::now();
        while self.0.load(Ordering::Acquire) < count {
            assert!(start.elapsed() < Duration::from_secs(60), "it never is");
            tokio::task::yield_now().await;
        }
    }
}

/// Has [`WAITERS`] tasks do what `wait` says, calls `let_go` some time after they all wait, and
/// returns how long it was from when the first of them was started.
pub async fn waiting<F>(wait: impl Fn() -> F, let_go: impl FnOnce()) -> Wall
where
    F: Future<Output = ()> + Send + 'static,
{
    let start = Instant::now();
    let pending = Pending::default();
    let tasks: Vec<_> = (0..WAITERS)
        .map(|_| tokio::spawn(pending.clone().counting(wait())))
        .collect();
    pending.until(WAITERS).await;
    tokio::time::sleep(HELD).await;
    let_go();
    let held = start.elapsed();
    for task in tasks {
        task.await.expect("it waits, and goes on");
    }
    Wall {
        held,
        done: start.elapsed(),
    }
}
