//! Computing answers: how many of a kind at once, and which of them next.
//!
//! The newest request is first. Under overload, the oldest clients have mostly given up, and a
//! scraper waits for the answers that are being computed, but not for a pile of older requests.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::super::answer::Step;
use super::super::pages::Effort;
use super::super::pprof::Delta;
use super::super::{Request, finish};
use super::head::Received;
use crate::os::bell::Bell;
use crate::own_thread;

/// How many answers are computed at once, in the order of [`EFFORTS`].
const PLACES: [usize; 4] = [2, 2, 1, 1];

const EFFORTS: [Effort; 4] = [
    Effort::Short,
    Effort::Long,
    Effort::Collect,
    Effort::Difference,
];

/// How many answers of each effort wait for a place.
const MAX_QUEUED: usize = 16;

/// What the server's threads share.
#[derive(Debug)]
pub(super) struct Shared {
    /// What was computed and not taken yet.
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

    /// Has the server stop listening.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.bell.ring();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

/// Something to compute.
pub(super) enum Job {
    Begin(Received),
    Finish(Delta),
}

/// What came of a job.
pub(super) struct Done {
    /// The connection.
    pub(super) connection: u64,
    effort: Effort,
    /// `None` if it panicked or there was no thread.
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

/// The jobs that wait for a place, and the number of those that have one.
pub(super) struct Workers {
    shared: Arc<Shared>,
    /// In the order of [`EFFORTS`], as the next.
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

    /// The connections whose jobs wait, if no more of that effort may.
    pub(super) fn queued_if_full(&self, effort: Effort) -> Vec<u64> {
        let queue = &self.queues[effort as usize];
        let all = queue.iter().filter(|_| queue.len() >= MAX_QUEUED);
        all.map(|queued| queued.connection).collect()
    }

    /// Queues a job for a connection. It is cut short, if it can be, by `is_gone`. Returns the
    /// connection whose job is dropped for it, if too many wait.
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

    /// Forgets the queued job of a connection.
    pub(super) fn forget(&mut self, connection: u64) {
        for queue in &mut self.queues {
            queue.retain(|queued| queued.connection != connection);
        }
    }

    /// Starts what has a place.
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

    /// Takes what was computed since.
    pub(super) fn take_done(&mut self) -> Vec<Done> {
        let mut done = self.shared.done.lock();
        let done = std::mem::take(&mut **done.as_mut().unwrap_or_else(PoisonError::get_mut));
        for done in &done {
            self.running[done.effort as usize] -= 1;
        }
        done
    }
}

/// Hands in what a job led to when it is dropped, by a panic too.
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
    // Without a thread, the closure is dropped, and the report with it.
    drop(own_thread::spawn(c"plimsoll-answer", move || {
        let step = job.run(&|| is_gone.load(Ordering::Relaxed));
        if let Some(done) = &mut report.done {
            done.step = Some(step);
        }
    }));
}

impl Job {
    fn run(self, cancelled: &dyn Fn() -> bool) -> Step {
        match self {
            Self::Begin(request) => Request::new(&request.method, &request.path, &request.query)
                .accept(&request.accept)
                .cancelled(cancelled)
                .begin(),
            Self::Finish(delta) => finish(delta).into(),
        }
    }
}
