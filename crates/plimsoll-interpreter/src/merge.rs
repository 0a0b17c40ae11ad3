//! Puts the functions of an interpreter in place of its loop.
//!
//! Each execution of the loop is a native frame, in which one or more functions run. The interpreter
//! keeps a record of the execution in this frame. So the native frame whose part of the stack
//! contains the record's address is the loop's, whatever the code is named.

use plimsoll_process::deep_stacks::{Limit, root_frames};
use plimsoll_unwind::walk::{End, Frames, Walk};

use crate::frame_source::{Execution, Found, Functions, MAX_FRAMES};

/// The memory for one merge. Too much for the stack of a signal handler.
pub struct Buffers {
    /// For each native frame the lowest address of its part of the stack.
    positions: Box<[usize]>,
    functions: Functions,
    /// The outermost of more frames than are kept.
    ring: Box<[usize]>,
    merged: Box<[usize]>,
}

impl Default for Buffers {
    /// Allocates: not for hooks.
    fn default() -> Self {
        Self {
            positions: vec![0; MAX_FRAMES].into_boxed_slice(),
            functions: Functions::default(),
            ring: vec![0; root_frames(MAX_FRAMES)].into_boxed_slice(),
            merged: vec![0; MAX_FRAMES].into_boxed_slice(),
        }
    }
}

impl Buffers {
    /// Returns the positions, which the walk fills in.
    pub fn positions(&mut self) -> &mut [usize] {
        &mut self.positions
    }

    /// Returns the functions, which a reader fills in.
    pub fn functions(&mut self) -> &mut Functions {
        &mut self.functions
    }
}

/// A native stack.
#[derive(Clone, Copy)]
pub struct Native<'a> {
    /// The frames, from the leaf.
    pub frames: &'a [usize],
    /// The reason for which the walk ended.
    pub end: End,
}

impl Native<'_> {
    fn is_whole(&self) -> bool {
        self.end == End::Outermost
    }
}

/// Returns the native stack with the functions of the same thread, at most [`MAX_FRAMES`] frames, and the reason for which
/// it ends. The buffers contain the positions of the native frames, and the functions, which were read within `limit`. For hooks.
pub fn merge<'a>(
    native: Native<'_>,
    buffers: &'a mut Buffers,
    limit: Limit,
    found: &Found,
) -> (&'a [usize], End) {
    place(native, buffers, found, limit.at_most(MAX_FRAMES))
}

/// The same as [`merge()`] for a thread that may have run between the readings of its native stack and its functions. `None`
/// if they do not belong together.
pub fn merge_if_on_stack<'a>(
    native: Native<'_>,
    buffers: &'a mut Buffers,
    limit: Limit,
    found: &Found,
) -> Option<(&'a [usize], End)> {
    let positions = &buffers.positions[..native.frames.len().min(MAX_FRAMES)];
    let executions = &buffers.functions.executions[..found.executions];
    if found.loop_code.is_none() && !are_on_stack(executions, positions, native.is_whole()) {
        return None;
    }
    Some(merge(native, buffers, limit, found))
}

/// Returns whether the records of executions are on the native stack with these positions, in their
/// order. A record without functions may be elsewhere.
fn are_on_stack(executions: &[Execution], positions: &[usize], whole: bool) -> bool {
    let (Some(&innermost), Some(&outermost)) = (positions.first(), positions.last()) else {
        return false;
    };
    let end = if whole { outermost } else { usize::MAX };
    let (mut last, mut done) = (innermost, 0);
    executions
        .iter()
        .filter(|execution| execution.functions > std::mem::replace(&mut done, execution.functions))
        .all(|execution| {
            let range = std::mem::replace(&mut last, execution.position)..end;
            range.contains(&execution.position)
        })
}

