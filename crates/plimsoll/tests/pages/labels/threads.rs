//! Profiles show threads with their current labels. A new thread inherits its creator's labels.

use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use plimsoll::label::{self, Labels};
use plimsoll::profile::{self, Detail, Format};
use plimsoll_checks::profile::read_with_idle;

use super::{child, labelled};

/// Returns how many threads have this label now.
fn threads_of(tenant: &str) -> i64 {
    let profile = read_with_idle("goroutine", Detail::Names);
    let samples = labelled(&profile, "tenant", tenant).into_iter();
    samples.map(|sample| sample.value[0]).sum()
}

/// A thread that runs the functions it receives, until the channel closes.
struct Puppet {
    orders: Sender<Order>,
    thread: std::thread::JoinHandle<()>,
}

type Order = Box<dyn FnOnce() + Send>;

impl Puppet {
    fn new() -> Self {
        let (orders, given) = channel::<Order>();
        let thread = plimsoll::thread::spawn(move || {
            for order in given {
                order();
            }
        });
        Self { orders, thread }
    }

    /// Runs `order` on the thread and returns its result.
    fn does<T: Send + 'static>(&self, order: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, is_done) = channel();
        let order = Box::new(move || done.send(order()).unwrap());
        self.orders.send(order).unwrap();
        is_done.recv().unwrap()
    }

    fn ends(self) {
        drop(self.orders);
        self.thread.join().unwrap();
    }
}

fn of(tenant: &str) -> Labels {
    Labels::of([("tenant", tenant)])
}

#[test]
fn a_threads_labels_are_seen_by_others_while_it_has_them() {
    let puppets: Vec<_> = (0..5).map(|_| Puppet::new()).collect();
    assert_eq!(threads_of("seen"), 0);
    for (at, puppet) in puppets.iter().enumerate() {
        assert!(puppet.does(|| label::set(of("seen"))).is_empty());
        assert_eq!(threads_of("seen"), at as i64 + 1);
    }
    let mut dump = Vec::new();
    let goroutine = profile::lookup("goroutine").unwrap();
    goroutine.write_to(&mut dump, Format::Dump).unwrap();
    let dump = String::from_utf8(dump).unwrap();
    let heads = dump
        .lines()
        .filter(|line| line.ends_with("] {tenant: seen}:"));
    assert_eq!(heads.count(), 5, "{dump}");
    puppets[0].does(|| label::set(of("seen otherwise")));
    puppets[1].does(|| label::set(Labels::NONE));
    assert_eq!((threads_of("seen"), threads_of("seen otherwise")), (3, 1));
    // Threads that have ended show no labels, and later threads do not inherit them.
    for puppet in puppets {
        puppet.ends();
    }
    let others: Vec<_> = (0..20).map(|_| Puppet::new()).collect();
    assert_eq!((threads_of("seen"), threads_of("seen otherwise")), (0, 0));
    let last = others.last().unwrap();
    last.does(|| label::set(of("seen")));
    assert_eq!(threads_of("seen"), 1);
    others.into_iter().for_each(Puppet::ends);
    assert_eq!(threads_of("seen"), 0);
}

#[test]
fn the_calling_thread_is_seen_by_itself_and_by_others() {
    let _here = label::with([("tenant", "caller")]);
    assert_eq!(threads_of("caller"), 1);
    let there = Puppet::new();
    // The thread has the labels, too, once it has started.
    there.does(|| ());
    assert_eq!(threads_of("caller"), 2);
    there.does(|| label::set(Labels::NONE));
    assert_eq!(there.does(|| threads_of("caller")), 1);
    there.ends();
}

#[test]
fn threads_begin_with_the_labels_of_their_creator() {
    let mothers = label::with([("tenant", "mother"), ("route", "/")]);
    let labels = label::current();
    let daughter = Puppet::new();
    assert_eq!(daughter.does(label::current), labels);
    // So does a thread that this thread creates.
    assert_eq!(daughter.does(|| Puppet::new().does(label::current)), labels);
    let builder = plimsoll::thread::Builder::new().name("built".into());
    assert_eq!(
        builder.spawn(label::current).unwrap().join().unwrap(),
        labels
    );
    // Later changes of either thread do not affect the other.
    drop(mothers);
    assert_eq!(daughter.does(label::current), labels);
    daughter.does(|| label::set(of("daughter")));
    assert_eq!(label::current(), Labels::NONE);
    assert_eq!(Puppet::new().does(label::current), Labels::NONE);
    daughter.ends();
}

