//! Schedules the computation of answers, with a limit for each effort.
//!
//! The newest request is first. Under overload, the oldest clients have mostly given up. A scraper
//! then waits for the answers that are being computed, but not for a backlog of older requests.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_sys::os::eventfd::Bell;

use super::super::answer::Step;
use super::super::pages::Effort;
use super::super::pprof::Delta;
use super::super::{Request, finish};
use super::head::Received;
use crate::internal_thread;

/// Number of answers computed at once, in the order of [`EFFORTS`].
const PLACES: [usize; 4] = [2, 2, 1, 1];

const EFFORTS: [Effort; 4] = [
    Effort::Short,
    Effort::Long,
    Effort::Collect,
    Effort::Difference,
];

/// Maximum number of queued answers of each effort.
const MAX_QUEUED: usize = 16;

/// The state that the server's threads share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Results that the reactor has not taken yet.
    done: Mutex<Vec<Done>>,
    stopped: AtomicBool,
    pub(super) bell: Bell,
}

impl Shared {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            done: Mutex::default(),
            stopped: AtomicBool::new(false),
            bell: Bell::new()?,
        })
    }

    /// Stops the server.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.bell.ring();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

/// A computation.
pub(super) enum Job {
    Begin(Received),
    Finish(Delta),
}

/// The result of a job.
pub(super) struct Done {
    /// The number of the connection.
    pub(super) connection: u64,
    effort: Effort,
    /// `None` if the job panicked or no thread could be created.
    pub(super) step: Option<Step>,
}

impl std::fmt::Debug for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut done = f.debug_struct("Done");
        done.field("connection", &self.connection);
        done.field("effort", &self.effort).finish_non_exhaustive()
    }
}

struct Queued {
    connection: u64,
    job: Job,
    is_gone: Arc<AtomicBool>,
}

/// The queued jobs, and the number of running ones.
pub(super) struct Workers {
    shared: Arc<Shared>,
    /// The queues, in the order of [`EFFORTS`], like `running`.
    queues: [VecDeque<Queued>; 4],
    running: [usize; 4],
}

impl Workers {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            queues: Default::default(),
            running: [0; 4],
        }
    }

    /// Returns the connections with queued jobs of that effort if its queue is full, and none
    /// otherwise.
    pub(super) fn queued_if_full(&self, effort: Effort) -> Vec<u64> {
        let queue = &self.queues[effort as usize];
        let all = queue.iter().filter(|_| queue.len() >= MAX_QUEUED);
        all.map(|queued| queued.connection).collect()
    }

    /// Queues a job for a connection. Setting `is_gone` cancels a job that can be cancelled. If the
    /// queue overflows, drops its oldest job and returns that job's connection.
    pub(super) fn push(
        &mut self,
        connection: u64,
        effort: Effort,
        job: Job,
        is_gone: &Arc<AtomicBool>,
    ) -> Option<u64> {
        let queue = &mut self.queues[effort as usize];
        queue.push_back(Queued {
            connection,
            job,
            is_gone: Arc::clone(is_gone),
        });
        let is_full = queue.len() > MAX_QUEUED;
        let dropped = if is_full { queue.pop_front() } else { None };
        dropped.map(|dropped| dropped.connection)
    }

    /// Removes the queued job of a connection.
    pub(super) fn forget(&mut self, connection: u64) {
        for queue in &mut self.queues {
            queue.retain(|queued| queued.connection != connection);
        }
    }

    /// Starts as many queued jobs as the limits allow.
    pub(super) fn dispatch(&mut self) {
        for effort in EFFORTS {
            let at = effort as usize;
            while self.running[at] < PLACES[at] {
                let Some(queued) = self.queues[at].pop_back() else {
                    break;
                };
                self.running[at] += 1;
                start(Arc::clone(&self.shared), effort, queued);
            }
        }
    }

    /// Takes the new results.
    pub(super) fn take_done(&mut self) -> Vec<Done> {
        let mut done = self.shared.done.lock();
        let done = std::mem::take(&mut **done.as_mut().unwrap_or_else(PoisonError::get_mut));
        for done in &done {
            self.running[done.effort as usize] -= 1;
        }
        done
    }
}

/// Delivers the result of a job when it is dropped, even by a panic.
struct Report {
    shared: Arc<Shared>,
    done: Option<Done>,
}

impl Drop for Report {
    fn drop(&mut self) {
        let mut all = self
            .shared
            .done
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.extend(self.done.take());
        drop(all);
        self.shared.bell.ring();
    }
}

fn start(shared: Arc<Shared>, effort: Effort, queued: Queued) {
    let Queued {
        connection,
        job,
        is_gone,
    } = queued;
    let mut report = Report {
        shared,
        done: Some(Done {
            connection,
            effort,
            step: None,
        }),
    };
    // If no thread can be created, the closure is dropped, and with it the report.
    drop(internal_thread::spawn(c"plimsoll-answer", move || {
        let step = job.run(&|| is_gone.load(Ordering::Relaxed));
        if let Some(done) = &mut report.done {
            done.step = Some(step);
        }
    }));
}

impl Job {
    fn run(self, cancelled: &(dyn Fn() -> bool + Sync)) -> Step {
        match self {
            Self::Begin(request) => Request::new(&request.method, &request.path, &request.query)
                .accept(&request.accept)
                .cancelled(cancelled)
                .begin(),
            Self::Finish(delta) => finish(delta).into(),
        }
    }
}
