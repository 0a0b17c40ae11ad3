//! The summary at the end of `plimsoll run`, for people.

use std::collections::HashMap;
use std::fmt::Write;

use super::numbers::Numbers;
use super::profiles::{self, Site};
use super::short_name::shortened;
use super::{Ran, Unseen};
use crate::plain_text::plain;
use crate::profile::Profile;

/// A process and its report.
pub struct Process {
    pub numbers: Numbers,
    pub profiles: HashMap<&'static str, Profile>,
}

/// Returns the summary of a process. `ran` is present for the program itself.
pub fn text(process: &Process, ran: Option<&Ran>, unseen: Option<&Unseen>, sites: usize) -> String {
    let mut to = String::new();
    // Writing to a string does not fail.
    let _ = head(&mut to, &process.numbers, ran, unseen);
    let _ = lists(&mut to, process, sites);
    let _ = sizes(&mut to, &process.numbers);
    to
}

fn head(
    to: &mut String,
    numbers: &Numbers,
    ran: Option<&Ran>,
    unseen: Option<&Unseen>,
) -> std::fmt::Result {
    let ended = ran.map(|ran| &ran.ended);
    let how = match ended {
        Some(ended) => ended.how(),
        None => format!("ended by {}", numbers.ending),
    };
    let program = plain(crate::run::name_of(&numbers.program));
    writeln!(
        to,
        "plimsoll: {program} (process {}) {how} after {}",
        numbers.process,
        seconds(numbers.seconds)
    )?;
    if numbers.ending == "exec" {
        writeln!(
            to,
            "  note       the process executed another program, which wrote no report"
        )?;
    }
    if numbers.was_killed() {
        writeln!(
            to,
            "  note       the process was killed before it could report; the counts are those at \
             its last instant"
        )?;
    }
    let why = why_unseen(numbers);
    if let Some(unseen) = unseen.filter(|_| why.is_none()) {
        writeln!(to, "  note       the heap is not observed: {unseen}")?;
    }
    if let Some(why) = why {
        match unseen {
            Some(unseen) => writeln!(to, "  heap       not observed: {unseen}")?,
            None => writeln!(to, "  heap       not observed: {why}")?,
        }
    } else {
        let seconds = numbers.seconds.max(1e-9);
        write_heap(to, numbers)?;
        let freed = 100.0 * numbers.free_bytes as f64 / numbers.malloc_bytes.max(1) as f64;
        let asked = if numbers.was_killed() {
            String::new()
        } else {
            format!(" ({} requested)", bytes(numbers.asked_bytes))
        };
        writeln!(
            to,
            "  allocated  {} in {} blocks{asked}; {}/s, {}/s; {freed:.1} % freed",
            bytes(numbers.malloc_bytes),
            count(numbers.mallocs),
            bytes((numbers.malloc_bytes as f64 / seconds) as u64),
            count((numbers.mallocs as f64 / seconds) as u64),
        )?;
    }
    if numbers.inherited.is_some() && numbers.mapping_calls != 0 {
        writeln!(
            to,
            "  mapped     {} in {} since the fork; {} unmapped",
            bytes(numbers.mapped_bytes),
            counted(numbers.mapping_calls, "call"),
            bytes(numbers.unmapped_bytes),
        )?;
    } else if numbers.mapping_calls != 0 {
        writeln!(
            to,
            "  mapped     {} in {} at exit; {} mapped by {} in total",
            bytes(numbers.mapped_bytes.saturating_sub(numbers.unmapped_bytes)),
            counted(numbers.mappings, "mapping"),
            bytes(numbers.mapped_bytes),
            counted(numbers.mapping_calls, "call"),
        )?;
    }
    if !numbers.was_killed() {
        writeln!(
            to,
            "  threads    {} created; lock waits: {}",
            count(numbers.threads),
            lock_waits(numbers),
        )?;
    }
    if let Some(ended) = ended {
        writeln!(
            to,
            "  CPU time   {} user, {} system; peak resident memory {}",
            seconds(ended.user.as_secs_f64()),
            seconds(ended.system.as_secs_f64()),
            bytes(ended.resident),
        )?;
    }
    if numbers.lost() != 0 {
        writeln!(
            to,
            "  lost       {} events without a stack, {} because the table was full, {} sampled blocks, {} waits, {} mappings; {} stacks cut at code that cannot be unwound",
            count(numbers.without_stack),
            count(numbers.table_full),
            count(numbers.untracked),
            count(numbers.lost_waits),
            count(numbers.lost_mappings),
            count(numbers.cut_stacks),
        )?;
    }
    Ok(())
}

