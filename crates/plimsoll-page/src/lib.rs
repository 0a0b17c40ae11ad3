//! The browser page of Plimsoll, as compressed files that a server sends.
//!
//! The page reads from the server that sent it: `history`, `threads` and `memory` beside it,
//! profiles below `../pprof/`, and `../../metrics`. It requests nothing from other origins.
//!
//! If the document has an element `<script type="application/json" id="files">`, the page shows
//! files instead: `{"profiles":[{"name":"","title":"","hasHistory":false,"hasGrowth":false,"isDifference":false,
//! "sampleType":"","data":""}]}`, of which only `name` and `title` are required. `data` is the
//! profile in base64; without it, the page reads `profiles/NAME`. It reads `history/NAME` of a
//! profile with a history, `growth/NAME` of one with verdicts, and its earlier states by the parameters `at`, `from` and `to`.
//!
//! All items of this crate may change in any version: the crates of Plimsoll require each other in exactly one version.

/// The policy under which the page works: the value of the header `Content-Security-Policy`.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// The path below the directory of the page; empty for the page itself.
    pub path: &'static str,
    /// The value of the header `Content-Type`.
    pub content_type: &'static str,
    /// The contents, to be sent with `Content-Encoding: gzip`.
    pub gzip: &'static [u8],
}

/// All files of the page.
pub const ASSETS: [Asset; 3] = [
    Asset {
        path: "",
        content_type: "text/html; charset=utf-8",
        gzip: include_bytes!("../dist/index.html.gz"),
    },
    Asset {
        path: "page.js",
        content_type: "text/javascript; charset=utf-8",
        gzip: include_bytes!("../dist/page.js.gz"),
    },
    Asset {
        path: "page.css",
        content_type: "text/css; charset=utf-8",
        gzip: include_bytes!("../dist/page.css.gz"),
    },
];

/// The page as one document with its script, style and policy, for files; compressed with gzip.
pub const ALONE: &[u8] = include_bytes!("../dist/alone.html.gz");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_gzip_without_a_time() {
        for asset in ASSETS {
            assert_eq!(asset.gzip[..2], [0x1f, 0x8b], "{}", asset.path);
            assert_eq!(asset.gzip[4..8], [0; 4], "{}", asset.path);
        }
    }

    #[test]
    fn the_page_takes_at_most_300_kilobytes() {
        let size: usize = ASSETS.iter().map(|asset| asset.gzip.len()).sum();
        assert!(size <= 300_000, "{size} bytes");
    }
}