/// Puts functions in place of the native frames of their executions.
fn place<'a>(
    native: Native<'_>,
    buffers: &'a mut Buffers,
    found: &Found,
    limit: Limit,
) -> (&'a [usize], End) {
    let (whole, end) = (native.is_whole(), native.end);
    let native = &native.frames[..native.frames.len().min(MAX_FRAMES)];
    let Buffers {
        positions,
        functions:
            Functions {
                frames: functions,
                executions,
                ..
            },
        merged,
        ring,
    } = buffers;
    let positions = &positions[..native.len()];
    let executions = &mut executions[..found.executions];
    if let Some(code) = &found.loop_code {
        let in_loop = |at: &usize| code.contains(&native[*at]);
        let loops = (0..native.len()).filter(in_loop).count();
        let loops_at = (0..native.len()).filter(in_loop);
        assign(executions, loops, loops_at.map(|at| positions[at]), whole);
    }
    // A walk that was cut has the root only if the outermost function is beyond its frames.
    let is_outermost = |execution: &&Execution| execution.functions == found.functions;
    let outermost = executions.iter().find(is_outermost);
    let is_beyond = |execution: &Execution| Some(&execution.position) >= positions.last();
    let has_root = found.is_complete && (whole || outermost.is_none_or(is_beyond));
    let root = if has_root { limit.root } else { 0 };
    let mut to = Output {
        frames: Frames::new(&mut merged[..limit.frames], &mut ring[..root]),
        depth: 0,
        end: End::Outermost,
    };
    let mut executions = executions.iter().peekable();
    let mut done = 0;
    for (at, &frame) in native.iter().enumerate() {
        let end = positions.get(at + 1).copied().unwrap_or(0);
        let mut is_loop = false;
        while let Some(execution) = executions.next_if(|execution| execution.position < end) {
            is_loop = true;
            to.put(&functions[done..execution.functions]);
            done = execution.functions;
        }
        let is_hidden = done > 0 && found.hidden_code.contains(&frame);
        if !is_loop && !is_hidden {
            to.put(&[frame]);
        }
    }
    // The walk was cut.
    to.put(&functions[done..found.functions]);
    let walk = to.finish();
    let end = if whole { walk.end } else { end };
    (&merged[..walk.frames], end)
}

/// Assigns native frames of the loop to executions that have no record on the stack. There should be as
/// many. A part of the loop's code that was not recognized leaves executions over, and an execution
/// that has just begun or ended leaves a frame over: both are innermost.
fn assign(
    executions: &mut [Execution],
    loops: usize,
    mut positions: impl Iterator<Item = usize>,
    whole: bool,
) {
    let surplus = if whole {
        executions.len().saturating_sub(loops)
    } else {
        0
    };
    for _ in executions.len()..if whole { loops } else { 0 } {
        positions.next();
    }
    let mut position = 0;
    for (at, execution) in executions.iter_mut().enumerate() {
        if at == 0 || at > surplus {
            position = positions.next().unwrap_or(usize::MAX);
        }
        execution.position = position;
    }
}

struct Output<'a> {
    frames: Frames<'a>,
    /// The number of frames so far.
    depth: usize,
    end: End,
}

impl Output<'_> {
    /// Appends frames as far as the space suffices.
    fn put(&mut self, frames: &[usize]) {
        for &frame in frames {
            let Some(place) = self.frames.place(self.depth) else {
                self.end = End::Full;
                return;
            };
            *place = frame;
            self.depth += 1;
        }
    }

    fn finish(self) -> Walk {
        self.frames.finish(self.depth, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(executions: usize, loops: &[usize], whole: bool) -> Vec<usize> {
        let mut all = vec![Execution::default(); executions];
        assign(&mut all, loops.len(), loops.iter().copied(), whole);
        all.iter().map(|execution| execution.position).collect()
    }

    #[test]
    fn executions_without_records_are_assigned_from_the_outermost() {
        let last = usize::MAX;
        assert_eq!(assigned(3, &[10, 20, 30], true), [10, 20, 30]);
        assert_eq!(
            assigned(3, &[20, 30], true),
            [20, 20, 30],
            "one is not recognized"
        );
        assert_eq!(
            assigned(2, &[10, 20, 30], true),
            [20, 30],
            "one has just begun"
        );
        assert_eq!(
            assigned(3, &[10, 20], false),
            [10, 20, last],
            "the walk was cut"
        );
        assert_eq!(assigned(1, &[10, 20], false), [10]);
        assert_eq!(assigned(2, &[], true), [last, last]);
        assert!(assigned(0, &[10], true).is_empty());
    }

    #[test]
    fn records_are_on_the_stack_in_their_order() {
        let are = |at: &[(usize, usize)], whole| {
            let execution = |&(position, functions): &(usize, usize)| Execution {
                position,
                functions,
            };
            let executions: Vec<_> = at.iter().map(execution).collect();
            are_on_stack(&executions, &[100, 200, 300, 400], whole)
        };
        assert!(are(&[(150, 2), (250, 3)], true));
        assert!(
            are(&[(150, 2), (250, 3), (7, 3)], true),
            "without functions"
        );
        assert!(!are(&[(250, 2), (150, 3)], true));
        assert!(!are(&[(50, 2), (250, 3)], true), "below the stack");
        assert!(!are(&[(150, 2), (450, 3)], true), "above the stack");
        assert!(are(&[(150, 2), (450, 3)], false), "the walk was cut");
        assert!(!are_on_stack(&[], &[], true));
    }
}
