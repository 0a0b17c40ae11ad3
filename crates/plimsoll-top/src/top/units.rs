//! Short numbers with units, of a limited width for tables.

/// Formats bytes in at most nine characters, such as `12.4 MiB`.
pub(super) fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (value, unit) = scaled(bytes, 1024.0, &UNITS);
    format!("{value} {unit}")
}

/// Formats a rate in bytes per second.
pub(super) fn bytes_per_second(rate: f64) -> String {
    format!("{}/s", bytes(rate))
}

/// Formats a count: whole below a hundred thousand, with three digits above, such as `12.3 M`.
pub(super) fn count(count: f64) -> String {
    if count.abs() < 99_999.5 {
        return fixed(count, 0);
    }
    const UNITS: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    let (value, unit) = scaled(count, 1000.0, &UNITS);
    format!("{value} {unit}")
}

/// Formats events per second, with a fraction if they are few.
pub(super) fn per_second(rate: f64) -> String {
    if rate != 0.0 && rate.abs() < 9.95 {
        format!("{}/s", fixed(rate, 1))
    } else {
        format!("{}/s", count(rate))
    }
}

/// Formats a count with all its digits, in groups of three.
pub(super) fn exact(count: f64) -> String {
    let digits = format!("{:.0}", count.abs());
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if count <= -0.5 {
        grouped.insert(0, '-');
    }
    grouped
}

/// Formats a time in at most eight characters, from `12 ns` to `300 d`.
pub(super) fn seconds(seconds: f64) -> String {
    let size = seconds.abs();
    let (value, unit) = match size {
        _ if size == 0.0 => return "0 s".into(),
        ..1e-6 => (seconds * 1e9, "ns"),
        ..1e-3 => (seconds * 1e6, "us"),
        ..1.0 => (seconds * 1e3, "ms"),
        ..120.0 => (seconds, "s"),
        ..7200.0 => (seconds / 60.0, "min"),
        ..172_800.0 => (seconds / 3600.0, "h"),
        _ => (seconds / 86_400.0, "d"),
    };
    format!("{} {unit}", three_digits(value))
}

/// Formats a share of one as a percentage.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", fixed(share * 100.0, 1))
}

/// Formats a number with that many decimals. A number that rounds to zero has no sign: an empty sum is -0.
fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(zero) if zero.bytes().all(|digit| matches!(digit, b'0' | b'.')) => zero.to_owned(),
        _ => text,
    }
}

fn scaled<'a>(value: f64, base: f64, units: &[&'a str]) -> (String, &'a str) {
    let mut value = value;
    let mut at = 0;
    // A value that would have four digits before the point takes the next unit.
    while value.abs() >= base.min(999.5) && at + 1 < units.len() {
        value /= base;
        at += 1;
    }
    let text = if at == 0 {
        fixed(value, 0)
    } else {
        three_digits(value)
    };
    (text, units[at])
}

fn three_digits(value: f64) -> String {
    match value.abs() {
        ..9.995 => fixed(value, 2),
        ..99.95 => fixed(value, 1),
        _ => fixed(value, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (value, text) in [
            (0.0, "0 B"),
            (999.0, "999 B"),
            (1000.0, "0.98 KiB"),
            (1024.0, "1.00 KiB"),
            (10_235.0, "10.0 KiB"),
            (13_007_736.0, "12.4 MiB"),
            (1023.0 * 1024.0, "1.00 MiB"),
            (u64::MAX as f64, "16.0 EiB"),
            (-2048.0, "-2.00 KiB"),
        ] {
            assert_eq!(bytes(value), text);
            assert!(bytes(value).len() <= 9, "{text}");
        }
    }

    #[test]
    fn counts_are_whole_while_they_are_small() {
        for (value, text) in [
            (0.0, "0"),
            (99_999.0, "99999"),
            (114_712.0, "115 k"),
            (4_521_225.0, "4.52 M"),
        ] {
            assert_eq!(count(value), text);
        }
        assert_eq!(exact(4_521_225.0), "4,521,225");
        assert_eq!(exact(-1000.0), "-1,000");
        assert_eq!(exact(12.0), "12");
        assert_eq!(exact(123.0), "123");
        assert_eq!(per_second(0.25), "0.2/s");
        assert_eq!(per_second(0.0), "0/s");
        assert_eq!(per_second(12.4), "12/s");
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        for (value, text) in [
            (0.0, "0 s"),
            (255e-9, "255 ns"),
            (1.023e-6, "1.02 us"),
            (0.008_969, "8.97 ms"),
            (119.0, "119 s"),
            (600.0, "10.0 min"),
            (7200.0, "2.00 h"),
            (864_000.0, "10.0 d"),
        ] {
            assert_eq!(seconds(value), text);
        }
        assert_eq!(percent(0.1234), "12.3 %");
        // The sum of nothing is -0.
        let nothing: f64 = [].iter().sum();
        let texts = [
            percent(nothing),
            count(nothing),
            bytes(nothing),
            per_second(-0.04),
            percent(-0.0001),
        ];
        assert_eq!(texts, ["0.0 %", "0", "0 B", "0.0/s", "0.0 %"]);
        assert_eq!(percent(-0.001), "-0.1 %");
    }
}
