//! The browser page over files: its document, with the list of the files.

use std::io::Read;

use flate2::read::GzDecoder;
use serde::Serialize;

/// A profile in the list. The documentation of `plimsoll_page` describes the fields.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The name in the address of its pages.
    pub name: String,
    /// The title in the list.
    pub title: String,
    /// Whether there is a history.
    pub has_history: bool,
    /// Whether there is a report of growth.
    pub has_growth: bool,
    /// Whether it is the difference of two profiles.
    pub is_difference: bool,
    /// The sample type that is shown first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_type: Option<String>,
    /// The profile itself, for a page in one file: base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

/// The list as the page reads it.
#[derive(Serialize)]
struct List<'a> {
    profiles: &'a [Entry],
}

/// Returns the document `compressed`, a part of `plimsoll_page`, with the list of the files.
pub fn document(compressed: &[u8], entries: &[Entry]) -> String {
    let mut document = String::new();
    let read = GzDecoder::new(compressed).read_to_string(&mut document);
    read.expect("the page is valid gzip and UTF-8");
    let list = serde_json::to_string(&List { profiles: entries });
    // A `<` could end the element.
    let list = list
        .expect("strings are valid JSON")
        .replace('<', "\\u003c");
    let element =
        format!("<script type=\"application/json\" id=\"files\">{list}</script>\n</head>");
    document.replacen("</head>", &element, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_does_not_end_the_list() {
        let title = "</script><script>alert(1)</script>".to_owned();
        let entry = Entry {
            title,
            ..Entry::default()
        };
        for compressed in [plimsoll_page::ASSETS[0].gzip, plimsoll_page::ALONE] {
            let text = document(compressed, std::slice::from_ref(&entry));
            assert!(text.contains("id=\"files\">{\"profiles\":[{"));
            assert!(!text.contains("alert(1)</script>"));
        }
    }
}
