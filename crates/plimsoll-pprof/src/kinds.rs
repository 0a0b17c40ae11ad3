//! The kinds of profiles that Plimsoll makes: the list of the pages, the preloaded library, the command and the
//! documentation. The page for browsers has a list of its titles: `plimsoll-page/web/src/data/kinds.ts`.

/// A kind of profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileKind {
    /// The name in paths, below `/debug/pprof/`.
    pub name: &'static str,
    /// Sentences for the index page that describe the contents of the profile.
    pub description: &'static str,
    /// The feature of the crate `plimsoll` that enables the profile; `None` if it always exists.
    pub feature: Option<&'static str>,
}

const fn kind(name: &'static str, description: &'static str) -> ProfileKind {
    ProfileKind {
        name,
        description,
        feature: None,
    }
}

/// The profile `allocs`.
pub const ALLOCS: ProfileKind = kind(
    "allocs",
    "A sampling of all allocations since the program began, by where they were made.",
);

/// The profile `block`.
pub const BLOCK: ProfileKind = kind(
    "block",
    "Stacks of threads that waited: for locks, conditions, channels, other threads.",
);

/// The profile `fragmentation`.
pub const FRAGMENTATION: ProfileKind = kind(
    "fragmentation",
    "An estimate of the free space in the allocator's pages, by the stacks whose blocks keep these \
     pages in use. For jemalloc and mimalloc.",
);

/// The profile `goroutine`.
pub const GOROUTINE: ProfileKind = kind(
    "goroutine",
    "Stacks of all threads and tracked tasks. Use debug=2 for a list of each with its state.",
);

/// The profile `goroutineleak`.
pub const GOROUTINELEAK: ProfileKind = kind(
    "goroutineleak",
    "Stacks of threads and tracked tasks that will never continue: nothing can wake them, or they wait for one another. \
     Also those that probably will not: those that have waited for leak_age (10 minutes by default) in a \
     place where their number rises, which takes three readings of this profile or more.",
);

/// The profile `heap`.
pub const HEAP: ProfileKind = kind(
    "heap",
    "A sampling of the memory that is in use, by where it was allocated.",
);

/// The profile `lifetimes`.
pub const LIFETIMES: ProfileKind = kind(
    "lifetimes",
    "A sampling of all memory that was freed, by where it was allocated and how long it lived.",
);

/// The profile `longpoll`.
pub const LONGPOLL: ProfileKind = kind(
    "longpoll",
    "Stacks of tracked tasks that kept a thread of their executor for longer than a threshold in one poll.",
);

/// The profile `memory`.
pub const MEMORY: ProfileKind = kind(
    "memory",
    "All resident memory, by holder: the heap by site, thread stacks, mappings, files, Plimsoll's own, and the \
     unexplained rest. Linux only.",
);

/// The profile `mmap`.
pub const MMAP: ProfileKind = ProfileKind {
    feature: Some("mmap"),
    ..kind(
        "mmap",
        "Memory that the program mapped directly, and its part that is still mapped, by where it was \
         mapped. Every call is recorded.",
    )
};

/// The profile `mutex`.
pub const MUTEX: ProfileKind = kind(
    "mutex",
    "Stacks of threads that released a lock which others waited for.",
);

/// The profile `peak`.
pub const PEAK: ProfileKind = kind(
    "peak",
    "A sampling of the memory that was in use at the peak, by where it was allocated.",
);

/// The profile `profile`, of CPU time.
pub const PROFILE: ProfileKind = kind(
    "profile",
    "A sampling of CPU time, by the code that used it. The page records for 30 seconds, or as many as the \
     parameter seconds has; with cpu_rate, it shows those of the continuous samples.",
);

/// The profile `threadcreate`.
pub const THREADCREATE: ProfileKind = kind(
    "threadcreate",
    "Stacks that led to the creation of the live threads.",
);

/// The profile `wall`, of elapsed time. Nothing is recorded before it is requested, so it is not in
/// [`ALL`].
pub const WALL: ProfileKind = kind(
    "wall",
    "A sampling of elapsed time, by what threads and tracked tasks do, running or waiting. \
     Records for 30 seconds, or as many as the parameter seconds has.",
);

/// The profile `selfcontention`, about Plimsoll itself. No list of profiles contains it, so no
/// collector reads it by default.
pub const SELFCONTENTION: ProfileKind = kind(
    "selfcontention",
    "Stacks of Plimsoll's own code that waited for its locks and threads, at the rate of block. Not in block and mutex.",
);

/// All kinds but [`SELFCONTENTION`] and [`WALL`], by name.
pub const ALL: [ProfileKind; 14] = [
    ALLOCS,
    BLOCK,
    FRAGMENTATION,
    GOROUTINE,
    GOROUTINELEAK,
    HEAP,
    LIFETIMES,
    LONGPOLL,
    MEMORY,
    MMAP,
    MUTEX,
    PEAK,
    PROFILE,
    THREADCREATE,
];

/// The profiles that a process under `plimsoll run` writes at its end, in the order in which the
/// report shows them.
pub const AT_EXIT: [ProfileKind; 10] = [
    MEMORY,
    HEAP,
    PEAK,
    LIFETIMES,
    MMAP,
    PROFILE,
    WALL,
    BLOCK,
    MUTEX,
    THREADCREATE,
];
