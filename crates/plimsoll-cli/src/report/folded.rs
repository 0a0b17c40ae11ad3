//! `--folded`: a stack and its value on each line.

use std::collections::BTreeMap;
use std::io::Write;

use super::Stop;
use super::shown::Shown;

/// Writes each stack once, the root first, with what all samples with it have together. A semicolon
/// in a name, which is what separates frames, is a colon.
pub(crate) fn folded(to: &mut dyn Write, shown: &Shown<'_>) -> Result<(), Stop> {
    let names: Vec<String> = (0..shown.frames.len() as u32)
        .map(|frame| shown.frames.name(frame).replace(';', ":"))
        .collect();
    let mut stacks: BTreeMap<Vec<u32>, i64> = BTreeMap::new();
    shown.each(|stack, value| {
        if let Some(sum) = stacks.get_mut(stack.frames()) {
            *sum = sum.saturating_add(value);
        } else {
            stacks.insert(stack.frames().to_vec(), value);
        }
    });
    let mut line = String::new();
    for (stack, value) in stacks {
        if value == 0 {
            continue;
        }
        line.clear();
        for &frame in stack.iter().rev() {
            if !line.is_empty() {
                line.push(';');
            }
            line.push_str(&names[frame as usize]);
        }
        if line.is_empty() {
            line.push_str("[no stack]");
        }
        writeln!(to, "{line} {value}")?;
    }
    Ok(())
}
