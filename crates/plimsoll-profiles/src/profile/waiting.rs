//! Classification of waits by the function names in their stacks.

use plimsoll_leaves::leaves::Leaf;

use plimsoll_waits::contention::WaitKind;

/// Prefixes of functions that are hidden at the leaf: the implementation of waiting and waking,
/// below the primitive's own methods.
const HIDDEN: [&str; 27] = [
    "std::sys::",
    "std::thread::thread::Thread",
    "std::thread::Thread",
    "std::sync::mpmc::",
    "std::sync::once_lock::OnceLock::initialize",
    "std::sync::once_lock::OnceLock::get_or_try_init",
    "plimsoll_waits::contention::",
    "plimsoll_profiles::hook::",
    "plimsoll_waits::sync::contended::",
    "plimsoll_waits::sync::lock_api::",
    "plimsoll_waits::sync::mpsc::Receiver::recv_recorded",
    "plimsoll_waits::sync::mpsc::SyncSender::send_recorded",
    "plimsoll_waits::sync::mutex::Mutex::lock_noted",
    "plimsoll_waits::sync::rwlock::RwLock::write_noted",
    "plimsoll_waits::sync::tokio::waiting::",
    "plimsoll_waits::sync::tokio::permits::",
    "plimsoll_waits::sync::tokio::semaphore::Semaphore::take",
    "plimsoll_waits::sync::tokio::mpsc::SendingEnd",
    "plimsoll_waits::sync::tokio::mpsc::ReceivingEnd",
    "parking_lot_core::",
    "parking_lot::raw_",
    "parking_lot::condvar::Condvar::wait_until_internal",
    "parking_lot::raw_condvar::",
    "crossbeam_channel::context::",
    "crossbeam_channel::flavors::",
    "crossbeam_channel::select::run_",
    "crossbeam_channel::select::select",
];

/// Primitives, except where another primitive is built on them.
const MADE_OF: [&str; 4] = [
    "std::thread::park",
    "std::thread::functions::park",
    "std::thread::local::LocalKey",
    "std::sync::once::Once",
];

/// Classifies a function at the leaf of the stack of a wait or a release.
pub fn leaf(function: &str, file: &str) -> Leaf {
    let name = plimsoll_symbolize::without_types(function);
    let name = name.trim_start_matches("&mut ");
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    if begins(&HIDDEN) {
        Leaf::Hidden
    } else if begins(&MADE_OF) || name.starts_with("core::") || file.contains("/library/core/src/")
    {
        Leaf::Glue
    } else {
        Leaf::Shown
    }
}

/// Prefixes of the functions of Plimsoll in which a thread of the program waits: hooks, and the system calls below.
const OF_HOOKS: [&str; 4] = [
    "plimsoll_sys::arch::",
    "plimsoll_sys::os::",
    "plimsoll_profiles::hook::",
    "plimsoll_interpose",
];

/// Hides only functions of Plimsoll's hooks at the leaf of a thread's stack.
pub(super) fn leaf_of_hook(function: &str, _: &str) -> Leaf {
    match OF_HOOKS.iter().any(|begins| function.starts_with(begins)) {
        true => Leaf::Hidden,
        false => Leaf::Shown,
    }
}

/// Classifies a function at the leaf of a thread's stack.
pub fn leaf_of_thread(function: &str, file: &str) -> Leaf {
    const HOW: [&str; 9] = [
        "plimsoll_sys::arch::",
        "plimsoll_sys::os::",
        "plimsoll_core::stack::",
        "plimsoll_tasks::task::",
        "plimsoll_threads::thread::",
        "plimsoll_profiles::profile::",
        "plimsoll_interpose",
        "__futex_",
        "__lll_lock_wait",
    ];
    if function == "syscall" || HOW.iter().any(|begins| function.starts_with(begins)) {
        Leaf::Hidden
    } else {
        leaf(function, file)
    }
}

