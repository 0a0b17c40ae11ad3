//! The summary at the end of `plimsoll run`, for people.

use std::collections::HashMap;
use std::fmt::Write;

use super::lists::{Basis, LISTS, List};
use super::numbers::{EXECUTED, Numbers};
use super::ran::Ran;
use super::roll::Roll;
use super::short_name::shortened;
use super::sites::{self, Estimate, Site};
use super::temporary;
use super::units::{bytes, count, counted, nanoseconds, seconds};
use super::{Unseen, lines, resident};
use crate::plain_text::plain;
use crate::profile::Profile;

/// A process and its report.
pub struct Process {
    pub numbers: Numbers,
    pub profiles: HashMap<&'static str, Profile>,
}

/// Returns the summary of a process. `ran` is present for the program itself.
pub fn text(
    process: &Process,
    ran: Option<&Ran>,
    unseen: Option<&Unseen>,
    roll: &Roll,
    sites: usize,
) -> String {
    let mut to = String::new();
    // Writing to a string does not fail.
    let _ = head(&mut to, process, ran, unseen, roll);
    put_lists(&mut to, process, sites);
    to
}

/// Appends the lists of at most `sites` sites each, and the sizes of blocks.
pub fn put_lists(to: &mut String, process: &Process, sites: usize) {
    // Writing to a string does not fail.
    let _ = lists(to, process, sites);
    let _ = sizes(to, &process.numbers);
}

fn head(
    to: &mut String,
    process: &Process,
    ran: Option<&Ran>,
    unseen: Option<&Unseen>,
    roll: &Roll,
) -> std::fmt::Result {
    let numbers = &process.numbers;
    let ended = ran.map(|ran| &ran.ended);
    let how = match ended {
        Some(ended) => ended.how(),
        None => format!("ended by {}", numbers.ending),
    };
    let program = plain(numbers.name());
    writeln!(
        to,
        "plimsoll: {program} (process {}) {how} after {}",
        numbers.id(),
        seconds(numbers.seconds)
    )?;
    if numbers.ending == EXECUTED {
        let executed = roll.executed(numbers.id());
        writeln!(to, "  note       the process executed {executed}")?;
    }
    if numbers.was_killed() {
        writeln!(
            to,
            "  note       the process was killed before it could report; the counts are those at \
             its last instant"
        )?;
    }
    if let Some(from) = numbers.filter_seconds {
        writeln!(
            to,
            "  filter     a system call filter (seccomp) began {} after the start: from then on no CPU samples, pages or \
             resident memory by owner",
            seconds(from)
        )?;
    }
    resident::write(to, numbers, ran)?;
    let why = why_unseen(numbers);
    if let Some(unseen) = unseen.filter(|_| why.is_none()) {
        let redirected = unseen.redirected(numbers);
        if let Some(note) = redirected.or_else(|| unseen.note(numbers)) {
            writeln!(to, "  note       {note}")?;
        }
    }
    if let Some(why) = why {
        write!(to, "  heap       not observed: ")?;
        match unseen {
            Some(unseen) => unseen.write(to, numbers.obstacle.as_deref())?,
            None => write!(to, "{why}")?,
        }
        writeln!(to)?;
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
        temporary::write(to, &process.profiles, numbers)?;
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
        let touched = match numbers.touched_bytes() {
            Some(touched) if numbers.mappings != 0 => format!("{} touched of ", bytes(touched)),
            _ => String::new(),
        };
        writeln!(
            to,
            "  mapped     {touched}{} in {} at exit; {} mapped by {} in total",
            bytes(numbers.mapped_bytes.saturating_sub(numbers.unmapped_bytes)),
            counted(numbers.mappings, "mapping"),
            bytes(numbers.mapped_bytes),
            counted(numbers.mapping_calls, "call"),
        )?;
    }
    if !numbers.was_killed() {
        writeln!(
            to,
            "  threads    {}; lock waits: {}",
            match numbers.threads {
                1 => "1 (main only)".to_owned(),
                threads => count(threads),
            },
            lock_waits(numbers),
        )?;
    }
    if let Some(ended) = ended {
        writeln!(
            to,
            "  CPU time   {} user, {} kernel, children included",
            seconds(ended.user.as_secs_f64()),
            seconds(ended.system.as_secs_f64()),
        )?;
    }
    put_lost(to, numbers)
}

/// Why a process left numbers alone.
const CUT_BY_LIMIT: &str = "the file of the report may not be so large, by RLIMIT_FSIZE (ulimit -f) or since the process confined itself, or no memory was left";

