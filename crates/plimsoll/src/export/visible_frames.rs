//! The visible part of a stack.

use plimsoll_symbolize::Symbols;
use plimsoll_symbolize::leaves::{LeafRule, visible};

use plimsoll_core::stack;

/// Returns the visible frames of a stack, at most as many as the current depth. Also returns the
/// number of innermost lines of the first frame that are hidden.
pub(super) fn visible_frames<'a>(
    frames: &'a [usize],
    leaf: LeafRule,
    symbols: &Symbols,
) -> (&'a [usize], usize) {
    let (skip, hidden_lines) = visible(frames, leaf, symbols);
    let shown = &frames[skip..];
    (
        &shown[..shown.len().min(stack::depth().max(1))],
        hidden_lines,
    )
}
