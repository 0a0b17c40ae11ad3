//! Waits for conditions are recorded, and are charged to no thread.

use crate::pthread::c::{self, News, Shared};
use crate::pthread::scene::{HELD, Recording, WAITERS, blocked, recorded};

/// Threads wait for a condition, which is then signalled. Checks that the wait is charged to no
/// thread. `waits` and `wakes` are the names of the functions, and `leaf` is the C library's
/// function that the waiting one calls.
pub fn is_waited_for(
    _: &Recording,
    (waits, leaf, wait): (&str, &str, impl Fn() -> i32 + Sync),
    (wakes, wake): (&str, impl FnOnce() -> i32),
) {
    let before = recorded("mutex", wakes).delay;
    let wall = blocked(|| assert_eq!(wait(), 0), || assert_eq!(wake(), 0));
    let waited = recorded("block", waits);
    // A woken thread may find the mutex taken, but makes no separate call to wait for it.
    waited.is_of(WAITERS, wall);
    waited.is_at("condvar", leaf, leaf);
    assert_eq!(waited.events, WAITERS as i64, "{waited:?}");
    for function in [waits, wakes] {
        let blamed = recorded("mutex", function);
        let most = HELD / 2 * WAITERS as u32;
        assert!(blamed.delay - before < most, "{function}: {blamed:?}");
    }
}

macro_rules! waits {
    ($test:ident: $waits:ident by $leaf:literal, $wakes:ident) => {
        #[test]
        fn $test() {
            let recording = Recording::all();
            let news = Shared::<News>::news();
            is_waited_for(
                &recording,
                (stringify!($waits), $leaf, || c::$waits(news.get())),
                (stringify!($wakes), || c::$wakes(news.get())),
            );
        }
    };
}

waits!(
    waits_for_a_condition_are_charged_to_no_thread:
    c_waits_for_news by "pthread_cond_wait", c_brings_news
);
waits!(
    nor_for_those_with_a_time_limit:
    c_waits_for_news_timed by "pthread_cond_timedwait", c_brings_news
);
waits!(
    nor_for_those_with_a_clock:
    c_waits_for_news_clocked by "pthread_cond_clockwait", c_brings_news
);
waits!(
    nor_for_those_that_are_signalled_one_by_one:
    c_waits_to_be_signalled by "pthread_cond_wait", c_signals_each
);

#[test]
fn waiting_for_a_condition_is_blamed_for_giving_up_the_mutex() {
    let _recording = Recording::all();
    let news = Shared::<News>::news();
    // SAFETY: the object is never freed.
    let mutex = Shared::<libc::pthread_mutex_t>::at(unsafe { &raw mut (*news.get()).mutex });
    assert_eq!(c::c_locks(mutex.get()), 0);
    let wall = blocked(
        || assert_eq!(c::c_waits(mutex.get()), 0),
        || {
            let waited = c::c_gives_up_by_waiting(news.get());
            assert_eq!(waited, libc::ETIMEDOUT);
            // The thread owns the mutex again.
            assert_eq!(c::c_unlocks_plainly(mutex.get()), 0);
        },
    );
    let blamed = recorded("mutex", "c_gives_up_by_waiting");
    blamed.is_of(WAITERS, wall);
    blamed.is_at("mutex", "pthread_cond_timedwait", "pthread_cond_timedwait");
    assert_eq!(blamed.events, 1, "{blamed:?}");
    let waited = recorded("block", "c_gives_up_by_waiting");
    assert_eq!(waited.kinds, ["condvar"], "{waited:?}");
    assert_eq!(waited.events, 1, "{waited:?}");
}
