//! `--folded`: a stack and its value on each line.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::io::Write;

use super::Stop;
use super::counted::Spread;
use super::shown::Shown;

/// Writes each stack once, root first, with the sum of its samples. Semicolons separate frames, so
/// a semicolon in a name is written as a colon.
pub(crate) fn folded(to: &mut dyn Write, shown: &Shown<'_>) -> Result<(), Stop> {
    let names: Vec<String> = (0..shown.frames.len() as u32)
        .map(|frame| shown.frames.name(frame).replace(';', ":"))
        .collect();
    let mut stacks: HashMap<Box<[u32]>, i64, BuildHasherDefault<Spread>> = HashMap::default();
    shown.each(|stack, value| {
        if let Some(sum) = stacks.get_mut(stack.frames()) {
            *sum = sum.saturating_add(value);
        } else {
            stacks.insert(stack.frames().into(), value);
        }
    });
    // Sorted, so that two outputs can be compared line by line.
    let mut stacks: Vec<(Box<[u32]>, i64)> = stacks.into_iter().collect();
    stacks.sort_unstable();
    for (stack, value) in stacks {
        if value == 0 {
            continue;
        }
        if stack.is_empty() {
            write!(to, "[no stack]")?;
        }
        for (at, &frame) in stack.iter().rev().enumerate() {
            let separator = if at == 0 { "" } else { ";" };
            write!(to, "{separator}{}", names[frame as usize])?;
        }
        writeln!(to, " {value}")?;
    }
    Ok(())
}
