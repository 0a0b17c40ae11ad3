//! Answers on tokio's threads for blocking work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle;

use plimsoll_server::answer::Answer;

use super::{Request, Response};
use plimsoll_core::internal_scope;

/// Reports the end of the request: it is dropped with the future that waits for the answer.
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Request<'_> {
    /// Answers the request as [`Request::answer`] does, on one of tokio's threads for blocking work.
    /// The thread that polls the future never blocks. A page that waits stops when the future is
    /// dropped; the function of [`Request::cancelled`] is not called.
    ///
    /// Outside a runtime of tokio, the status is 500.
    pub fn spawn(self) -> impl Future<Output = Response> + Send + use<> {
        let own = internal_scope::scope();
        let parts = [self.method, self.path, self.query, self.prefix].map(str::to_owned);
        let body = self.body.to_vec();
        let (headers, peers) = (self.headers, self.peers);
        drop(own);
        async move {
            let Ok(runtime) = Handle::try_current() else {
                let text = "Plimsoll's answers need a runtime of tokio here; elsewhere, call \
                            plimsoll::http::Request::answer on a thread that may block";
                return Answer::error(500, text).into();
            };
            let gone = Arc::new(AtomicBool::new(false));
            let guard = Gone(Arc::clone(&gone));
            let work = runtime.spawn_blocking(move || {
                let [method, path, query, prefix] = parts.each_ref().map(String::as_str);
                let request = Request {
                    method,
                    path,
                    query,
                    body: &body,
                    prefix,
                    headers,
                    peers,
                    cancelled: &|| gone.load(Ordering::Relaxed),
                };
                request.answer()
            });
            let answered = work.await;
            drop(guard);
            let text = "Internal Server Error: the page could not be computed";
            answered.unwrap_or_else(|_| Answer::error(500, text).into())
        }
    }
}
