//! axum.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::ConnectInfo;
use tokio::net::TcpListener;

/// Serves until the future is dropped.
///
/// # Errors
/// Those of the listener.
pub async fn serve(listener: TcpListener) -> std::io::Result<()> {
    // Documented from here.
    let pages = plimsoll::http::service()
        .loopback_only(|request| Some(request.get::<ConnectInfo<SocketAddr>>()?.0));
    let app = Router::new().nest_service("/internal", pages);
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await
    // To here.
}
