//! tonic.

use tokio::net::TcpListener;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};

/// Serves until the future is dropped.
///
/// # Errors
/// Those of the server.
pub async fn serve(listener: TcpListener) -> Result<(), tonic::transport::Error> {
    // The program adds its services to these.
    let services = Routes::default();
    // Documented from here.
    let pages = plimsoll::http::service()
        .loopback_only(|request| request.get::<TcpConnectInfo>()?.remote_addr());
    let router = services.into_axum_router().nest_service("/internal", pages);
    Server::builder()
        .accept_http1(true) // for browsers, curl and `go tool pprof`
        .add_routes(Routes::from(router))
        .serve_with_incoming(TcpIncoming::from(listener))
        .await
    // To here.
}
