//! Many threads that run a task once on request, and sleep otherwise.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// A crew of threads, which end when it is dropped.
pub struct Crew {
    board: Arc<Board>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Board {
    state: Mutex<State>,
    changed: Condvar,
    finished: Condvar,
}

#[derive(Default)]
struct State {
    turns: u64,
    /// The number of threads that have finished the current turn.
    done: usize,
    over: bool,
}

impl Board {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics")
    }

    /// Runs `work` once in each turn, on each thread.
    fn serve(&self, work: fn()) {
        let mut seen = 0;
        loop {
            let asked = self
                .changed
                .wait_while(self.state(), |state| state.turns == seen && !state.over);
            let state = asked.expect("no thread panics");
            if state.over {
                return;
            }
            seen = state.turns;
            drop(state);
            work();
            self.state().done += 1;
            self.finished.notify_one();
        }
    }
}

/// Small stacks, because there are many threads.
const STACK_BYTES: usize = 64 << 10;

/// Mappings of a thread: its stack and its signal stack, a guard page of each, and one spare.
const MAPPINGS: usize = 5;

impl Crew {
    /// Starts `count` threads, or as many as the system permits, that do `work` once in each turn.
    pub fn start(count: usize, work: fn()) -> Self {
        let board = Arc::<Board>::default();
        let count = count.min(mappings_limit() / MAPPINGS);
        let mut threads = Vec::with_capacity(count);
        for _ in 0..count {
            let board = Arc::clone(&board);
            let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
            match builder.spawn(move || board.serve(work)) {
                Ok(thread) => threads.push(thread),
                Err(_) => break,
            }
        }
        Self { board, threads }
    }

    /// Returns the number of threads.
    pub fn size(&self) -> usize {
        self.threads.len()
    }

    /// Lets each thread do its work once; returns when all have finished.
    pub fn turn(&self) {
        let mut state = self.board.state();
        state.turns += 1;
        state.done = 0;
        self.board.changed.notify_all();
        let size = self.size();
        let finished = self
            .board
            .finished
            .wait_while(state, |state| state.done < size);
        drop(finished.expect("no thread panics"));
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.board.state().over = true;
        self.board.changed.notify_all();
        for thread in self.threads.drain(..) {
            thread.join().expect("no thread panics");
        }
    }
}

/// Returns how many more mappings this process may have, minus a reserve.
fn mappings_limit() -> usize {
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count");
    let limit = limit.ok().and_then(|text| text.trim().parse().ok());
    limit.map_or(usize::MAX, |limit: usize| limit.saturating_sub(4096))
}
