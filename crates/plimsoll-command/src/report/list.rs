//! `--list`: functions by source line.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::Stop;
use super::filter;
use super::measure::{Measure, share};
use super::shown::Shown;
use super::text::write_subject;
use crate::failure::Failure;
use crate::profile::StringId;
use plimsoll_args::args::ViewArguments;

/// The number of lines shown around lines with values.
const AROUND: u32 = 5;

/// The maximum distance of two lines with values for which all lines between them are shown.
const LONGEST_GAP: u32 = 40;

/// The maximum number of bytes that are read of a source file.
const LARGEST_SOURCE: u64 = 64 << 20;

/// The functions of one name in one file.
type Routine = (String, StringId);

/// The values of a line.
#[derive(Clone, Copy, Debug, Default)]
struct Values {
    flat: i64,
    cum: i64,
}

#[derive(Debug, Default)]
struct Listing {
    lines: BTreeMap<u32, Values>,
    whole: Values,
    /// The first line of the function; 0 if the profile does not contain it.
    start_line: u32,
}

/// Writes the lines of the functions that match, those with the largest values first.
pub(crate) fn list(
    to: &mut dyn Write,
    shown: &Shown<'_>,
    arguments: &ViewArguments,
    expression: &str,
) -> Result<(), Stop> {
    let expression = filter::regex(expression, "--list")?;
    let profile = &shown.input.profile;
    let matching: Vec<bool> = profile
        .function_ids()
        .map(|id| expression.is_match(profile.function_name(id)))
        .collect();
    let listings = listings(shown, &matching);
    if listings.is_empty() {
        let cause = format!("no function with source lines matches {expression}");
        return Err(Failure::new(&shown.input.name, cause).into());
    }
    let mut listings: Vec<(Routine, Listing)> = listings.into_iter().collect();
    listings.sort_by(|(a_routine, a), (b_routine, b)| {
        let by_value = b.whole.cum.unsigned_abs().cmp(&a.whole.cum.unsigned_abs());
        by_value.then_with(|| a_routine.0.cmp(&b_routine.0))
    });
    let total = shown.total();
    let smallest = listings
        .iter()
        .flat_map(|(_, listing)| listing.lines.values())
        .flat_map(|values| [values.flat, values.cum])
        .filter(|&value| value != 0)
        .min_by_key(|value| value.unsigned_abs());
    let signed = shown.is_difference();
    let measure = match &arguments.unit {
        Some(unit) => Measure::wanted(shown.unit(), unit, signed)
            .map_err(|cause| Failure::new("--unit", cause).with_code(2))?,
        None => Measure::fitting(shown.unit(), smallest.unwrap_or(0), total, signed),
    };
    let write = |to: &mut dyn Write| -> io::Result<()> {
        write_subject(to, shown)?;
        writeln!(to, "Total: {}", measure.unsigned().show(total))?;
        for ((name, file), listing) in &listings {
            let file = profile.string(*file);
            let shown_file = if file.is_empty() {
                "an unknown file"
            } else {
                file
            };
            writeln!(
                to,
                "ROUTINE ======================== {name} in {shown_file}"
            )?;
            let (flat, cum) = (listing.whole.flat, listing.whole.cum);
            writeln!(
                to,
                "{:>10} {:>10} (flat, cum) {} of Total",
                measure.show(flat),
                measure.show(cum),
                share(cum, total, signed).trim_start()
            )?;
            match source(file, &arguments.source_path) {
                Some(source) => write_lines(to, listing, &measure, source)?,
                None => {
                    writeln!(
                        to,
                        "{:>10} {:>10}      (the source is not below the current directory; use \
                         --source-path)",
                        "", ""
                    )?;
                    for (line, values) in &listing.lines {
                        write_line(to, *line, Some(values), &measure, "")?;
                    }
                }
            }
        }
        Ok(())
    };
    Ok(write(to)?)
}

/// Returns the lines of the functions that match. A sample counts once for a line and once for a
/// function, even if it contains several functions of that name.
fn listings(shown: &Shown<'_>, matching: &[bool]) -> HashMap<Routine, Listing> {
    let profile = &shown.input.profile;
    let mut indices: HashMap<Routine, usize> = HashMap::new();
    let mut start_lines: Vec<u32> = Vec::new();
    let routines: Vec<Option<usize>> = profile
        .function_ids()
        .map(|id| {
            if !matching[id.index()] {
                return None;
            }
            let function = profile.function(id);
            let routine = (profile.function_name(id).to_owned(), function.file);
            let index = *indices.entry(routine).or_insert(start_lines.len());
            match start_lines.get_mut(index) {
                None => start_lines.push(function.start_line),
                Some(start_line) if *start_line == 0 => *start_line = function.start_line,
                Some(start_line) if function.start_line != 0 => {
                    *start_line = (*start_line).min(function.start_line);
                }
                Some(_) => {}
            }
            Some(index)
        })
        .collect();
    let mut wholes = vec![Counted::default(); start_lines.len()];
    let mut lines: HashMap<(usize, u32), Counted> = HashMap::new();
    let mut sample = 0_u64;
    shown.each(|stack, value| {
        sample += 1;
        let mut is_leaf = true;
        for &location in stack.locations() {
            for line in shown.frames.lines(location) {
                let routine = line
                    .function
                    .and_then(|function| routines[function.index()]);
                if let Some(routine) = routine {
                    wholes[routine].count(sample, value, is_leaf);
                    let here = lines.entry((routine, line.line)).or_default();
                    here.count(sample, value, is_leaf);
                }
                is_leaf = false;
            }
        }
    });
    let mut listings: Vec<Listing> = wholes
        .iter()
        .zip(start_lines)
        .map(|(whole, start_line)| Listing {
            lines: BTreeMap::new(),
            whole: whole.values,
            start_line,
        })
        .collect();
    for ((routine, line), counted) in lines {
        listings[routine].lines.insert(line, counted.values);
    }
    indices
        .into_iter()
        .filter(|&(_, index)| wholes[index].sample != 0)
        .map(|(routine, index)| (routine, std::mem::take(&mut listings[index])))
        .collect()
}

