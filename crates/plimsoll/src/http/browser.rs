//! The page for browsers: files of the crate `plimsoll-page`.

use plimsoll_page::{ASSETS, Asset, CONTENT_SECURITY_POLICY};

use super::answer::Answer;

/// The path of the page's directory.
pub(super) const ROOT: &str = "/debug/plimsoll/";

/// Returns the file at a path.
pub(super) fn find(path: &str) -> Option<&'static Asset> {
    let path = path.strip_prefix(ROOT)?;
    ASSETS.iter().find(|asset| asset.path == path)
}

/// Returns a file. Browsers ask again at each visit, because the next version of the program may have
/// another one. All browsers accept `gzip`.
pub(super) fn answer(asset: &Asset) -> Answer {
    let mut answer = Answer::new(200, asset.content_type, asset.gzip.to_vec());
    for (name, value) in [
        ("Content-Encoding", "gzip"),
        ("Content-Security-Policy", CONTENT_SECURITY_POLICY),
        ("Cache-Control", "no-cache"),
        ("Referrer-Policy", "no-referrer"),
    ] {
        answer.headers.push((name, value.into()));
    }
    answer
}