/// Formats the number of lock waits, and their time if there were any.
fn lock_waits(numbers: &Numbers) -> String {
    match numbers.lock_waits {
        0 => "0".to_owned(),
        waits => format!(
            "{}, {} in total",
            count(waits),
            nanoseconds(numbers.lock_waited_ns)
        ),
    }
}

/// Writes the heap in use. A forked child may free blocks that it inherited, so its line reports a
/// change and not an amount.
fn write_heap(to: &mut String, numbers: &Numbers) -> std::fmt::Result {
    let most = bytes(numbers.peak_bytes);
    let by = if numbers.peak_estimated {
        " (sampled)"
    } else {
        ""
    };
    let exact = if numbers.exact { "" } else { " (not exact)" };
    let Some([inherited_blocks, inherited_bytes]) = numbers.inherited else {
        return writeln!(
            to,
            "  heap       {} in {} blocks at exit, peak {most}{by}{exact}",
            bytes(numbers.live_bytes()),
            count(numbers.live_objects()),
        );
    };
    let word = |change: i64| if change < 0 { "less" } else { "more" };
    let [change_of_blocks, change_of_bytes] = numbers.change();
    writeln!(
        to,
        "  heap       {} {}, in {} blocks {}, at exit than at the fork; peak {most} more{by}{exact}",
        bytes(change_of_bytes.unsigned_abs()),
        word(change_of_bytes),
        count(change_of_blocks.unsigned_abs()),
        word(change_of_blocks),
    )?;
    writeln!(
        to,
        "  inherited  {} in {} blocks of the parent, in use at the fork",
        bytes(inherited_bytes),
        count(inherited_blocks),
    )
}

/// Returns why the heap was not observed, if it was not.
fn why_unseen(numbers: &Numbers) -> Option<&'static str> {
    if numbers.was_killed() && numbers.mallocs == 0 {
        return Some(
            "nothing was counted: the program contains an allocator, or allocated nothing",
        );
    }
    match numbers.allocator.as_str() {
        "program" => Some(
            "the program contains an allocator; threads and locks are observed. A Rust program can \
             use plimsoll::Alloc over that allocator",
        ),
        "unmeasured" => Some(
            "the allocator that the program is linked with, or that is preloaded, lacks \
             malloc_usable_size or memalign; threads and locks are observed",
        ),
        _ => None,
    }
}

/// A list of sites: its title, profile, value and unit.
type List = (
    &'static str,
    &'static str,
    fn(&[i64]) -> i64,
    fn(u64) -> String,
);

const LISTS: [List; 9] = [
    (
        "used CPU time",
        "profile",
        |values| value(values, 1),
        nanoseconds,
    ),
    (
        "elapsed time of all threads",
        "wall",
        |values| value(values, 1),
        nanoseconds,
    ),
    ("in use at exit", "heap", |values| value(values, 3), bytes),
    (
        "in use at the peak",
        "peak",
        |values| value(values, 1),
        bytes,
    ),
    ("allocated", "heap", |values| value(values, 1), bytes),
    (
        "allocated and freed",
        "lifetimes",
        |values| value(values, 1),
        bytes,
    ),
    (
        "mapped by the program at exit",
        "mmap",
        |values| value(values, 3),
        bytes,
    ),
    (
        "delayed other threads by holding a lock",
        "mutex",
        |values| value(values, 1),
        nanoseconds,
    ),
    ("waited", "block", |values| value(values, 1), nanoseconds),
];

/// The index of the bytes at the peak, in the heap profile of a process that was killed.
const AT_PEAK: usize = 5;

fn value(values: &[i64], at: usize) -> i64 {
    values.get(at).copied().unwrap_or(0)
}

