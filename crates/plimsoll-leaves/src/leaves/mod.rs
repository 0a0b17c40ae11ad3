//! Hides the innermost frames of a stack that only show how an event came about, such as functions
//! of the allocator. All profile formats omit these frames.

pub mod allocation;

use plimsoll_symbolize::{Line, Symbols};

/// Classifies a function at the leaf of a stack by its name and file.
pub type LeafRule = fn(&str, &str) -> Leaf;

/// The class of a frame at the leaf of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// Part of the mechanism of the event: hidden.
    Hidden,
    /// Hidden, with all functions that it calls: `__rust_alloc` calls only the allocator, whatever
    /// the names of its functions are.
    Entry,
    /// Hidden only if one of its callers is hidden too: `Option::map` between two functions of the
    /// allocator.
    Glue,
    /// As [`Glue`](Self::Glue), and also hidden where it directly calls a hidden function:
    /// `Iterator::collect`.
    Library,
    /// Shown, unless an entry point calls it.
    Candidate,
    /// The first frame that is shown.
    Shown,
}

/// The most functions below an entry point whose names match no rule. Every stack is searched to
/// this depth, so a larger limit costs time.
const MAX_BELOW_ENTRY: usize = 8;

/// Returns the number of innermost functions of a stack that `leaf` hides. `functions` are names
/// and files, from the leaf, with an empty name where it is unknown. Returns 0 for a stack of
/// hidden functions only, which is shown whole.
pub fn hidden<'a>(leaf: LeafRule, functions: impl Iterator<Item = (&'a str, &'a str)>) -> usize {
    let (mut hidden, mut shown) = (0, 0);
    for (at, (name, file)) in functions.enumerate() {
        match leaf(name, file) {
            Leaf::Hidden if shown == 0 => hidden = at + 1,
            Leaf::Library if hidden == at && at > 0 => hidden = at + 1,
            Leaf::Entry => (hidden, shown) = (at + 1, 0),
            Leaf::Candidate if shown < MAX_BELOW_ENTRY => shown += 1,
            Leaf::Candidate | Leaf::Shown => {
                shown += 1;
                break;
            }
            Leaf::Hidden | Leaf::Glue | Leaf::Library => {}
        }
    }
    if shown == 0 { 0 } else { hidden }
}

/// Returns the number of frames of a stack that `leaf` hides, from the leaf, and the number of
/// hidden innermost lines of the next frame. A stack of hidden functions only is shown whole.
/// `frames` are return addresses.
pub fn visible(frames: &[usize], leaf: LeafRule, symbols: &Symbols) -> (usize, usize) {
    if symbols.functions.is_empty() {
        return (0, 0);
    }
    let mut hidden = hidden(leaf, functions(frames, symbols));
    for (at, &frame) in frames.iter().enumerate() {
        let lines = lines(frame, symbols).len().max(1);
        if hidden < lines {
            return (at, hidden);
        }
        hidden -= lines;
    }
    (0, 0)
}

fn lines(frame: usize, symbols: &Symbols) -> &[Line] {
    match symbols.location(frame) {
        Some(location) if location.is_named => symbols.lines(location),
        _ => &[],
    }
}

/// Returns name and file of the functions of a stack, from the leaf.
fn functions<'a>(
    frames: &'a [usize],
    symbols: &'a Symbols,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    frames.iter().flat_map(|&frame| {
        let lines = lines(frame, symbols);
        let names = lines.iter().map(|&line| {
            let function = symbols.function(line);
            let text = |text| symbols.texts.get(text);
            (text(function.name), text(function.file))
        });
        // A frame without a function counts as one line.
        let nameless = lines.is_empty().then_some(("", ""));
        names.chain(nameless)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden_of(stack: &str) -> usize {
        let leaf: LeafRule = |name, _| match name {
            "h" => Leaf::Hidden,
            "e" => Leaf::Entry,
            "g" => Leaf::Glue,
            "l" => Leaf::Library,
            "c" => Leaf::Candidate,
            _ => Leaf::Shown,
        };
        hidden(leaf, stack.split_whitespace().map(|name| (name, "")))
    }

    #[test]
    fn functions_below_an_entry_point_are_hidden_with_it() {
        for (stack, count) in [
            ("", 0),
            ("s h s", 0),
            ("c h c", 0),
            ("h h c h c", 2),
            ("h g c", 1),
            ("h g h c", 3),
            ("c c e c", 3),
            ("s e c", 0),
            ("h c e h g h c", 6),
            ("l c", 0),
            ("l h l l c l", 4),
            ("h g l c", 1),
            ("c e l c l", 3),
            ("g c e g c", 3),
        ] {
            assert_eq!(hidden_of(stack), count, "{stack}");
        }
        let deep = |below: usize| format!("{} e c", "c ".repeat(below));
        assert_eq!(hidden_of(&deep(MAX_BELOW_ENTRY)), MAX_BELOW_ENTRY + 1);
        assert_eq!(hidden_of(&deep(MAX_BELOW_ENTRY + 1)), 0);
    }

    #[test]
    fn a_stack_of_hidden_functions_is_shown_whole() {
        for stack in ["h", "h g", "e", "c e", "h e g", "h l"] {
            assert_eq!(hidden_of(stack), 0, "{stack}");
        }
    }
}
