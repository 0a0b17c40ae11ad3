//! `--by`: the values of a label.

use std::collections::HashMap;
use std::io::Write;

use super::Stop;
use super::measure::{Measure, share};
use super::shown::Shown;
use crate::failure::Failure;
use plimsoll_args::args::ViewArguments;

/// Stands for samples without the label.
const NONE: &str = "[none]";

/// Writes a row for each value of the label `key`, the largest first.
pub(crate) fn by(
    to: &mut dyn Write,
    shown: &Shown<'_>,
    arguments: &ViewArguments,
    key: &str,
) -> Result<(), Stop> {
    let profile = &shown.input.profile;
    let mut sums: HashMap<String, i64> = HashMap::new();
    let mut is_known = false;
    shown.each_sample(|sample, _, value| {
        let mut labels = sample.labels();
        let label = labels.find(|label| profile.string(label.key) == key);
        is_known |= label.is_some();
        let text = label.map_or(NONE.to_owned(), |label| match profile.string(label.text) {
            "" => format!("{}{}", label.number, profile.string(label.unit)),
            text => text.to_owned(),
        });
        let sum = sums.entry(text).or_default();
        *sum = sum.saturating_add(value);
    });
    if !is_known {
        let cause = format!(
            "no sample has a label {key}: it was not set, or a program had more than 65,536 sets of labels before"
        );
        return Err(Failure::new(&shown.input.name, cause).into());
    }
    let total = shown.total();
    let cutoff = (total as f64 * arguments.nodefraction) as u64;
    let mut rows: Vec<(String, i64)> = sums.into_iter().collect();
    rows.retain(|(_, value)| *value != 0 && value.unsigned_abs() >= cutoff);
    rows.sort_by(|(text, value), (other, of_other)| {
        let larger = of_other.unsigned_abs().cmp(&value.unsigned_abs());
        larger.then_with(|| text.cmp(other))
    });
    rows.truncate(match arguments.nodecount {
        None | Some(0) => usize::MAX,
        Some(count) => count,
    });
    let signed = shown.is_difference();
    let magnitudes = || {
        rows.iter()
            .map(|(_, value)| *value)
            .map(i64::saturating_abs)
    };
    let (smallest, largest) = (magnitudes().min(), magnitudes().max());
    let measure = match arguments.unit.as_deref() {
        Some(wanted) => Measure::wanted(shown.unit(), wanted, signed)
            .map_err(|cause| Failure::new("--unit", cause).with_code(2))?,
        None => Measure::fitting(
            shown.unit(),
            smallest.unwrap_or(0),
            largest.unwrap_or(0),
            signed,
        ),
    };
    let part = share(0, 0, signed).len();
    writeln!(to, "{:>12} {:>part$} {key}", "flat", "flat%")?;
    for (text, value) in &rows {
        let value = (measure.show(*value), share(*value, total, signed));
        writeln!(to, "{:>12} {:>part$} {text}", value.0, value.1)?;
    }
    Ok(())
}
