//! The order in which locks are taken, and in which a fork takes them. See [`plimsoll_sys::os::fork`].

use plimsoll_sys::os::fork::Rank;

/// The locks and tables that a fork concerns. Code that holds one takes only later ones.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "some belong to features")]
pub enum Order {
    /// The handlers of `plimsoll run` around a fork take locks of all kinds.
    Preload,
    /// Files of profiles that are written at the end.
    Outputs,
    /// The profiler with the names of the crate dhat.
    Dhat,
    /// The history of statistics.
    History,
    /// Thresholds of growth.
    GrowthThresholds,
    /// The soft memory limit and its thresholds.
    MemoryLimit,
    /// What is known of idle memory.
    GiveBack,
    /// The past of the limits of the system.
    Limits,
    /// Labels of measurements.
    MeasuredLabels,
    /// The switch of everything that is recorded at a rate.
    Switch,
    /// Modules that a post-mortem file has noted.
    PostmortemModules,
    /// The CPU profile in progress.
    CpuProfile,
    /// Who wants CPU samples.
    CpuUsers,
    /// The watch over timers of threads.
    CpuWatch,
    /// Long polls of tasks.
    LongPolls,
    /// Tracked tasks.
    Tasks,
    /// Rates of counters.
    Rates,
    /// The hooks of intercepted functions.
    Hooks,
    /// Lists of loaded modules.
    ModuleLists,
    /// Names of interpreted functions.
    InterpretedNames,
    /// The event table.
    Stacks,
    /// The table of CPU samples.
    CpuStacks,
    /// Accounts of declared memory.
    Declared,
    /// Readers of the heap's counts.
    Heap,
    /// Garbage collectors of the program.
    Collectors,
    /// The meter of CPU time.
    CpuMeter,
    /// Sets of labels.
    Labels,
    /// Periodic checks of the maintenance thread.
    PeriodicChecks,
    /// Leaks that were found before.
    EarlierLeaks,
    /// Times of threads.
    ThreadTimes,
    /// Waiters, a table without a lock, as are all that follow.
    Waiters,
    /// Buffers of stack captures.
    CaptureSlots,
    /// Creators of threads.
    Threads,
    /// Bounds of the stacks of threads.
    ThreadStacks,
    /// Labels of threads.
    ThreadLabels,
    /// Requests to running threads.
    Requests,
    /// The program's mappings.
    Mappings,
    /// Requests to the maintenance thread.
    Wakeup,
    /// Taken while any other lock is held.
    InternalHeap,
}

impl Order {
    /// Returns the place in the order of a fork.
    pub const fn rank(self) -> Rank {
        match self {
            Self::InternalHeap => Rank::LAST,
            other => Rank(other as u8),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// Locks that a fork need not take, with the reason.
    const OTHERS: [(&str, &str); 3] = [
        ("TURN", "of a test"),
        (
            "ADDING",
            "the child of a fork has left the file to which notes are added",
        ),
        ("RECORDING", "foreign code runs under it, which may fork"),
    ];

    #[test]
    fn each_lock_in_a_static_takes_part_in_forks() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        // This one, and all that are built on it.
        let counts = |folder: &Path| {
            let manifest = fs::read_to_string(folder.join("Cargo.toml"));
            manifest.is_ok_and(|text| text.contains("plimsoll-core"))
        };
        let folders = fs::read_dir(crates).unwrap();
        let folders = folders.map(|entry| entry.unwrap().path());
        let mut folders: Vec<_> = folders
            .filter(|folder| counts(folder))
            .map(|folder| folder.join("src"))
            .collect();
        let mut seen = 0;
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                for line in fs::read_to_string(&path).unwrap().lines() {
                    let line = line.trim_start();
                    let Some((name, kind)) = line
                        .trim_start_matches("pub ")
                        .trim_start_matches("pub(super) ")
                        .strip_prefix("static ")
                        .and_then(|rest| rest.split_once(": "))
                    else {
                        continue;
                    };
                    let kind = kind.trim_start_matches("std::sync::");
                    let is_lock = kind.starts_with("Mutex<") || kind.starts_with("RwLock<");
                    let is_other = OTHERS.iter().any(|(other, _)| *other == name);
                    assert!(!is_lock || is_other, "{name} in {}", path.display());
                    seen += usize::from(kind.starts_with("ForkLock<"));
                }
            }
        }
        assert!(seen > 10, "the search finds {seen}");
    }
}
