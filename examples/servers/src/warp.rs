//! warp.

use std::net::SocketAddr;

use tokio::net::TcpListener;
use warp::Filter;

// Documented from here.
async fn pages(
    method: http::Method,
    path: warp::path::FullPath,
    query: String,
    headers: http::HeaderMap,
    peer: Option<SocketAddr>,
) -> http::Response<Vec<u8>> {
    let asked = plimsoll::http::Request::new(method.as_str(), path.as_str(), &query)
        .below("/internal")
        .headers(&headers)
        .loopback_only(peer.map(|peer| peer.ip()));
    asked.spawn().await.into()
}
// To here.

/// Serves until the future is dropped.
pub async fn serve(listener: TcpListener) {
    // And from here.
    let internal = warp::path("internal")
        .and(warp::method())
        .and(warp::path::full())
        .and(warp::query::raw().or(warp::any().map(String::new)).unify())
        .and(warp::header::headers_cloned())
        .and(warp::addr::remote())
        .then(pages);
    // To here.
    warp::serve(internal).incoming(listener).run().await;
}
