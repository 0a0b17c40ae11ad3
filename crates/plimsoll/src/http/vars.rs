//! Go's `/debug/vars`.

use super::answer::Answer;
use crate::export::vars;
use crate::stats;

/// Where it is.
pub(super) const PATH: &str = "/debug/vars";

pub(super) const JSON: &str = "application/json; charset=utf-8";

pub(super) fn answer() -> Answer {
    let arguments: Vec<String> = std::env::args_os()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let text = vars::write(&arguments, &stats::mem_stats(), &stats::accounts());
    Answer::new(200, JSON, text.into_bytes())
}
