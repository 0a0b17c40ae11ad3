//! The block and mutex profiles, held against what was done with locks that know nothing of them.
#![cfg(feature = "interpose")]

mod pprof;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Barrier, Condvar, Mutex, OnceLock, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::profile::Detail;
use pprof::{Profile, Sample};

/// How long a lock is held once all who want it wait.
const HELD: Duration = Duration::from_millis(20);

const WAITERS: usize = 4;

/// Held by the test that is running.
struct Alone;

/// Profiles are the process's: one test at a time. Not by a lock, which would be in them, and whose
/// release may still be on its way there when the next test looks.
fn alone() -> Alone {
    while ALONE.swap(true, Ordering::Acquire) {
        thread::sleep(Duration::from_millis(1));
    }
    plimsoll::profile::set_block_rate(1);
    plimsoll::profile::set_mutex_fraction(1);
    Alone
}

static ALONE: AtomicBool = AtomicBool::new(false);

impl Drop for Alone {
    fn drop(&mut self) {
        ALONE.store(false, Ordering::Release);
    }
}

/// Both profiles at a moment.
struct Moment {
    block: Profile,
    mutex: Profile,
}

impl Moment {
    fn now() -> Self {
        Self {
            block: Profile::of_all("block", Detail::Names),
            mutex: Profile::of_all("mutex", Detail::Names),
        }
    }

    /// When nothing comes any more: neither from the threads of the test before, nor of waits that
    /// were ended, but whose threads have yet to say so.
    fn quiet() -> Self {
        let deadline = Instant::now() + Duration::from_secs(30);
        let everything = |moment: &Self| {
            (
                sum(&moment.block, |_, _| true),
                sum(&moment.mutex, |_, _| true),
            )
        };
        let mut moment = Self::now();
        loop {
            thread::sleep(Duration::from_millis(3));
            let before = std::mem::replace(&mut moment, Self::now());
            if everything(&before) == everything(&moment) {
                return moment;
            }
            assert!(Instant::now() < deadline, "there is always something");
        }
    }
}

/// Contentions and delay of the samples that `wanted` picks.
fn sum(profile: &Profile, wanted: impl Fn(&Profile, &Sample) -> bool) -> (i64, i64) {
    let samples = profile
        .sample
        .iter()
        .filter(|sample| wanted(profile, sample));
    samples.fold((0, 0), |(count, delay), sample| {
        (count + sample.value[0], delay + sample.value[1])
    })
}

/// What came to the samples with `function` in their stack; to all of them where there are no
/// names.
fn came(before: &Profile, after: &Profile, function: &str) -> (i64, i64) {
    let nameless = is_nameless();
    let within = |profile: &Profile, sample: &Sample| {
        let mut names = profile.names(sample).into_iter();
        nameless || names.any(|name| name.contains(function))
    };
    let (count, delay) = sum(after, within);
    let (count_before, delay_before) = sum(before, within);
    (count - count_before, delay - delay_before)
}

fn is_nameless() -> bool {
    std::env::var_os(STRIPPED).is_some()
}

fn is_lock(profile: &Profile, sample: &Sample) -> bool {
    profile
        .label(sample, "kind")
        .is_some_and(|kind| kind == "mutex" || kind.starts_with("rwlock"))
}

fn thread_id() -> i32 {
    // SAFETY: always callable.
    unsafe { libc::gettid() }
}

/// Waits until a thread sleeps in a futex call.
fn until_it_waits(thread: i32) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let read = |what| std::fs::read_to_string(format!("/proc/self/task/{thread}/{what}"));
    loop {
        let call = read("syscall").unwrap_or_default();
        let stat = read("stat").unwrap_or_default();
        let sleeps = stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('S'));
        if sleeps && call.starts_with(&format!("{} ", libc::SYS_futex)) {
            return;
        }
        assert!(Instant::now() < deadline, "it does not wait: {call}");
        thread::yield_now();
    }
}