/// Such threads may belong to a pool that was started during a request.
#[test]
fn other_threads_begin_without_labels() {
    extern "C" fn run(_: *mut std::ffi::c_void) -> *mut std::ffi::c_void {
        label::current().len() as *mut std::ffi::c_void
    }
    let _here = label::with([("tenant", "std"), ("route", "/")]);
    let labels = std::thread::spawn(label::current).join().unwrap();
    assert_eq!(labels, Labels::NONE);
    std::thread::scope(|scope| {
        let scoped = scope.spawn(label::current);
        assert_eq!(scoped.join().unwrap(), Labels::NONE);
    });
    let mut thread = 0;
    let mut result = std::ptr::null_mut();
    let nothing = std::ptr::null();
    // SAFETY: `run` has the right signature, and the thread is joined.
    unsafe {
        let made = libc::pthread_create(&raw mut thread, nothing, run, std::ptr::null_mut());
        assert_eq!(made, 0);
        libc::pthread_join(thread, &raw mut result);
    }
    assert_eq!(result as usize, 0);
}

#[test]
fn labels_can_be_had_and_changed_until_a_thread_is_gone() {
    /// The labels that destructors found at the end of threads.
    static FOUND: Mutex<Vec<(Labels, Labels)>> = Mutex::new(Vec::new());
    struct Last;
    impl Drop for Last {
        fn drop(&mut self) {
            let before = label::current();
            let _more = label::with([("stage", "end")]);
            FOUND.lock().unwrap().push((before, label::current()));
        }
    }
    thread_local! {
        static LAST: Last = const { Last };
    }
    extern "C" fn very_last(_: *mut std::ffi::c_void) {
        drop(Last);
    }
    let mut key = 0;
    // SAFETY: makes a key whose destructor has the right signature. It runs after those of the keys
    // made before.
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(very_last)) };
    assert_eq!(made, 0);
    for tenant in ["", "ends"] {
        let thread = std::thread::spawn(move || {
            LAST.with(|_| ());
            // SAFETY: the key exists.
            unsafe { libc::pthread_setspecific(key, std::ptr::dangling()) };
            if !tenant.is_empty() {
                label::set(of(tenant));
            }
        });
        thread.join().unwrap();
        let found = std::mem::take(&mut *FOUND.lock().unwrap());
        assert_eq!(found.len(), 2);
        for (before, within) in found {
            assert_eq!(before.get("tenant").unwrap_or_default(), tenant);
            assert_eq!(within.get("stage"), Some("end"));
        }
        assert_eq!(threads_of("ends"), 0);
    }
}

fn a_fork_has_its_own() {
    let _here = label::with([("tenant", "forks")]);
    let other = Puppet::new();
    other.does(|| label::set(of("stays behind")));
    assert_eq!((threads_of("forks"), threads_of("stays behind")), (1, 1));
    // SAFETY: the child reads a profile and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let alone = (threads_of("forks"), threads_of("stays behind")) == (1, 0);
        label::set(of("the child"));
        let is_seen = Puppet::new().does(|| threads_of("the child")) == 2;
        // SAFETY: exits without unwinding the parent's frames.
        unsafe { libc::_exit(if alone && is_seen { 0 } else { 1 }) };
    }
    let status = plimsoll_testkit::child::wait(child);
    assert_eq!(status, 0);
    assert_eq!((threads_of("forks"), threads_of("stays behind")), (1, 1));
    other.ends();
}

#[test]
fn forks_have_the_labels_of_the_thread_that_forks() {
    child::run(
        "threads::forks_have_the_labels_of_the_thread_that_forks",
        "",
        a_fork_has_its_own,
    );
}
