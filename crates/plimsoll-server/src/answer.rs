//! The answer to a request, before it is sent.

use std::sync::Arc;
use std::time::Duration;

/// The content type of text.
pub const TEXT: &str = "text/plain; charset=utf-8";

/// The answer of a page.
#[derive(Debug)]
pub struct Answer {
    /// The status, such as 200.
    pub status: u16,
    /// Names and values of headers; without `Content-Length` and `Connection`.
    pub headers: Vec<(&'static str, String)>,
    /// The body. It is also present for `HEAD`, to which only its length is sent.
    pub body: Body,
}

/// The body of an answer.
#[derive(Debug)]
pub enum Body {
    /// Bytes of this answer only.
    Bytes(Vec<u8>),
    /// Bytes that exist for as long as the program.
    Static(&'static [u8]),
    /// Bytes that other answers share.
    Shared(Arc<[u8]>),
    /// A text that can be long. It is formatted while it is sent.
    Text(Box<dyn Text>),
}

/// A text that is formatted in chunks.
pub trait Text: Send {
    /// Returns the length of the whole text in bytes.
    fn len(&self) -> usize;

    /// Returns the next part: about `bytes` bytes, and none at the end.
    fn chunk(&mut self, bytes: usize) -> Vec<u8>;

    /// Reports whether the text has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl std::fmt::Debug for dyn Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Text")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// The progress of an answer. `P` is the first half of an answer that covers some time.
#[derive(Debug)]
pub enum Step<P> {
    /// The answer is complete.
    Answer(Answer),
    /// The answer needs a second half, after that time.
    Wait(Duration, P),
}

impl Answer {
    /// Creates an answer.
    pub fn new(status: u16, content_type: &str, body: impl Into<Body>) -> Self {
        let headers = vec![
            ("X-Content-Type-Options", "nosniff".into()),
            ("Content-Type", content_type.into()),
        ];
        Self {
            status,
            headers,
            body: body.into(),
        }
    }

    /// Creates an answer with a line of text.
    pub fn line(status: u16, text: &str) -> Self {
        Self::new(status, TEXT, format!("{text}\n").into_bytes())
    }

    /// Creates an error in the form of Go's handler, marked so that Go's tools show the text.
    pub fn error(status: u16, text: &str) -> Self {
        Self::line(status, text).header("X-Go-Pprof", "1")
    }

    /// Adds a header.
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

impl Body {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Static(bytes) => bytes.len(),
            Self::Shared(bytes) => bytes.len(),
            Self::Text(text) => text.len(),
        }
    }

    /// Reports whether the body has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Static(bytes) => bytes.to_vec(),
            Self::Shared(bytes) => bytes.to_vec(),
            Self::Text(mut text) => text.chunk(usize::MAX),
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<&'static [u8]> for Body {
    fn from(bytes: &'static [u8]) -> Self {
        Self::Static(bytes)
    }
}

impl From<Arc<[u8]>> for Body {
    fn from(bytes: Arc<[u8]>) -> Self {
        Self::Shared(bytes)
    }
}

impl<P> From<Answer> for Step<P> {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}
