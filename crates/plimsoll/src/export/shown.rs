//! Where a stack begins to be shown.

use crate::profile::{Leaf, leaf};
use crate::symbol::Symbols;

/// How many frames are left out at the leaf, and how many innermost lines of the next: how the
/// allocation was made, below the code that wanted it. A stack of such frames only is shown whole.
pub(super) fn shown_from(frames: &[usize], symbols: &Symbols) -> (usize, usize) {
    let mut from = (0, 0);
    for (at, &frame) in frames.iter().enumerate() {
        let location = symbols.location(frame);
        let lines = location.map_or(&[][..], |location| symbols.lines(location));
        if lines.is_empty() {
            return from;
        }
        for (line, &of) in lines.iter().enumerate() {
            match leaf(symbols.texts.get(symbols.function(of).name)) {
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
