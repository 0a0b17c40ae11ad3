//! The summary at the end of `plimsoll run`, for people.

use std::collections::HashMap;
use std::fmt::Write;

use super::lists::{Basis, LISTS, List};
use super::memory_sites;
use super::numbers::{EXECUTED, Numbers};
use super::ran::Ran;
use super::roll::Roll;
use super::sites::{self, Estimate, Site};
use super::temporary;
use super::units::{bytes, count, counted, nanoseconds, seconds};
use super::{Unseen, resident};
use plimsoll_command::plain_text::plain;
use plimsoll_command::profile::Profile;

/// A process and its report.
pub struct Process {
    pub numbers: Numbers,
    /// Whether the numbers are sums over several processes.
    pub is_sum: bool,
    /// Whether the memory in use at the end is known: each process freed only blocks whose allocations it counted.
    pub is_whole: bool,
    pub profiles: HashMap<&'static str, Profile>,
}

impl Process {
    /// Returns whether the memory in use is unknown, since the process freed blocks whose allocations were not observed.
    /// A forked child frees blocks that it inherited, so nothing is known of that.
    pub fn has_unobserved(&self) -> bool {
        !self.is_sum && self.numbers.inherited.is_none() && self.numbers.unobserved() > 0
    }
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

/// Appends the table of at most `sites` sites of memory, and lists that together have at most as many.
pub fn put_lists(to: &mut String, process: &Process, sites: usize) {
    // Writing to a string does not fail.
    let _ = memory_sites::write(to, process, sites);
    let _ = lists(to, process, sites);
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
        let asked = if numbers.was_killed() {
            String::new()
        } else {
            format!(" ({} requested)", bytes(numbers.asked_bytes))
        };
        writeln!(
            to,
            "  allocated  {} in {}{asked}; {}/s, {}/s; {}",
            bytes(numbers.malloc_bytes),
            counted(numbers.mallocs, "block"),
            bytes((numbers.malloc_bytes as f64 / seconds) as u64),
            count((numbers.mallocs as f64 / seconds) as u64),
            numbers.freed(numbers.inherited.is_some()),
        )?;
        write_sizes(to, numbers)?;
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
        // The touched part of another allocator's mappings belongs to the heap.
        let has_allocators = matches!(&*numbers.allocator, "other" | "redirected");
        let touched = match numbers.touched_bytes() {
            Some(touched) if numbers.mappings != 0 && !has_allocators => {
                format!("{} touched of ", bytes(touched))
            }
            _ => String::new(),
        };
        let included = if has_allocators {
            ", those of the allocator included"
        } else {
            ""
        };
        writeln!(
            to,
            "  mapped     {touched}{} in {} at exit; {} mapped by {} in total{included}",
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
    let lost = [
        (numbers.without_stack, "events without a stack"),
        (numbers.table_full, "events because the table was full"),
        (numbers.untracked, "sampled blocks"),
        (numbers.lost_waits, "waits"),
        (numbers.lost_mappings, "mappings"),
        (
            numbers.cut_stacks,
            "ends of stacks, at code that cannot be unwound",
        ),
        (
            numbers.shortened_stacks,
            "parts of stacks beyond the maximum depth",
        ),
    ];
    let lost = lost.into_iter().filter(|&(number, _)| number != 0);
    let lost: Vec<String> = lost
        .map(|(number, of)| format!("{} {of}", count(number)))
        .collect();
    if !lost.is_empty() {
        writeln!(to, "  lost       {}", lost.join(", "))?;
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
        if numbers.unobserved() > 0 {
            return writeln!(
                to,
                "  heap       unknown: at least {} freed whose allocations were not observed, such as by __libc_malloc or by \
                 a library that was loaded with RTLD_DEEPBIND",
                were(numbers.unobserved()),
            );
        }
        return writeln!(
            to,
            "  heap       {} in {} at exit, peak {most}{by}{exact}",
            bytes(numbers.live_bytes()),
            counted(numbers.live_objects(), "block"),
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

fn were(blocks: u64) -> String {
    let verb = if blocks == 1 { "was" } else { "were" };
    format!("{} {verb}", counted(blocks, "block"))
}

/// Returns why the heap was not observed, if it was not.
pub fn why_unseen(numbers: &Numbers) -> Option<&'static str> {
    match numbers.allocator.as_str() {
        "program" => Some(
            "the program contains an allocator; threads and locks are observed. A Rust program can \
             use plimsoll::Alloc over that allocator",
        ),
        "unmeasured" => Some(
            "the allocator that the program is linked with, or that is preloaded, lacks \
             malloc_usable_size or memalign, or a tool of valgrind has replaced it; threads and locks are observed",
        ),
        _ if numbers.was_killed() && numbers.mallocs == 0 => {
            Some("nothing was counted: the program contains an allocator, or allocated nothing")
        }
        _ => None,
    }
}

/// The smallest share of a site in a list.
const MIN_SHARE: f64 = 0.01;

/// Writes the lists. They share at most `most` lines, so that the summary fits on a screen.
fn lists(to: &mut String, process: &Process, most: usize) -> std::fmt::Result {
    let lists = LISTS.into_iter().filter_map(|list| {
        let profile = process.profiles.get(list.profile)?;
        let (total, sites) = match list.basis {
            _ if !is_telling(&list, process) => return None,
            Basis::Resident => sites::holders(profile, most),
            _ => sites::sites(profile, list.samples, most, list.value),
        };
        (total > 0).then_some((list, profile, total, sites))
    });
    let lists: Vec<_> = lists.collect();
    let each = (most / lists.len().max(1)).max(1);
    for (list, profile, total, sites) in lists {
        let List { title, unit, .. } = list;
        let estimate = match list.basis {
            Basis::Samples => sites::of_samples(profile, list.value - 1),
            _ => Estimate::EXACT,
        };
        let by = match list.basis {
            Basis::Resident | Basis::All => String::new(),
            Basis::Events => " (sampled)".to_owned(),
            Basis::Samples => format!(" ({estimate})"),
        };
        writeln!(to, "{title}: {}{by}", unit(total.unsigned_abs()))?;
        if estimate.is_too_weak() {
            writeln!(
                to,
                "  too few samples to name its sites: run longer, or sample more often"
            )?;
            continue;
        }
        let is_large = |site: &&Site| site.value as f64 >= MIN_SHARE * total as f64;
        for site in sites.iter().filter(is_large).take(each) {
            writeln!(
                to,
                "  {:>10} {:>5.1} %  {}",
                unit(site.value.unsigned_abs()),
                100.0 * site.value as f64 / total as f64,
                memory_sites::text(site, &[])
            )?;
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

/// The number of size classes in the summary.
const SIZES: usize = 3;

/// Writes the sizes that most blocks have: a power of two and the next smaller one are the bounds of each class.
fn write_sizes(to: &mut String, numbers: &Numbers) -> std::fmt::Result {
    let mut doublings = [0_u64; 17];
    let last = doublings.len() - 1;
    for &[size, mallocs, _] in &numbers.classes {
        let at = size.max(1).next_power_of_two().trailing_zeros() as usize;
        doublings[at.min(last)] += mallocs;
    }
    doublings[last] += numbers.large[0];
    let all: u64 = doublings.iter().sum();
    if all == 0 {
        return Ok(());
    }
    let mut largest: Vec<usize> = (0..doublings.len())
        .filter(|&at| doublings[at] > 0)
        .collect();
    largest.sort_by_key(|&at| std::cmp::Reverse(doublings[at]));
    largest.truncate(SIZES);
    let parts = largest.into_iter().map(|at| {
        let share = 100.0 * doublings[at] as f64 / all as f64;
        let above = bytes((1 << at) / 2);
        match at {
            _ if at == last => format!("{share:.1} % above {above}"),
            _ => format!("{share:.1} % of {above} to {}", bytes(1 << at)),
        }
    });
    let parts: Vec<String> = parts.collect();
    writeln!(to, "  sizes      of blocks: {}", parts.join(", "))
}
