//! Spans of `tracing` as labels of threads and tasks.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};

use plimsoll::label::{self, Labels, TracingLayer};
use plimsoll::task::{self, TaskRecord, TrackExt, Tracked};
use tracing::{Instrument, info_span, instrument};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Layer, Registry};

fn layer() -> TracingLayer {
    TracingLayer::new().fields(["tenant", "number"])
}

fn with_layer(test: impl FnOnce()) {
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer()), test);
    assert_eq!(label::current(), Labels::NONE, "something is left of it");
}

fn labels() -> String {
    label::current().to_string()
}

/// A future that waits once, while a clone of its waker exists, and then finds the same labels.
#[derive(Default)]
struct Waits {
    kept: Option<(Waker, Labels)>,
}

impl Future for Waits {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.kept.take() {
            Some((_, labels)) => {
                assert_eq!(labels, label::current());
                Poll::Ready(())
            }
            None => {
                self.kept = Some((context.waker().clone(), label::current()));
                Poll::Pending
            }
        }
    }
}

/// Polls the future, as an executor that ignores wakes does.
fn poll<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    struct Nothing;
    impl std::task::Wake for Nothing {
        fn wake(self: Arc<Self>) {}
    }
    static WAKER: LazyLock<Waker> = LazyLock::new(|| Arc::new(Nothing).into());
    future.as_mut().poll(&mut Context::from_waker(&WAKER))
}

fn record<F>(task: &Pin<Box<Tracked<F>>>) -> TaskRecord {
    let id = task.id().unwrap();
    task::tasks()
        .into_iter()
        .find(|task| task.id() == id)
        .unwrap()
}

fn labels_of<F>(task: &Pin<Box<Tracked<F>>>) -> String {
    record(task).labels().to_string()
}

