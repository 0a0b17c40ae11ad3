//! The release of a lock is charged for its waiters: each lock in each of its modes.

use std::hint::black_box;
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::contention::scene::{
    HELD, Moment, Waiter, all_blamed, all_waited, alone, came, is_nameless, sum,
};
use plimsoll_testkit::pprof::Profile;

const WAITERS: usize = 4;

/// A lock in one of its modes, which one thread holds and others want.
trait Lock: Sync {
    /// The label `kind` of the waits for the lock.
    const KIND: &'static str;

    fn held(&self, then: impl FnOnce());
    fn wanted(&self, then: impl FnOnce());
}

#[inline(never)]
fn holder(lock: &impl Lock, then: impl FnOnce()) {
    lock.held(then);
    black_box(());
}

#[inline(never)]
fn waiter(lock: &impl Lock) {
    lock.wanted(|| ());
    black_box(());
}

/// One thread holds the lock until all others wait, and a while longer. Its release is charged for
/// all of these waits.
fn the_holder_is_to_blame<L: Lock>(lock: &L) {
    let before = Moment::quiet();
    let started = Instant::now();
    let mut wall = Duration::ZERO;
    let waiters: [Waiter; WAITERS] = Default::default();
    thread::scope(|scope| {
        holder(lock, || {
            for it in &waiters {
                scope.spawn(move || {
                    it.is_here();
                    waiter(lock);
                });
            }
            for it in &waiters {
                it.until_it_waits();
            }
            thread::sleep(HELD);
        });
        wall = started.elapsed();
    });
    let after = Moment::quiet();
    let least = 0.9 * (WAITERS as f64) * HELD.as_nanos() as f64;
    // Without names, the waits of the waiters for one another are included.
    let share = if is_nameless() { f64::INFINITY } else { 1.1 };
    let most = share * (WAITERS as f64) * wall.as_nanos() as f64;
    let (releases, blamed) = came(&before.mutex, &after.mutex, "locks::holder");
    assert!(releases >= 1, "the release is missing");
    assert!(
        least <= blamed as f64 && blamed as f64 <= most,
        "blamed {blamed} ns, not {least} to {most}"
    );
    let (waits, waited) = came(&before.block, &after.block, "locks::waiter");
    assert!(waits >= WAITERS as i64, "{waits} waits");
    let of_kind = |profile: &Profile| {
        sum(profile, |profile, sample| {
            profile.label(sample, "kind") == Some(L::KIND)
        })
    };
    let of_kind = of_kind(&after.block).0 - of_kind(&before.block).0;
    assert!(of_kind >= WAITERS as i64, "{of_kind} of their kind");
    // After the release, the waiters wait for one another.
    assert!(waited >= blamed, "waited {waited} ns");
    assert_eq!(all_blamed(&before, &after), all_waited(&before, &after));
}

macro_rules! lock {
    ($name:ident, $kind:literal, $lock:ty, $held:ident, $wanted:ident $(, $unwrap:ident)?) => {
        #[test]
        fn $name() {
            struct It($lock);
            impl Lock for It {
                const KIND: &'static str = $kind;

                fn held(&self, then: impl FnOnce()) {
                    let guard = self.0.$held()$(.$unwrap())?;
                    then();
                    drop(guard);
                }
                fn wanted(&self, then: impl FnOnce()) {
                    let guard = self.0.$wanted()$(.$unwrap())?;
                    then();
                    drop(guard);
                }
            }
            let _alone = alone();
            for _ in 0..2 {
                the_holder_is_to_blame(&It(Default::default()));
            }
        }
    };
}

lock!(std_mutex, "mutex", Mutex<u8>, lock, lock, unwrap);

lock!(
    std_rwlock_writer_and_readers,
    "rwlock read",
    RwLock<u8>,
    write,
    read,
    unwrap
);

lock!(
    std_rwlock_writer_and_writers,
    "rwlock write",
    RwLock<u8>,
    write,
    write,
    unwrap
);

lock!(
    std_rwlock_reader_and_writers,
    "rwlock write",
    RwLock<u8>,
    read,
    write,
    unwrap
);

lock!(
    parking_lot_12_mutex,
    "mutex",
    parking_lot_0_12::Mutex<u8>,
    lock,
    lock
);

lock!(
    parking_lot_12_rwlock_writer_and_readers,
    "rwlock read",
    parking_lot_0_12::RwLock<u8>,
    write,
    read
);

lock!(
    parking_lot_12_rwlock_writer_and_writers,
    "rwlock write",
    parking_lot_0_12::RwLock<u8>,
    write,
    write
);

lock!(
    parking_lot_12_rwlock_reader_and_writers,
    "rwlock write",
    parking_lot_0_12::RwLock<u8>,
    read,
    write
);

lock!(
    parking_lot_13_mutex,
    "mutex",
    parking_lot_0_13::Mutex<u8>,
    lock,
    lock
);

lock!(
    parking_lot_13_rwlock_writer_and_readers,
    "rwlock read",
    parking_lot_0_13::RwLock<u8>,
    write,
    read
);

lock!(
    parking_lot_13_rwlock_writer_and_writers,
    "rwlock write",
    parking_lot_0_13::RwLock<u8>,
    write,
    write
);

lock!(
    parking_lot_13_rwlock_reader_and_writers,
    "rwlock write",
    parking_lot_0_13::RwLock<u8>,
    read,
    write
);
