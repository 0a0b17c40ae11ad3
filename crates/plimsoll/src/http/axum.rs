//! The pages as an axum router.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::header::{ACCEPT, HOST, ORIGIN};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::routing::any;

use super::access::{self, Names};
use super::pages::PAGES;
use super::{Request, pprof};

/// Returns a router with all of `/debug/pprof/`, `/debug/plimsoll/`, `/debug/vars` and `/metrics`,
/// to be merged into the program's router. Requests are answered on tokio's threads for blocking
/// work.
///
/// Requests that a browser sends from a page of another site are refused with the status 403. The
/// router does not know the names of the program's host. A program that listens on an address of
/// its user's machine must check the header `Host`, against DNS rebinding.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    crate::recording::note_owners();
    let router = Router::new()
        .route("/debug/pprof", any(answer))
        .route("/debug/pprof/", any(answer))
        .route("/debug/pprof/{*name}", any(answer));
    PAGES
        .into_iter()
        .fold(router, |router, page| router.route(page.path, any(answer)))
}

/// Reports the end of the request: it is dropped with the future that waits for the answer.
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn answer(request: axum::extract::Request) -> Response<Body> {
    if let Err((status, text)) = check_site(request.headers()) {
        return built(pprof::error(status, &text).into());
    }
    let gone = Arc::new(AtomicBool::new(false));
    let guard = Gone(Arc::clone(&gone));
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let accept = values(request.headers(), ACCEPT.as_str()).join(",");
    let work = tokio::task::spawn_blocking(move || {
        let cancelled = || gone.load(Ordering::Relaxed);
        Request::new(method.as_str(), uri.path(), uri.query().unwrap_or(""))
            .accept(&accept)
            .cancelled(&cancelled)
            .answer()
    });
    let answered = work.await;
    drop(guard);
    answered.map_or_else(|_| failed(), built)
}

/// Returns the values of a header.
fn values(headers: &HeaderMap, name: &str) -> Vec<String> {
    let values = headers.get_all(name).iter();
    values
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .collect()
}

fn check_site(headers: &HeaderMap) -> Result<(), (u16, String)> {
    let (sites, origins) = (
        values(headers, "sec-fetch-site"),
        values(headers, ORIGIN.as_str()),
    );
    access::check_site(
        sites.iter().map(String::as_str),
        origins.iter().map(String::as_str),
        values(headers, HOST.as_str()).first().map(String::as_str),
        &Names::default(),
    )
}

fn built(answer: super::Response) -> Response<Body> {
    let mut response = Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    let response = response.body(Body::from(answer.body));
    response.unwrap_or_else(|_| failed())
}

fn failed() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}
