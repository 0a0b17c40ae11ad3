//! Many threads that run a task once on request, and sleep otherwise.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, RwLock};
use std::thread::{Builder, JoinHandle};

/// A crew of threads, which end when it is dropped.
pub struct Crew {
    board: Arc<Board>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Board {
    /// Where the threads and their crew meet before and after each turn; there is none, and it is
    /// locked, until all threads were started.
    meeting: RwLock<Option<Barrier>>,
    over: AtomicBool,
}

impl Board {
    fn meet(&self) {
        let meeting = self.meeting.read().expect("no thread panics");
        meeting.as_ref().expect("all were started").wait();
    }

    /// Runs `work` once in each turn, on each thread.
    fn serve(&self, work: fn()) {
        self.meet();
        while !self.over.load(Ordering::Relaxed) {
            work();
            self.meet();
            self.meet();
        }
    }
}

/// Small stacks, because there are many threads.
const STACK_BYTES: usize = 64 << 10;

impl Crew {
    /// Starts `count` threads, or as many as the system permits, that do `work` once in each turn.
    pub fn start(count: usize, work: fn()) -> Self {
        let board = Arc::<Board>::default();
        let mut meeting = board.meeting.write().expect("no thread panics");
        let start = |_| {
            let board = Arc::clone(&board);
            let builder = Builder::new().stack_size(STACK_BYTES);
            builder.spawn(move || board.serve(work)).ok()
        };
        let threads: Vec<_> = (0..count).map_while(start).collect();
        *meeting = Some(Barrier::new(threads.len() + 1));
        drop(meeting);
        Self { board, threads }
    }

    /// Returns the number of threads.
    pub fn size(&self) -> usize {
        self.threads.len()
    }

    /// Lets each thread do its work once; returns when all have finished.
    pub fn turn(&self) {
        self.board.meet();
        self.board.meet();
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.board.over.store(true, Ordering::Relaxed);
        self.board.meet();
        for thread in self.threads.drain(..) {
            thread.join().expect("no thread panics");
        }
    }
}
