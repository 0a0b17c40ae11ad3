//! `--top`, `--tree`, `--peek`: the columns of Go's tool.

use std::io::{self, Write};

use super::Stop;
use super::counted::{Calls, Chosen, Counted, End};
use super::filter;
use super::measure::{Measure, alone, share};
use super::shown::Shown;
use crate::failure::Failure;
use crate::profile::Inlined;
use plimsoll_args::args::ViewArguments;

/// The default number of functions in a tree.
const TREE: usize = 80;

/// The data of a report, and the format of its values.
struct Report<'a> {
    shown: &'a Shown<'a>,
    counted: &'a Counted,
    measure: Measure,
}

/// Writes the report of `--top`.
pub(crate) fn top(
    to: &mut dyn Write,
    shown: &Shown<'_>,
    arguments: &ViewArguments,
) -> Result<(), Stop> {
    let counted = Counted::new(shown);
    let chosen = counted.choose(shown, arguments, 0);
    let report = Report {
        shown,
        measure: counted.measure(shown, arguments, &chosen.frames)?,
        counted: &counted,
    };
    Ok(report.write_top(to, &chosen)?)
}

/// Writes the report of `--tree`.
pub(crate) fn tree(
    to: &mut dyn Write,
    shown: &Shown<'_>,
    arguments: &ViewArguments,
) -> Result<(), Stop> {
    let counted = Counted::new(shown);
    let chosen = counted.choose(shown, arguments, TREE);
    let mut kept = vec![false; shown.frames.len()];
    for &frame in &chosen.frames {
        kept[frame as usize] = true;
    }
    let report = Report {
        shown,
        measure: counted.measure(shown, arguments, &chosen.frames)?,
        counted: &counted,
    };
    let calls = Calls::new(shown, &kept);
    Ok(report.write_tree(to, &chosen, &calls, &kept)?)
}

/// Writes the report of `--peek`.
pub(crate) fn peek(
    to: &mut dyn Write,
    shown: &Shown<'_>,
    arguments: &ViewArguments,
    expression: &str,
) -> Result<(), Stop> {
    let expression = filter::regex(expression, "--peek")?;
    let counted = Counted::new(shown);
    let mut frames: Vec<u32> = counted
        .seen()
        .filter(|&frame| expression.is_match(shown.frames.name(frame)))
        .collect();
    if frames.is_empty() {
        let cause = format!("no function matches {expression}");
        return Err(Failure::new(&shown.input.name, cause).into());
    }
    counted.sort(shown, arguments.cum, &mut frames);
    let all = vec![true; shown.frames.len()];
    let mut wanted = vec![false; shown.frames.len()];
    for &frame in &frames {
        wanted[frame as usize] = true;
    }
    let report = Report {
        shown,
        measure: counted.measure(shown, arguments, &frames)?,
        counted: &counted,
    };
    let calls = Calls::new(shown, &all);
    let chosen = Chosen {
        of: frames.len(),
        frames,
        dropped: 0,
        cutoff: 0,
    };
    Ok(report.write_tree(to, &chosen, &calls, &wanted)?)
}

