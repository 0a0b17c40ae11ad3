//! Checks that apply to every page, whichever server it comes from.

use crate::client::Answer;

/// Asserts that a page has the same status and headers as in Go.
#[track_caller]
pub fn is_page(answer: &Answer, target: &str, status: u16, content_type: &str, file: Option<&str>) {
    assert_eq!(answer.status, status, "{target}");
    assert_eq!(
        answer.header("content-type"),
        Some(content_type),
        "{target}"
    );
    let file = file.map(|name| format!("attachment; filename=\"{name}\""));
    let disposition = answer.header("content-disposition");
    assert_eq!(disposition, file.as_deref(), "{target}");
    let options = answer.header("x-content-type-options");
    assert_eq!(options, Some("nosniff"), "{target}");
    let length = answer.body.len().to_string();
    assert_eq!(answer.header("content-length"), Some(&*length), "{target}");
    let error = (status >= 400).then_some("1");
    assert_eq!(answer.header("x-go-pprof"), error, "{target}");
}
