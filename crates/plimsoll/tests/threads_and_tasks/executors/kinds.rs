//! Executors of several kinds behind one interface.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures::task::LocalSpawn;

pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Cancels a task, which may take until the executor processes it.
pub type Cancel = Box<dyn FnOnce()>;

pub trait Kind {
    fn name(&self) -> &'static str;

    /// Reports whether other threads than the one that ticks poll the tasks.
    fn is_threaded(&self) -> bool {
        false
    }

    fn spawn(&self, work: Work) -> Cancel;

    /// Does one step of work, if this thread has any.
    fn tick(&self);

    /// Works until `is_so` returns true.
    #[track_caller]
    fn run_until(&self, what: &str, is_so: &dyn Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !is_so() {
            assert!(Instant::now() < deadline, "{}: failed: {what}", self.name());
            self.tick();
            std::thread::yield_now();
        }
    }
}

/// Returns one executor of each kind.
pub fn all() -> Vec<Box<dyn Kind>> {
    vec![
        Box::new(ByHand::default()),
        Box::new(AsyncTask::new()),
        Box::new(Smol::default()),
        Box::new(SmolThreads::new()),
        Box::new(Local::default()),
        Box::new(Tokio::single()),
        Box::new(Tokio::multi()),
    ]
}

/// Returns the executors that have threads.
pub fn threaded() -> Vec<Box<dyn Kind>> {
    vec![Box::new(SmolThreads::new()), Box::new(Tokio::multi())]
}

/// A minimal executor.
#[derive(Default)]
pub struct ByHand {
    queue: Arc<Mutex<VecDeque<Arc<HandTask>>>>,
}

struct HandTask {
    work: Mutex<Option<Work>>,
    is_queued: AtomicBool,
    queue: Arc<Mutex<VecDeque<Arc<HandTask>>>>,
}

impl Wake for HandTask {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, SeqCst) {
            let queue = self.queue.clone();
            queue.lock().unwrap().push_back(self);
        }
    }
}

impl Kind for ByHand {
    fn name(&self) -> &'static str {
        "by hand"
    }

    fn spawn(&self, work: Work) -> Cancel {
        let task = Arc::new(HandTask {
            work: Mutex::new(Some(work)),
            is_queued: AtomicBool::new(false),
            queue: self.queue.clone(),
        });
        task.clone().wake();
        Box::new(move || drop(task.work.lock().unwrap().take()))
    }

    fn tick(&self) {
        let Some(task) = self.queue.lock().unwrap().pop_front() else {
            return;
        };
        task.is_queued.store(false, SeqCst);
        let mut work = task.work.lock().unwrap();
        if let Some(mut polled) = work.take() {
            let waker = task.clone().into();
            let mut context = Context::from_waker(&waker);
            if polled.as_mut().poll(&mut context).is_pending() {
                *work = Some(polled);
            }
        }
    }
}

/// `async-task`, on which smol is built, with a queue.
pub struct AsyncTask {
    schedule: mpsc::Sender<async_task::Runnable>,
    queue: mpsc::Receiver<async_task::Runnable>,
}

impl AsyncTask {
    pub fn new() -> Self {
        let (schedule, queue) = mpsc::channel();
        Self { schedule, queue }
    }

    pub fn task(&self, work: Work) -> async_task::Task<()> {
        let schedule = self.schedule.clone();
        let schedule = move |runnable| drop(schedule.send(runnable));
        let (runnable, task) = async_task::spawn(work, schedule);
        runnable.schedule();
        task
    }

    /// Returns the next task to poll.
    pub fn next(&self) -> Option<async_task::Runnable> {
        self.queue.try_recv().ok()
    }
}

impl Kind for AsyncTask {
    fn name(&self) -> &'static str {
        "async-task"
    }

    fn spawn(&self, work: Work) -> Cancel {
        let task = self.task(work);
        Box::new(move || drop(task))
    }

    fn tick(&self) {
        if let Some(runnable) = self.next() {
            runnable.run();
        }
    }
}

/// smol's executor, on the thread of the test.
#[derive(Default)]
pub struct Smol(async_executor::Executor<'static>);

impl Kind for Smol {
    fn name(&self) -> &'static str {
        "smol"
    }

    fn spawn(&self, work: Work) -> Cancel {
        let task = self.0.spawn(work);
        Box::new(move || drop(task))
    }

    fn tick(&self) {
        self.0.try_tick();
    }
}

/// smol's executor, on two threads.
pub struct SmolThreads {
    executor: Arc<async_executor::Executor<'static>>,
    stop: Vec<futures::channel::oneshot::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl SmolThreads {
    fn new() -> Self {
        let executor = Arc::new(async_executor::Executor::new());
        let (stop, threads) = (0..2)
            .map(|_| {
                let (stop, stopped) = futures::channel::oneshot::channel();
                let executor = executor.clone();
                let run = move || {
                    let _stopped = futures::executor::block_on(executor.run(stopped));
                };
                (stop, std::thread::spawn(run))
            })
            .unzip();
        Self {
            executor,
            stop,
            threads,
        }
    }
}

impl Kind for SmolThreads {
    fn name(&self) -> &'static str {
        "smol, two threads"
    }

    fn is_threaded(&self) -> bool {
        true
    }

    fn spawn(&self, work: Work) -> Cancel {
        let task = self.executor.spawn(work);
        Box::new(move || drop(task))
    }

    fn tick(&self) {}
}

impl Drop for SmolThreads {
    fn drop(&mut self) {
        self.stop.clear();
        for thread in self.threads.drain(..) {
            thread.join().expect("the thread has not panicked");
        }
    }
}

/// The executor of futures.
#[derive(Default)]
pub struct Local(RefCell<futures::executor::LocalPool>);

impl Kind for Local {
    fn name(&self) -> &'static str {
        "LocalPool"
    }

    fn spawn(&self, work: Work) -> Cancel {
        let (work, abort) = futures::future::abortable(work);
        let work = Box::pin(async move {
            let _aborted = work.await;
        });
        let spawner = self.0.borrow().spawner();
        spawner.spawn_local_obj(work.into()).expect("it is there");
        Box::new(move || abort.abort())
    }

    fn tick(&self) {
        self.0.borrow_mut().run_until_stalled();
    }
}

pub struct Tokio {
    runtime: tokio::runtime::Runtime,
    is_single: bool,
}

impl Tokio {
    pub fn single() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        Self {
            runtime: runtime.unwrap(),
            is_single: true,
        }
    }

    pub fn multi() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build();
        Self {
            runtime: runtime.unwrap(),
            is_single: false,
        }
    }
}

impl Kind for Tokio {
    fn name(&self) -> &'static str {
        if self.is_single {
            "tokio, one thread"
        } else {
            "tokio, two threads"
        }
    }

    fn is_threaded(&self) -> bool {
        !self.is_single
    }

    fn spawn(&self, work: Work) -> Cancel {
        let task = self.runtime.spawn(work);
        Box::new(move || task.abort())
    }

    fn tick(&self) {
        if self.is_single {
            self.runtime.block_on(tokio::task::yield_now());
        }
    }
}