impl Report<'_> {
    fn write_top(&self, to: &mut dyn Write, chosen: &Chosen) -> io::Result<()> {
        self.write_head(to, chosen)?;
        let (value, part) = self.columns();
        writeln!(
            to,
            "{:>value$} {:>part$} {:>part$} {:>value$} {:>part$}",
            "flat", "flat%", "sum%", "cum", "cum%"
        )?;
        let mut sum = 0_i64;
        for &frame in &chosen.frames {
            let row = self.row(frame, &mut sum);
            writeln!(to, "{row}  {}{}", self.name(frame), self.inlined(frame))?;
        }
        Ok(())
    }

    fn write_tree(
        &self,
        to: &mut dyn Write,
        chosen: &Chosen,
        calls: &Calls,
        wanted: &[bool],
    ) -> io::Result<()> {
        self.write_head(to, chosen)?;
        let (value, part) = self.columns();
        let left = 2 * value + 3 * part + 4;
        let line = format!("{}+-------------", "-".repeat(left + 17));
        writeln!(to, "{line}")?;
        writeln!(
            to,
            "{:>value$} {:>part$} {:>part$} {:>value$} {:>part$} {:>9} {:>6} | context",
            "flat", "flat%", "sum%", "cum", "cum%", "calls", "calls%"
        )?;
        writeln!(to, "{line}")?;
        let around = calls.around(self.shown, wanted);
        let mut sum = 0_i64;
        for &frame in &chosen.frames {
            let cum = self.counted.cum[frame as usize];
            let none = [Vec::new(), Vec::new()];
            let [callers, callees] = around.get(&frame).unwrap_or(&none);
            for caller in callers {
                self.write_end(to, left, caller, cum)?;
            }
            let row = self.row(frame, &mut sum);
            let (name, inlined) = (self.name(frame), self.inlined(frame));
            writeln!(to, "{row} {:16} | {name}{inlined}", "")?;
            for callee in callees {
                self.write_end(to, left, callee, cum)?;
            }
            writeln!(to, "{line}")?;
        }
        Ok(())
    }

    /// Writes a caller or a callee, with its share of the function's value.
    fn write_end(&self, to: &mut dyn Write, left: usize, end: &End, of: i64) -> io::Result<()> {
        let value = self.measure.show(end.value);
        let part = share(end.value, of, false);
        let dots = if end.indirect { " ..." } else { "" };
        let columns = left + 10;
        writeln!(
            to,
            "{value:>columns$} {part} |   {}{}{dots}",
            self.name(end.frame),
            self.inlined(end.frame)
        )
    }

    /// Returns the widths of values and of shares.
    fn columns(&self) -> (usize, usize) {
        match self.shown.is_difference() {
            true => (11, 7),
            false => (10, 6),
        }
    }

    fn row(&self, frame: u32, sum: &mut i64) -> String {
        let (value, _) = self.columns();
        let signed = self.shown.is_difference();
        let (flat, cum) = (
            self.counted.flat[frame as usize],
            self.counted.cum[frame as usize],
        );
        *sum = sum.saturating_add(flat);
        let part = |of| share(of, self.counted.total, signed);
        format!(
            "{:>value$} {} {} {:>value$} {}",
            self.measure.show(flat),
            part(flat),
            part(*sum),
            self.measure.show(cum),
            part(cum)
        )
    }

    fn name(&self, frame: u32) -> &str {
        self.shown.frames.name(frame)
    }

    fn inlined(&self, frame: u32) -> &'static str {
        match self.shown.frames.inlined(frame) {
            Inlined::Nowhere => "",
            Inlined::Partly => " (partial-inline)",
            Inlined::Everywhere => " (inline)",
        }
    }

    fn write_head(&self, to: &mut dyn Write, chosen: &Chosen) -> io::Result<()> {
        write_subject(to, self.shown)?;
        let signed = self.shown.is_difference();
        let total = self.counted.total;
        let sum = chosen.frames.iter().fold(0_i64, |sum, &frame| {
            sum.saturating_add(self.counted.flat[frame as usize])
        });
        let of_what = if signed { "the base's" } else { "total" };
        let unsigned = self.measure.unsigned();
        match signed {
            true => writeln!(
                to,
                "Showing nodes accounting for {}, {} of {of_what} {}",
                self.measure.show(sum),
                share(sum, total, true).trim_start(),
                unsigned.show(total)
            )?,
            false => writeln!(
                to,
                "Showing nodes accounting for {}, {} of {} {of_what}",
                self.measure.show(sum),
                share(sum, total, false).trim_start(),
                unsigned.show(total)
            )?,
        }
        if chosen.dropped > 0 {
            let cutoff = unsigned.show(chosen.cutoff);
            writeln!(to, "Dropped {} nodes (cum <= {cutoff})", chosen.dropped)?;
        }
        if chosen.frames.len() < chosen.of {
            let count = chosen.frames.len();
            writeln!(to, "Showing top {count} nodes out of {}", chosen.of)?;
        }
        Ok(())
    }
}

/// Writes the properties of the profile, one per line.
pub(crate) fn write_subject(to: &mut dyn Write, shown: &Shown<'_>) -> io::Result<()> {
    let profile = &shown.input.profile;
    // Mappings are in the order of addresses, in which the program's come first.
    if let Some(mapping) = profile.mappings().first() {
        let file = profile.string(mapping.file);
        let file = file.rsplit('/').next().unwrap_or_default();
        if !file.is_empty() {
            writeln!(to, "File: {file}")?;
        }
        let build_id = profile.string(mapping.build_id);
        if !build_id.is_empty() {
            writeln!(to, "Build ID: {build_id}")?;
        }
    }
    for comment in profile.comments() {
        writeln!(to, "{comment}")?;
    }
    if let Some(base) = &shown.input.base {
        writeln!(to, "Base: {base}")?;
    }
    writeln!(
        to,
        "Type: {}",
        profile.sample_types()[shown.sample_type].name
    )?;
    if profile.time_ns() > 0 {
        writeln!(to, "Time: {}", crate::time::utc(profile.time_ns()))?;
    }
    if profile.duration_ns() > 0 {
        writeln!(
            to,
            "Duration: {}",
            alone(profile.duration_ns(), "nanoseconds", false)
        )?;
    }
    Ok(())
}
