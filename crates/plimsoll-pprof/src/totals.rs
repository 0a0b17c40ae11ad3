//! Values of a profile by function.

use crate::error::Error;
use crate::frames::{Frames, Stack};
use crate::profile::Profile;

/// The values of a sample type, by function.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// The sum over all samples, of absolute values, as in Go's tool.
    pub total: i64,
    /// The totals of each function that occurs in a sample, the largest `flat` first.
    pub functions: Vec<FunctionTotals>,
}

/// The totals of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionTotals {
    /// The function's name; functions with the same name are combined. Without symbols, the file
    /// and the offset in it.
    pub name: String,
    /// The sum over samples with the function at the leaf.
    pub flat: i64,
    /// The sum over samples that contain the function. Recursion counts a sample once.
    pub cum: i64,
}

/// Returns the totals of each function for a sample type: the numbers of `go tool pprof -top`.
///
/// # Errors
/// If the profile's `drop_frames` or `keep_frames` is not a valid regular expression.
pub fn function_totals(profile: &Profile, sample_type: usize) -> Result<Totals, Error> {
    let frames = Frames::new(profile)?;
    let mut flat = vec![0_i64; frames.len()];
    let mut cum = vec![0_i64; frames.len()];
    let mut seen = vec![0_usize; frames.len()];
    let mut total = 0_i64;
    let mut stack = Stack::default();
    for (number, sample) in profile.samples().enumerate() {
        let value = sample.value(sample_type);
        if value == 0 {
            continue;
        }
        total = total.saturating_add(value.saturating_abs());
        frames.read(&sample, &mut stack);
        if let Some(&leaf) = stack.frames().first() {
            flat[leaf as usize] = flat[leaf as usize].saturating_add(value);
        }
        for &frame in stack.frames() {
            let frame = frame as usize;
            if seen[frame] <= number {
                seen[frame] = number + 1;
                cum[frame] = cum[frame].saturating_add(value);
            }
        }
    }
    let mut functions: Vec<FunctionTotals> = (0..frames.len())
        .filter(|&frame| seen[frame] > 0)
        .map(|frame| FunctionTotals {
            name: frames.name(frame as u32).to_owned(),
            flat: flat[frame],
            cum: cum[frame],
        })
        .collect();
    functions.sort_by(|a, b| {
        let key = |of: &FunctionTotals| (of.flat.unsigned_abs(), of.cum.unsigned_abs());
        key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name))
    });
    Ok(Totals { total, functions })
}
