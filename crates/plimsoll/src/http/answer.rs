//! The answer to a request, before it is sent.

use std::time::Duration;

use super::Response;
use super::pprof::Delta;
use crate::export::TextPage;

/// The answer of a page.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Body,
}

pub(super) enum Body {
    Bytes(Vec<u8>),
    /// A text that can be long. It is formatted while it is sent.
    Text(TextPage),
}

/// The progress of an answer.
pub(super) enum Step {
    Answer(Answer),
    /// The answer is the difference between now and a moment after that time.
    Wait(Duration, Delta),
}

impl Answer {
    pub(super) fn new(status: u16, content_type: &str, body: Vec<u8>) -> Self {
        let headers = vec![
            ("X-Content-Type-Options", "nosniff".into()),
            ("Content-Type", content_type.into()),
        ];
        Self {
            status,
            headers,
            body: Body::Bytes(body),
        }
    }
}

impl From<Answer> for Step {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}

impl From<Answer> for Response {
    fn from(answer: Answer) -> Self {
        Self {
            status: answer.status,
            headers: answer.headers,
            body: match answer.body {
                Body::Bytes(bytes) => bytes,
                Body::Text(page) => page.into_bytes(),
            },
        }
    }
}
