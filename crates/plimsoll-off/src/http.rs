//! The pages, each of which says that it is not compiled in, and servers that do not start.

use std::marker::PhantomData;
use std::net::IpAddr;

use crate::notice::NOT_COMPILED_IN;

#[cfg(feature = "http")]
pub use self::server::{Clients, Server, UnixServer, serve, serve_hosts, serve_to, serve_unix};
#[cfg(feature = "tower")]
pub use self::service::{Body, Service, service};

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

#[derive(Clone, Debug)]
#[must_use = "it is answered by `answer`"]
pub struct Request<'a>(PhantomData<&'a str>);

impl<'a> Request<'a> {
    #[inline]
    pub fn new(_method: &'a str, _path: &'a str, _query: &'a str) -> Self {
        Self(PhantomData)
    }

    #[inline]
    pub fn body(self, _body: &'a [u8]) -> Self {
        self
    }

    #[inline]
    pub fn accept(self, _accept: &str) -> Self {
        self
    }

    #[inline]
    pub fn headers<N: AsRef<str>, V: AsRef<[u8]>>(
        self,
        _headers: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        self
    }

    #[inline]
    pub fn loopback_only(self, _peer: Option<IpAddr>) -> Self {
        self
    }

    #[inline]
    pub fn below(self, _prefix: &'a str) -> Self {
        self
    }

    #[inline]
    pub fn cancelled(self, _cancelled: &'a (dyn Fn() -> bool + Sync)) -> Self {
        self
    }

    pub fn answer(&self) -> Response {
        Response {
            // A program that asks here first goes on to its own pages.
            status: 404,
            headers: vec![
                ("X-Content-Type-Options", "nosniff".into()),
                ("Content-Type", "text/plain; charset=utf-8".into()),
                // With it, Go's tools show the text.
                ("X-Go-Pprof", "1".into()),
            ],
            body: format!("{NOT_COMPILED_IN}\n").into_bytes(),
        }
    }

    #[cfg(feature = "tower")]
    pub fn spawn(self) -> impl Future<Output = Response> + Send + use<> {
        std::future::ready(self.answer())
    }
}

pub fn handle(method: &str, path: &str, query: &str) -> Response {
    Request::new(method, path, query).answer()
}

#[cfg(feature = "http")]
mod server {
    use std::convert::Infallible;
    use std::fmt::Display;
    use std::io;
    use std::net::{SocketAddr, ToSocketAddrs};
    use std::path::{Path, PathBuf};

    use crate::notice::NOT_COMPILED_IN;

    #[derive(Clone, Debug, Default)]
    #[must_use = "it is an argument of `serve_to`"]
    pub struct Clients(());

    impl Clients {
        #[inline]
        pub fn new() -> Self {
            Self(())
        }

        #[inline]
        pub fn host(self, _name: &str) -> io::Result<Self> {
            Ok(self)
        }

        #[inline]
        pub fn token(self, _token: &str) -> io::Result<Self> {
            Ok(self)
        }
    }

    // Of these, no value exists.
    #[derive(Debug)]
    pub struct Server(Infallible);

    #[derive(Debug)]
    pub struct UnixServer(Infallible);

    impl Server {
        pub fn address(&self) -> SocketAddr {
            match self.0 {}
        }
    }

    impl UnixServer {
        pub fn path(&self) -> &Path {
            match self.0 {}
        }
    }

    // A caller's `drop` has something to drop, as it has with the feature `on`.
    impl Drop for Server {
        fn drop(&mut self) {}
    }

    impl Drop for UnixServer {
        fn drop(&mut self) {}
    }

    pub fn serve(address: impl ToSocketAddrs + Display) -> io::Result<Server> {
        Err(unsupported(address))
    }

    pub fn serve_hosts(
        address: impl ToSocketAddrs + Display,
        _hosts: &[&str],
    ) -> io::Result<Server> {
        Err(unsupported(address))
    }

    pub fn serve_to(
        address: impl ToSocketAddrs + Display,
        _clients: Clients,
    ) -> io::Result<Server> {
        Err(unsupported(address))
    }

    pub fn serve_unix(path: impl Into<PathBuf>, _clients: Clients) -> io::Result<UnixServer> {
        Err(unsupported(path.into().display()))
    }

    fn unsupported(address: impl Display) -> io::Error {
        io::Error::new(
            io::ErrorKind::Unsupported,
            format!("cannot serve profiles at {address}: {NOT_COMPILED_IN}"),
        )
    }
}

// At the paths that the pages have, so that all others stay the program's.
#[cfg(feature = "axum")]
pub fn router<S: Clone + Send + Sync + 'static>() -> axum::Router<S> {
    let paths = [
        "/debug/fgprof",
        "/debug/pprof",
        "/debug/pprof/",
        "/debug/pprof/{*name}",
        "/debug/plimsoll",
        "/debug/plimsoll/",
        "/debug/plimsoll/{*name}",
        "/debug/vars",
        "/metrics",
    ];
    let router = axum::Router::new();
    (paths.into_iter()).fold(router, |router, path| router.route_service(path, service()))
}

#[cfg(feature = "tower")]
mod service {
    use std::convert::Infallible;
    use std::net::SocketAddr;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use ::http::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
    use ::http::{Extensions, Method, StatusCode};
    use bytes::Bytes;
    use http_body::{Frame, SizeHint};

    use super::{Response, handle};

    pub fn service() -> Service {
        Service(())
    }

    #[derive(Clone, Debug)]
    pub struct Service(());

    impl Service {
        #[inline]
        pub fn below(self, _prefix: &str) -> Self {
            self
        }

        #[inline]
        pub fn loopback_only(self, _peer: fn(&Extensions) -> Option<SocketAddr>) -> Self {
            self
        }
    }

    #[derive(Clone, Debug, Default)]
    pub struct Body(Bytes);

    impl http_body::Body for Body {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let bytes = std::mem::take(&mut self.0);
            Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_empty()
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0.len() as u64)
        }
    }

    impl<B> tower_service::Service<::http::Request<B>> for Service
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
    {
        type Response = ::http::Response<Body>;
        type Error = Infallible;
        type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: ::http::Request<B>) -> Self::Future {
            let mut answer = handle("", "", "");
            let length = HeaderValue::from(answer.body.len());
            if request.method() == Method::HEAD {
                answer.body.clear();
            }
            let mut response = ::http::Response::from(answer).map(|body| Body(body.into()));
            response.headers_mut().insert(CONTENT_LENGTH, length);
            Box::pin(std::future::ready(Ok(response)))
        }
    }

    impl From<Response> for ::http::Response<Vec<u8>> {
        fn from(answer: Response) -> Self {
            let mut response = ::http::Response::new(answer.body);
            *response.status_mut() =
                StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            // The program may have made the answer, and may have changed it.
            for (name, value) in answer.headers {
                if let (Ok(name), Ok(value)) =
                    (HeaderName::try_from(name), HeaderValue::try_from(value))
                {
                    response.headers_mut().append(name, value);
                }
            }
            response
        }
    }
}
