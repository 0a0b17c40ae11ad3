//! pingora.

use std::net::SocketAddr;

use async_trait::async_trait;
use http::Response;
use http::header::CONTENT_LENGTH;
use pingora_core::apps::http_app::ServeHttp;
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::Server;
use pingora_core::server::configuration::ServerConf;
use pingora_core::services::listening::Service;

struct Pages;

// Documented from here.
#[async_trait]
impl ServeHttp for Pages {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        let peer = session.client_addr().and_then(|peer| peer.as_inet());
        let peer = peer.map(|peer| peer.ip());
        let head = session.req_header();
        let (method, uri) = (head.method.as_str(), &head.uri);
        let asked = plimsoll::http::Request::new(method, uri.path(), uri.query().unwrap_or(""))
            .below("/internal")
            .headers(&head.headers)
            .loopback_only(peer);
        let mut response = Response::from(asked.spawn().await);
        let length = response.body().len();
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
        response
    }
}
// To here.

/// Serves as long as the process runs.
pub fn serve(address: SocketAddr) -> ! {
    let mut server = Server::new_with_opt_and_conf(None, ServerConf::default());
    server.bootstrap();
    let mut service = Service::new("pages".into(), Pages);
    service.add_tcp(&address.to_string());
    server.add_service(service);
    server.run_forever()
}