/// A lock in one of its modes, held by somebody and wanted by others.
trait Lock: Sync {
    /// What the others wait for.
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

/// One holds the lock until all others wait, and then for a while: that release is to blame for it
/// all.
fn the_holder_is_to_blame<L: Lock>(lock: &L) {
    let before = Moment::quiet();
    let started = Instant::now();
    let mut wall = Duration::ZERO;
    thread::scope(|scope| {
        holder(lock, || {
            let (say, said) = mpsc::channel();
            for _ in 0..WAITERS {
                let say = say.clone();
                scope.spawn(move || {
                    say.send(thread_id()).unwrap();
                    waiter(lock);
                });
            }
            for _ in 0..WAITERS {
                until_it_waits(said.recv().unwrap());
            }
            thread::sleep(HELD);
        });
        wall = started.elapsed();
    });
    let after = Moment::quiet();
    let least = 0.9 * (WAITERS as f64) * HELD.as_nanos() as f64;
    // Where there are no names, for those as well who then wait for one another.
    let share = if is_nameless() { f64::INFINITY } else { 1.1 };
    let most = share * (WAITERS as f64) * wall.as_nanos() as f64;
    let (releases, blamed) = came(&before.mutex, &after.mutex, "contention::holder");
    assert!(releases >= 1, "the release is not there");
    assert!(
        least <= blamed as f64 && blamed as f64 <= most,
        "blamed {blamed} ns, not {least} to {most}"
    );
    let (waits, waited) = came(&before.block, &after.block, "contention::waiter");
    assert!(waits >= WAITERS as i64, "{waits} waits");
    let of_kind = |profile: &Profile| {
        sum(profile, |profile, sample| {
            profile.label(sample, "kind") == Some(L::KIND)
        })
    };
    let of_kind = of_kind(&after.block).0 - of_kind(&before.block).0;
    assert!(of_kind >= WAITERS as i64, "{of_kind} of their kind");
    // Afterwards they wait for one another.
    assert!(waited >= blamed, "waited {waited} ns");
    assert_eq!(all_blamed(&before, &after), all_waited(&before, &after));
}

fn all_blamed(before: &Moment, after: &Moment) -> i64 {
    sum(&after.mutex, |_, _| true).1 - sum(&before.mutex, |_, _| true).1
}

fn all_waited(before: &Moment, after: &Moment) -> i64 {
    sum(&after.block, is_lock).1 - sum(&before.block, is_lock).1
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

/// Random work of several threads on several locks of all kinds.
#[test]
fn what_is_blamed_is_what_was_waited_to_the_nanosecond() {
    let _alone = alone();
    let before = Moment::quiet();
    for (round, threads) in [2, 4, 12].into_iter().enumerate() {
        let mutexes: [Mutex<u64>; 2] = Default::default();
        let rwlocks: [RwLock<u64>; 2] = Default::default();
        let parking_mutexes: [parking_lot_0_12::Mutex<u64>; 2] = Default::default();
        let parking_rwlock = parking_lot_0_13::RwLock::new(0u64);
        thread::scope(|scope| {
            for number in 0..threads {
                let (mutexes, rwlocks) = (&mutexes, &rwlocks);
                let (parking_mutexes, parking_rwlock) = (&parking_mutexes, &parking_rwlock);
                scope.spawn(move || {
                    let mut random = (1 + number + 100 * round) as u64;
                    for _ in 0..2_000 {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        let pick = (random >> 33) as usize;
                        let busy = || {
                            if pick % 7 == 0 {
                                thread::yield_now();
                            }
                        };
                        match pick % 6 {
                            0 => {
                                let mut guard = mutexes[pick / 6 % 2].lock().unwrap();
                                *guard += 1;
                                busy();
                            }
                            1 => {
                                let mut guard = rwlocks[pick / 6 % 2].write().unwrap();
                                *guard += 1;
                                busy();
                            }
                            2 => {
                                let guard = rwlocks[pick / 6 % 2].read().unwrap();
                                black_box(*guard);
                                busy();
                            }
                            3 => {
                                let mut guard = parking_mutexes[pick / 6 % 2].lock();
                                *guard += 1;
                                busy();
                            }
                            4 => {
                                let mut guard = parking_rwlock.write();
                                *guard += 1;
                                busy();
                            }
                            _ => {
                                let guard = parking_rwlock.read();
                                black_box(*guard);
                                busy();
                            }
                        }
                    }
                });
            }
        });
    }
    let after = Moment::quiet();
    assert_eq!(all_blamed(&before, &after), all_waited(&before, &after));
    let (releases, _) = sum(&after.mutex, |_, _| true);
    let (waits, _) = sum(&after.block, is_lock);
    let (releases_before, _) = sum(&before.mutex, |_, _| true);
    let (waits_before, _) = sum(&before.block, is_lock);
    assert!(releases > releases_before, "nobody had to wait");
    assert!(waits > waits_before);
    assert_eq!(plimsoll::profile::lost_events().waits, 0);
}

#[test]
fn waits_for_conditions_blame_nobody() {
    let _alone = alone();
    let before = Moment::now();

    #[inline(never)]
    fn std_notifier(pair: &(Mutex<bool>, Condvar), waiter: i32) {
        until_it_waits(waiter);
        thread::sleep(HELD);
        let mut ready = pair.0.lock().unwrap();
        *ready = true;
        // With the lock held: whoever is woken has to wait for that as well.
        pair.1.notify_all();
        drop(ready);
        black_box(());
    }
    let pair = (Mutex::new(false), Condvar::new());
    thread::scope(|scope| {
        let (say, said) = mpsc::channel();
        let pair = &pair;
        scope.spawn(move || {
            say.send(thread_id()).unwrap();
            let mut ready = pair.0.lock().unwrap();
            while !*ready {
                ready = pair.1.wait(ready).unwrap();
            }
        });
        std_notifier(pair, said.recv().unwrap());
    });

    #[inline(never)]
    fn parking_notifier(
        pair: &(parking_lot_0_12::Mutex<bool>, parking_lot_0_12::Condvar),
        waiter: i32,
    ) {
        until_it_waits(waiter);
        thread::sleep(HELD);
        let mut ready = pair.0.lock();
        *ready = true;
        // With the lock held, the waiter is moved to the queue of the lock.
        pair.1.notify_all();
        drop(ready);
        black_box(());
    }
    let pair = (
        parking_lot_0_12::Mutex::new(false),
        parking_lot_0_12::Condvar::new(),
    );
    thread::scope(|scope| {
        let (say, said) = mpsc::channel();
        let pair = &pair;
        scope.spawn(move || {
            say.send(thread_id()).unwrap();
            let mut ready = pair.0.lock();
            while !*ready {
                pair.1.wait(&mut ready);
            }
        });
        parking_notifier(pair, said.recv().unwrap());
    });

    let after = Moment::now();
    for notifier in ["std_notifier", "parking_notifier"] {
        let (_, blamed) = came(&before.mutex, &after.mutex, notifier);
        // At most the moment in which the lock was still held.
        assert!(
            blamed < HELD.as_nanos() as i64 / 2,
            "{notifier}: {blamed} ns"
        );
    }
    let conditions = |profile: &Profile| {
        sum(profile, |profile, sample| {
            profile.label(sample, "kind") == Some("condvar")
        })
    };
    let (waits, waited) = conditions(&after.block);
    let (waits_before, waited_before) = conditions(&before.block);
    assert!(waits - waits_before >= 2);
    assert!(waited - waited_before >= 2 * HELD.as_nanos() as i64);
}

/// Go's scenarios: whoever blocks is confirmed to, and then released.
mod scenarios {
    use super::*;

    #[inline(never)]
    pub fn channel_receive() {
        let (send, receive) = mpsc::channel();
        released(
            move || send.send(1).unwrap(),
            move || {
                receive.recv().unwrap();
            },
        );
    }

    #[inline(never)]
    pub fn channel_send() {
        let (send, receive) = mpsc::sync_channel(0);
        released(
            move || {
                receive.recv().unwrap();
                receive
            },
            move || send.send(1).unwrap(),
        );
    }

    #[inline(never)]
    pub fn channel_closed() {
        let (send, receive) = mpsc::channel::<u8>();
        released(
            move || drop(send),
            move || {
                receive.recv().unwrap_err();
            },
        );
    }

    #[inline(never)]
    pub fn crossbeam_receive() {
        let (send, receive) = crossbeam_channel::unbounded();
        released(
            move || send.send(1).unwrap(),
            move || {
                receive.recv().unwrap();
            },
        );
    }

    #[inline(never)]
    pub fn mutex_lock() {
        let lock = Mutex::new(());
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let (say, said) = mpsc::channel();
            let lock = &lock;
            scope.spawn(move || {
                say.send(thread_id()).unwrap();
                drop(lock.lock().unwrap());
            });
            until_it_waits(said.recv().unwrap());
            drop(guard);
        });
    }

