//! Threads of `plimsoll::thread`, whose creator is known with and without the feature `interpose`.

use plimsoll_checks::profile::read_with_idle;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use plimsoll::label;
use plimsoll::profile::{Detail, frames};
use plimsoll::thread::{self, Builder, Scope, ThreadRecord, ThreadState};

fn created_in(function: &str) -> i64 {
    let profile = read_with_idle("threadcreate", Detail::Names);
    let created = profile.sample.iter().filter(|sample| {
        let names = profile.names(sample);
        names.iter().any(|name| name.ends_with(function))
    });
    created.map(|sample| sample.value[0]).sum()
}

fn until(count: i64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while created_in("threads_and_tasks::thread_spawn::hires") != count {
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
    // Prevents a tail call, which would leave no frame.
    std::hint::black_box(hired)
}

#[test]
fn creators_of_living_threads_are_known() {
    let ((first, to_first), (second, to_second)) = (mpsc::channel(), mpsc::channel());
    let threads = hires([to_first, to_second]);
    until(2);
    first.send(()).unwrap();
    drop((first, second));
    assert_eq!(threads.map(|thread| thread.join().unwrap()), [1, 0]);
    until(0);
    // A thread that cannot be created leaves nothing behind.
    let refused = Builder::new().stack_size(1 << 46).spawn(|| ());
    assert!(refused.is_err());
    until(0);
}

/// A function: a closure may be inlined.
#[inline(never)]
fn waits_in_scope(end: &mpsc::Receiver<()>) {
    let _ = std::hint::black_box(end.recv());
}

#[inline(never)]
fn hires_in<'scope>(scope: &'scope Scope<'scope, '_>, end: mpsc::Receiver<()>) {
    let named = Builder::new().name("scoped".into());
    let thread = named.spawn_scoped(scope, move || waits_in_scope(&end));
    std::hint::black_box(thread.unwrap());
}

fn is_in(stack: &[usize], function: &str) -> bool {
    let names = frames(stack, Detail::Names).into_iter();
    let mut names = names.filter_map(|frame| frame.function);
    names.any(|name| name.ends_with(function))
}

/// Returns the thread with this name, once it waits and the length of its wait is known.
fn listed(name: &str) -> ThreadRecord {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let threads = thread::threads();
        let here = &threads[0];
        // SAFETY: has no preconditions.
        assert_eq!(here.id() as i32, unsafe { libc::gettid() });
        assert_eq!((here.state(), here.waited()), (ThreadState::Running, None));
        assert!(
            is_in(here.stack(), "threads_and_tasks::thread_spawn::listed"),
            "{here:?}"
        );
        let found = threads.into_iter().find(|thread| {
            thread.name() == name
                && thread.state() == ThreadState::Waiting
                && thread.waited().is_some()
        });
        if let Some(thread) = found {
            return thread;
        }
        assert!(Instant::now() < deadline, "{name} does not wait");
    }
}

#[test]
fn threads_of_a_scope_inherit_labels_and_are_listed_with_their_creators() {
    let _tenant = label::with([("tenant", "acme")]);
    let (ends, end) = mpsc::channel();
    thread::scope(|scope| {
        hires_in(scope, end);
        let plain = scope.spawn(|| label::current().get("tenant"));
        assert_eq!(plain.join().unwrap(), Some("acme"));
        let thread = listed("scoped");
        assert_eq!(thread.labels().get("tenant"), Some("acme"));
        assert!(thread.is_stack_whole());
        assert!(
            is_in(
                thread.stack(),
                "threads_and_tasks::thread_spawn::waits_in_scope"
            ),
            "{thread:?}"
        );
        // SAFETY: has no preconditions.
        let me = unsafe { libc::gettid() };
        assert_eq!(thread.creator(), Some(me as u32));
        assert!(is_in(
            thread.creation_stack(),
            "threads_and_tasks::thread_spawn::hires_in"
        ));
        drop(ends);
    });
}
