//! The pages as a service of tower.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

#[cfg(feature = "axum")]
use axum::extract::OriginalUri;
use bytes::{Buf, Bytes};
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{Extensions, HeaderName, HeaderValue, Method, StatusCode};
use http_body::{Frame, SizeHint};
use plimsoll_server::head::LONGEST_BODY;

use super::{Request, Response};

/// Returns the pages as a service of tower, for the server of a program: of axum, tonic, hyper, or
/// another that runs on tokio. Requests are answered on tokio's threads for blocking work.
///
/// Requests that a browser sends from a page of another site are refused with the status 403. The
/// service does not know the names of the program's host. A program that listens on an address of its
/// user's machine must check the header `Host`, against DNS rebinding, or call
/// [`Service::loopback_only`].
///
/// ```
/// let service = plimsoll::http::service()
///     .below("/internal")
///     .loopback_only(|extensions| extensions.get().copied());
/// # drop(service);
/// ```
pub fn service() -> Service {
    plimsoll_tasks::recording::note_owners();
    Service {
        prefix: Arc::default(),
        peer: None,
    }
}

/// The pages as a service of tower: see [`service`].
///
/// ```
/// use tower_service::Service;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let mut pages = plimsoll::http::service();
/// let request = http::Request::get("/debug/pprof/").body(String::new())?;
/// let response = pages.call(request).await?;
/// assert_eq!(response.status(), 200);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Service {
    prefix: Arc<str>,
    /// Reads the address of the client, if only those on this machine are admitted.
    peer: Option<fn(&Extensions) -> Option<SocketAddr>>,
}

impl Service {
    /// Sets the path below which requests reach the service, such as `/internal`: see
    /// [`Request::below`]. Not for a router that removes this prefix from the request, as axum's
    /// `nest_service` does.
    pub fn below(self, prefix: &str) -> Self {
        Self {
            prefix: prefix.into(),
            ..self
        }
    }

    /// Refuses requests with the status 403 unless they come from this machine: see
    /// [`Request::loopback_only`]. `peer` reads the client's address from the request's extensions,
    /// in which the server puts it: `ConnectInfo<SocketAddr>` of axum, `TcpConnectInfo` of tonic.
    pub fn loopback_only(self, peer: fn(&Extensions) -> Option<SocketAddr>) -> Self {
        Self {
            peer: Some(peer),
            ..self
        }
    }
}

/// The body of an answer; empty for the method `HEAD`.
///
/// ```
/// use http_body::Body;
/// use tower_service::Service;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let request = http::Request::get("/debug/pprof/").body(String::new())?;
/// let body = plimsoll::http::service().call(request).await?.into_body();
/// assert!(body.size_hint().exact() > Some(0));
/// assert!(plimsoll::http::Body::default().is_end_stream());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })
/// # }
/// ```
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

impl<B> tower_service::Service<http::Request<B>> for Service
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let service = self.clone();
        let (parts, body) = request.into_parts();
        Box::pin(async move {
            let body = match parts.method == Method::POST {
                true => read(body).await,
                false => Vec::new(),
            };
            Ok(service.answer(parts, &body).await)
        })
    }
}

/// Returns a body, which is empty if it fails or has more than [`LONGEST_BODY`] bytes.
async fn read<B: http_body::Body>(body: B) -> Vec<u8> {
    let mut body = pin!(body);
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let Ok(frame) = frame else {
            return Vec::new();
        };
        let Ok(mut data) = frame.into_data() else {
            continue;
        };
        if data.remaining() > LONGEST_BODY - bytes.len() {
            return Vec::new();
        }
        while data.has_remaining() {
            let length = data.chunk().len();
            bytes.extend_from_slice(data.chunk());
            data.advance(length);
        }
    }
    bytes
}

impl Service {
    async fn answer(self, parts: Parts, body: &[u8]) -> http::Response<Body> {
        let (path, prefix) = self.place(&parts);
        let query = parts.uri.query().unwrap_or("");
        let authority = parts.uri.authority();
        let mut request = Request::new(parts.method.as_str(), path, query)
            .below(prefix)
            .body(body)
            .headers(&parts.headers)
            .headers(authority.map(|authority| ("host", authority.as_str())));
        if let Some(peer) = self.peer {
            request = request.loopback_only(peer(&parts.extensions).map(|peer| peer.ip()));
        }
        let mut answer = request.spawn().await;
        let length = HeaderValue::from(answer.body.len());
        if parts.method == Method::HEAD {
            answer.body.clear();
        }
        let mut response = http::Response::from(answer).map(|body| Body(body.into()));
        response.headers_mut().insert(CONTENT_LENGTH, length);
        response
    }

    /// Returns the path of a request, and the prefix in it.
    fn place<'a>(&'a self, parts: &'a Parts) -> (&'a str, &'a str) {
        let path = parts.uri.path();
        #[cfg(feature = "axum")]
        if let (Some(original), "/", "") = (parts.extensions.get(), path, &*self.prefix) {
            // axum removes the prefix of a nested service, and reports that path without the slash
            // as `/`.
            let OriginalUri(original) = original;
            return (original.path(), original.path());
        }
        (path, &self.prefix)
    }
}

/// The answer in the types of the crate `http`, for frameworks that use these.
impl From<Response> for http::Response<Vec<u8>> {
    fn from(answer: Response) -> Self {
        let mut response = http::Response::new(answer.body);
        *response.status_mut() =
            StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        for (name, value) in answer.headers {
            // The names are lower or upper case letters and hyphens; the values are text of a line.
            if let (Ok(name), Ok(value)) =
                (HeaderName::try_from(name), HeaderValue::try_from(value))
            {
                response.headers_mut().append(name, value);
            }
        }
        response
    }
}
