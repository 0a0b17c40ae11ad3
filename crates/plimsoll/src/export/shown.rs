//! Which part of a stack is shown.

use crate::profile::reading::{Leaf, LeafRule};
use crate::stack;
use crate::symbol::Symbols;

/// The frames of a stack that are shown, as many as the depth in force says, and how many innermost
/// lines of the first are not: those of how the event came about, below the code that wanted it.
pub(super) fn shown<'a>(
    frames: &'a [usize],
    leaf: LeafRule,
    symbols: &Symbols,
) -> (&'a [usize], usize) {
    let (skip, hidden_lines) = shown_from(frames, leaf, symbols);
    let shown = &frames[skip..];
    (
        &shown[..shown.len().min(stack::depth().max(1))],
        hidden_lines,
    )
}

/// How many frames are left out at the leaf, and how many innermost lines of the next. A stack of
/// such frames only is shown whole.
pub(super) fn shown_from(frames: &[usize], leaf: LeafRule, symbols: &Symbols) -> (usize, usize) {
    let mut from = (0, 0);
    for (at, &frame) in frames.iter().enumerate() {
        let location = symbols.location(frame);
        let lines = location.map_or(&[][..], |location| symbols.lines(location));
        if lines.is_empty() {
            return from;
        }
        for (line, &of) in lines.iter().enumerate() {
            let function = symbols.function(of);
            let text = |text| symbols.texts.get(text);
            match leaf(text(function.name), text(function.file)) {
                Leaf::Shown => return from,
                Leaf::Glue => {}
                // From the one after it, which may be in the next frame.
                Leaf::Hidden if line + 1 == lines.len() => from = (at + 1, 0),
                Leaf::Hidden => from = (at, line + 1),
            }
        }
    }
    (0, 0)
}