/// Classifies a function at the leaf of the stack of a thread creation.
pub fn leaf_of_creation(function: &str, file: &str) -> Leaf {
    const HOW: [&str; 6] = [
        "std::sys::",
        "std::thread::",
        "plimsoll_threads::thread::",
        "pthread_create",
        "thrd_create",
        "plimsoll_interpose",
    ];
    let name = plimsoll_symbolize::without_types(function);
    if HOW.iter().any(|begins| name.starts_with(begins)) {
        Leaf::Hidden
    } else if name.starts_with("core::") || file.contains("/library/core/src/") {
        Leaf::Glue
    } else {
        Leaf::Shown
    }
}

/// Parts of the names of functions in which threads wait for others, with the awaited object. The
/// first match wins.
const WAITS_IN: [(&str, WaitKind); 25] = [
    ("futex::Mutex::lock", WaitKind::Mutex),
    ("futex::RwLock::read", WaitKind::RwLockRead),
    ("futex::RwLock::write", WaitKind::RwLockWrite),
    ("futex::Condvar::wait", WaitKind::Condvar),
    ("futex::Once::", WaitKind::Once),
    ("parking_lot::raw_mutex::RawMutex::lock", WaitKind::Mutex),
    ("raw_rwlock::RawRwLock::lock_shared", WaitKind::RwLockRead),
    ("raw_rwlock::RawRwLock::", WaitKind::RwLockWrite),
    ("Condvar::wait", WaitKind::Condvar),
    ("std::sync::poison::mutex::Mutex::lock", WaitKind::Mutex),
    (
        "std::sync::poison::rwlock::RwLock::read",
        WaitKind::RwLockRead,
    ),
    (
        "std::sync::poison::rwlock::RwLock::write",
        WaitKind::RwLockWrite,
    ),
    ("pthread_mutex_", WaitKind::Mutex),
    ("__lll_lock_wait", WaitKind::Mutex),
    ("pthread_rwlock_rdlock", WaitKind::RwLockRead),
    ("pthread_rwlock_wrlock", WaitKind::RwLockWrite),
    ("pthread_cond_", WaitKind::Condvar),
    ("pthread_barrier_wait", WaitKind::Barrier),
    ("sem_wait", WaitKind::Semaphore),
    ("sem_timedwait", WaitKind::Semaphore),
    ("sem_clockwait", WaitKind::Semaphore),
    ("std::sync::barrier::Barrier", WaitKind::Barrier),
    ("Parker::park", WaitKind::Park),
    ("std::thread::park", WaitKind::Park),
    ("std::thread::functions::park", WaitKind::Park),
];

/// Returns the kind of object that a thread awaits. The thread's stack has these names, and it
/// waits for another thread.
pub(super) fn awaited_object<'a, N: Iterator<Item = &'a str>>(
    names: impl Fn() -> N,
) -> &'static str {
    // The C library's join waits for a word that the kernel clears.
    if names().any(|name| name.starts_with("pthread_join") || name.contains("pthread_clockjoin")) {
        return "join";
    }
    let found = names().find_map(|name| {
        let plain = plimsoll_symbolize::without_types(name);
        let waits = WAITS_IN.iter().find(|(part, _)| plain.contains(part));
        waits.map(|&(_, kind)| kind)
    });
    describe(found.unwrap_or(WaitKind::Other), names()).kind
}

/// Parts of the names of functions in which tasks wait, with the awaited object. The first match
/// wins.
const TASKS_WAIT_IN: [(&str, &str); 36] = [
    ("tokio::time::sleep", "sleep"),
    ("tokio::time::interval", "sleep"),
    ("async_io::Timer", "sleep"),
    ("futures_timer::", "sleep"),
    ("tokio::task::yield_now", "yield"),
    ("tokio::task::coop", "yield"),
    ("tokio::sync::mpsc::", "channel"),
    ("tokio::sync::oneshot::", "channel"),
    ("tokio::sync::broadcast::", "channel"),
    ("tokio::sync::watch::", "channel"),
    ("tokio::sync::notify::", "notify"),
    ("tokio::sync::mutex::", "mutex"),
    ("sync::tokio::mutex::", "mutex"),
    ("tokio::sync::rwlock::RwLock::read", "rwlock read"),
    ("sync::tokio::rwlock::RwLock::read", "rwlock read"),
    ("tokio::sync::rwlock::", "rwlock write"),
    ("sync::tokio::rwlock::", "rwlock write"),
    ("tokio::sync::barrier::", "barrier"),
    ("tokio::sync::once_cell::", "once"),
    ("tokio::sync::semaphore::", "semaphore"),
    ("tokio::runtime::task::join::JoinHandle", "join"),
    ("tokio::task::join_set::", "join"),
    ("tokio_util::sync::cancellation_token", "cancellation"),
    ("tokio::runtime::io::", "io"),
    ("tokio::net::", "io"),
    ("tokio::io::", "io"),
    ("tokio::process::", "process"),
    ("tokio::signal::", "signal"),
    ("tokio::fs::", "io"),
    ("async_io::", "io"),
    ("async_channel::", "channel"),
    ("async_lock::mutex::", "mutex"),
    ("flume::", "channel"),
    ("futures_channel::", "channel"),
    ("async_task::task::Task", "join"),
    ("event_listener::", "notify"),
];

