//! The summary at the end, and the format of its numbers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use plimsoll::HeapStats;

use crate::latency::Latencies;
use crate::load;
use crate::service::Traffic;

pub struct Summary {
    /// The time from the start of serving to its end.
    pub ran: Duration,
    pub files: usize,
    pub terms: usize,
    pub reindexed: u64,
    pub traffic: Arc<Traffic>,
    pub load: Arc<load::Figures>,
    /// Whether work was still in progress when the wait for it ended.
    pub cut_off: bool,
    /// Heap statistics, read while the last index existed.
    pub heap: HeapStats,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let served = self.traffic.latencies.count();
        let per_second = (served as f64 / self.ran.as_secs_f64()) as u64;
        let (refused, failed) = (
            self.traffic.refused.load(Relaxed),
            self.traffic.failed.load(Relaxed),
        );
        let errors = self.load.errors.load(Relaxed);

        writeln!(f, "\nran for {:.1} s", self.ran.as_secs_f64())?;
        let (files, terms) = (counted(self.files, "file"), counted(self.terms, "term"));
        writeln!(
            f,
            "index       {files}, {terms}, built anew {}",
            counted(self.reindexed, "time")
        )?;
        write!(
            f,
            "served      {}, {}/s, ",
            counted(served, "request"),
            grouped(per_second)
        )?;
        writeln!(
            f,
            "{} refused (4xx), {} failed (5xx)",
            grouped(refused),
            grouped(failed)
        )?;
        writeln!(f, "in service  {}", Quantiles(&self.traffic.latencies))?;
        if self.load.clients > 0 {
            write!(f, "at clients  {}, ", Quantiles(&self.load.latencies))?;
            writeln!(
                f,
                "{}, {}",
                counted(self.load.clients, "client"),
                counted(errors, "error")
            )?;
        }
        let (live, objects) = (
            Bytes(self.heap.live_bytes()),
            counted(self.heap.live_objects(), "object"),
        );
        let (all, mallocs) = (
            Bytes(self.heap.malloc_bytes),
            counted(self.heap.mallocs, "allocation"),
        );
        writeln!(
            f,
            "heap        {live} in {objects}; {all} in {mallocs} since the start"
        )?;
        if self.cut_off {
            writeln!(f, "not everything was finished in time, and was cut off")?;
        }
        Ok(())
    }
}

struct Quantiles<'a>(&'a Latencies);

impl fmt::Display for Quantiles<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.quantile(0.5), self.0.quantile(0.99)) {
            (Some(median), Some(p99)) => write!(f, "p50 {}, p99 {}", millis(median), millis(p99)),
            _ => write!(f, "no requests"),
        }
    }
}

fn millis(duration: Duration) -> String {
    format!("{:.3} ms", duration.as_secs_f64() * 1e3)
}

/// A size with three or four significant digits.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["KiB", "MiB", "GiB", "TiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut size = self.0 as f64 / 1024.0;
        let mut unit = 0;
        // A size that would be printed as 1024.0 takes the next unit.
        while size >= 1023.95 && unit + 1 < units.len() {
            size /= 1024.0;
            unit += 1;
        }
        write!(f, "{size:.1} {}", units[unit])
    }
}

/// `1 file`, `31,204 files`.
pub fn counted(count: impl TryInto<u64>, what: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!(
        "{} {what}{}",
        grouped(count),
        if count == 1 { "" } else { "s" }
    )
}

/// Returns a number with its digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_in_groups_of_three() {
        for (number, written) in [(0, "0"), (999, "999"), (1000, "1,000"), (31_204, "31,204")] {
            assert_eq!(grouped(number), written);
        }
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(
            (counted(0u64, "file"), counted(1u64, "file")),
            ("0 files".to_owned(), "1 file".to_owned())
        );
    }

    #[test]
    fn sizes_have_the_unit_that_fits() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (32_715_571, "31.2 MiB"),
            (5 << 40, "5.0 TiB"),
        ];
        for (bytes, written) in cases {
            assert_eq!(Bytes(bytes).to_string(), written);
        }
    }
}
