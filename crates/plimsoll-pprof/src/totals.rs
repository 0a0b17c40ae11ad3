//! What of a profile is of which function.

use super::{Error, Frames, Profile, Stack};

/// What functions have of a sample type.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Of all samples. Values below zero count as if they were above, as in Go's tool.
    pub total: i64,
    /// Of each function that is in a sample, the largest `flat` first.
    pub functions: Vec<FunctionTotals>,
}

/// What a function has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionTotals {
    /// Functions of one name are one. Without symbols, the address and its file.
    pub name: String,
    /// Of samples with the function at the leaf.
    pub flat: i64,
    /// Of samples with the function anywhere; a sample counts once, also in recursion.
    pub cum: i64,
}

/// What each function has of a sample type: the numbers of `go tool pprof -top`.
///
/// # Errors
/// If what the profile has in `drop_frames` is no regular expression.
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
