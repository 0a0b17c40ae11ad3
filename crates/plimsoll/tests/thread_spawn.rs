//! Threads of `plimsoll::thread`, whose creator is known with and without the feature `interpose`.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

mod pprof;

use std::sync::mpsc;
use std::time::{Duration, Instant};

use plimsoll::profile::Detail;
use plimsoll::thread::{self, Builder};
use pprof::Profile;

fn created_in(function: &str) -> i64 {
    let profile = Profile::of_all("threadcreate", Detail::Names);
    let created = profile.sample.iter().filter(|sample| {
        let names = profile.names(sample);
        names.iter().any(|name| name.ends_with(function))
    });
    created.map(|sample| sample.value[0]).sum()
}

fn until(count: i64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while created_in("thread_spawn::hires") != count {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[inline(never)]
fn hires(receive: [mpsc::Receiver<()>; 2]) -> [std::thread::JoinHandle<usize>; 2] {
    let [first, second] = receive;
    let named = Builder::new().name("named".into()).stack_size(256 << 10);
    let hired = [
        thread::spawn(move || first.iter().count()),
        named.spawn(move || second.iter().count()).unwrap(),
    ];
    // Not by a jump, which leaves no frame.
    std::hint::black_box(hired)
}

#[test]
fn who_created_them_is_known_while_they_live() {
    let ((first, to_first), (second, to_second)) = (mpsc::channel(), mpsc::channel());
    let threads = hires([to_first, to_second]);
    until(2);
    first.send(()).unwrap();
    drop((first, second));
    assert_eq!(threads.map(|thread| thread.join().unwrap()), [1, 0]);
    until(0);
    // One that cannot be had leaves nothing behind.
    let refused = Builder::new().stack_size(1 << 46).spawn(|| ());
    assert!(refused.is_err());
    until(0);
}