    #[inline(never)]
    pub fn condition_wait() {
        let pair = (Mutex::new(false), Condvar::new());
        thread::scope(|scope| {
            let (say, said) = mpsc::channel();
            let pair = &pair;
            scope.spawn(move || {
                say.send(thread_id()).unwrap();
                let guard = pair.0.lock().unwrap();
                drop(pair.1.wait_while(guard, |ready| !*ready).unwrap());
            });
            until_it_waits(said.recv().unwrap());
            *pair.0.lock().unwrap() = true;
            pair.1.notify_one();
        });
    }

    #[inline(never)]
    pub fn once() {
        let once = OnceLock::new();
        thread::scope(|scope| {
            let (say, said) = mpsc::channel();
            let once = &once;
            once.get_or_init(|| {
                scope.spawn(move || {
                    say.send(thread_id()).unwrap();
                    once.get_or_init(|| 2);
                });
                until_it_waits(said.recv().unwrap());
                1
            });
        });
    }

    #[inline(never)]
    pub fn parked() {
        let parked = AtomicUsize::new(0);
        thread::scope(|scope| {
            let (say, said) = mpsc::channel();
            let parked = &parked;
            let thread = scope.spawn(move || {
                say.send(thread_id()).unwrap();
                while parked.load(Ordering::Acquire) == 0 {
                    thread::park();
                }
            });
            until_it_waits(said.recv().unwrap());
            parked.store(1, Ordering::Release);
            thread.thread().unpark();
        });
    }

