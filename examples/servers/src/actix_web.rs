//! actix-web.

use actix_web::http::StatusCode;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use tokio::net::TcpListener;

// Documented from here.
async fn pages(request: HttpRequest) -> HttpResponse {
    let (method, uri) = (request.method().as_str(), request.uri());
    let asked = plimsoll::http::Request::new(method, uri.path(), request.query_string())
        .below("/internal")
        .headers(request.headers())
        .loopback_only(request.peer_addr().map(|peer| peer.ip()));
    let answer = asked.spawn().await;
    let mut response = HttpResponse::build(StatusCode::from_u16(answer.status).unwrap_or_default());
    for header in answer.headers {
        response.append_header(header);
    }
    response.body(answer.body)
}
// To here.

/// Serves until the future is dropped.
///
/// # Errors
/// Those of the listener.
pub async fn serve(listener: TcpListener) -> std::io::Result<()> {
    let app = || App::new().service(web::scope("/internal").default_service(web::to(pages)));
    let server = HttpServer::new(app).workers(1).disable_signals();
    server.listen(listener.into_std()?)?.run().await
}
