//! Schedules the computation of answers, with a limit for each effort.
//!
//! The newest request is first. Under overload, the oldest clients have mostly given up. A scraper
//! then waits for the answers that are being computed, but not for a backlog of older requests.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_sys::os::bell::Bell;

use crate::answer::Step;
use crate::pages::{Effort, Pages, Request};

/// Number of answers computed at once, in the order of [`EFFORTS`].
const PLACES: [usize; 4] = [2, 2, 1, 1];

const EFFORTS: [Effort; 4] = [
    Effort::Short,
    Effort::Long,
    Effort::Exclusive,
    Effort::Finish,
];

/// Maximum number of queued answers of each effort.
const MAX_QUEUED: usize = 16;

/// The means to wake and to stop the server's thread.
#[derive(Debug)]
pub(super) struct Control {
    stopped: AtomicBool,
    pub(super) bell: Bell,
}

impl Control {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            stopped: AtomicBool::new(false),
            bell: Bell::with_descriptor()?,
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

/// The state that the server's threads share.
struct Shared<P: Pages> {
    pages: Arc<P>,
    /// Results that the reactor has not taken yet.
    done: Mutex<Vec<Done<P::Pending>>>,
    control: Arc<Control>,
}

/// A computation. `P` is the first half of an answer.
pub(super) enum Job<P> {
    Begin(Request),
    Finish(P),
}

/// The result of a job.
pub(super) struct Done<P> {
    /// The number of the connection.
    pub(super) connection: u64,
    effort: Effort,
    /// `None` if the job panicked or no thread could be created.
    pub(super) step: Option<Step<P>>,
}

struct Queued<P> {
    connection: u64,
    job: Job<P>,
    is_gone: Arc<AtomicBool>,
}

/// The queued jobs, and the number of running ones.
pub(super) struct Workers<P: Pages> {
    shared: Arc<Shared<P>>,
    /// The queues, in the order of [`EFFORTS`], like `running`.
    queues: [VecDeque<Queued<P::Pending>>; 4],
    running: [usize; 4],
}

impl<P: Pages> Workers<P> {
    pub(super) fn new(pages: Arc<P>, control: Arc<Control>) -> Self {
        Self {
            shared: Arc::new(Shared {
                pages,
                done: Mutex::default(),
                control,
            }),
            queues: Default::default(),
            running: [0; 4],
        }
    }

    pub(super) fn pages(&self) -> &P {
        &self.shared.pages
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
        job: Job<P::Pending>,
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
    pub(super) fn take_done(&mut self) -> Vec<Done<P::Pending>> {
        let mut done = self.shared.done.lock();
        let done = std::mem::take(&mut **done.as_mut().unwrap_or_else(PoisonError::get_mut));
        for done in &done {
            self.running[done.effort as usize] -= 1;
        }
        done
    }
}

/// Delivers the result of a job when it is dropped, even by a panic.
struct Report<P: Pages> {
    shared: Arc<Shared<P>>,
    done: Option<Done<P::Pending>>,
}

impl<P: Pages> Drop for Report<P> {
    fn drop(&mut self) {
        let mut all = self
            .shared
            .done
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.extend(self.done.take());
        drop(all);
        self.shared.control.bell.ring();
    }
}

fn start<P: Pages>(shared: Arc<Shared<P>>, effort: Effort, queued: Queued<P::Pending>) {
    let Queued {
        connection,
        job,
        is_gone,
    } = queued;
    let mut report = Report {
        shared: Arc::clone(&shared),
        done: Some(Done {
            connection,
            effort,
            step: None,
        }),
    };
    // If no thread can be created, the closure is dropped, and with it the report.
    let work = Box::new(move || {
        let is_gone = || is_gone.load(Ordering::Relaxed);
        let step = job.run(&*report.shared.pages, &is_gone);
        if let Some(done) = &mut report.done {
            done.step = Some(step);
        }
    });
    drop(shared.pages.spawn(c"plimsoll-answer", work));
}

impl<P: Send + 'static> Job<P> {
    fn run(
        self,
        pages: &impl Pages<Pending = P>,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Step<P> {
        match self {
            Self::Begin(request) => pages.begin(&request, cancelled),
            Self::Finish(pending) => pages.finish(pending).into(),
        }
    }
}
