//! Cancelled threads, and locks whose memory is unmapped.

use std::thread;

use plimsoll::profile;

use crate::pthread::c::{self, Shared};
use crate::pthread::scene::{Recording, recorded, until_asleep};

extern "C" fn until_it_sleeps(thread: i32) {
    until_asleep(thread);
}

const CANCELLED: i64 = 50;

#[test]
fn a_thread_cancelled_in_a_wait_for_a_condition_has_waited() {
    let _recording = Recording::all();
    let lost = profile::lost_events();
    for _ in 0..CANCELLED {
        assert_eq!(c::c_cancels(until_it_sleeps, 0), 0);
    }
    let waited = recorded("block", "c_waits_to_be_cancelled");
    assert_eq!(waited.events, CANCELLED, "{waited:?}");
    assert_eq!(waited.kinds, ["condvar"], "{waited:?}");
    assert_eq!(profile::lost_events(), lost);
}

/// No program should do this, but the stack then has only frames of C.
#[test]
fn so_has_a_thread_cancelled_at_any_time_during_a_wait_for_a_mutex() {
    let _recording = Recording::all();
    for _ in 0..CANCELLED {
        assert_eq!(c::c_cancels(until_it_sleeps, 1), 0);
    }
    let waited = recorded("block", "c_waits_to_be_cancelled_at_any_time");
    assert_eq!(waited.events, CANCELLED, "{waited:?}");
    assert_eq!(waited.kinds, ["mutex"], "{waited:?}");
}

/// A mutex may be destroyed, and its memory unmapped, as soon as its next owner has released it.
#[test]
fn memory_of_a_lock_is_not_accessed_after_the_unlock() {
    let _recording = Recording::all();
    const TURNS: usize = 10_000;
    let (send, receive) = std::sync::mpsc::sync_channel::<Shared<_>>(1);
    thread::scope(|scope| {
        scope.spawn(move || {
            for (turn, shared) in receive.into_iter().enumerate() {
                c::c_leaves_shared(shared.get(), (turn % 2) as i32);
            }
        });
        for turn in 0..TURNS {
            let shared = c::c_makes_shared();
            assert!(!shared.is_null());
            send.send(Shared::at(shared)).unwrap();
            c::c_leaves_shared(shared, (turn / 2 % 3) as i32);
        }
        drop(send);
    });
    assert!(
        recorded("mutex", "c_leaves_shared").events > 0,
        "some waited"
    );
}
