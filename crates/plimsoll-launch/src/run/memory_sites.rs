//! The table of sites in the summary: which code allocated memory, with a column for each question.
//!
//! Values are estimated from sampled blocks. Where the exact counts have a column's total, its values are corrected
//! towards that within their confidence interval, and never above it. Each site gets a part of the correction in
//! proportion to its variance: the blocks of a size at which all are sampled are known already. The remainder belongs to
//! no site: small blocks of which none was sampled.

use std::collections::HashMap;
use std::fmt::Write;

use super::lines;
use super::short_name::shortened;
use super::sites::{self, Counted, Estimate, Site};
use super::summary::Process;
use super::temporary::TEMPORARY;
use super::units::{bytes, count, counted};
use plimsoll_command::profile::Profile;

/// The beginning of the table's title.
pub const TITLE: &str = "memory by site, ";

/// The question that a column answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    AtPeak,
    AtExit,
    Resident,
    Allocated,
    Calls,
    Temporary,
}

const QUESTIONS: [Question; 6] = [
    Question::AtPeak,
    Question::AtExit,
    Question::Resident,
    Question::Allocated,
    Question::Calls,
    Question::Temporary,
];

/// The index of the bytes at the peak, in the heap profile of a process that was killed.
const AT_PEAK_OF_KILLED: usize = 5;

impl Question {
    fn title(self, was_killed: bool) -> &'static str {
        match self {
            Self::AtPeak => "at peak",
            Self::AtExit if was_killed => "at the end",
            Self::AtExit => "at exit",
            Self::Resident => "resident",
            Self::Allocated => "allocated",
            Self::Calls => "calls",
            Self::Temporary => "temporary",
        }
    }

    fn unit(self) -> fn(u64) -> String {
        match self {
            Self::Calls | Self::Temporary => count,
            _ => bytes,
        }
    }

    fn is_in_use(self) -> bool {
        matches!(self, Self::AtPeak | Self::AtExit | Self::Resident)
    }

    /// Returns the profile with the values, and their index.
    fn values(self, process: &Process) -> Option<(&Profile, usize)> {
        let (kind, at) = match self {
            Self::AtPeak if process.numbers.was_killed() => ("heap", AT_PEAK_OF_KILLED),
            Self::AtPeak => ("peak", 1),
            Self::AtExit => ("heap", 3),
            Self::Resident => ("memory", 0),
            Self::Allocated => ("heap", 1),
            Self::Calls => ("heap", 0),
            Self::Temporary => ("lifetimes", TEMPORARY),
        };
        Some((process.profiles.get(kind)?, at))
    }

    /// Returns the total by the exact counts, if they have it.
    fn exact_total(self, process: &Process) -> Option<u64> {
        let numbers = &process.numbers;
        match self {
            _ if !numbers.exact => None,
            // An estimated peak lies between exact bounds. Several processes had their peaks at different times.
            Self::AtPeak => (process.is_whole && !process.is_sum).then_some(numbers.peak_bytes),
            Self::AtExit => process.is_whole.then_some(numbers.live_bytes()),
            Self::Allocated => Some(numbers.malloc_bytes),
            Self::Calls => Some(numbers.mallocs),
            Self::Resident | Self::Temporary => None,
        }
    }
}

/// The sites of one column.
struct Column<'a> {
    question: Question,
    profile: &'a Profile,
    at: usize,
    estimate: Estimate,
    /// The factor from the values of the profile to those of the table.
    scale: f64,
    /// The sum of the profile's values.
    sum: i64,
    /// The column's total: by the exact counts, if they have it.
    total: f64,
    sites: Vec<Site>,
}

