//! The page of all threads and tasks, as JSON.

use std::pin::Pin;
use std::sync::Barrier;
use std::task::{Context, Waker};
use std::thread;

use plimsoll::http::serve;
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
