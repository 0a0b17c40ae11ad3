//! The page of all threads and tasks, as JSON.

use std::pin::Pin;
use std::sync::Barrier;
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::http::serve;
use plimsoll::sync::Mutex;
use plimsoll::task::TrackExt;
use plimsoll_testkit::child;
use plimsoll_testkit::client::request;
use serde_json::Value;

const HOSTILE: &str = "</script>\u{1b}[31m\"\\\n";

#[inline(never)]
fn waits_here(over: &Barrier) {
    over.wait();
}

fn page() -> Value {
    let server = serve("127.0.0.1:0").unwrap();
    let answer = request(server.address(), "GET", "/debug/plimsoll/threads");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(!answer.text().contains("</script>"));
    serde_json::from_slice(&answer.body).expect("JSON")
}

fn find(page: &Value, mut wanted: impl FnMut(&Value) -> bool) -> Option<&Value> {
    let mut records = page["threads"].as_array().unwrap().iter();
    records.find(|record| wanted(record))
}

#[test]
fn threads_and_tasks_have_their_state_labels_and_stack() {
    child::run(
        "threads_and_tasks_have_their_state_labels_and_stack",
        "",
        || {
            let over = Barrier::new(2);
            let mut task: Pin<Box<dyn Future<Output = ()>>> = Box::pin(
                std::future::pending::<()>()
                    .tracked_as("collects")
                    .label("tenant", HOSTILE),
            );
            let mut context = Context::from_waker(Waker::noop());
            assert!(task.as_mut().poll(&mut context).is_pending());
            thread::scope(|scope| {
                let builder = thread::Builder::new().name("waiter".into());
                let spawned = builder.spawn_scoped(scope, || {
                    let _tenant = plimsoll::label::with([("tenant", "acme")]);
                    waits_here(&over);
                });
                spawned.unwrap();
                let (page, thread) = loop {
                    let page = page();
                    let waits =
                        |record: &Value| record["name"] == "waiter" && record["state"] == "waiting";
                    if let Some(thread) = find(&page, waits) {
                        let thread = thread.clone();
                        break (page, thread);
                    }
                };
                over.wait();
                assert_eq!(thread["kind"], "thread");
                assert_eq!(thread["wait"], "barrier", "{thread}");
                assert_eq!(thread["labels"]["tenant"], "acme");
                let frames = thread["stack"].as_array().unwrap();
                let named = |frame: &&Value| {
                    let function = frame["function"].as_str().unwrap();
                    function.ends_with("::waits_here")
                };
                let frame = frames
                    .iter()
                    .find(named)
                    .unwrap_or_else(|| panic!("{thread}"));
                let file = frame["file"].as_str().unwrap();
                assert!(file.ends_with("threads_page.rs"), "{file}");
                assert!(frame["line"].as_u64().unwrap() > 0);

                let task = find(&page, |record| record["kind"] == "task").unwrap();
                assert_eq!(task["name"], "collects");
                assert_eq!(task["labels"]["tenant"], HOSTILE);
                let creator = task["creator"].as_str().unwrap();
                assert!(creator.contains("threads_page.rs:"), "{creator}");
                let all = page["threads"].as_array().unwrap().len();
                assert_eq!(page["shown"], all);
                assert_eq!(page["total"], all);
            });
        },
    );
}

#[test]
fn of_many_tasks_the_first_ten_thousand_are_shown() {
    child::run("of_many_tasks_the_first_ten_thousand_are_shown", "", || {
        let tasks: Vec<_> = (0..20_000)
            .map(|_| Box::pin(std::future::pending::<()>().tracked()))
            .collect();
        let page = page();
        assert_eq!(page["shown"], 10_000);
        assert!(
            page["total"].as_u64().unwrap() > 20_000,
            "{}",
            page["total"]
        );
        drop(tasks);
    });
}

/// Reads the page until `locks` are as wanted, and returns it.
fn page_with(mut is_right: impl FnMut(&[Value]) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let page = page();
        if is_right(page["locks"].as_array().unwrap()) {
            return page;
        }
        assert!(Instant::now() < deadline, "{}", page["locks"]);
    }
}

