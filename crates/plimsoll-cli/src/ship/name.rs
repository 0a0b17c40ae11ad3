//! Names of shipped files: host, program, process and time, from characters that are safe in paths and
//! URLs.

use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_command::time;

/// The maximum number of characters of a part of a name.
const MAX_PART: usize = 64;

/// The extension of post-mortem files, with its dot.
pub(super) const POST_MORTEM: &str = ".postmortem";

/// The extension of profiles, with its dot.
pub(super) const PROFILE: &str = ".pb.gz";

/// Returns the text as a part of a name: letters and digits of ASCII, `-`, `_` and `.`, with `-` for all
/// others, and without a dot at the beginning. Long texts lose their beginning.
pub(super) fn part(text: &str) -> String {
    let skipped = text.chars().count().saturating_sub(MAX_PART);
    let safe = |character: char| match character {
        '.' | '_' | '-' => character,
        _ if character.is_ascii_alphanumeric() => character,
        _ => '-',
    };
    let name: String = text.chars().skip(skipped).map(safe).collect();
    match name.strip_prefix('.') {
        Some(rest) => format!("-{rest}"),
        None if name.is_empty() => "unknown".to_owned(),
        None => name,
    }
}

/// Joins the parts of a name. Each is made safe.
pub(super) fn joined(parts: &[&str]) -> String {
    let parts: Vec<String> = parts.iter().map(|text| part(text)).collect();
    parts.join("_")
}

/// Formats a time in nanoseconds since 1970, such as `20260131T235959.000000001Z`.
pub(super) fn moment(time_ns: u64) -> String {
    let time_ns = i64::try_from(time_ns).unwrap_or(i64::MAX);
    format!("{}.{:09}Z", seconds(time_ns), time_ns % 1_000_000_000)
}

/// Formats a time in nanoseconds since 1970, such as `20260131T235959`.
pub(super) fn seconds(time_ns: i64) -> String {
    let text = time::utc(time_ns);
    let text = text.trim_end_matches(" UTC").replace(' ', "T");
    text.replace(['-', ':'], "")
}

/// Returns the time in nanoseconds since 1970; 0 before.
pub(super) fn since_1970(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the name of this machine; in a pod, the name of the pod.
pub(super) fn host() -> String {
    part(&rustix::system::uname().nodename().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_only_safe_characters() {
        for (text, expected) in [
            ("service", "service"),
            ("../../etc/passwd", "-.-..-etc-passwd"),
            ("a b\n\u{202e}\0%2f?#é", "a-b----2f---"),
            ("", "unknown"),
            (".", "-"),
            ("..", "-."),
        ] {
            assert_eq!(part(text), expected, "{text:?}");
        }
        assert_eq!(part(&"x".repeat(1000)).len(), MAX_PART);
        assert_eq!(joined(&["a/b", "", "1"]), "a-b_unknown_1");
    }

    #[test]
    fn times_sort_as_text() {
        assert_eq!(moment(0), "19700101T000000.000000000Z");
        assert_eq!(
            moment(951_782_400_000_000_001),
            "20000229T000000.000000001Z"
        );
        assert_eq!(moment(u64::MAX), "22620411T234716.854775807Z");
    }
}
