//! poem.

use poem::listener::TcpAcceptor;
use poem::{Request, Response, Route, Server, handler};
use tokio::net::TcpListener;

// Documented from here.
#[handler]
async fn pages(request: &Request) -> Response {
    let (method, uri) = (request.method().as_str(), request.original_uri());
    let peer = request.remote_addr().as_socket_addr();
    let asked = plimsoll::http::Request::new(method, uri.path(), uri.query().unwrap_or(""))
        .below("/internal")
        .headers(request.headers())
        .loopback_only(peer.map(|peer| peer.ip()));
    let (parts, body) = http::Response::from(asked.spawn().await).into_parts();
    let mut response = Response::builder().status(parts.status).body(body);
    response.headers_mut().extend(parts.headers);
    response
}
// To here.

/// Serves until the future is dropped.
///
/// # Errors
/// Those of the listener.
pub async fn serve(listener: TcpListener) -> std::io::Result<()> {
    let app = Route::new().nest("/internal", pages);
    let acceptor = TcpAcceptor::from_tokio(listener)?;
    Server::new_with_acceptor(acceptor).run(app).await
}
