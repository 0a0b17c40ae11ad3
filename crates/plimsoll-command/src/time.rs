//! Formats points in time.

/// Formats a time in nanoseconds since 1970, such as `2026-01-31 23:59:59 UTC`.
pub fn utc(since_1970_ns: i64) -> String {
    let seconds = since_1970_ns.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Parses a time: in seconds since 1970, or as [`utc`] formats it, with or without `UTC`. Returns
/// nanoseconds since 1970.
pub(crate) fn parse(text: &str) -> Option<u64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return (seconds.is_finite() && seconds >= 0.0).then_some((seconds * 1e9) as u64);
    }
    let (day, time) = text.strip_suffix(" UTC").unwrap_or(text).split_once(' ')?;
    let numbers = |text: &str, separator: char| -> Option<[i64; 3]> {
        let numbers: Option<Vec<i64>> = text
            .split(separator)
            .map(|part| part.parse().ok())
            .collect();
        numbers?.try_into().ok()
    };
    let [year, month, day] = numbers(day, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let days = (1970..=2262).contains(&year).then(|| {
        // No month is longer than 31 days, so the day lies within these.
        let first = (year - 1970) * 365;
        (first..first + 500).find(|&days| date(days) == (year, month, day))
    })??;
    let is_time = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..60).contains(&second);
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    is_time.then_some(seconds as u64 * 1_000_000_000)
}

/// Returns year, month and day of the Gregorian calendar.
fn date(mut days_since_1970: i64) -> (i64, i64, i64) {
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut year = 1970;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days_since_1970 < length {
            break;
        }
        days_since_1970 -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days_since_1970 < length {
            break;
        }
        days_since_1970 -= length;
        month += 1;
    }
    (year, month, days_since_1970 + 1)
}

#[cfg(test)]
mod tests {
    use super::{parse, utc};

    #[test]
    fn dates_are_those_of_the_calendar() {
        let second = 1_000_000_000;
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399 * second), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400 * second), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_709_251_199 * second), "2024-02-29 23:59:59 UTC");
        assert_eq!(utc(4_107_542_400 * second), "2100-03-01 00:00:00 UTC");
        assert_eq!(utc(i64::MAX), "2262-04-11 23:47:16 UTC");
    }

    #[test]
    fn a_time_is_read_as_it_is_written() {
        for seconds in [
            0,
            951_782_399,
            951_868_800,
            1_709_251_199,
            4_107_542_400,
            9_214_646_400,
        ] {
            let text = utc(seconds * 1_000_000_000);
            let expected = Some(seconds as u64 * 1_000_000_000);
            assert_eq!(parse(&text), expected, "{text}");
            assert_eq!(parse(text.trim_end_matches(" UTC")), expected);
            assert_eq!(parse(&seconds.to_string()), expected);
        }
        assert_eq!(parse("1.5"), Some(1_500_000_000));
        for text in [
            "",
            "-1",
            "inf",
            "2026-02-30 00:00:00",
            "2026-02-03 24:00:00",
            "2026-02-03",
            "9999-01-01 00:00:00",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
