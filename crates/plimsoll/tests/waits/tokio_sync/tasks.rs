//! Tasks that wait, on a runtime of each kind.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

use crate::tokio_sync::scene::{self, HELD, Recorded, WAITERS};

/// Returns a runtime of each kind, one after another.
pub fn runtimes() -> impl Iterator<Item = Runtime> {
    [Builder::new_current_thread(), Builder::new_multi_thread()]
        .into_iter()
        .map(|mut builder| {
            let built = builder.worker_threads(2).enable_time().build();
            built.expect("a runtime can be made")
        })
}

/// Sums over the samples of a profile with `function` in the stack, without waits of threads for
/// tokio's own locks.
pub fn recorded(profile: &str, function: &str) -> Recorded {
    scene::recorded_at(profile, function, |leaf| {
        // Where inlined functions have no names, no waits for tokio's own locks occur in these
        // tests.
        cfg!(not(feature = "symbolize")) || leaf.contains("plimsoll_waits::sync::tokio::")
    })
}

/// An upper limit of the time that tasks waited, averaged over both runtimes.
#[derive(Clone, Copy, Default)]
pub struct Wall {
    /// The time until the tasks were released.
    pub held: Duration,
    /// The time until the last task was done; earlier tasks may have kept it waiting.
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

/// Runs `does` on a runtime of each kind, both times in the task that `block_on` runs.
pub fn on_each_runtime<W: Into<Wall>>(does: impl AsyncFn() -> W) -> Wall {
    runtimes().fold(Wall::default(), |sum, runtime| {
        let wall = runtime.block_on(does()).into();
        Wall {
            held: sum.held + wall.held / 2,
            done: sum.done + wall.done / 2,
        }
    })
}

/// Counts the futures that were not ready at their first poll.
#[derive(Clone, Default)]
pub struct Pending(Arc<AtomicUsize>);

impl Pending {
    /// Returns the same future, counted.
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

    /// Waits until `count` futures are pending.
    pub async fn until(&self, count: usize) {
        let start = Instant::now();
        while self.0.load(Ordering::Acquire) < count {
            assert!(start.elapsed() < Duration::from_secs(60), "it never is");
            tokio::task::yield_now().await;
        }
    }
}

/// Runs [`WAITERS`] tasks that wait on `wait`, and calls `let_go` some time after they all wait.
/// Returns the times since the first was started.
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
        task.await.expect("the task waits, and continues");
    }
    Wall {
        held,
        done: start.elapsed(),
    }
}