    #[inline(never)]
    pub fn barrier() {
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            let (say, said) = mpsc::channel();
            let barrier = &barrier;
            scope.spawn(move || {
                say.send(thread_id()).unwrap();
                barrier.wait();
            });
            until_it_waits(said.recv().unwrap());
            barrier.wait();
        });
    }

    pub(super) fn scope() {
        // In a closure, as the others: which is what is looked for.
        thread::scope(|outer| {
            outer.spawn(|| {
                let waiter = thread_id();
                thread::scope(|inner| {
                    inner.spawn(move || until_it_waits(waiter));
                });
            });
        });
    }

    /// Has a thread do `blocks`, and `release` once it waits.
    fn released<R: Send>(release: impl FnOnce() -> R + Send, blocks: impl FnOnce() + Send) {
        thread::scope(|scope| {
            let (say, said) = mpsc::channel();
            scope.spawn(move || {
                say.send(thread_id()).unwrap();
                blocks();
            });
            until_it_waits(said.recv().unwrap());
            black_box(release());
        });
    }
}

#[test]
fn the_primitive_is_the_leaf_and_its_caller_comes_next() {
    let _alone = alone();
    /// What blocks, the name in its stack, the primitive, and the kind of wait.
    type Scenario = (fn(), &'static str, &'static str, &'static str);
    let all: [Scenario; 10] = [
        (
            scenarios::channel_receive,
            "channel_receive",
            "recv",
            "channel",
        ),
        (scenarios::channel_send, "channel_send", "send", "channel"),
        (
            scenarios::channel_closed,
            "channel_closed",
            "recv",
            "channel",
        ),
        (
            scenarios::crossbeam_receive,
            "crossbeam_receive",
            "recv",
            "channel",
        ),
        (scenarios::mutex_lock, "mutex_lock", "lock", "mutex"),
        (
            scenarios::condition_wait,
            "condition_wait",
            "wait",
            "condvar",
        ),
        (scenarios::once, "scenarios::once", "get_or_init", "once"),
        (scenarios::parked, "scenarios::parked", "park", "park"),
        (scenarios::barrier, "scenarios::barrier", "wait", "barrier"),
        (scenarios::scope, "scenarios::scope", "scope", "scope"),
    ];
    for (block, ..) in all {
        block();
    }
    let profile = Profile::of_all("block", Detail::Full);
    for (_, scenario, primitive, kind) in all {
        let of_kind: Vec<&Sample> = profile
            .sample
            .iter()
            .filter(|sample| {
                let names = profile.names(sample);
                profile.label(sample, "kind") == Some(kind)
                    && names
                        .iter()
                        .any(|name| name.contains(scenario) && name.contains("closure"))
            })
            .collect();
        let kinds = || {
            let in_it = profile.sample.iter().filter(|sample| {
                let mut names = profile.names(sample).into_iter();
                names.any(|name| name.contains(scenario))
            });
            let described =
                in_it.map(|sample| (profile.label(sample, "kind"), profile.names(sample)));
            format!("{:#?}", described.collect::<Vec<_>>())
        };
        assert!(
            !of_kind.is_empty(),
            "{scenario}: no wait of the kind {kind}: {}",
            kinds()
        );
        let leaf = profile.names(of_kind[0])[0];
        let last = leaf.split("::<").next().unwrap_or(leaf);
        assert!(
            last.contains(primitive),
            "{scenario}: the leaf is {leaf} of {:?}",
            profile.names(of_kind[0])
        );
    }
}

#[inline(always)]
fn inlined_innermost(lock: &Mutex<u8>) -> u8 {
    *lock.lock().unwrap()
}

#[inline(always)]
fn inlined_middle(lock: &Mutex<u8>) -> u8 {
    inlined_innermost(lock) + 1
}

#[inline(never)]
fn calls_inlined(lock: &Mutex<u8>) -> u8 {
    inlined_middle(lock) + 1
}

#[test]
fn inlined_callers_are_expanded_and_no_stack_is_there_twice() {
    let _alone = alone();
    let lock = Mutex::new(0);
    for _ in 0..3 {
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let (say, said) = mpsc::channel();
            let lock = &lock;
            for _ in 0..2 {
                let say = say.clone();
                scope.spawn(move || {
                    say.send(thread_id()).unwrap();
                    black_box(calls_inlined(lock));
                });
            }
            for _ in 0..2 {
                until_it_waits(said.recv().unwrap());
            }
            drop(guard);
        });
    }
    for name in ["block", "mutex"] {
        let profile = Profile::of_all(name, Detail::Full);
        let mut stacks: Vec<_> = profile
            .sample
            .iter()
            .map(|sample| (&sample.location_id, profile.label(sample, "kind")))
            .collect();
        let all = stacks.len();
        stacks.sort();
        stacks.dedup();
        assert_eq!(stacks.len(), all, "{name}: a stack is there twice");
        let mut expanded = profile.sample.iter().map(|sample| profile.names(sample));
        assert!(
            expanded.any(|names| {
                let at = |function| names.iter().position(|name| name.ends_with(function));
                match (
                    at("inlined_innermost"),
                    at("inlined_middle"),
                    at("calls_inlined"),
                ) {
                    (Some(a), Some(b), Some(c)) => a + 1 == b && b + 1 == c,
                    _ => false,
                }
            }),
            "{name}"
        );
    }
}

