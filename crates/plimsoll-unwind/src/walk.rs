//! The result of a walk, and the memory for its frames.

use plimsoll_process::deep_stacks::LEFT_OUT;

/// The maximum number of frames that are walked for the root end of a stack.
const MAX_WALKED: usize = 16_384;

/// The result of a walk.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// The number of frames filled in.
    pub frames: usize,
    /// The reason for which the walk ended.
    pub end: End,
}

/// The reason for which a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum End {
    /// The walk reached the beginning of the thread's stack.
    Outermost = 0,
    /// The buffer of frames was full.
    Full = 1,
    /// The tables or the memory do not lead to a caller.
    Lost = 2,
    /// The list of modules is outdated: code was loaded or unloaded. The walk could not read its
    /// tables without the list.
    Stale = 3,
}

impl End {
    /// Returns the variant with that number.
    pub fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Outermost,
            1 => Self::Full,
            2 => Self::Lost,
            _ => Self::Stale,
        }
    }
}

/// The memory for the frames of a walk.
///
/// A walk fills it from the leaf. When it is full, the walk goes on, and a ring keeps the outermost frames. At the
/// root, these replace the outer end of the frames, behind one that stands for those left out. If the walk ends
/// elsewhere, the frames remain.
pub struct Frames<'a> {
    frames: &'a mut [usize],
    ring: &'a mut [usize],
}

impl<'a> Frames<'a> {
    /// Creates the memory for a stack of both ends. `ring` has the size of the root end, and is shorter than `frames`.
    pub fn new(frames: &'a mut [usize], ring: &'a mut [usize]) -> Self {
        debug_assert!(ring.is_empty() || ring.len() < frames.len());
        Self { frames, ring }
    }

    /// Creates the memory for the leaf end alone.
    pub fn leaf_end(frames: &'a mut [usize]) -> Self {
        Self::new(frames, &mut [])
    }

    /// Returns the frames without the ring.
    pub fn leaf_end_mut(&mut self) -> &mut [usize] {
        self.frames
    }

    /// Returns the place of the frame at a depth, after all frames before it. `None` if the walk must end.
    #[inline]
    pub fn place(&mut self, depth: usize) -> Option<&mut usize> {
        if depth < self.frames.len() {
            return self.frames.get_mut(depth);
        }
        self.place_in_ring(depth)
    }

    #[cold]
    fn place_in_ring(&mut self, depth: usize) -> Option<&mut usize> {
        let (frames, ring) = (&*self.frames, &mut *self.ring);
        if ring.is_empty() || depth >= MAX_WALKED {
            return None;
        }
        if depth == frames.len() {
            ring.copy_from_slice(&frames[depth - ring.len()..]);
        }
        let at = (depth - frames.len()) % ring.len();
        Some(&mut ring[at])
    }

    /// Returns the result of a walk that ended after `depth` frames.
    #[inline]
    pub fn finish(self, depth: usize, end: End) -> Walk {
        if depth <= self.frames.len() {
            return Walk { frames: depth, end };
        }
        self.finish_deep(depth, end)
    }

    #[cold]
    fn finish_deep(self, depth: usize, end: End) -> Walk {
        let Self { frames, ring } = self;
        let walk = |end| Walk {
            frames: frames.len(),
            end,
        };
        if end != End::Outermost {
            return walk(end);
        }
        let walk = walk(End::Full);
        ring.rotate_left((depth - frames.len()) % ring.len());
        let root = frames.len() - ring.len();
        frames[root - 1] = LEFT_OUT;
        frames[root..].copy_from_slice(ring);
        walk
    }
}