impl<'a> Column<'a> {
    /// Returns `None` without values.
    fn read(question: Question, process: &'a Process) -> Option<Self> {
        if question.is_in_use() && process.has_unobserved() {
            return None;
        }
        let (profile, at) = question.values(process)?;
        let rate = process.numbers.heap_rate;
        let estimate = match question {
            Question::Calls | Question::Temporary => sites::of_blocks(profile, at, rate),
            Question::Resident => of_resident(process)?,
            _ => sites::of_bytes(profile, at, rate),
        };
        let (sum, sites) = match question {
            Question::Resident => sites::of_heap(profile),
            Question::Calls | Question::Temporary => {
                sites::sites_of_blocks(profile, at, Counted::Blocks, rate)
            }
            _ => sites::sites_of_blocks(profile, at - 1, Counted::Bytes, rate),
        };
        let total = match question.exact_total(process) {
            Some(exact) if estimate != Estimate::EXACT => exact as f64,
            _ => sum as f64,
        };
        (sum > 0).then_some(Self {
            question,
            profile,
            at,
            estimate,
            scale: f64::min(total / sum as f64, 1.0 + estimate.error),
            sum,
            total,
            sites,
        })
    }

    fn is_too_weak(&self) -> bool {
        self.estimate.is_too_weak()
    }

    /// Returns a value of the profile as the table has it.
    fn corrected(&self, value: i64, variance: f64) -> f64 {
        let value = value.max(0) as f64;
        let all: f64 = self.sites.iter().map(|site| site.variance).sum();
        if all <= 0.0 {
            return value * self.scale;
        }
        let correction = self.sum as f64 * (self.scale - 1.0);
        (value + correction * variance / all).max(0.0)
    }

    /// Returns a value as a share of `whole`; 0 if it is too weak.
    fn share(&self, value: i64, whole: f64) -> f64 {
        match self.is_too_weak() {
            true => 0.0,
            false => value as f64 * self.scale / whole,
        }
    }

    /// Formats a value of the table.
    fn format(&self, value: f64) -> String {
        match self.is_too_weak() {
            true => "?".to_owned(),
            false if value < 1.0 => "-".to_owned(),
            false => self.question.unit()(value.round() as u64),
        }
    }

    /// Formats the part of the total that belongs to none of the rows.
    fn format_rest(&self, rest: f64) -> Option<String> {
        (rest >= 1.0 && !self.is_too_weak()).then(|| self.format(rest))
    }
}

/// Returns the basis of the resident bytes of the heap's sites. Not all blocks in use are resident.
fn of_resident(process: &Process) -> Option<Estimate> {
    let numbers = &process.numbers;
    let counted = sites::of_bytes(process.profiles.get("heap")?, 3, numbers.heap_rate);
    Some(match (numbers.heap_in_use, numbers.heap_error) {
        (Some(in_use), Some(error)) if error > 0 || counted != Estimate::EXACT => Estimate {
            samples: counted.samples.min(numbers.live_objects() as f64),
            error: sites::CONFIDENCE * error as f64 / in_use.max(1) as f64,
        },
        _ => counted,
    })
}

/// A site with its values in all columns.
struct Row<'a> {
    values: Vec<i64>,
    variances: Vec<f64>,
    /// The column in which it has its largest share.
    column: usize,
    share: f64,
    /// As in that column.
    site: &'a Site,
}