#[test]
fn turning_the_fraction_to_0_keeps_what_is_recorded() {
    let _alone = alone();
    scenarios::mutex_lock();
    let before = Profile::of_all("mutex", Detail::Full);
    assert_eq!(plimsoll::profile::set_mutex_fraction(0), 1);
    assert_eq!(plimsoll::profile::mutex_fraction(), 0);
    scenarios::mutex_lock();
    let after = Profile::of_all("mutex", Detail::Full);
    let within = |profile: &Profile| {
        sum(profile, |profile, sample| {
            profile
                .names(sample)
                .iter()
                .any(|name| name.contains("scenarios::mutex_lock"))
        })
    };
    assert_eq!(within(&before), within(&after));
    assert_eq!(plimsoll::profile::set_mutex_fraction(5), 0);
    assert_eq!(plimsoll::profile::set_mutex_fraction(1), 5);
}

#[test]
fn text_is_as_go_writes_it() {
    let _alone = alone();
    scenarios::mutex_lock();
    for (name, head) in [
        ("block", "--- contention:\ncycles/second=1000000000\n"),
        (
            "mutex",
            "--- mutex:\ncycles/second=1000000000\nsampling period=1\n",
        ),
    ] {
        let mut text = Vec::new();
        let profile = plimsoll::profile::lookup(name).unwrap();
        profile
            .write_to(&mut text, plimsoll::profile::Format::Text)
            .unwrap();
        let text = String::from_utf8(text).unwrap();
        let rest = text.strip_prefix(head).unwrap_or_else(|| panic!("{text}"));
        let mut last = u64::MAX;
        let mut records = 0;
        for line in rest.lines().filter(|line| !line.is_empty()) {
            assert_ne!(line, "#\t0x0");
            if line.starts_with('#') {
                continue;
            }
            let (values, addresses) = line.split_once(" @").expect(line);
            let (delay, count) = values.split_once(' ').expect(line);
            let delay: u64 = delay.parse().expect(line);
            count.parse::<u64>().expect(line);
            assert!(
                addresses
                    .split(' ')
                    .skip(1)
                    .all(|address| address.starts_with("0x")),
                "{line}"
            );
            assert!(delay <= last, "the longest comes first");
            last = delay;
            records += 1;
        }
        assert!(
            records > 0 && text.contains("scenarios::mutex_lock"),
            "{text}"
        );
    }
}

