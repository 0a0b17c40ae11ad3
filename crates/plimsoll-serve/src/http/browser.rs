//! The page for browsers: files of the crate `plimsoll-page`.

use plimsoll_page::{ASSETS, Asset, CONTENT_SECURITY_POLICY};
use plimsoll_server::answer::Answer;

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
    Answer::new(200, asset.content_type, asset.gzip)
        .header("Content-Encoding", "gzip")
        .header("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        .header("Cache-Control", "no-cache")
        .header("Referrer-Policy", "no-referrer")
}
