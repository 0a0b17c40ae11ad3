//! Tasks that nothing can wake any more.

use std::cell::RefCell;
use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use plimsoll::task::TrackExt;
use tokio::sync::Notify;
use tokio::task::{spawn_local, yield_now};

use super::{block_on, expect, expect_in_readings_at_once, leaks, programs};

programs! {
    "heap_rate=0":
        waits_for_what_never_comes
        registers_no_waker
        registers_a_waker_at_first_only
        has_its_waker_dropped
        is_forgotten_among_others
        selects_of_two_that_never_come
        joins_what_never_comes
        has_its_waker_replaced
        is_forgotten_a_thousand_times
        is_forgotten_in_readings_at_once
        every_form_shows_it
        is_forgotten_by_a_list_of_waiters
        is_forgotten_on_another_thread
        is_woken_and_forgotten_again
        ends_and_is_no_leak_any_more;
}

fn spawn(name: &str, future: impl Future<Output = ()> + 'static) {
    drop(spawn_local(future.tracked_as(name)));
}

/// Lets every task be polled: the runtime polls some 60 in a row.
async fn polled() {
    for _ in 0..40 {
        yield_now().await;
    }
}

fn waits_for_what_never_comes() {
    block_on(async {
        spawn("lost", pending());
        polled().await;
        expect(&[("forgotten: lost", 1)]);
    });
}

fn registers_no_waker() {
    block_on(async {
        spawn("lost", poll_fn(|_| Poll::Pending));
        polled().await;
        expect(&[("forgotten: lost", 1)]);
    });
}

/// The task wakes itself in its first poll, and then wrongly relies on that waker.
fn registers_a_waker_at_first_only() {
    block_on(async {
        let mut polls = 0;
        let future = poll_fn(move |context| {
            polls += 1;
            if polls == 1 {
                context.waker().wake_by_ref();
            }
            Poll::Pending
        });
        spawn("lost", future);
        polled().await;
        expect(&[("forgotten: lost", 1)]);
    });
}

/// A collection that keeps wakers.
#[derive(Clone, Default)]
struct Kept(Rc<RefCell<Vec<Waker>>>);

