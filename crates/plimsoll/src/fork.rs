//! The order in which locks are taken, and in which a fork takes them. See [`plimsoll_sys::os::fork`].

use plimsoll_sys::os::fork::Rank;

/// The locks and tables that a fork concerns. Code that holds one takes only later ones.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "some belong to features")]
pub(crate) enum Order {
    /// The handlers of `plimsoll run` around a fork take locks of all kinds.
    #[cfg(feature = "preload")]
    Preload,
    Outputs,
    Dhat,
    History,
    GrowthThresholds,
    MemoryLimit,
    MeasuredLabels,
    PostmortemModules,
    CpuProfile,
    CpuUsers,
    CpuWatch,
    LongPolls,
    Tasks,
    Rates,
    Hooks,
    ModuleLists,
    InterpretedNames,
    Stacks,
    CpuStacks,
    Heap,
    Collectors,
    CpuMeter,
    Labels,
    PeriodicChecks,
    EarlierLeaks,
    ThreadTimes,
    // Tables without a lock.
    Waiters,
    CaptureSlots,
    Threads,
    ThreadStacks,
    ThreadLabels,
    Requests,
    Mappings,
    Wakeup,
    /// Taken while any other lock is held.
    InternalHeap,
}

impl Order {
    pub(crate) const fn rank(self) -> Rank {
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
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
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
                        .trim_start_matches("pub(crate) ")
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
