//! The trace files that dial9 writes, read by its own reader.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::{fs, process};

use dial9::analysis::TraceReader;
use dial9::analysis::analysis_events::{CpuSampleSource, Dial9Event};
use dial9::{Dial9HandleTokioExt as _, DiskBuffer, Recorder, TokioAttachOptions};
use plimsoll_beside::{POLLS, TASKS};
use tokio::runtime::{Builder, Runtime};

/// A directory for one test, removed on drop.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let name = format!("plimsoll-dial9-{name}-{}", process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a directory for temporary files");
        Self(folder)
    }

    /// Returns a writer of one file.
    pub fn writer(&self) -> DiskBuffer {
        DiskBuffer::single_file(self.0.join("trace.bin")).expect("a file")
    }

    /// Reads the file after the recorder has ended.
    pub fn events(&self) -> Events {
        let files = fs::read_dir(&self.0).expect("the directory exists");
        let paths = files.map(|file| file.expect("the directory can be read").path());
        let paths: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
        let [path] = &paths[..] else {
            panic!("not one file: {paths:?}");
        };
        let trace = TraceReader::new(path.to_str().expect("a path is text")).expect("a trace");
        assert_eq!(
            trace.is_complete(),
            Some(true),
            "{:?}",
            trace.segment_metadata
        );
        Events(trace.all_events)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns a runtime that dial9 records.
pub fn attach(recorder: &Recorder) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all();
    let options = TokioAttachOptions::builder()
        .task_tracking_enabled(true)
        .build();
    let runtime = recorder.handle().attach_tokio_runtime(builder, options);
    runtime.expect("a runtime")
}

/// The events of a trace.
pub struct Events(pub Vec<Dial9Event>);

impl Events {
    /// Returns the tasks that were spawned in a file.
    fn spawned_in(&self, file: &str) -> HashSet<u64> {
        let tasks = self.0.iter().filter_map(|event| match event {
            Dial9Event::TaskSpawnEvent(spawn) if spawn.spawn_loc.contains(file) => {
                Some(spawn.task_id)
            }
            _ => None,
        });
        tasks.collect()
    }

    /// Asserts that the tasks of the file have the known numbers of polls and wakes, and have ended.
    pub fn assert_tasks(&self, file: &str) {
        let tasks = self.spawned_in(file);
        assert_eq!(tasks.len(), TASKS);
        // Polls, wakes and ends.
        let mut counts: HashMap<u64, [usize; 3]> = HashMap::new();
        for event in &self.0 {
            let (task, kind) = match event {
                Dial9Event::PollStartEvent(poll) => (poll.task_id, 0),
                Dial9Event::WakeEvent(wake) => (wake.woken_task_id, 1),
                Dial9Event::TaskTerminateEvent(end) => (end.task_id, 2),
                _ => continue,
            };
            counts.entry(task).or_default()[kind] += 1;
        }
        for task in tasks {
            assert_eq!(
                counts.get(&task),
                Some(&[POLLS, POLLS - 1, 1]),
                "task {task}"
            );
        }
    }

    /// Returns the number of CPU samples in the polls of the tasks of the file.
    pub fn cpu_samples_in(&self, file: &str) -> u64 {
        let tasks = self.spawned_in(file);
        let mut threads = HashMap::new();
        let mut polls = Vec::new();
        let mut events: Vec<_> = self.0.iter().collect();
        events.sort_by_key(|event| time(event));
        let mut began = HashMap::new();
        for event in events {
            match event {
                Dial9Event::WorkerParkEvent(park) => {
                    threads.insert(park.worker_id.as_u64(), park.tid);
                }
                Dial9Event::WorkerUnparkEvent(unpark) => {
                    threads.insert(unpark.worker_id.as_u64(), unpark.tid);
                }
                Dial9Event::PollStartEvent(poll) if tasks.contains(&poll.task_id) => {
                    began.insert(poll.worker_id.as_u64(), poll.timestamp_ns);
                }
                Dial9Event::PollEndEvent(poll) => {
                    if let Some(begin) = began.remove(&poll.worker_id.as_u64()) {
                        polls.push((poll.worker_id.as_u64(), begin..=poll.timestamp_ns));
                    }
                }
                _ => {}
            }
        }
        let is_in_a_poll = |event: &&Dial9Event| match event {
            Dial9Event::CpuSampleEvent(sample) if sample.source == CpuSampleSource::CpuProfile => {
                polls.iter().any(|(worker, times)| {
                    threads.get(worker) == Some(&sample.tid) && times.contains(&sample.timestamp_ns)
                })
            }
            _ => false,
        };
        self.0.iter().filter(is_in_a_poll).count() as u64
    }

    /// Returns the numbers of allocations and of frees of a size.
    #[allow(dead_code, reason = "one of two tests records memory")]
    pub fn memory(&self, size: usize) -> [usize; 2] {
        let mut counts = [0; 2];
        for event in &self.0 {
            match event {
                Dial9Event::AllocEvent(event) if event.size == size as u64 => counts[0] += 1,
                Dial9Event::FreeEvent(event) if event.size == size as u64 => counts[1] += 1,
                Dial9Event::Custom(event) => {
                    assert_ne!(event.name, "MemoryProfileOverflowEvent", "{event:?}")
                }
                _ => {}
            }
        }
        counts
    }
}

fn time(event: &Dial9Event) -> u64 {
    match event {
        Dial9Event::WorkerParkEvent(event) => event.timestamp_ns,
        Dial9Event::WorkerUnparkEvent(event) => event.timestamp_ns,
        Dial9Event::PollStartEvent(event) => event.timestamp_ns,
        Dial9Event::PollEndEvent(event) => event.timestamp_ns,
        _ => 0,
    }
}
