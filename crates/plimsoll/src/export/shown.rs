//! Which part of a stack is shown.

use crate::profile::reading::{self, LeafRule};
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
    // A frame without a name counts as one line.
    let lines = |frame| match symbols.location(frame) {
        Some(location) => symbols.lines(location),
        None => &[],
    };
    let functions = frames.iter().flat_map(|&frame| {
        let names = lines(frame).iter().map(|&line| {
            let function = symbols.function(line);
            let text = |text| symbols.texts.get(text);
            (text(function.name), text(function.file))
        });
        let nameless = lines(frame).is_empty().then_some(("", ""));
        names.chain(nameless)
    });
    let mut hidden = reading::hidden(leaf, functions);
    for (at, &frame) in frames.iter().enumerate() {
        let lines = lines(frame).len().max(1);
        if hidden < lines {
            return (at, hidden);
        }
        hidden -= lines;
    }
    (0, 0)
}