/// The sum of samples, each counted once.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    values: Values,
    /// The number of the last sample that was counted; 0 for none.
    sample: u64,
}

impl Counted {
    fn count(&mut self, sample: u64, value: i64, is_leaf: bool) {
        if is_leaf {
            self.values.flat = self.values.flat.saturating_add(value);
        }
        if self.sample != sample {
            self.sample = sample;
            self.values.cum = self.values.cum.saturating_add(value);
        }
    }
}

/// Opens a source file below one of the directories or below the current one. Tries its full name
/// first, and then removes its leading directories one by one. The profile may name any file, so
/// files outside of these directories are not opened, nor are links to them.
fn source(file: &str, below: &[PathBuf]) -> Option<BufReader<io::Take<File>>> {
    let parts: Vec<&str> = file
        .split('/')
        .filter(|part| !matches!(*part, "" | "." | ".."))
        .collect();
    let here = [PathBuf::from(".")];
    below.iter().chain(&here).find_map(|directory| {
        let directory = directory.canonicalize().ok()?;
        let inside = Path::new(file).strip_prefix(&directory).ok();
        let inside = inside.and_then(|inside| open_below(&directory, inside));
        inside.or_else(|| {
            (0..parts.len()).find_map(|from| {
                let path = parts[from..].iter().collect::<PathBuf>();
                open_below(&directory, &path)
            })
        })
    })
}

/// Opens a regular file below a directory. The directory's path must not contain links.
fn open_below(directory: &Path, file: &Path) -> Option<BufReader<io::Take<File>>> {
    let path = directory.join(file).canonicalize().ok()?;
    // Opening a device may have side effects, and opening a pipe may block.
    if !path.starts_with(directory) || !path.metadata().ok()?.is_file() {
        return None;
    }
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOCTTY)
        .open(path)
        .ok()?;
    let is_file = file.metadata().ok()?.is_file();
    is_file.then(|| BufReader::new(file.take(LARGEST_SOURCE)))
}

fn write_lines(
    to: &mut dyn Write,
    listing: &Listing,
    measure: &Measure,
    source: impl BufRead,
) -> io::Result<()> {
    let with_values: Vec<u32> = listing.lines.keys().copied().collect();
    let (Some(&first), Some(&last)) = (with_values.first(), with_values.last()) else {
        return Ok(());
    };
    let start = match listing.start_line {
        0 => first.saturating_sub(AROUND),
        start => start.min(first),
    };
    let is_near = |line: u32| {
        let next = with_values.partition_point(|&other| other < line);
        let after = with_values
            .get(next)
            .map_or(u32::MAX, |&other| other - line);
        let before = match next.checked_sub(1) {
            Some(previous) => line - with_values[previous],
            None => line - start.min(line),
        };
        after <= AROUND || before <= AROUND || after.saturating_add(before) <= LONGEST_GAP
    };
    if let Some(values) = listing.lines.get(&0) {
        write_line(to, 0, Some(values), measure, "(no line)")?;
    }
    let mut source = source;
    let mut text = Vec::new();
    let mut number = 0_u32;
    let mut left_out = false;
    loop {
        text.clear();
        number += 1;
        if number > last.saturating_add(AROUND) {
            return Ok(());
        }
        if source
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut text)?
            == 0
        {
            break;
        }
        if number < start.max(1) {
            continue;
        }
        if !is_near(number) {
            left_out = true;
            continue;
        }
        if std::mem::take(&mut left_out) {
            writeln!(to, "{:>10} {:>10}      ...", "", "")?;
        }
        let text = String::from_utf8_lossy(&text);
        let text = text.trim_end();
        write_line(to, number, listing.lines.get(&number), measure, text)?;
    }
    // The source file seems to be of another version.
    for (line, values) in listing.lines.range(number.max(1)..) {
        write_line(to, *line, Some(values), measure, "(not in the file)")?;
    }
    Ok(())
}

/// The maximum length of a line in bytes; the rest counts as the next line.
const LONGEST_LINE: u64 = 64 << 10;

fn write_line(
    to: &mut dyn Write,
    number: u32,
    values: Option<&Values>,
    measure: &Measure,
    text: &str,
) -> io::Result<()> {
    let show = |value: i64| match value {
        0 => ".".to_owned(),
        value => measure.show(value),
    };
    let (flat, cum) = values.map_or((".".to_owned(), ".".to_owned()), |values| {
        (show(values.flat), show(values.cum))
    });
    let separator = if text.is_empty() { "" } else { " " };
    writeln!(to, "{flat:>10} {cum:>10} {number:>6}:{separator}{text}")
}
