//! The pages as an axum router.

use axum::Router;

use super::pages::PAGES;
use super::service;

/// Returns a router with all of `/debug/pprof/`, `/debug/plimsoll/`, `/debug/vars` and `/metrics`,
/// to be merged into the program's router, or nested in it. Requests are answered on tokio's threads
/// for blocking work.
///
/// Requests are refused as by [`service()`]. For other settings, add that service to the program's
/// router.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let paths = [
        "/debug/fgprof",
        "/debug/pprof",
        "/debug/pprof/",
        "/debug/pprof/{*name}",
        "/debug/plimsoll",
        "/debug/plimsoll/",
        "/debug/plimsoll/{*name}",
    ];
    let paths = paths.into_iter().chain(PAGES.iter().map(|page| page.path));
    paths.fold(Router::new(), |router, path| {
        router.route_service(path, service())
    })
}