/// Go's test of its own locks: each of many locks is contended once, by two roles in turn.
mod roles {
    use super::*;

    /// What a role knows of the other.
    #[derive(Default)]
    pub struct Known {
        /// How long it held locks that it knew the other to wait for.
        pub contended: Duration,
        /// How long its own calls of `lock` took.
        pub locking: Duration,
    }

    #[inline(never)]
    pub fn short(lock: &Mutex<u8>, known: &mut Known, until_contended: impl FnOnce()) {
        hold(lock, known, until_contended, Duration::from_micros(100));
        black_box(());
    }

    #[inline(never)]
    pub fn long(lock: &Mutex<u8>, known: &mut Known, until_contended: impl FnOnce()) {
        hold(lock, known, until_contended, Duration::from_micros(400));
        black_box(());
    }

    /// In either's stack by its own name.
    #[inline(always)]
    fn hold(lock: &Mutex<u8>, known: &mut Known, until_contended: impl FnOnce(), time: Duration) {
        let guard = lock.lock().unwrap();
        until_contended();
        let start = Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
        known.contended += start.elapsed();
        drop(guard);
    }

    pub fn wait(lock: &Mutex<u8>, known: &mut Known) {
        let start = Instant::now();
        let guard = lock.lock().unwrap();
        known.locking += start.elapsed();
        drop(guard);
    }
}

#[test]
fn two_hundred_contentions_are_two_hundred_events_of_those_who_caused_them() {
    const LOCKS: usize = 200;
    type Role = fn(&Mutex<u8>, &mut roles::Known, Box<dyn FnOnce() + '_>);
    let _alone = alone();
    let before = Moment::now();
    let locks: Vec<Mutex<u8>> = (0..LOCKS).map(|_| Mutex::new(0)).collect();
    let turn = AtomicUsize::new(0);
    let wanted = AtomicUsize::new(0);
    let threads = [AtomicI32::new(0), AtomicI32::new(0)];
    let mut known: [roles::Known; 2] = Default::default();
    thread::scope(|scope| {
        for (me, known) in known.iter_mut().enumerate() {
            let (locks, turn, wanted, threads) = (&locks, &turn, &wanted, &threads);
            scope.spawn(move || {
                let role: Role = match me {
                    0 => |lock, known, until| roles::short(lock, known, until),
                    _ => |lock, known, until| roles::long(lock, known, until),
                };
                threads[me].store(thread_id(), Ordering::Release);
                for (at, lock) in locks.iter().enumerate() {
                    let until = |reached: &AtomicUsize, number: usize| {
                        while reached.load(Ordering::Acquire) < number {
                            thread::yield_now();
                        }
                    };
                    until(turn, at);
                    if at % 2 == me {
                        let contended = || {
                            wanted.store(at + 1, Ordering::Release);
                            let mut other = 0;
                            while other == 0 {
                                other = threads[1 - me].load(Ordering::Acquire);
                            }
                            until_it_waits(other);
                        };
                        role(lock, known, Box::new(contended));
                    } else {
                        until(wanted, at + 1);
                        roles::wait(lock, known);
                        turn.store(at + 1, Ordering::Release);
                    }
                }
            });
        }
    });
    let after = Moment::now();
    for (me, name) in ["roles::short", "roles::long"].into_iter().enumerate() {
        let (events, blamed) = came(&before.mutex, &after.mutex, name);
        assert_eq!(events as usize, LOCKS / 2, "{name}");
        let least = known[me].contended.as_nanos() as i64;
        let most = known[1 - me].locking.as_nanos() as i64;
        assert!(
            least <= blamed && blamed <= most,
            "{name}: {blamed} ns, not {least} to {most}"
        );
    }
}

/// Threads that write profiles wait for one another, too.
#[test]
fn plimsolls_own_locks_are_in_the_profile() {
    let _alone = alone();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| drop(Profile::of_all("mutex", Detail::Names)));
            }
        });
        let profile = Profile::of_all("mutex", Detail::Names);
        let own = |sample: &Sample| {
            let names = profile.names(sample);
            let at_leaf = names.iter().take(3);
            at_leaf.into_iter().any(|name| name.contains("plimsoll::"))
        };
        if profile.sample.iter().any(own) {
            return;
        }
        assert!(Instant::now() < deadline, "none of them was contended");
    }
}

