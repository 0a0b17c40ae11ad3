//! The list of profiles under `/debug/pprof/`.

use std::fmt::Write;

use plimsoll_pprof::kinds::WALL;

use super::pprof::ROOT;
use plimsoll_profiles::profile;

/// Returns the list of profiles, in Go's layout.
pub(super) fn page() -> String {
    let mut rows = String::new();
    let mut descriptions = String::new();
    let pages: [(&str, &str); 3] = [
        (
            "cmdline",
            "The command line of the program, its arguments separated by zero bytes.",
        ),
        (
            "symbol",
            "Names for the addresses in the query, separated by plus signs.",
        ),
        (WALL.name, WALL.description),
    ];
    let mut entries: Vec<(&str, usize, &str, &str)> = profile::profiles()
        .iter()
        .map(|profile| {
            // The page of CPU samples has no text.
            let parameters = match profile.name() {
                "profile" => "",
                _ => "?debug=1",
            };
            (
                profile.name(),
                profile.count(),
                profile.description(),
                parameters,
            )
        })
        .chain(pages.map(|(name, description)| (name, 0, description, "")))
        .collect();
    entries.sort_by_key(|entry| entry.0);
    for (name, count, description, parameters) in entries {
        let (link, name, description) = (link(name), escape(name), escape(description));
        let cells =
            format!("<tr><td>{count}</td><td><a href='{link}{parameters}'>{name}</a></td></tr>\n");
        rows.push_str(&cells);
        descriptions.push_str(&format!(
            "<li><div class=profile-name>{name}: </div> {description}</li>\n"
        ));
    }
    format!(
        "<html>\n<head>\n<title>{ROOT}</title>\n<style>\n\
         .profile-name{{ display:inline-block; width:6rem; }}\n</style>\n</head>\n<body>\n{ROOT}\n<br>\n\
         <p>Set debug=1 as a query parameter to export in legacy text format</p>\n<br>\n\
         Types of profiles available:\n<table>\n<thead><td>Count</td><td>Profile</td></thead>\n{rows}</table>\n\
         <a href='goroutine?debug=2'>full goroutine stack dump</a>\n<br>\n\
         <a href='selfcontention?debug=1'>waits of Plimsoll's own code</a>\n<br>\n\
         <a href='../plimsoll/'>charts and flame graphs</a>\n<br>\n\
         <a href='../plimsoll/memory'>where the resident memory went</a>\n<br>\n\
         <a href='../plimsoll/fragmentation'>free space in the allocator's pages</a>\n<br>\n<p>\nProfile Descriptions:\n<ul>\n{descriptions}</ul>\n</p>\n</body>\n</html>\n"
    )
}

/// Escapes a name for the last part of a path.
fn link(name: &str) -> String {
    let mut link = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            // Slashes and colons are escaped, so that the link leads nowhere else.
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                link.push(byte.into());
            }
            other => write!(link, "%{other:02X}").expect("writing to a string cannot fail"),
        }
    }
    link
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\'' => escaped.push_str("&#39;"),
            '"' => escaped.push_str("&#34;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_lists_every_profile_and_page_escaped() {
        let page = page();
        assert!(page.contains("Types of profiles available:"));
        for name in ["allocs", "cmdline", "goroutine", "heap", "symbol"] {
            assert!(page.contains(&format!("<a href='{name}")), "{name}");
        }
        assert!(page.contains("<a href='goroutine?debug=2'>"));
        assert!(page.find("allocs").unwrap() < page.find("heap").unwrap());
        assert_eq!(
            escape("<a href='\"&\">"),
            "&lt;a href=&#39;&#34;&amp;&#34;&gt;"
        );
    }
}