/// Returns the kind of object that a task awaits, from the names in its stack. The innermost known
/// name decides, unless it is part of an outer known one.
pub(super) fn for_what<'a>(names: impl Iterator<Item = &'a str>) -> &'static str {
    // tokio's mutex waits on a semaphore, which waits on a list.
    let mut found = None;
    for name in names {
        let plain = plimsoll_symbolize::without_types(name);
        if let Some(&(_, what)) = TASKS_WAIT_IN.iter().find(|(part, _)| plain.contains(part)) {
            match found {
                None | Some("notify" | "semaphore" | "yield") => found = Some(what),
                Some(_) => {}
            }
        }
        if plain.contains("plimsoll_tasks::task::tracked::") {
            break;
        }
    }
    found.unwrap_or("other")
}

/// The description of a wait in profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Described {
    /// The value of the label `kind`.
    pub kind: &'static str,
    /// Whether the thread is idle: it waits for work, and no other thread blocks it.
    pub idle: bool,
}

/// Parts of names, with the description of a wait whose stack contains them. The first match wins.
const IN_STACK: [(&str, Described); 14] = {
    const fn waits(kind: &'static str) -> Described {
        Described { kind, idle: false }
    }
    const IDLE: Described = Described {
        kind: "runtime idle",
        idle: true,
    };
    /// The thread polls the system for events on behalf of its runtime.
    const IO_DRIVER: Described = Described {
        kind: "io driver",
        idle: true,
    };
    [
        ("async_io::driver::", IO_DRIVER),
        ("tokio::runtime::io::driver::", IO_DRIVER),
        ("tokio::runtime::blocking::pool::Inner", IDLE),
        ("tokio::runtime::park::", IDLE),
        ("::park::Parker", IDLE),
        ("multi_thread::worker::Context::park", IDLE),
        ("rayon_core::sleep::", IDLE),
        ("threadpool::spawn_in_pool", IDLE),
        ("std::sync::mpmc::", waits("channel")),
        ("std::sync::mpsc::", waits("channel")),
        ("crossbeam_channel::", waits("channel")),
        ("flume::", waits("channel")),
        ("std::sync::barrier::Barrier", waits("barrier")),
        ("std::sync::once", waits("once")),
    ]
};

const SCOPE: [&str; 2] = ["std::thread::scoped::scope", "std::thread::scope"];

/// Crates that wait for others on behalf of their caller, or lie between those that do; beside all of Plimsoll.
const WAIT_FOR_OTHERS: [&str; 32] = [
    "alloc",
    "async_executor",
    "async_global_executor",
    "async_io",
    "async_std",
    "blocking",
    "core",
    "crossbeam",
    "crossbeam_channel",
    "crossbeam_utils",
    "event_listener",
    "event_listener_strategy",
    "flume",
    "futures",
    "futures_executor",
    "futures_lite",
    "futures_util",
    "lock_api",
    "mio",
    "once_cell",
    "parking",
    "parking_lot",
    "parking_lot_core",
    "piper",
    "polling",
    "pollster",
    "rayon",
    "rayon_core",
    "smol",
    "std",
    "threadpool",
    "tokio",
];

