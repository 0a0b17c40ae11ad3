//! Conditions are waited for, and nobody is blamed for that.

use crate::c::{self, News, Shared};
use crate::scene::{HELD, Recording, WAITERS, blocked, told};

/// Has threads wait for what is then announced: what is waited for is the condition, which nobody
/// is blamed for. Functions are given with their names, and that which waits with the function of
/// the C library that does.
pub fn is_waited_for(
    _: &Recording,
    (waits, leaf, wait): (&str, &str, impl Fn() -> i32 + Sync),
    (wakes, wake): (&str, impl FnOnce() -> i32),
) {
    let before = told("mutex", wakes).delay;
    let wall = blocked(|| assert_eq!(wait(), 0), || assert_eq!(wake(), 0));
    let waited = told("block", waits);
    // Who is woken may find the mutex taken, but not wait for it by a call of its own.
    waited.is_of(WAITERS, wall);
    waited.is_at("condvar", leaf, leaf);
    assert_eq!(waited.events, WAITERS as i64, "{waited:?}");
    for function in [waits, wakes] {
        let blamed = told("mutex", function);
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
    nobody_is_blamed_for_waits_for_a_condition:
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
    // SAFETY: it is there.
    let mutex = Shared::<libc::pthread_mutex_t>::at(unsafe { &raw mut (*news.get()).mutex });
    assert_eq!(c::c_locks(mutex.get()), 0);
    let wall = blocked(
        || assert_eq!(c::c_waits(mutex.get()), 0),
        || {
            let waited = c::c_gives_up_by_waiting(news.get());
            assert_eq!(waited, libc::ETIMEDOUT);
            // It has the mutex again.
            assert_eq!(c::c_unlocks_plainly(mutex.get()), 0);
        },
    );
    let blamed = told("mutex", "c_gives_up_by_waiting");
    blamed.is_of(WAITERS, wall);
    blamed.is_at("mutex", "pthread_cond_timedwait", "pthread_cond_timedwait");
    assert_eq!(blamed.events, 1, "{blamed:?}");
    let waited = told("block", "c_gives_up_by_waiting");
    assert_eq!(waited.kinds, ["condvar"], "{waited:?}");
    assert_eq!(waited.events, 1, "{waited:?}");
}