impl Kept {
    async fn wait(self) {
        let mut polled = false;
        poll_fn(|context| {
            if polled {
                return Poll::Ready(());
            }
            polled = true;
            self.0.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

fn has_its_waker_dropped() {
    block_on(async {
        let kept = Kept::default();
        spawn("lost", kept.clone().wait());
        polled().await;
        expect(&[]);
        kept.0.borrow_mut().clear();
        expect(&[("forgotten: lost", 1)]);
    });
}

fn is_forgotten_among_others() {
    block_on(async {
        let kept = Kept::default();
        for _ in 0..20 {
            spawn("waits", kept.clone().wait());
        }
        polled().await;
        drop(kept.0.borrow_mut().split_off(13));
        expect(&[("forgotten: waits", 7)]);
        // The other tasks can still be woken.
        for waker in kept.0.take() {
            waker.wake();
        }
        polled().await;
        expect(&[("forgotten: waits", 7)]);
    });
}

fn selects_of_two_that_never_come() {
    block_on(async {
        spawn("lost", async {
            tokio::select! {
                () = pending() => {}
                () = poll_fn(|_| Poll::Pending) => {}
            }
        });
        polled().await;
        expect(&[("forgotten: lost", 1)]);
    });
}

fn joins_what_never_comes() {
    block_on(async {
        spawn("lost", async {
            tokio::join!(pending::<()>(), yield_now(), async {});
        });
        polled().await;
        expect(&[("forgotten: lost", 1)]);
    });
}

/// A condition with room for one waiter.
fn has_its_waker_replaced() {
    block_on(async {
        let last: Rc<RefCell<Option<Waker>>> = Rc::default();
        for name in ["first", "second"] {
            let last = last.clone();
            spawn(
                name,
                poll_fn(move |context| {
                    last.replace(Some(context.waker().clone()));
                    Poll::Pending
                }),
            );
            polled().await;
        }
        expect(&[("forgotten: first", 1)]);
    });
}

fn is_forgotten_a_thousand_times() {
    block_on(async {
        for _ in 0..1000 {
            spawn("lost", pending());
        }
        polled().await;
        expect(&[("forgotten: lost", 1000)]);
    });
}

fn is_forgotten_in_readings_at_once() {
    block_on(async {
        for _ in 0..10 {
            spawn("lost", pending());
        }
        spawn("lost too", poll_fn(|_| Poll::Pending));
        polled().await;
        expect_in_readings_at_once(&[("forgotten: lost", 10), ("forgotten: lost too", 1)]);
    });
}

fn every_form_shows_it() {
    block_on(async {
        spawn("lost", pending());
        spawn(
            "well",
            tokio::time::sleep(std::time::Duration::from_secs(600)),
        );
        polled().await;
        expect(&[("forgotten: lost", 1)]);
        let page = |query| {
            let page = plimsoll::http::handle("GET", "/debug/pprof/goroutineleak", query);
            assert_eq!(page.status, 200);
            String::from_utf8(page.body).unwrap()
        };
        let text = page("debug=1");
        assert!(
            text.starts_with("goroutineleak profile: total 1\n# plimsoll: 1 proved to be leaked; "),
            "{text}"
        );
        let row = "\n1 @\n# labels: {\"leak\":\"forgotten\", ";
        assert!(text.contains(row), "{text}");
        // As in Go, this form lists all tasks.
        let text = page("debug=2");
        assert!(
            text.contains(" [no waker (leaked), task \"lost\"]:\n"),
            "{text}"
        );
        assert!(text.contains(" [sleep, task \"well\"]:\n"), "{text}");
        assert_eq!(text.matches(" (leaked)").count(), 1, "{text}");
        let index = plimsoll::http::handle("GET", "/debug/pprof/", "");
        let index = String::from_utf8(index.body).unwrap();
        let row = "<td>1</td><td><a href='goroutineleak?debug=1'>goroutineleak</a></td>";
        assert!(index.contains(row), "{index}");
    });
}

/// A list of wakers that is dropped when its owner gives up.
fn is_forgotten_by_a_list_of_waiters() {
    block_on(async {
        let owner: Rc<RefCell<Option<Kept>>> = Rc::new(RefCell::new(Some(Kept::default())));
        for name in ["one", "two", "three"] {
            let list = owner.borrow().clone().unwrap();
            let wait = async move {
                let waker = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
                list.0.borrow_mut().push(waker);
                drop(list);
                pending::<()>().await;
            };
            spawn(name, wait);
        }
        polled().await;
        expect(&[]);
        owner.take();
        expect(&[
            ("forgotten: one", 1),
            ("forgotten: two", 1),
            ("forgotten: three", 1),
        ]);
    });
}

fn is_forgotten_on_another_thread() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let wakers: Arc<Mutex<Vec<Waker>>> = Arc::default();
    for _ in 0..50 {
        let wakers = wakers.clone();
        let mut registered = false;
        let future = poll_fn(move |context| {
            if !std::mem::replace(&mut registered, true) {
                wakers.lock().unwrap().push(context.waker().clone());
            }
            Poll::Pending::<()>
        });
        runtime.spawn(future.tracked_as("waits"));
    }
    while wakers.lock().unwrap().len() < 50 {
        std::thread::yield_now();
    }
    let dropped = wakers.lock().unwrap().split_off(25);
    std::thread::spawn(move || drop(dropped)).join().unwrap();
    expect(&[("forgotten: waits", 25)]);
    drop(runtime);
    expect(&[]);
}

fn is_woken_and_forgotten_again() {
    block_on(async {
        let notify = Rc::new(Notify::new());
        let waits = notify.clone();
        spawn("lost", async move {
            waits.notified().await;
            drop(waits);
            pending().await
        });
        polled().await;
        expect(&[]);
        notify.notify_one();
        // The task is runnable, and not lost.
        assert!(leaks().is_empty());
        polled().await;
        expect(&[("forgotten: lost", 1)]);
    });
}

fn ends_and_is_no_leak_any_more() {
    block_on(async {
        let task = spawn_local(pending::<()>().tracked_as("lost"));
        polled().await;
        expect(&[("forgotten: lost", 1)]);
        task.abort();
        polled().await;
        expect(&[]);
    });
}