#[test]
fn spans_nest_and_only_chosen_fields_are_labels() {
    with_layer(|| {
        let outer = info_span!("outer", tenant = "a", secret = "x", number = 1);
        let inner = info_span!("inner", number = %"two");
        outer.in_scope(|| {
            assert_eq!(labels(), r#"{"number":"1", "span":"outer", "tenant":"a"}"#);
            inner.in_scope(|| {
                assert_eq!(
                    labels(),
                    r#"{"number":"two", "span":"inner", "tenant":"a"}"#
                );
                // Enters the span once more within itself.
                outer.in_scope(|| assert_eq!(label::current().get("number"), Some("1")));
                assert_eq!(label::current().get("number"), Some("two"));
            });
            assert_eq!(labels(), r#"{"number":"1", "span":"outer", "tenant":"a"}"#);
        });
        assert_eq!(labels(), "{}");
        inner.in_scope(|| assert_eq!(labels(), r#"{"number":"two", "span":"inner"}"#));
        let _thread = label::with([("tenant", "mine"), ("kind", "thread")]);
        outer.in_scope(|| {
            let labelled = r#"{"kind":"thread", "number":"1", "span":"outer", "tenant":"a"}"#;
            assert_eq!(labels(), labelled);
        });
        assert_eq!(labels(), r#"{"kind":"thread", "tenant":"mine"}"#);
    });
}

#[test]
fn no_field_is_a_label_by_default() {
    let subscriber = tracing_subscriber::registry().with(TracingLayer::new());
    tracing::subscriber::with_default(subscriber, || {
        let _entered = info_span!("plain", tenant = "a").entered();
        assert_eq!(labels(), r#"{"span":"plain"}"#);
    });
    // A span that a filter excludes adds no labels.
    let coarse = layer().with_filter(tracing::level_filters::LevelFilter::INFO);
    let subscriber = Registry::default().with(coarse);
    tracing::subscriber::with_default(subscriber, || {
        let _entered = info_span!("coarse").entered();
        let _fine = tracing::debug_span!("fine", tenant = "a").entered();
        assert_eq!(labels(), r#"{"span":"coarse"}"#);
    });
    assert_eq!(labels(), "{}");
}

#[test]
fn a_field_recorded_later_becomes_a_label() {
    with_layer(|| {
        let outer = info_span!("outer", tenant = tracing::field::Empty, number = 1);
        outer.in_scope(|| {
            assert_eq!(label::current().get("tenant"), None);
            info_span!("inner", number = 2).in_scope(|| {
                outer.record("tenant", "a");
                // The inner span's own value takes precedence.
                outer.record("number", 3);
                assert_eq!(labels(), r#"{"number":"2", "span":"inner", "tenant":"a"}"#);
            });
            assert_eq!(labels(), r#"{"number":"3", "span":"outer", "tenant":"a"}"#);
            outer.record("tenant", "b");
            outer.record("other", 1);
            assert_eq!(labels(), r#"{"number":"3", "span":"outer", "tenant":"b"}"#);
        });
        assert_eq!(labels(), "{}");
        outer.record("number", 4);
        assert_eq!(labels(), "{}", "no thread is in it");
        outer.in_scope(|| {
            assert_eq!(labels(), r#"{"number":"4", "span":"outer", "tenant":"b"}"#);
        });
    });
}

#[test]
fn a_panic_leaves_the_labels_as_they_were() {
    with_layer(|| {
        let result = std::panic::catch_unwind(|| {
            let _outer = info_span!("outer").entered();
            let _inner = info_span!("inner").entered();
            panic!("a panic requested by the test");
        });
        assert!(result.is_err());
        assert_eq!(labels(), "{}");
    });
}

#[test]
fn spans_that_are_left_in_another_order_are_gone_when_all_are() {
    with_layer(|| {
        let first = info_span!("first", tenant = "a").entered();
        let second = info_span!("second", number = 2).entered();
        let third = info_span!("third").entered();
        drop(first);
        assert_eq!(label::current().get("span"), Some("third"));
        drop(second);
        assert_eq!(label::current().get("span"), Some("third"));
        drop(third);
        assert_eq!(labels(), "{}");
    });
}

#[test]
fn threads_are_in_spans_of_their_own() {
    let subscriber = tracing_subscriber::registry().with(layer());
    let dispatch = tracing::Dispatch::new(subscriber);
    let span = tracing::dispatcher::with_default(&dispatch, || info_span!("shared", tenant = "a"));
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (span, dispatch) = (&span, &dispatch);
            scope.spawn(move || {
                let _default = tracing::dispatcher::set_default(dispatch);
                let number = number.to_string();
                let _mine = label::with([("thread", &number)]);
                let before = labels();
                for _ in 0..1_000 {
                    span.in_scope(|| {
                        assert_eq!(label::current().get("tenant"), Some("a"));
                        assert_eq!(label::current().get("thread"), Some(&*number));
                        assert_eq!(label::current().len(), 3);
                    });
                    assert_eq!(labels(), before);
                }
            });
        }
        assert_eq!(labels(), "{}");
    });
}

#[instrument(skip_all, fields(tenant))]
async fn instrumented(tenant: &str) {
    tracing::Span::current().record("tenant", tenant);
    Waits::default().await;
}

/// The task enters the span at each poll.
#[test]
fn a_task_that_waits_within_a_span_has_its_labels_until_it_goes_on() {
    with_layer(|| {
        let mut task = Box::pin(
            async {
                instrumented("a").await;
                assert_eq!(labels(), r#"{"kind":"task"}"#);
                Waits::default().await;
                instrumented("b").await;
                Waits::default().await;
            }
            .tracked()
            .label("kind", "task"),
        );
        assert_eq!(labels_of(&task), r#"{"kind":"task"}"#);
        for labelled in [
            r#"{"kind":"task", "span":"instrumented", "tenant":"a"}"#,
            r#"{"kind":"task"}"#,
            r#"{"kind":"task", "span":"instrumented", "tenant":"b"}"#,
            r#"{"kind":"task"}"#,
        ] {
            assert!(poll(&mut task).is_pending());
            assert_eq!(labels(), "{}");
            assert_eq!(labels_of(&task), labelled);
        }
    });
}

/// The span is entered around the task: between polls, the thread keeps none of its labels.
#[test]
fn a_task_within_a_span_has_its_labels_and_keeps_none() {
    with_layer(|| {
        let id;
        let mut outside = {
            let task = async {
                assert_eq!(label::current().get("span"), Some("around"));
                Waits::default().await;
                info_span!("within").in_scope(|| {
                    assert_eq!(
                        labels(),
                        r#"{"kind":"task", "span":"within", "tenant":"a"}"#
                    );
                });
                label::set(label::current().and([("phase", "2")]));
                Waits::default().await;
            }
            .tracked()
            .label("kind", "task");
            id = task.id();
            Box::pin(task.instrument(info_span!("around", tenant = "a")))
        };
        let labels_now = || {
            let mut tasks = task::tasks().into_iter();
            let task = tasks.find(|task| Some(task.id()) == id).unwrap();
            task.labels().to_string()
        };
        assert_eq!(labels_now(), r#"{"kind":"task"}"#);
        assert!(poll(&mut outside).is_pending());
        assert_eq!(labels(), "{}");
        let around = r#"{"kind":"task", "span":"around", "tenant":"a"}"#;
        assert_eq!(labels_now(), around);
        // The task labels itself: it keeps these labels, together with those of the span at that
        // time.
        assert!(poll(&mut outside).is_pending());
        assert_eq!(labels(), "{}");
        assert!(labels_now().contains(r#""phase":"2""#), "{}", labels_now());
    });
}

#[test]
fn tasks_within_tasks_and_spans_between_them() {
    with_layer(|| {
        let inner = Waits::default().tracked_as("inner");
        let inner_id = inner.id().unwrap();
        let mut outer = Box::pin(
            async move {
                async move {
                    let inner = inner.instrument(info_span!("middle", number = 1));
                    inner.await;
                }
                .instrument(info_span!("outermost", tenant = "a"))
                .await;
                Waits::default().await;
            }
            .tracked()
            .label("kind", "outer"),
        );
        assert!(poll(&mut outer).is_pending());
        let tasks = task::tasks();
        let inner = tasks.iter().find(|task| task.id() == inner_id).unwrap();
        // The inner task was made outside of the outer one, so it has none of the outer task's own
        // labels.
        assert_eq!(
            inner.labels().to_string(),
            r#"{"number":"1", "span":"middle", "tenant":"a"}"#
        );
        let labelled = r#"{"kind":"outer", "number":"1", "span":"middle", "tenant":"a"}"#;
        assert_eq!(labels_of(&outer), labelled);
        assert!(poll(&mut outer).is_pending());
        assert_eq!(labels_of(&outer), r#"{"kind":"outer"}"#);
        assert_eq!(labels(), "{}");
    });
}

#[test]
fn a_task_inherits_the_spans_that_it_is_made_in() {
    with_layer(|| {
        let mut task = info_span!("makes", tenant = "a")
            .in_scope(|| Box::pin(async { Waits::default().await }.tracked()));
        assert!(poll(&mut task).is_pending());
        assert_eq!(labels_of(&task), r#"{"span":"makes", "tenant":"a"}"#);
        assert_eq!(labels(), "{}");
        assert!(poll(&mut task).is_ready());
    });
}

/// Tasks on a runtime move between threads, and enter and leave spans at each poll.
#[test]
fn tasks_that_move_between_threads_take_their_spans_with_them() {
    let subscriber = tracing_subscriber::registry().with(layer());
    tracing::subscriber::set_global_default(subscriber).expect("no other test sets one");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .build()
        .unwrap();
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let tenant = format!("tenant {number}");
            let inside = {
                let tenant = tenant.clone();
                async move {
                    for _ in 0..200 {
                        assert_eq!(label::current().get("tenant"), Some(&*tenant));
                        assert_eq!(label::current().get("span"), Some("moves"));
                        tokio::task::yield_now().await;
                    }
                }
            };
            let span = info_span!("moves", tenant = &*tenant);
            // The span is inside the task, or around it.
            if number % 2 == 0 {
                runtime.spawn(inside.instrument(span).tracked())
            } else {
                runtime.spawn(inside.tracked().instrument(span))
            }
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
        // The workers have no labels afterwards.
        let left: Vec<_> = (0..20)
            .map(|_| tokio::spawn(async { label::current() }))
            .collect();
        for left in left {
            assert_eq!(left.await.unwrap(), Labels::NONE);
        }
    });
}
