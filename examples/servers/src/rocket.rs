//! Rocket.

use std::io::Cursor;

use rocket::http::{Method, Status};
use rocket::route::{Handler, Outcome};
use rocket::{Config, Data, Request, Response, Route};

#[derive(Clone)]
struct Pages;

// Documented from here.
#[rocket::async_trait]
impl Handler for Pages {
    async fn handle<'r>(&self, request: &'r Request<'_>, _: Data<'r>) -> Outcome<'r> {
        let (method, uri) = (request.method().as_str(), request.uri());
        let query = uri.query().map_or("", |query| query.as_str());
        let headers = request.headers().clone().into_iter();
        let asked = plimsoll::http::Request::new(method, uri.path().as_str(), query)
            .below("/internal")
            .headers(headers.map(|it| (it.name.to_string(), it.value.to_string())))
            .loopback_only(request.remote().map(|peer| peer.ip()));
        let answer = asked.spawn().await;
        let mut response = Response::build();
        response.status(Status::new(answer.status));
        response.sized_body(None, Cursor::new(answer.body));
        for (name, value) in answer.headers {
            response.raw_header(name, value);
        }
        Outcome::Success(response.finalize())
    }
}
// To here.

/// Serves at a port of 127.0.0.1 until the future is dropped.
///
/// # Errors
/// Those of Rocket.
pub async fn serve(port: u16) -> Result<(), Box<rocket::Error>> {
    let config = Config {
        port,
        workers: 1,
        log_level: rocket::config::LogLevel::Off,
        shutdown: rocket::config::Shutdown {
            ctrlc: false,
            ..Default::default()
        },
        ..Config::release_default()
    };
    let pages = [Method::Get].map(|method| Route::new(method, "/<path..>", Pages));
    let server = rocket::custom(config).mount("/internal", pages);
    server.launch().await.map(|_| ()).map_err(Box::new)
}
