//! Threads that allocate and free without pause.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use crate::pairs::Random;

/// The repeated work of each thread.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Boxes a number and drops it.
    Tight,
    /// Replaces one of 1,000 live blocks by one of 16 to 511 bytes.
    RandomSizes,
}

/// A set of threads, which end when it is dropped.
pub struct Load {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts the threads; returns when all work.
    pub fn start(threads: usize, work: Work) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let started = Arc::new(Barrier::new(threads + 1));
        let workers = (0..threads).map(|thread| {
            let (over, started) = (Arc::clone(&over), Arc::clone(&started));
            std::thread::spawn(move || {
                started.wait();
                work.run(thread as u64, &over);
            })
        });
        let threads = workers.collect();
        started.wait();
        Self { over, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("no thread panics");
        }
    }
}

impl Work {
    fn run(self, seed: u64, over: &AtomicBool) {
        let mut random = Random::new(seed);
        let mut live: Vec<Option<Vec<u8>>> = vec![None; 1000];
        while !over.load(Ordering::Relaxed) {
            match self {
                Self::Tight => drop(black_box(Box::new(seed))),
                Self::RandomSizes => {
                    let (size, place) = random.size_and_place(live.len());
                    live[place] = Some(Vec::with_capacity(size));
                }
            }
        }
        black_box(live);
    }
}