fn lists(to: &mut String, process: &Process, most: usize) -> std::fmt::Result {
    for (title, profile, value, unit) in LISTS {
        // The profile `mmap` holds every mapping and is not sampled.
        let is_sampled = profile != "mmap";
        let (profile, value): (_, fn(&[i64]) -> i64) = match process.profiles.get(profile) {
            Some(profile) => (profile, value),
            None if profile == "peak" && process.numbers.was_killed() => {
                let Some(heap) = process.profiles.get("heap") else {
                    continue;
                };
                (heap, |values| self::value(values, AT_PEAK))
            }
            None => continue,
        };
        let (total, sites) = profiles::sites(profile, most, value);
        if total <= 0 {
            continue;
        }
        let by = if is_sampled { " (sampled)" } else { "" };
        writeln!(to, "{title}: {}{by}", unit(total.unsigned_abs()))?;
        for site in sites.iter().filter(|site| site.value > 0) {
            writeln!(
                to,
                "  {:>10} {:>5.1} %  {}",
                unit(site.value.unsigned_abs()),
                100.0 * site.value as f64 / total as f64,
                path(site, unit)
            )?;
        }
    }
    Ok(())
}

/// Formats a site and its callers on one line. If the site has other callers too, the line shows
/// the value of the named ones.
fn path(site: &Site, unit: fn(u64) -> String) -> String {
    let mut path = shortened(&site.function);
    for caller in &site.callers {
        path.push_str(" < ");
        path.push_str(&shortened(caller));
    }
    if site.others > 0 {
        let value = unit(site.value_of_callers.max(0).unsigned_abs());
        let plural = if site.others == 1 { "" } else { "s" };
        path.push_str(&format!(
            " ({value}), +{} other caller{plural}",
            site.others
        ));
    }
    match site.lifetime {
        None => path,
        Some(0) => path + ", mostly within 1 us",
        Some(from) => {
            let to = decade(from.unsigned_abs().saturating_mul(10));
            format!("{path}, mostly within {to}")
        }
    }
}

/// Formats a power of ten of nanoseconds.
fn decade(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    let milliseconds = nanoseconds / 1_000_000;
    match (seconds, milliseconds) {
        (1.., _) => format!("{seconds} s"),
        (_, 1..) => format!("{milliseconds} ms"),
        _ => format!("{} us", nanoseconds / 1000),
    }
}

/// Writes the histogram of sizes: a line for each power of two.
fn sizes(to: &mut String, numbers: &Numbers) -> std::fmt::Result {
    let mut doublings = vec![[0_u64; 2]; 17];
    for &[size, mallocs, frees] in &numbers.classes {
        let at = size.max(1).next_power_of_two().trailing_zeros() as usize;
        if let Some(doubling) = doublings.get_mut(at) {
            doubling[0] += mallocs;
            doubling[1] += mallocs.saturating_sub(frees);
        }
    }
    let [mallocs, frees, ..] = numbers.large;
    doublings[16] = [mallocs, mallocs.saturating_sub(frees)];
    let all: u64 = doublings.iter().map(|doubling| doubling[0]).sum();
    if all == 0 {
        return Ok(());
    }
    writeln!(to, "block sizes: allocated, in use at exit")?;
    let last = doublings.len() - 1;
    for (at, [mallocs, live]) in doublings.into_iter().enumerate() {
        if mallocs == 0 {
            continue;
        }
        let size = if at == last {
            "larger".to_owned()
        } else {
            format!("<= {}", bytes(1 << at))
        };
        let share = mallocs as f64 / all as f64;
        let bar = "#".repeat((share * 40.0).round() as usize);
        let line = format!(
            "  {size:>10} {:>15} {:>15}  {bar}",
            count(mallocs),
            count(live)
        );
        writeln!(to, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Formats bytes in the unit that leaves one to four digits before the point.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

fn nanoseconds(nanoseconds: u64) -> String {
    seconds(nanoseconds as f64 / 1e9)
}

fn seconds(seconds: f64) -> String {
    if seconds >= 1.0 {
        format!("{seconds:.2} s")
    } else if seconds >= 1e-3 {
        format!("{:.1} ms", seconds * 1e3)
    } else {
        format!("{:.1} us", seconds * 1e6)
    }
}

/// Formats a number of things, such as `1 call` or `12 calls`.
fn counted(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", count(number))
}

/// Formats a number with thousands separators.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut apart = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at != 0 && (digits.len() - at).is_multiple_of(3) {
            apart.push(',');
        }
        apart.push(digit);
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_to_be_read() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(seconds(0.000_001_5), "1.5 us");
        assert_eq!(nanoseconds(1_500_000), "1.5 ms");
        assert_eq!(seconds(61.0), "61.00 s");
    }
}
