//! Locks and conditions of the C++ standard library, which use those of the C library, and waits in
//! it that do not.

use crate::pthread::blame::is_blamed;
use crate::pthread::c::Shared;
use crate::pthread::conditions::is_waited_for;
use crate::pthread::cpp;
use crate::pthread::scene::{Recording, WAITERS, blocked, recorded, until};

/// Returns `None` without a C++ compiler. The library is loaded while no other test runs.
fn recording() -> Option<Recording> {
    let recording = Recording::all();
    cpp::is_there().then_some(recording)
}

macro_rules! blames {
    ($test:ident: $kind:literal, $makes:ident, $hold:ident, $waits:ident by $wait_leaf:literal,
     $releases:ident by $release_leaf:literal) => {
        #[test]
        fn $test() {
            let Some(recording) = recording() else { return };
            let lock = Shared::at(cpp::$makes());
            is_blamed(
                &recording,
                $kind,
                || cpp::$hold(lock.get()),
                (stringify!($waits), $wait_leaf, || cpp::$waits(lock.get())),
                (stringify!($releases), $release_leaf, || {
                    cpp::$releases(lock.get())
                }),
            );
        }
    };
}

blames!(
    unlocking_a_mutex_of_cpp_is_charged_for_all_waiters: "mutex",
    cpp_makes_mutex, cpp_locks,
    cpp_waits by "pthread_mutex_lock", cpp_unlocks by "pthread_mutex_unlock"
);
blames!(
    a_recursive_mutex_of_cpp: "mutex",
    cpp_makes_recursive, cpp_locks_recursive,
    cpp_waits_recursive by "pthread_mutex_lock", cpp_unlocks_recursive by "pthread_mutex_unlock"
);
blames!(
    a_timed_mutex_of_cpp: "mutex",
    cpp_makes_timed, cpp_locks_timed,
    cpp_waits_timed by "pthread_mutex_clocklock", cpp_unlocks_timed by "pthread_mutex_unlock"
);
blames!(
    a_writer_of_cpp_is_blamed_for_readers: "rwlock read",
    cpp_makes_shared, cpp_writes,
    cpp_waits_to_read by "pthread_rwlock_rdlock", cpp_stops_writing by "pthread_rwlock_unlock"
);
blames!(
    a_writer_of_cpp_is_blamed_for_writers: "rwlock write",
    cpp_makes_shared, cpp_writes,
    cpp_waits_to_write_after by "pthread_rwlock_wrlock",
    cpp_stops_writing_for_writers by "pthread_rwlock_unlock"
);
blames!(
    a_reader_of_cpp_is_blamed_for_writers: "rwlock write",
    cpp_makes_shared, cpp_reads,
    cpp_waits_to_write by "pthread_rwlock_wrlock", cpp_stops_reading by "pthread_rwlock_unlock"
);

macro_rules! waits {
    ($test:ident: $waits:ident by $leaf:literal, $wakes:ident) => {
        #[test]
        fn $test() {
            let Some(recording) = recording() else { return };
            let news = Shared::at(cpp::cpp_makes_news());
            is_waited_for(
                &recording,
                (stringify!($waits), $leaf, || cpp::$waits(news.get())),
                (stringify!($wakes), || cpp::$wakes(news.get())),
            );
        }
    };
}

// The first is a function of the shared library, the second is compiled into its caller.
waits!(
    waits_for_a_condition_of_cpp_are_charged_to_no_thread:
    cpp_waits_for_news by "pthread_cond_wait", cpp_brings_news
);
waits!(
    nor_for_those_with_a_time_limit:
    cpp_waits_for_news_timed by "pthread_cond_clockwait", cpp_brings_news_timed
);

/// These make futex calls through the C library's `syscall`, which Plimsoll also interposes without
/// the feature `pthread`. Nothing shows the purpose of such a call.
macro_rules! waits_for_something {
    ($test:ident: $makes:ident, $waits:ident, $wakes:ident) => {
        #[test]
        fn $test() {
            let Some(_recording) = recording() else {
                return;
            };
            let awaited = Shared::at(cpp::$makes());
            let wall = blocked(
                || assert_eq!(cpp::$waits(awaited.get()), 0),
                || assert_eq!(cpp::$wakes(awaited.get()), 0),
            );
            let waited = recorded("block", stringify!($waits));
            waited.is_of(WAITERS, wall);
            assert_eq!(waited.kinds, ["other"], "{waited:?}");
            assert_eq!(waited.events, WAITERS as i64, "{waited:?}");
            assert_eq!(recorded("mutex", stringify!($wakes)).events, 0);
        }
    };
}

waits_for_something!(
    waits_for_an_atomic_of_cpp_are_of_no_kind:
    cpp_makes_number, cpp_waits_for_a_number, cpp_sets_a_number
);
waits_for_something!(
    so_are_those_for_a_promise:
    cpp_makes_promise, cpp_waits_for_a_promise, cpp_keeps_a_promise
);

/// `std::call_once` uses `pthread_once`, whose futex calls the C library makes internally.
#[test]
fn waits_for_a_once_initialisation_are_not_observed() {
    let Some(_recording) = recording() else {
        return;
    };
    let once = Shared::at(cpp::cpp_makes_once());
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(cpp::cpp_does_it_once(once.get()), 0));
        until(|| cpp::cpp_has_begun(once.get()) != 0);
        blocked(
            || assert_eq!(cpp::cpp_waits_until_it_is_done(once.get()), 0),
            || assert_eq!(cpp::cpp_lets_it_end(once.get()), 0),
        );
    });
    assert_eq!(recorded("block", "cpp_waits_until_it_is_done").events, 0);
}