/// Reports whether a function of that name belongs to a crate outside [`WAIT_FOR_OTHERS`]. Such a
/// function hides its callers: a job of a pool may wait for anything, and its pool is not idle.
fn is_of_program(name: &str) -> bool {
    // `<T as crate::Trait>::f` belongs to the trait's crate, `<crate::Type as Trait>::f` to the
    // type's.
    let mut path = name.trim_start_matches(|sign: char| !sign.is_alphanumeric() && sign != '_');
    for word in ["dyn ", "mut ", "const "] {
        path = path.strip_prefix(word).unwrap_or(path);
    }
    match path.split_once(" as ") {
        Some((head, of_trait)) if !head.contains("::") => path = of_trait,
        _ => {}
    }
    // A name without a crate is a C function, or an inlined function of a build that keeps only
    // line tables.
    let first = path.split_once("::").map(|(first, _)| first);
    first.is_some_and(|first| {
        let is_own = first == "plimsoll" || first.starts_with("plimsoll_");
        !is_own && WAIT_FOR_OTHERS.binary_search(&first).is_err()
    })
}

/// Describes a wait of a kind in a stack with these names.
pub fn describe<'a>(kind: WaitKind, names: impl Iterator<Item = &'a str>) -> Described {
    let plainly = Described {
        kind: kind.name(),
        idle: false,
    };
    // A lock or a message keeps its kind in every stack. Only the other kinds may be part of
    // something larger.
    if !matches!(kind, WaitKind::Other | WaitKind::Condvar | WaitKind::Park) {
        return plainly;
    }
    let mut best = IN_STACK.len();
    let mut below = "";
    for name in names.take_while(|name| !is_of_program(name)) {
        // At its end, a scope waits for the threads started in it. Code inside a scope may wait for
        // anything.
        if name.starts_with("std::thread::scope")
            && below.contains("park")
            && SCOPE.contains(&plimsoll_symbolize::without_types(name).as_str())
        {
            return Described {
                kind: "scope",
                idle: false,
            };
        }
        below = name;
        let plain = plimsoll_symbolize::without_types(name);
        let found = IN_STACK[..best]
            .iter()
            .position(|(part, _)| plain.contains(part));
        best = found.unwrap_or(best);
    }
    IN_STACK
        .get(best)
        .map_or(plainly, |&(_, described)| described)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_plimsoll_hide_no_callers() {
        for name in [
            "plimsoll::start",
            "plimsoll_waits::contention::wait",
            "plimsoll_profiles::hook::futex::wait",
        ] {
            assert!(!is_of_program(name), "{name}");
        }
        assert!(is_of_program("plimsolls::run") && is_of_program("app::plimsoll::run"));
    }

    #[test]
    fn the_primitive_is_the_leaf() {
        for name in [
            "std::sys::pal::unix::futex::futex_wait",
            "<std::sys::sync::mutex::futex::Mutex>::lock_contended",
            "parking_lot::raw_mutex::RawMutex::lock_slow",
            "<parking_lot::raw_mutex::RawMutex as lock_api::mutex::RawMutex>::lock",
            "parking_lot_core::parking_lot::park::{{closure}}",
            "std::sync::mpmc::context::Context::wait_until",
            "plimsoll_waits::sync::contended::wait",
            "<plimsoll_waits::sync::lock_api::mutex::RawMutex<R> as lock_api::mutex::RawMutex>::lock",
            "<plimsoll_waits::sync::tokio::waiting::Waiting<A,F> as core::future::future::Future>::poll",
            "plimsoll_waits::sync::tokio::permits::Permits::take::{{closure}}",
        ] {
            assert_eq!(leaf(name, ""), Leaf::Hidden, "{name}");
        }
        for name in [
            "std::sync::poison::mutex::Mutex<T>::lock",
            "<std::sync::poison::mutex::MutexGuard<T> as core::ops::drop::Drop>::drop",
            "lock_api::mutex::Mutex<R,T>::lock",
            "plimsoll_waits::sync::mutex::Mutex<T>::lock",
            "plimsoll_waits::sync::tokio::mutex::Mutex<T>::lock::{{closure}}",
            "<plimsoll_waits::sync::mutex::MutexGuard<T> as core::ops::drop::Drop>::drop",
            "std::sync::mpsc::Receiver<T>::recv",
            "std::sync::poison::condvar::Condvar::wait",
            "main",
        ] {
            assert_eq!(leaf(name, ""), Leaf::Shown, "{name}");
        }
        // A direct call of `park` is shown; a call by a channel is hidden.
        assert_eq!(leaf("std::thread::park", ""), Leaf::Glue);
    }

    #[test]
    fn the_programs_functions_are_distinguished_from_waiting_libraries() {
        assert!(WAIT_FOR_OTHERS.is_sorted());
        for name in [
            "std::thread::park",
            "<tokio::runtime::park::Inner>::park",
            "<T as core::future::Future>::poll",
            "<&mut F as core::ops::function::FnOnce<()>>::call_once",
            "<dyn core::ops::Fn() as core::ops::function::FnOnce<()>>::call_once",
            "<alloc::boxed::Box<F> as core::ops::function::FnOnce<A>>::call_once",
            "pthread_cond_wait",
            "__pthread_cond_wait_common",
            "{async_fn#0}",
            "wait",
        ] {
            assert!(!is_of_program(name), "{name}");
        }
        for name in [
            "service::main",
            "service::main::{{closure}}",
            "<service::Job as core::ops::function::FnOnce<()>>::call_once",
            "<&service::Job as tokio::Job>::run",
            "stdlike::wait",
        ] {
            assert!(is_of_program(name), "{name}");
        }
    }

    #[test]
    fn names_tell_channels_and_idle_workers() {
        let kind = |kind, names: &[&str]| describe(kind, names.iter().copied());
        let channel = kind(
            WaitKind::Park,
            &[
                "std::thread::park",
                "std::sync::mpmc::context::Context::wait_until",
                "std::sync::mpsc::Receiver<T>::recv",
                "main",
            ],
        );
        assert_eq!((channel.kind, channel.idle), ("channel", false));
        let idle = kind(
            WaitKind::Condvar,
            &[
                "std::sync::poison::condvar::Condvar::wait",
                "tokio::runtime::scheduler::multi_thread::park::Parker::park",
                "tokio::runtime::scheduler::multi_thread::worker::run",
            ],
        );
        assert_eq!((idle.kind, idle.idle), ("runtime idle", true));
        let driver = kind(
            WaitKind::Condvar,
            &[
                "parking::Inner::park",
                "async_io::driver::main_loop",
                "std::thread::spawn",
            ],
        );
        assert_eq!((driver.kind, driver.idle), ("io driver", true));
        let scope = ["std::thread::park", "std::thread::scoped::scope", "main"];
        assert_eq!(kind(WaitKind::Park, &scope).kind, "scope");
        let within = [
            "std::sync::poison::condvar::Condvar::wait",
            "main::{{closure}}",
            "std::thread::scoped::scope",
        ];
        assert_eq!(kind(WaitKind::Condvar, &within).kind, "condvar");
        let lock = kind(
            WaitKind::Mutex,
            &["tokio::runtime::blocking::pool::Inner::run"],
        );
        assert_eq!((lock.kind, lock.idle), ("mutex", false));
        let message = kind(
            WaitKind::Channel,
            &["tokio::runtime::park::CachedParkThread::block_on"],
        );
        assert_eq!((message.kind, message.idle), ("channel", false));
        assert_eq!(kind(WaitKind::Condvar, &["main"]).kind, "condvar");
        let job = [
            "std::sync::poison::condvar::Condvar::wait",
            "service::wait_for_answer",
            "<tokio::runtime::blocking::task::BlockingTask<T> as Future>::poll",
            "tokio::runtime::blocking::pool::Inner::run",
        ];
        let waits = kind(WaitKind::Condvar, &job);
        assert_eq!((waits.kind, waits.idle), ("condvar", false));
        let first = [
            "std::thread::park",
            "<service::A as B>::c",
            "std::sync::once_lock::OnceLock",
        ];
        assert_eq!(kind(WaitKind::Park, &first).kind, "park");
        assert_eq!(kind(WaitKind::Other, &[]).kind, "other");
    }
}
