//! The pages as an axum router.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::header::ACCEPT;
use axum::http::{Response, StatusCode};
use axum::routing::any;

use super::Request;

/// A router with all of `/debug/pprof/`, `/debug/plimsoll/`, `/debug/vars` and `/metrics`, to be
/// merged into that of the program. Requests are answered on tokio's threads for blocking work.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/debug/pprof", any(answer))
        .route("/debug/pprof/", any(answer))
        .route("/debug/pprof/{*name}", any(answer))
        .route(super::fragmentation::PATH, any(answer))
        .route(super::memory::PATH, any(answer))
        .route(super::vars::PATH, any(answer))
        .route(super::metrics::PATH, any(answer))
}

/// Says that the request is over: it is dropped with the future that waits for the answer.
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn answer(request: axum::extract::Request) -> Response<Body> {
    let gone = Arc::new(AtomicBool::new(false));
    let guard = Gone(Arc::clone(&gone));
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let accept = request.headers().get_all(ACCEPT).iter();
    let accept: Vec<_> = accept
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .collect();
    let accept = accept.join(",");
    let work = tokio::task::spawn_blocking(move || {
        let cancelled = || gone.load(Ordering::Relaxed);
        Request::new(method.as_str(), uri.path(), uri.query().unwrap_or(""))
            .accept(&accept)
            .cancelled(&cancelled)
            .answer()
    });
    let answered = work.await;
    drop(guard);
    let built = answered.ok().and_then(|answer| {
        let mut response = Response::builder().status(answer.status);
        for (name, value) in answer.headers {
            response = response.header(name, value);
        }
        response.body(Body::from(answer.body)).ok()
    });
    built.unwrap_or_else(|| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}