/// Writes the number of lost events, if there are any.
pub fn put_lost(to: &mut String, numbers: &Numbers) -> std::fmt::Result {
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
    if let Some(limit) = numbers.address_space_limit {
        writeln!(
            to,
            "  limited    address space of {} (ulimit -v): Plimsoll's tables take at most 2 % of it, so there may be fewer samples",
            bytes(limit),
        )?;
    }
    if numbers.profiles_cut {
        writeln!(to, "  lost       the profiles: {CUT_BY_LIMIT}")?;
    }
    Ok(())
}

/// Formats the number of lock waits, and their time if there were any.
pub fn lock_waits(numbers: &Numbers) -> String {
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
    match numbers.allocator.as_str() {
        "program" => Some(
            "the program contains an allocator; threads and locks are observed. A Rust program can \
             use plimsoll::Alloc over that allocator",
        ),
        "unmeasured" => Some(
            "the allocator that the program is linked with, or that is preloaded, lacks \
             malloc_usable_size or memalign; threads and locks are observed",
        ),
        _ if numbers.was_killed() && numbers.mallocs == 0 => {
            Some("nothing was counted: the program contains an allocator, or allocated nothing")
        }
        _ => None,
    }
}

/// The index of the bytes at the peak, in the heap profile of a process that was killed.
const AT_PEAK: usize = 5;

fn lists(to: &mut String, process: &Process, most: usize) -> std::fmt::Result {
    for list in LISTS {
        let List { title, unit, .. } = list;
        if !is_telling(&list, process) {
            continue;
        }
        let (profile, value) = match process.profiles.get(list.profile) {
            Some(profile) => (profile, list.value),
            None if list.profile == "peak" && process.numbers.was_killed() => {
                let Some(heap) = process.profiles.get("heap") else {
                    continue;
                };
                (heap, AT_PEAK)
            }
            None => continue,
        };
        let rate = process.numbers.heap_rate;
        let estimate = match list.basis {
            Basis::Bytes => sites::of_bytes(profile, value, rate),
            Basis::Blocks => sites::of_blocks(profile, value, rate),
            Basis::Samples => sites::of_samples(profile, value - 1),
            Basis::Resident => of_heap(process).unwrap_or(Estimate::NONE),
            Basis::Events | Basis::All => Estimate::EXACT,
        };
        let (total, sites) = match list.basis {
            Basis::Resident => sites::holders(profile, most, !estimate.is_too_weak()),
            _ => sites::sites(profile, list.samples, most, value),
        };
        if total <= 0 {
            continue;
        }
        let by = match list.basis {
            Basis::Resident if estimate.is_too_weak() => String::new(),
            Basis::Resident => format!(" (sites of the heap {estimate})"),
            Basis::All => String::new(),
            Basis::Events => " (sampled)".to_owned(),
            Basis::Bytes | Basis::Blocks | Basis::Samples => format!(" ({estimate})"),
        };
        writeln!(to, "{title}: {}{by}", unit(total.unsigned_abs()))?;
        if estimate.is_too_weak() && list.basis != Basis::Resident {
            writeln!(to, "  too few samples to name its sites")?;
            continue;
        }
        let positions = match list.with_lines {
            true => lines::of(profile, &sites, value),
            false => Vec::new(),
        };
        for (number, site) in sites.iter().enumerate() {
            if site.value <= 0 {
                continue;
            }
            writeln!(
                to,
                "  {:>10} {:>5.1} %  {}",
                unit(site.value.unsigned_abs()),
                100.0 * site.value as f64 / total as f64,
                path(site, unit)
            )?;
            if let Some(Some(position)) = positions.get(number) {
                writeln!(to, "{:22}at {position}", "")?;
            }
        }
    }
    Ok(())
}

/// The number of calls from which on a program is said to map and unmap often.
const MANY_CALLS: u64 = 1000;

/// Returns whether a list says something that no other list says better.
fn is_telling(list: &List, process: &Process) -> bool {
    let numbers = &process.numbers;
    // At the exit, nothing is left of them.
    let was_large = numbers.unmapped_bytes > numbers.peak_resident / 4;
    match (list.profile, list.value) {
        // A forked child has memory of its parent, too.
        ("memory", _) => numbers.inherited.is_none(),
        // The list of the resident memory has what was touched of it.
        ("mmap", 3) => numbers.touched_bytes().is_none(),
        ("mmap", _) => {
            (numbers.mapping_calls >= MANY_CALLS || was_large)
                && numbers.unmapped_bytes > numbers.mapped_bytes / 2
        }
        _ => true,
    }
}

/// Returns the basis of the heap in use, if it was sampled.
fn of_heap(process: &Process) -> Option<Estimate> {
    let heap = process.profiles.get("heap")?;
    Some(sites::of_bytes(heap, 3, process.numbers.heap_rate))
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
    writeln!(to, "block sizes: allocated, still allocated at exit")?;
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