/// Writes the table with at most `most` sites: those with the largest share of any column.
pub fn write(to: &mut String, process: &Process, most: usize) -> std::fmt::Result {
    let mut columns: Vec<Column<'_>> = QUESTIONS
        .into_iter()
        .filter_map(|question| Column::read(question, process))
        .collect();
    scale_parts(&mut columns, process);
    if columns.iter().all(Column::is_too_weak) {
        let numbers = &process.numbers;
        return match numbers.heap_rate > 1 && numbers.mallocs > 0 {
            true => writeln!(
                to,
                "memory by site: too few samples; with --heap-rate 1, every block is sampled"
            ),
            false => Ok(()),
        };
    }
    let rows = rows(&columns, most);
    let positions = positions(&columns, &rows);
    write_title(to, &columns)?;
    let was_killed = process.numbers.was_killed();
    let titles = columns
        .iter()
        .map(|column| column.question.title(was_killed));
    write_row(to, titles, "site")?;
    let is_estimated = |column: &Column<'_>| column.estimate != Estimate::EXACT;
    if columns.iter().any(is_estimated) {
        write_row(
            to,
            columns.iter().map(|column| error(column)),
            "95 % confidence",
        )?;
    }
    let mut named = vec![0.0; columns.len()];
    for (row, positions) in rows.iter().zip(&positions) {
        let values = scaled(&columns, row);
        let cells = columns.iter().zip(&values);
        write_row(
            to,
            cells.map(|(column, &value)| column.format(value)),
            &text(row.site, positions),
        )?;
        for (named, value) in named.iter_mut().zip(values) {
            *named += value;
        }
    }
    let rest = |(column, named): (&Column<'_>, f64)| (column.total - named).round().max(0.0);
    let rests = limited(
        columns.as_slice(),
        columns.iter().zip(named).map(rest).collect(),
    );
    let others = columns.iter().zip(rests);
    let others: Vec<Option<String>> = others
        .map(|(column, rest)| column.format_rest(rest))
        .collect();
    if others.iter().any(Option::is_some) {
        let cells = others.iter().map(|other| other.as_deref().unwrap_or("-"));
        let rest = match columns.iter().any(is_estimated) {
            true => "(others, and blocks that were not sampled)",
            false => "(others)",
        };
        write_row(to, cells, rest)?;
    }
    Ok(())
}

/// Scales the columns whose total is unknown as those of which they are a part: blocks in use are a part of the
/// allocated ones, by the same samples. So no column exceeds the whole.
fn scale_parts(columns: &mut [Column<'_>], process: &Process) {
    let of_whole = |whole: Question| {
        let column = columns.iter().find(|of| of.question == whole);
        column.map(|column| (column.scale, column.total))
    };
    let (calls, allocated) = (of_whole(Question::Calls), of_whole(Question::Allocated));
    for part in columns.iter_mut() {
        let whole = match part.question {
            Question::Temporary => calls,
            Question::AtPeak | Question::AtExit => allocated,
            _ => None,
        };
        if let (Some((scale, total)), None) = (whole, part.question.exact_total(process)) {
            part.scale = f64::min(scale, total / part.sum as f64);
            part.total = part.sum as f64 * part.scale;
        }
    }
}

/// Returns the values of a row.
fn scaled(columns: &[Column<'_>], row: &Row<'_>) -> Vec<f64> {
    let value =
        |(at, column): (usize, &Column<'_>)| column.corrected(row.values[at], row.variances[at]);
    limited(columns, columns.iter().enumerate().map(value).collect())
}

/// Limits each value of a row to the one of which it is a part: the columns have different errors.
fn limited(columns: &[Column<'_>], values: Vec<f64>) -> Vec<f64> {
    let value_of = |question: Question| {
        let at = columns
            .iter()
            .position(|column| column.question == question && !column.is_too_weak());
        at.map_or(f64::INFINITY, |at| values[at])
    };
    let (allocated, calls) = (value_of(Question::Allocated), value_of(Question::Calls));
    let at_exit = value_of(Question::AtExit).min(allocated);
    let most = |question| match question {
        Question::AtPeak | Question::AtExit => allocated,
        Question::Resident => at_exit,
        Question::Temporary => calls,
        _ => f64::INFINITY,
    };
    let questions = columns.iter().map(|column| column.question);
    questions
        .zip(&values)
        .map(|(question, &value)| f64::min(value, most(question)))
        .collect()
}

fn write_title(to: &mut String, columns: &[Column<'_>]) -> std::fmt::Result {
    let samples = columns.iter().map(|column| column.estimate.samples);
    let samples = samples
        .filter(|samples| samples.is_finite())
        .fold(0.0, f64::max);
    match samples {
        0.0 => writeln!(to, "{TITLE}exact:"),
        samples => writeln!(
            to,
            "{TITLE}estimated from {}:",
            counted(samples.round() as u64, "sample")
        ),
    }
}

/// Formats the error of a column's sum.
fn error(column: &Column<'_>) -> String {
    match column.estimate {
        Estimate::EXACT => "exact".to_owned(),
        _ if column.is_too_weak() => "?".to_owned(),
        estimate => format!("±{} %", (100.0 * estimate.error).ceil()),
    }
}

fn write_row(
    to: &mut String,
    cells: impl Iterator<Item = impl std::fmt::Display>,
    last: &str,
) -> std::fmt::Result {
    for cell in cells {
        write!(to, " {cell:>11}")?;
    }
    writeln!(to, "  {last}")
}

/// Returns the total that the values of a column are shares of: of memory in use, the largest of its columns. So what is
/// left of a large heap at the exit does not displace the sites of its peak.
fn whole(columns: &[Column<'_>], of: &Column<'_>) -> f64 {
    use Question::{Allocated, AtExit, AtPeak, Calls, Resident, Temporary};
    let kind = match of.question {
        AtPeak | AtExit | Resident => &[AtPeak, AtExit, Resident][..],
        Allocated => &[Allocated],
        Calls | Temporary => &[Calls, Temporary],
    };
    let same = columns
        .iter()
        .filter(|column| kind.contains(&column.question));
    same.map(|column| column.total).fold(1.0, f64::max)
}

/// Returns the sites with the largest shares, in the order of the first column with different values.
fn rows<'a>(columns: &'a [Column<'_>], most: usize) -> Vec<Row<'a>> {
    let mut rows: HashMap<(&str, Option<&str>), Row<'a>> = HashMap::new();
    for (number, column) in columns.iter().enumerate() {
        let whole = whole(columns, column);
        for site in &column.sites {
            let key = (&*site.function, site.script.as_deref());
            let row = rows.entry(key).or_insert_with(|| Row {
                values: vec![0; columns.len()],
                variances: vec![0.0; columns.len()],
                column: number,
                share: 0.0,
                site,
            });
            // Several functions may have one name.
            row.values[number] = row.values[number].saturating_add(site.value);
            row.variances[number] += site.variance;
            let share = column.share(row.values[number], whole);
            if share > row.share {
                (row.column, row.share, row.site) = (number, share, site);
            }
        }
    }
    let mut rows: Vec<Row<'a>> = rows.into_values().filter(|row| row.share > 0.0).collect();
    let by_name = |a: &Row<'_>, b: &Row<'_>| {
        (&a.site.function, &a.site.callers).cmp(&(&b.site.function, &b.site.callers))
    };
    rows.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| by_name(a, b)));
    rows.truncate(most);
    rows.sort_by(|a, b| {
        let values = columns
            .iter()
            .enumerate()
            .filter(|(_, column)| !column.is_too_weak());
        values
            .map(|(at, _)| b.values[at].cmp(&a.values[at]))
            .find(|order| order.is_ne())
            .unwrap_or_else(|| by_name(a, b))
    });
    rows
}

/// Returns the source positions of each row's functions.
fn positions(columns: &[Column<'_>], rows: &[Row<'_>]) -> Vec<Vec<Option<String>>> {
    let mut positions = vec![Vec::new(); rows.len()];
    for (number, column) in columns.iter().enumerate() {
        let of_column: Vec<usize> = (0..rows.len())
            .filter(|&row| rows[row].column == number)
            .collect();
        let sites: Vec<&Site> = of_column.iter().map(|&row| rows[row].site).collect();
        for (row, found) in
            of_column
                .into_iter()
                .zip(lines::lines(column.profile, &sites, column.at))
        {
            positions[row] = found;
        }
    }
    positions
}

/// The beginnings of the names of functions that call a program's `main` or a thread's function.
const START: [&str; 4] = ["__libc_start", "_start", "start_thread", "clone"];

/// Formats a site and its callers on one line, with their source positions. The user's function of a script comes
/// first, and then those that it called. If the site has other callers too, the line shows the share of the named ones.
pub fn text(site: &Site, positions: &[Option<String>]) -> String {
    let functions = std::iter::once(&site.function).chain(&site.callers);
    let functions: Vec<String> = functions
        .enumerate()
        .map(|(at, name)| with_position(name, positions.get(at).and_then(Option::as_deref)))
        .collect();
    let (called, outer) = functions.split_at(site.user.unwrap_or(0));
    let is_start = |name: &&String| START.iter().any(|start| name.starts_with(start));
    let ends = outer.iter().rev().take_while(is_start).count();
    let outer = &outer[..(outer.len() - ends).max(1)];
    let mut text = outer.join(" < ");
    // Addresses within an interpreter say nothing to its user.
    let called: Vec<&str> = called
        .iter()
        .rev()
        .map(String::as_str)
        .filter(|name| !name.contains("+0x"))
        .collect();
    if !called.is_empty() {
        text.push_str(" > ");
        text.push_str(&called.join(" > "));
    }
    if site.others > 0 {
        let share = 100.0 * site.value_of_callers as f64 / site.value.max(1) as f64;
        let plural = if site.others == 1 { "" } else { "s" };
        text.push_str(&format!(
            " ({share:.0} %), +{} other caller{plural}",
            site.others
        ));
    }
    text
}

/// Appends a position to a name. The name of a script's function has the name of the file already.
fn with_position(name: &str, position: Option<&str>) -> String {
    let Some(position) = position else {
        return shortened(name);
    };
    let of_script = name
        .strip_suffix(')')
        .and_then(|name| name.rsplit_once(" ("));
    let name = match of_script {
        Some((name, file)) if position.contains(file) => name,
        _ => name,
    };
    format!("{} ({position})", shortened(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(function: &str, callers: &[&str], user: Option<usize>) -> Site {
        Site {
            value: 100,
            variance: 0.0,
            function: function.to_owned(),
            script: None,
            callers: callers.iter().map(|&name| name.to_owned()).collect(),
            user,
            value_of_callers: 70,
            others: 0,
        }
    }

    #[test]
    fn a_site_is_one_line_with_positions_and_the_share_of_its_callers() {
        let mut keep = site("keep", &["first", "main"], None);
        keep.others = 2;
        let positions = [Some("src/a.c:3".to_owned()), None];
        assert_eq!(
            text(&keep, &positions),
            "keep (src/a.c:3) < first < main (70 %), +2 other callers"
        );
    }

    #[test]
    fn a_correction_does_not_change_what_is_known() {
        let profile = Profile::default();
        let mut column = Column {
            question: Question::Allocated,
            profile: &profile,
            at: 1,
            estimate: Estimate {
                samples: 20.0,
                error: 0.5,
            },
            scale: 1.1,
            sum: 1000,
            total: 1100.0,
            sites: vec![site("large", &[], None), site("small", &[], None)],
        };
        column.sites[1].variance = 40.0;
        let corrected = |value, variance| column.corrected(value, variance).round();
        assert_eq!(corrected(900, 0.0), 900.0);
        assert_eq!(corrected(100, 40.0), 200.0);
        assert_eq!(corrected(50, 20.0), 100.0);
        // A correction by more than a value leaves nothing of it.
        column.scale = 0.8;
        assert_eq!(column.corrected(100, 40.0), 0.0);
        // Without variances, each value is scaled.
        column.sites[1].variance = 0.0;
        assert_eq!(column.corrected(900, 0.0).round(), 720.0);
    }

    #[test]
    fn the_users_function_of_a_script_comes_first() {
        let callers = [
            "JSONDecoder.decode (decoder.py)",
            "parse (py1.py)",
            "main (py1.py)",
        ];
        let of_script = site("python3.11+0x1df5e5", &callers, Some(2));
        let positions = [
            None,
            Some("json/decoder.py:337".to_owned()),
            Some("w/py1.py:3".to_owned()),
            Some("w/py1.py:5".to_owned()),
        ];
        assert_eq!(
            text(&of_script, &positions),
            "parse (w/py1.py:3) < main (w/py1.py:5) > JSONDecoder.decode (json/decoder.py:337)"
        );
        let native = site("PyList_New", &["parse (py1.py)"], Some(1));
        assert_eq!(text(&native, &[]), "parse (py1.py) > PyList_New");
    }
}
