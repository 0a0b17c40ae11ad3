//! A reader that got the lock no longer waits, even if it has not run since. No release is charged
//! for that time.

use std::ffi::c_int;
use std::hint::black_box;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

use plimsoll::sync::RwLock;

use crate::sync::scene::{Recording, recorded, until, until_asleep};

static IS_HELD: AtomicBool = AtomicBool::new(false);
static MAY_GO_ON: AtomicBool = AtomicBool::new(false);

extern "C" fn holds_up(_: c_int) {
    IS_HELD.store(true, Ordering::Release);
    while !MAY_GO_ON.load(Ordering::Acquire) {
        // SAFETY: has no preconditions, even in a signal handler.
        unsafe { libc::usleep(1000) };
    }
}

/// Keeps a thread of this process in a signal handler until the value is dropped.
struct HeldUp(());

impl HeldUp {
    fn new(id: i32) -> Self {
        IS_HELD.store(false, Ordering::Release);
        MAY_GO_ON.store(false, Ordering::Release);
        // SAFETY: an action of zeros has no flags and an empty mask; the handler makes only calls
        // that a handler may.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = holds_up as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut()), 0);
            let sent = libc::syscall(libc::SYS_tgkill, libc::getpid(), id, libc::SIGUSR1);
            assert_eq!(sent, 0);
        }
        until(|| IS_HELD.load(Ordering::Acquire));
        Self(())
    }
}

impl Drop for HeldUp {
    fn drop(&mut self) {
        MAY_GO_ON.store(true, Ordering::Release);
    }
}

/// A writer lets in a reader, which is held up. Another reader takes and releases the lock.
macro_rules! blames_no_reader {
    ($test:ident: $write:expr, $waits:ident $read:expr, $stops_writing:ident, $reads:ident) => {
        #[test]
        fn $test() {
            // No function ends with a call, because a tail call leaves no frame. No two functions
            // have the same body, because the compiler would merge them.
            #[inline(never)]
            fn $waits<G>(lock: impl FnOnce() -> G) {
                drop(lock());
                black_box(stringify!($waits));
            }
            #[inline(never)]
            fn $stops_writing<G>(guard: G) {
                drop(black_box(guard));
                black_box(stringify!($stops_writing));
            }
            #[inline(never)]
            fn $reads<G>(lock: impl FnOnce() -> G) {
                drop(black_box(lock()));
                black_box(stringify!($reads));
            }
            let _recording = Recording::all();
            let writes = $write;
            let id = AtomicI32::new(0);
            thread::scope(|scope| {
                scope.spawn(|| {
                    // SAFETY: has no preconditions.
                    id.store(unsafe { libc::gettid() }, Ordering::Release);
                    $waits($read);
                });
                until(|| id.load(Ordering::Acquire) != 0);
                until_asleep(id.load(Ordering::Acquire));
                let _held_up = HeldUp::new(id.load(Ordering::Acquire));
                $stops_writing(writes);
                $reads($read);
            });

            let blamed = recorded("mutex", stringify!($stops_writing));
            let waited = recorded("block", stringify!($waits));
            assert_eq!((blamed.events, waited.events), (1, 1));
            assert_eq!(blamed.delay, waited.delay);
            assert_eq!(recorded("mutex", stringify!($reads)).events, 0);
        }
    };
}

static LOCK: RwLock<()> = RwLock::new(());
blames_no_reader!(
    a_reader_is_not_blamed_for_one_that_was_let_in:
    LOCK.write().unwrap(),
    waits_to_read_and_is_held_up || LOCK.read().unwrap(),
    lets_a_reader_in,
    reads_meanwhile
);

#[cfg(feature = "lock_api")]
mod parking_lot {
    use super::*;
    use plimsoll::sync::lock_api::RawRwLock;

    static LOCK: lock_api::RwLock<RawRwLock<parking_lot_0_12::RawRwLock>, ()> =
        lock_api::RwLock::new(());
    blames_no_reader!(
        a_reader_of_parking_lot_is_not_blamed_for_one_that_was_let_in:
        LOCK.write(),
        waits_to_read_parking_lot_and_is_held_up || LOCK.read(),
        lets_a_reader_of_parking_lot_in,
        reads_parking_lot_meanwhile
    );
}
