//! The frames that are kept of a stack deeper than a limit: the leaf end, one frame that stands for the frames
//! left out, and the root end.

/// Stands for the frames that are left out of a stack. The first page of memory has no code, also at 0, where
/// the call before this return address would be.
pub const LEFT_OUT: usize = 1;

/// The name of [`LEFT_OUT`].
pub const LEFT_OUT_NAME: &str = "[frames left out]";

/// The smallest depth with a root end. In a smaller one, the functions that call `main` would take all of its place.
const MIN_DEPTH: usize = 32;

/// Returns the number of frames at the root end of a stack that is deeper than `depth`; 0 if only its leaf end is
/// kept.
pub const fn root_frames(depth: usize) -> usize {
    if depth < MIN_DEPTH { 0 } else { depth / 4 }
}

/// The maximum size of a stack.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The maximum number of frames.
    pub frames: usize,
    /// The number of frames at the root end of a deeper stack; 0 if only the leaf end is kept.
    pub root: usize,
}

impl Limit {
    /// Returns the limit of a stack of `depth` frames.
    pub fn new(depth: usize) -> Self {
        Self {
            frames: depth,
            root: root_frames(depth),
        }
    }

    /// Returns the limit of a stack of which only the leaf end is kept.
    pub fn leaf_end(frames: usize) -> Self {
        Self { frames, root: 0 }
    }

    /// Adds innermost frames, which readers leave out.
    pub fn with_innermost(self, frames: usize) -> Self {
        let frames = self.frames.saturating_add(frames);
        Self { frames, ..self }
    }

    /// Returns this limit, or the leaf end of that size if it is larger.
    pub fn at_most(self, frames: usize) -> Self {
        match self.frames <= frames {
            true => self,
            false => Self::leaf_end(frames),
        }
    }
}

/// Returns the leaf end and the root end of a stack, which are `depth` frames with one for those between them. The
/// root end is empty if it is not kept, and for a stack that is not deeper: all of it is in the leaf end.
pub fn ends<T>(frames: &[T], depth: usize) -> (&[T], &[T]) {
    match root_frames(depth) {
        _ if frames.len() <= depth => (frames, &[]),
        0 => (&frames[..depth], &[]),
        root => (&frames[..depth - root - 1], &frames[frames.len() - root..]),
    }
}

/// Returns the frames that are kept of a stack: all of them, or `depth` frames of a deeper stack.
pub fn kept(frames: &[usize], depth: usize) -> impl Iterator<Item = usize> {
    let (leaf, root) = ends(frames, depth);
    let between: &[usize] = if root.is_empty() { &[] } else { &[LEFT_OUT] };
    [leaf, between, root].into_iter().flatten().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deep_stack_keeps_both_ends() {
        let stack: Vec<usize> = (100..200).collect();
        let of = |frames: &[usize], depth| kept(frames, depth).collect::<Vec<_>>();
        let both = |depth: usize| [&stack[..23], &[LEFT_OUT], &stack[depth - 8..depth]].concat();
        assert_eq!(of(&stack[..32], 32), stack[..32]);
        assert_eq!(of(&stack[..33], 32), both(33));
        assert_eq!(of(&stack, 32), both(100));
        assert_eq!(of(&stack, 31), stack[..31]);
        assert!(of(&stack, 0).is_empty());
        // Twice comes to the same as once.
        for depth in 32..100 {
            assert_eq!(of(&of(&stack, 99), depth).len(), depth);
            assert_eq!(of(&of(&stack, depth), depth), of(&stack, depth));
        }
    }
}
