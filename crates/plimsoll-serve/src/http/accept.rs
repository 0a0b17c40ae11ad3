//! Selects the format of metrics by the client's header `Accept`.

use plimsoll_profiles::export::prometheus::Format;

/// Returns OpenMetrics if the client accepts it, in version 1.0.0 or without a version, and does
/// not prefer text: `q` is the preference for each. Otherwise returns text, which every client
/// reads, whatever it accepts.
pub(super) fn format(accept: &str) -> Format {
    let ranges: Vec<Range> = accept.split(',').filter_map(Range::parse).collect();
    let open = quality(&ranges, &["application/openmetrics-text"]).unwrap_or(0);
    let text = quality(&ranges, &["text/plain", "text/*", "*/*"]).unwrap_or(0);
    if open > 0 && open >= text {
        Format::OpenMetrics
    } else {
        Format::Text
    }
}

/// A content type that a client accepts.
struct Range {
    /// The name in lower case, without parameters.
    name: String,
    /// The preference, from 0, for unacceptable, to 1000.
    quality: u16,
}

/// Returns the preference for the first of the names that occurs.
fn quality(ranges: &[Range], names: &[&str]) -> Option<u16> {
    names.iter().find_map(|name| {
        let all = ranges.iter().filter(|range| range.name == *name);
        all.map(|range| range.quality).max()
    })
}

impl Range {
    /// Returns `None` if the text is invalid or names an unsupported version.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next()?.to_ascii_lowercase();
        let wanted = match &*name {
            "text/plain" => "0.0.4",
            _ => "1.0.0",
        };
        let mut quality = 1000;
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let (key, value) = (key.trim_end(), value.trim_start().trim_matches('"'));
            if key.eq_ignore_ascii_case("q") {
                quality = thousandths(value)?;
            } else if key.eq_ignore_ascii_case("version") && value != wanted {
                return None;
            }
        }
        Some(Self { name, quality })
    }
}

/// Parses a number from 0 to 1 with up to three decimal places.
fn thousandths(text: &str) -> Option<u16> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let right = matches!(whole, "0" | "1") && part.len() <= 3;
    if !right || !part.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let thousandths = format!("{whole}{part:0<3}").parse().ok()?;
    (thousandths <= 1000).then_some(thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_chooses_the_format_and_text_is_the_default() {
        // The headers of Prometheus from 2.5, 2.43 and 3.0 on.
        const OLD: &str =
            "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        const NEW: &str = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        const NEWEST: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for accept in [
            NEW,
            NEWEST,
            "application/openmetrics-text",
            "Application/OpenMetrics-Text ; Version = \"1.0.0\" ; Q = 1.000",
            "text/plain, application/openmetrics-text",
            "text/*;q=0.5,application/openmetrics-text;q=0.5",
            "image/png,,;,application/openmetrics-text;q=0.001",
            "text/plain;q=0.9,*/*,application/openmetrics-text;q=0.95",
        ] {
            assert_eq!(format(accept), Format::OpenMetrics, "{accept}");
        }
        for accept in [
            OLD,
            "",
            "*/*",
            "application/*",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "text/plain",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=0.0,text/plain;q=0",
            "application/openmetrics-text;q=0.5,text/plain",
            "application/openmetrics-text;q=0.5,*/*",
            "application/openmetrics-text;version=2.0.0",
            "application/openmetrics-text;q=2",
            "application/openmetrics-text;q=1.001",
            "application/openmetrics-text;q=-1",
            "application/openmetrics-text;q=0.1234",
            "application/openmetrics-text;q",
            "application/openmetrics-text;q=\u{e9}",
            "application/openmetrics-textual",
            "application/openmetrics-text/x",
            ";;;;====,,,,q=1;q=1",
            "image/png",
            "\u{0}\u{ffff}",
        ] {
            assert_eq!(format(accept), Format::Text, "{accept}");
        }
    }
}
