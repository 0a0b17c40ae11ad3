//! Uses what a library uses of Plimsoll, and what a service does, and prints the names of the profiles.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use plimsoll::profile::Format;
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

    for profile in plimsoll::profile::profiles() {
        let mut text = Vec::new();
        profile.write_to(&mut text, Format::Text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("not compiled in"), "{text}");
        println!("{}", profile.name());
    }
}
