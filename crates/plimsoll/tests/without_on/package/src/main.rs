//! Uses what a library uses of Plimsoll, and what a service does, and prints the names of the profiles. The argument is the
//! file for one of them.

use std::pin::pin;
use std::sync::mpsc::{TryRecvError, channel};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use plimsoll::gc::{self, Cause, Collector};
use plimsoll::profile::{Format, Profile};
use plimsoll::sync::Mutex;
use plimsoll::task::TrackExt as _;

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

static NAMED: Mutex<Vec<u8>> = Mutex::named("work", Vec::new());

fn main() {
    let mut plimsoll = plimsoll::start();
    plimsoll.switch_on();
    assert!(!plimsoll.is_on());

    let _labels = plimsoll::label::with([("tenant", "a")]);
    NAMED.lock().unwrap().extend([1, 2, 3]);
    let mut work = async { NAMED.lock().unwrap().len() }.tracked();
    let account = work.account();
    let done = pin!(work).poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!((done, account.read().allocations), (Poll::Ready(3), 0));

    let measured = plimsoll::measure(|| vec![7; 9].iter().sum::<u32>());
    assert_eq!((measured.allocations, measured.result), (0, 63));
    plimsoll::assert_allocs!(1, || drop(vec![1]));

    let stats = plimsoll::mem_stats();
    assert_eq!((stats.mallocs, stats.total_alloc), (0, 0));
    let served = plimsoll::http::handle("GET", "/debug/pprof/", "");
    assert!(String::from_utf8_lossy(&served.body).contains("not compiled in"));
    let refused = plimsoll::profile::cpu::start().unwrap_err();
    assert!(refused.to_string().contains("not compiled in"));

    collections_are_made_on_request();
    callbacks_keep_what_they_captured();
    let own = Profile::new("requests").unwrap();
    assert!(Profile::new("requests").is_err());
    let file = std::env::args().nth(1).expect("a path");
    own.write_to_file(file, Format::Pprof).unwrap();

    for profile in plimsoll::profile::profiles() {
        let mut text = Vec::new();
        profile.write_to(&mut text, Format::Text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("not compiled in"), "{text}");
        println!("{}", profile.name());
    }
}

fn collections_are_made_on_request() {
    let collector = Collector::register("first").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !collector.is_wanted() {
                std::thread::yield_now();
            }
            let cycle = collector.begin(Cause::Forced);
            cycle.mark_termination().finish(0, 0);
        });
        assert!(gc::collect(Duration::from_secs(60)));
    });
    assert!(!collector.is_wanted());
    // Many threads take and leave the names.
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for at in 0..1000 {
                    let name = (thread + at) % (gc::MAX_NAMES - 1);
                    Collector::register(&format!("name {name}")).unwrap();
                }
            });
        }
    });
    assert!(Collector::register("one too many").is_err());
    assert!(Collector::register("first").is_ok());
    drop(collector);
    assert!(gc::collect(Duration::ZERO), "no collector is left");
}

fn callbacks_keep_what_they_captured() {
    let (sender, receiver) = channel::<()>();
    let mut task = async {}.tracked();
    task.account()
        .set_limit(1, move |_| sender.send(()).unwrap());
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    drop(task);
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));

    let (sender, receiver) = channel::<()>();
    let guard = plimsoll::history::on_growth(1.0, move |_| sender.send(()).unwrap());
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    drop(guard);
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
}