/// Go has it without any rate: `/sync/mutex/wait/total:seconds`.
#[test]
fn waits_for_locks_are_estimated_while_nothing_is_recorded() {
    let _alone = alone();
    plimsoll::profile::set_block_rate(0);
    plimsoll::profile::set_mutex_fraction(0);
    const WAITS: u32 = 80;
    const EACH: Duration = Duration::from_millis(1);
    let before = plimsoll::lock_stats();
    let start = Instant::now();
    let lock = Mutex::new(());
    thread::scope(|scope| {
        let (say, said) = mpsc::channel();
        let (go, gone) = mpsc::channel();
        let lock = &lock;
        scope.spawn(move || {
            say.send(thread_id()).unwrap();
            while gone.recv().is_ok() {
                drop(lock.lock().unwrap());
            }
        });
        let waiter = said.recv().unwrap();
        for _ in 0..WAITS {
            // It waits for the word to go, and then for the lock.
            until_it_waits(waiter);
            let guard = lock.lock().unwrap();
            let switches = || std::fs::read_to_string(format!("/proc/self/task/{waiter}/status"));
            let before = switches().unwrap();
            go.send(()).unwrap();
            while switches().unwrap() == before {
                thread::yield_now();
            }
            until_it_waits(waiter);
            thread::sleep(EACH);
            drop(guard);
        }
        drop(go);
    });
    let took = start.elapsed();
    let after = plimsoll::lock_stats();
    assert_eq!(after.lock_waits, before.lock_waits, "nothing is recorded");
    let estimate = after.lock_waited_estimate_ns - before.lock_waited_estimate_ns;
    assert_eq!(
        after.mutex_wait_total_ns() - before.mutex_wait_total_ns(),
        estimate
    );
    // Ten are timed.
    let least = u64::from(WAITS) * EACH.as_nanos() as u64;
    let most = 8 * took.as_nanos() as u64;
    assert!(
        least <= estimate && estimate <= most,
        "{estimate} ns, not {least} to {most}"
    );
}

/// Set where these tests run in a program without names.
const STRIPPED: &str = "PLIMSOLL_TEST_STRIPPED";

/// Where there are no names, locks are known by where one of them is waited for, or by what memory
/// holds.
#[test]
fn without_a_symbol_table_locks_are_known() {
    if std::env::var_os(STRIPPED).is_some() {
        return;
    }
    let here = std::env::current_exe().unwrap();
    let stripped = std::env::temp_dir().join(format!("plimsoll-stripped-{}", std::process::id()));
    let strip = std::process::Command::new("strip")
        .arg("-o")
        .args([&stripped, &here])
        .status();
    if !strip.is_ok_and(|status| status.success()) {
        return eprintln!("not done: there is no `strip`");
    }
    let output = std::process::Command::new(&stripped)
        .args([
            "std_",
            "parking_lot_",
            "waits_for_conditions",
            "what_is_blamed",
        ])
        .env(STRIPPED, "1")
        .output()
        .unwrap();
    std::fs::remove_file(&stripped).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("test result: ok. 14 passed"), "{said}");
}
