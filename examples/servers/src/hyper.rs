//! hyper.

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

/// Serves until the future is dropped.
///
/// # Errors
/// Those of the listener.
pub async fn serve(listener: TcpListener) -> std::io::Result<()> {
    // Documented from here.
    let pages = plimsoll::http::service()
        .below("/internal")
        .loopback_only(|request| request.get().copied());
    loop {
        let (stream, peer) = listener.accept().await?;
        let pages = TowerToHyperService::new(pages.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            pages.call(request)
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
    // To here.
}
