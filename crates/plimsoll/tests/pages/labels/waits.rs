//! Waits carry the labels of the waiter, and releases those of the releasing thread.

use plimsoll::label;
use plimsoll::profile::{self, Format};
use plimsoll::sync::Mutex;
use plimsoll_checks::profile::read_profile;

use super::by_label;
use super::pprof::{Profile, Sample};
use super::scene::{HELD, Recording, blocked_by_each, has};

#[inline(never)]
fn waits_for_it(lock: &Mutex<()>) {
    drop(std::hint::black_box(lock.lock().unwrap()));
}

#[inline(never)]
fn gives_it_up(guard: plimsoll::sync::MutexGuard<'_, ()>) {
    drop(std::hint::black_box(guard));
    std::hint::black_box(());
}

/// Returns the samples with this function in their stack.
fn within<'p>(profile: &'p Profile, function: &'p str) -> impl Iterator<Item = &'p Sample> {
    let samples = profile.sample.iter();
    samples.filter(move |sample| has(profile, sample, function))
}

#[test]
fn waits_and_charges_are_split_by_label() {
    let _recording = Recording::all();
    let lock = Mutex::new(());
    let held = lock.lock().unwrap();
    let _holds = label::with([("tenant", "holds")]);
    blocked_by_each(
        3,
        |number| {
            let _waits = label::with([("tenant", format!("waits {number}"))]);
            waits_for_it(&lock);
        },
        || gives_it_up(held),
    );
    let least = HELD.mul_f64(0.9).as_nanos() as i64;
    let block = read_profile("block");
    let waited = by_label(&block, within(&block, "waits_for_it"), "tenant", 1);
    let tenants: Vec<_> = waited.keys().copied().collect();
    assert_eq!(tenants, [Some("waits 0"), Some("waits 1"), Some("waits 2")]);
    assert!(waited.values().all(|&delay| delay >= least), "{waited:?}");
    let mutex = read_profile("mutex");
    let blamed = by_label(&mutex, within(&mutex, "gives_it_up"), "tenant", 1);
    assert_eq!(blamed.len(), 1, "{blamed:?}");
    assert!(blamed[&Some("holds")] >= 3 * least, "{blamed:?}");
    // Waiters that kept other waiters waiting have their own labels.
    let others = by_label(&mutex, within(&mutex, "waits_for_it"), "tenant", 0);
    assert!(!others.contains_key(&None) && !others.contains_key(&Some("holds")));
    assert_eq!(
        waited.values().sum::<i64>(),
        blamed.values().sum::<i64>()
            + by_label(&mutex, within(&mutex, "waits_for_it"), "tenant", 1)
                .values()
                .sum::<i64>(),
        "the blame is the waits"
    );
    // The other labels of such samples are present as well.
    assert!(within(&block, "waits_for_it").all(|wait| block.label(wait, "kind") == Some("mutex")));

    for (name, tenant) in [("block", "waits 1"), ("mutex", "holds")] {
        let mut text = Vec::new();
        let profile = profile::lookup(name).unwrap();
        profile.write_to(&mut text, Format::Text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let line = format!("# labels: {{\"tenant\":\"{tenant}\"}}\n");
        assert!(text.contains(&line), "{text}");
    }
}

/// The lock does not use Plimsoll.
#[cfg(feature = "interpose")]
#[test]
fn the_standard_librarys_locks_are_labelled_as_well() {
    let _recording = Recording::all();
    #[inline(never)]
    fn waits_for_std(lock: &std::sync::Mutex<()>) {
        drop(std::hint::black_box(lock.lock().unwrap()));
    }
    #[inline(never)]
    fn gives_up_std(guard: std::sync::MutexGuard<'_, ()>) {
        drop(std::hint::black_box(guard));
        std::hint::black_box(());
    }
    let lock = std::sync::Mutex::new(());
    let held = lock.lock().unwrap();
    let _holds = label::with([("tenant", "holds")]);
    blocked_by_each(
        1,
        |_| {
            let _waits = label::with([("tenant", "waits")]);
            waits_for_std(&lock);
        },
        || gives_up_std(held),
    );
    for (name, function, tenant) in [
        ("block", "waits_for_std", "waits"),
        ("mutex", "gives_up_std", "holds"),
    ] {
        let profile = read_profile(name);
        let tenants = by_label(&profile, within(&profile, function), "tenant", 0);
        assert_eq!(
            tenants.into_keys().collect::<Vec<_>>(),
            [Some(tenant)],
            "{name}"
        );
    }
}

#[cfg(feature = "tokio")]
#[test]
fn tasks_wait_with_their_labels() {
    use plimsoll::task::TrackExt;
    let _recording = Recording::all();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let lock = plimsoll::sync::tokio::Mutex::new(());
    let holds = async {
        let held = lock.lock().await;
        // The other task begins to wait meanwhile.
        tokio::task::yield_now().await;
        tokio::time::sleep(HELD).await;
        drop(held);
    };
    let waits = async {
        drop(lock.lock().await);
    };
    let both = async {
        tokio::join!(
            holds.tracked().label("tenant", "task holds"),
            waits.tracked().label("tenant", "task waits"),
        )
    };
    runtime.block_on(both);
    let delays = |name| {
        let profile = read_profile(name);
        let tokio = profile.sample.iter().filter(|sample| {
            let tenant = profile.label(sample, "tenant");
            tenant.is_some_and(|tenant| tenant.starts_with("task "))
                && profile.label(sample, "kind") == Some("mutex")
        });
        let delays = by_label(&profile, tokio, "tenant", 1);
        let delays = delays
            .into_iter()
            .map(|(key, delay)| (key.map(str::to_owned), delay));
        delays.collect::<Vec<_>>()
    };
    let [(waiter, waited)] = &delays("block")[..] else {
        panic!("{:?}", delays("block"))
    };
    let [(holder, blamed)] = &delays("mutex")[..] else {
        panic!("{:?}", delays("mutex"))
    };
    assert_eq!(waiter.as_deref(), Some("task waits"));
    assert_eq!(holder.as_deref(), Some("task holds"));
    assert_eq!(waited, blamed);
    assert!(*waited >= HELD.mul_f64(0.9).as_nanos() as i64);
}
