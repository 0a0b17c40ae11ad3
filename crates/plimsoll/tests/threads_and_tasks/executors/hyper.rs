//! hyper's executor as a tracking one: hyper accepts it, and the futures that it gets are tracked.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use hyper::rt::Executor as _;
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll::label;
use plimsoll::task::{self, Executor, TaskId, TaskState, TrackExt};

use super::chain;
use super::record;
use super::waiting::{self, Keeps};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn futures_given_to_the_executor_are_tracked() {
    runtime().block_on(async {
        let (executor, line) = (Executor::new(TokioExecutor::new()), line!());
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let parent = async move {
            let me = task::current();
            let _tenant = label::with([("tenant", "acme")]);
            executor.execute(async move {
                sender.send((me, task::current())).unwrap();
                chain::outermost(Keeps::default()).await;
            });
        };
        tokio::spawn(parent.tracked()).await.unwrap();
        let (parent, child) = receiver.await.unwrap();
        let child = record(child.expect("it is tracked")).unwrap();
        assert!(parent.is_some());
        assert_eq!(child.parent(), parent);
        assert_eq!(child.state(), TaskState::Waiting);
        assert_eq!(child.labels().get("tenant"), Some("acme"));
        let location = child.location();
        assert_eq!((location.file(), location.line()), (file!(), line));
        waiting::is_there(child.type_name());
    });
}

/// An HTTP/2 server and client. The streams are tasks of their connections.
#[test]
fn streams_of_a_connection_are_tasks_of_it() {
    runtime().block_on(async {
        let (client, server) = tokio::io::duplex(1 << 16);
        let served: Arc<Mutex<Vec<TaskId>>> = Arc::default();
        let dropped = Arc::new(AtomicUsize::new(0));
        struct Counts(Arc<AtomicUsize>);
        impl Drop for Counts {
            fn drop(&mut self) {
                self.0.fetch_add(1, SeqCst);
            }
        }
        let service = service_fn({
            let (served, dropped) = (served.clone(), dropped.clone());
            move |request: Request<Incoming>| {
                let (served, counts) = (served.clone(), Counts(dropped.clone()));
                async move {
                    let _counts = counts;
                    served.lock().unwrap().push(task::current().unwrap());
                    if request.uri().path() == "/waits" {
                        pending::<()>().await;
                    }
                    Ok::<_, std::convert::Infallible>(Response::new("served".to_owned()))
                }
            }
        });
        let executor = Executor::new(TokioExecutor::new());
        let connection = hyper::server::conn::http2::Builder::new(executor)
            .serve_connection(TokioIo::new(server), service);
        let connection = async { connection.await.unwrap() }
            .tracked_as("connection")
            .label("tenant", "acme");
        let connection_id = connection.id();
        let connection = tokio::spawn(connection);

        let (mut send, client) = hyper::client::conn::http2::handshake::<_, _, String>(
            Executor::new(TokioExecutor::new()),
            TokioIo::new(client),
        )
        .await
        .unwrap();
        let client = tokio::spawn(client);
        let request = |path: &str| {
            let uri = format!("http://localhost{path}");
            Request::builder().uri(uri).body(String::new()).unwrap()
        };
        let answer = send.send_request(request("/")).await.unwrap();
        assert_eq!(answer.status(), 200);
        // The body of the response keeps a share of the connection.
        drop(answer);
        let waits = tokio::spawn(send.send_request(request("/waits")));
        while served.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        let ids = served.lock().unwrap().clone();
        while record(ids[0]).is_some() {
            tokio::task::yield_now().await;
        }
        let waiting = record(ids[1]).expect("it is there");
        assert_eq!(waiting.parent(), connection_id);
        assert_eq!(waiting.labels().get("tenant"), Some("acme"));
        assert!(!waiting.is_nested());
        assert!(
            waiting.type_name().contains("H2Stream"),
            "{}",
            waiting.type_name()
        );

        // All tasks end with the client.
        waits.abort();
        drop(send);
        client.await.unwrap().unwrap();
        connection.await.unwrap();
        while record(ids[1]).is_some() {
            tokio::task::yield_now().await;
        }
        assert_eq!(dropped.load(SeqCst), 2);
    });
}
