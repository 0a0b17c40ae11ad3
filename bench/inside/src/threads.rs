//! Works of several threads.

use std::collections::HashMap;
use std::sync::mpsc;
use std::thread;

use crate::pairs::Random;

/// Workers index `100 * scale` generated texts by their words; the indices are merged.
pub fn index(scale: usize, threads: usize) -> String {
    let texts = 100 * scale;
    let indices: Vec<HashMap<String, Vec<usize>>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                scope.spawn(move || {
                    let mut index: HashMap<String, Vec<usize>> = HashMap::new();
                    for text in (worker..texts).step_by(threads) {
                        let mut random = Random::new(text as u64);
                        let words: Vec<String> = (0..200)
                            .map(|_| {
                                let (size, place) = random.size_and_place(3000);
                                format!("word{place}{}", if size % 7 == 0 { "s" } else { "" })
                            })
                            .collect();
                        let joined = words.join(" ");
                        for word in joined.split(' ') {
                            index.entry(word.to_uppercase()).or_default().push(text);
                        }
                    }
                    index
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .collect()
    });
    let mut all: HashMap<String, Vec<usize>> = HashMap::new();
    for index in indices {
        for (word, texts) in index {
            all.entry(word).or_default().extend(texts);
        }
    }
    let mut lines: Vec<String> = all
        .iter_mut()
        .map(|(word, texts)| {
            texts.sort_unstable();
            format!("{word}: {}", texts.len())
        })
        .collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// Half of the threads allocate `100,000 * scale` blocks in all and send them in batches to the others, which
/// free them.
pub fn exchange(scale: usize, threads: usize) -> String {
    let pairs = (threads / 2).max(1);
    let batches = 1000 * scale / pairs;
    thread::scope(|scope| {
        for pair in 0..pairs {
            let (sender, receiver) = mpsc::sync_channel::<Vec<Vec<u8>>>(16);
            scope.spawn(move || {
                let mut random = Random::new(pair as u64);
                for _ in 0..batches {
                    let batch = (0..100).map(|_| Vec::with_capacity(random.size_and_place(1).0));
                    sender.send(batch.collect()).unwrap();
                }
            });
            scope.spawn(move || receiver.iter().for_each(drop));
        }
    });
    batches.to_string()
}

/// Each of the threads replaces blocks of 16 to 511 bytes at random and passes them to a new thread, which
/// continues: after Larson and Krishnan's benchmark of a server.
pub fn churn(scale: usize, threads: usize) -> String {
    const GENERATIONS: usize = 20;
    let replaced = 100_000 * scale / threads / GENERATIONS;
    thread::scope(|scope| {
        for chain in 0..threads {
            scope.spawn(move || {
                let mut blocks: Vec<Vec<u8>> = (0..1000).map(|_| Vec::new()).collect();
                for generation in 0..GENERATIONS {
                    let work = move || {
                        let mut random = Random::new((chain * GENERATIONS + generation) as u64);
                        for _ in 0..replaced {
                            let (size, place) = random.size_and_place(blocks.len());
                            blocks[place] = Vec::with_capacity(size);
                        }
                        blocks
                    };
                    blocks = thread::spawn(work).join().unwrap();
                }
            });
        }
    });
    replaced.to_string()
}