/// Returns the name of a thread or task of `locks`.
fn name_of<'a>(page: &'a Value, party: &Value) -> &'a str {
    let record = find(page, |record| {
        record["kind"] == party["kind"] && record["id"] == party["id"]
    });
    record.expect("it is listed")["name"].as_str().unwrap()
}

fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.into())
}

#[test]
fn locks_have_their_owners_and_waiters() {
    child::run("locks_have_their_owners_and_waiters", "", || {
        static OUTER: Mutex<()> = Mutex::named("outer", ());
        static INNER: Mutex<()> = Mutex::named(HOSTILE, ());
        assert_eq!(page()["locks"], Value::Array(Vec::new()));
        let inner = INNER.lock().unwrap();
        thread::scope(|scope| {
            let waits_with_outer = || {
                let _outer = OUTER.lock().unwrap();
                drop(INNER.lock().unwrap());
            };
            named("middle")
                .spawn_scoped(scope, waits_with_outer)
                .unwrap();
            page_with(|locks| locks.len() == 1);
            for name in ["first", "second"] {
                let waits = || drop(OUTER.lock().unwrap());
                named(name).spawn_scoped(scope, waits).unwrap();
            }
            let page = page_with(|locks| locks.iter().any(|lock| lock["waiting"] == 2));
            let locks = page["locks"].as_array().unwrap();
            assert_eq!(locks.len(), 2);
            for lock in locks {
                assert_eq!(lock["object"], "lock");
                assert_eq!(lock["deadlock"], Value::Null);
            }
            assert_eq!(locks[0]["name"], "outer");
            assert_eq!(name_of(&page, &locks[0]["owner"]), "middle");
            let waiters = locks[0]["waiters"].as_array().unwrap().iter();
            let mut waiters: Vec<&str> = waiters.map(|waiter| name_of(&page, waiter)).collect();
            waiters.sort_unstable();
            assert_eq!(waiters, ["first", "second"]);
            assert_eq!(locks[1]["name"], HOSTILE);
            // SAFETY: the call has no preconditions.
            assert_eq!(locks[1]["owner"]["id"], unsafe { libc::gettid() });
            assert_eq!(name_of(&page, &locks[1]["waiters"][0]), "middle");
            drop(inner);
        });
        page_with(<[Value]>::is_empty);
    });
}

#[test]
fn locks_in_a_deadlock_come_first() {
    child::run("locks_in_a_deadlock_come_first", "", || {
        static LOCKS: [Mutex<()>; 3] = [
            Mutex::named("a", ()),
            Mutex::named("b", ()),
            Mutex::named("c", ()),
        ];
        assert_eq!(page()["locks"], Value::Array(Vec::new()));
        let both = &*Box::leak(Box::new(Barrier::new(2)));
        let takes = |first: usize, second: usize| {
            move || {
                let _first = LOCKS[first].lock().unwrap();
                both.wait();
                drop(LOCKS[second].lock().unwrap());
            }
        };
        named("one").spawn(takes(0, 1)).unwrap();
        named("other").spawn(takes(1, 0)).unwrap();
        let held = LOCKS[2].lock().unwrap();
        for _ in 0..3 {
            let waits = || drop(LOCKS[2].lock().unwrap());
            named("waits").spawn(waits).unwrap();
        }
        let page =
            page_with(|locks| locks.len() == 3 && locks.iter().any(|lock| lock["waiting"] == 3));
        let locks = page["locks"].as_array().unwrap().iter();
        let mut found: Vec<_> = locks
            .map(|lock| (&lock["name"], &lock["deadlock"]))
            .collect();
        found[..2].sort_unstable_by_key(|(name, _)| name.as_str());
        let deadlock = Value::from("deadlock");
        assert_eq!(
            found,
            [
                (&"a".into(), &deadlock),
                (&"b".into(), &deadlock),
                (&"c".into(), &Value::Null)
            ]
        );
        drop(held);
    });
}
