//! What is said at the end, to a person.

use std::collections::HashMap;
use std::fmt::Write;

use super::numbers::Numbers;
use super::profiles::{self, Site};
use super::short_name::shortened;
use super::{Ran, Unseen};
use crate::plain_text::plain;
use crate::profile::Profile;

/// A process that reported.
pub struct Process {
    pub numbers: Numbers,
    pub profiles: HashMap<&'static str, Profile>,
}

/// The summary of a process; with how it ended, if it is the program itself.
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
            "  note       it executed another program, which has not reported"
        )?;
    }
    if numbers.is_of_killed() {
        writeln!(
            to,
            "  note       it could say nothing: this is what it had counted up to then"
        )?;
    }
    let why = why_unseen(numbers);
    if let Some(unseen) = unseen.filter(|_| why.is_none()) {
        writeln!(to, "  note       the heap is not seen: {unseen}")?;
    }
    if let Some(why) = why {
        match unseen {
            Some(unseen) => writeln!(to, "  heap       not seen: {unseen}")?,
            None => writeln!(to, "  heap       not seen: {why}")?,
        }
    } else {
        let seconds = numbers.seconds.max(1e-9);
        write_heap(to, numbers)?;
        let freed = 100.0 * numbers.free_bytes as f64 / numbers.malloc_bytes.max(1) as f64;
        let asked = if numbers.is_of_killed() {
            String::new()
        } else {
            format!(" ({} were asked for)", bytes(numbers.asked_bytes))
        };
        writeln!(
            to,
            "  allocated  {} in {} blocks{asked}; {}/s, {}/s; {freed:.1} % were freed again",
            bytes(numbers.malloc_bytes),
            count(numbers.mallocs),
            bytes((numbers.malloc_bytes as f64 / seconds) as u64),
            count((numbers.mallocs as f64 / seconds) as u64),
        )?;
    }
    if numbers.inherited.is_some() && numbers.mapping_calls != 0 {
        writeln!(
            to,
            "  mapped     {} in {} calls since its fork; {} unmapped",
            bytes(numbers.mapped_bytes),
            count(numbers.mapping_calls),
            bytes(numbers.unmapped_bytes),
        )?;
    } else if numbers.mapping_calls != 0 {
        writeln!(
            to,
            "  mapped     {} in {} mappings at the end; {} in {} calls in all",
            bytes(numbers.mapped_bytes.saturating_sub(numbers.unmapped_bytes)),
            count(numbers.mappings),
            bytes(numbers.mapped_bytes),
            count(numbers.mapping_calls),
        )?;
    }
    if !numbers.is_of_killed() {
        writeln!(
            to,
            "  threads    {} created; {} waits for locks, {} long",
            count(numbers.threads),
            count(numbers.lock_waits),
            nanoseconds(numbers.lock_waited_ns),
        )?;
    }
    if let Some(ended) = ended {
        writeln!(
            to,
            "  system     {} of processor time in the program, {} in the system; at most {} resident",
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

/// Writes what is in use. A forked child may free blocks that it inherited, so that its own life
/// has a change and not an amount.
fn write_heap(to: &mut String, numbers: &Numbers) -> std::fmt::Result {
    let most = bytes(numbers.peak_bytes);
    let by = if numbers.peak_estimated {
        " by the samples"
    } else {
        ""
    };
    let exact = if numbers.exact { "" } else { " (not exact)" };
    let Some([inherited_blocks, inherited_bytes]) = numbers.inherited else {
        return writeln!(
            to,
            "  heap       {} in {} blocks at the end, at most {most}{by}{exact}",
            bytes(numbers.live_bytes()),
            count(numbers.live_objects()),
        );
    };
    let word = |change: i64| if change < 0 { "less" } else { "more" };
    let [change_of_blocks, change_of_bytes] = numbers.change();
    writeln!(
        to,
        "  heap       {} {}, in {} blocks {}, at the end than at its fork; at most {most} more{by}{exact}",
        bytes(change_of_bytes.unsigned_abs()),
        word(change_of_bytes),
        count(change_of_blocks.unsigned_abs()),
        word(change_of_blocks),
    )?;
    writeln!(
        to,
        "  inherited  {} in {} blocks of its parent, in use at its fork",
        bytes(inherited_bytes),
        count(inherited_blocks),
    )
}

/// Why nothing is known of the heap, if so.
fn why_unseen(numbers: &Numbers) -> Option<&'static str> {
    if numbers.is_of_killed() && numbers.mallocs == 0 {
        return Some(
            "nothing was counted. It has an allocator of its own in it, or allocated nothing",
        );
    }
    match numbers.allocator.as_str() {
        "program" => Some(
            "the program has an allocator of its own in it. Threads and locks are. \
             A Rust program can use plimsoll::Alloc over that allocator",
        ),
        "unmeasured" => Some(
            "the allocator that the program is linked with, or that is preloaded, lacks malloc_usable_size or \
             memalign. Threads and locks are",
        ),
        _ => None,
    }
}

/// The lists of sites: a title, the profile, what is added up, and in what.
type List = (
    &'static str,
    &'static str,
    fn(&[i64]) -> i64,
    fn(u64) -> String,
);

const LISTS: [List; 7] = [
    (
        "in use at the end",
        "heap",
        |values| value(values, 3),
        bytes,
    ),
    (
        "in use when most was",
        "peak",
        |values| value(values, 1),
        bytes,
    ),
    ("allocated", "heap", |values| value(values, 1), bytes),
    (
        "churn: allocated and freed again",
        "lifetimes",
        |values| value(values, 1),
        bytes,
    ),
    (
        "mapped by the program at the end",
        "mmap",
        |values| value(values, 3),
        bytes,
    ),
    (
        "kept others waiting for a lock",
        "mutex",
        |values| value(values, 1),
        nanoseconds,
    ),
    ("waited", "block", |values| value(values, 1), nanoseconds),
];

/// Where the bytes at the peak are in the heap profile of a process that was killed.
const AT_PEAK: usize = 5;

fn value(values: &[i64], at: usize) -> i64 {
    values.get(at).copied().unwrap_or(0)
}

fn lists(to: &mut String, process: &Process, most: usize) -> std::fmt::Result {
    for (title, profile, value, unit) in LISTS {
        // Of mappings, all are in the profile.
        let is_sampled = profile != "mmap";
        let (profile, value): (_, fn(&[i64]) -> i64) = match process.profiles.get(profile) {
            Some(profile) => (profile, value),
            None if profile == "peak" && process.numbers.is_of_killed() => {
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
        let by = if is_sampled { ", by the samples" } else { "" };
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

/// A site and its callers, in a line. Where others call it too, with what is due to these callers.
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

/// A power of ten of nanoseconds.
fn decade(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    let milliseconds = nanoseconds / 1_000_000;
    match (seconds, milliseconds) {
        (1.., _) => format!("{seconds} s"),
        (_, 1..) => format!("{milliseconds} ms"),
        _ => format!("{} us", nanoseconds / 1000),
    }
}

/// The histogram of sizes: a line for each doubling.
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
    writeln!(to, "sizes of blocks: allocated, in use at the end")?;
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

/// Bytes, in the unit that leaves one to four digits before the point.
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

/// A number with its thousands set apart.
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
