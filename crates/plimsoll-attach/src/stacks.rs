//! Reads the stacks of the threads of another process.

use std::time::Duration;

use plimsoll_process::deep_stacks::root_frames;
use plimsoll_unwind::unwind_tables::{self, Context};
use plimsoll_unwind::walk::{End, Frames};

use crate::foreign_stack::ForeignStack;
use crate::images::Images;
use crate::maps::Mapping;
use crate::memory::ProcessMemory;
use crate::stop::{self, NotStopped, Stopped};
use crate::tasks::{self, Blocked, Position, Task};

/// The maximum number of frames of a stack. A deeper stack keeps both ends.
const DEEPEST: usize = 512;

/// How often a stack is read until its thread stays in one place.
const ATTEMPTS: usize = 5;

/// The largest stack pointer: no program has memory in the upper half of the addresses.
const MAX_POINTER: usize = usize::MAX / 2;

/// The reason for another stack pointer.
const NO_STACK: &str = "its stack pointer is no address of the process";

/// The stack of a thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stack {
    /// Return addresses, leaf first; empty if not read.
    pub(crate) frames: Vec<usize>,
    /// The stack pointer; 0 if unknown.
    pub(crate) pointer: usize,
    /// Whether the stack has its outermost frame.
    pub(crate) is_complete: bool,
    /// Whether the thread was stopped for it.
    pub(crate) was_stopped: bool,
    /// The reason for which the stack was not read.
    pub(crate) missing: Option<String>,
}

/// Reads the stacks of a process, one after the other.
pub(crate) struct StackReader<'a> {
    pid: i32,
    memory: &'a ProcessMemory,
    images: &'a Images,
    mappings: &'a [Mapping],
    context: Context,
    buffer: Vec<u8>,
    frames: Box<[usize]>,
    ring: Box<[usize]>,
    /// The number of stops.
    pub(crate) stops: u64,
    /// The longest time for which a thread was stopped.
    pub(crate) longest_stop: Duration,
}

impl<'a> StackReader<'a> {
    pub(crate) fn new(
        pid: i32,
        memory: &'a ProcessMemory,
        images: &'a Images,
        mappings: &'a [Mapping],
    ) -> Self {
        Self {
            pid,
            memory,
            images,
            mappings,
            context: Context::new_in(),
            buffer: Vec::new(),
            frames: vec![0; DEEPEST].into_boxed_slice(),
            ring: vec![0; root_frames(DEEPEST)].into_boxed_slice(),
            stops: 0,
            longest_stop: Duration::ZERO,
        }
    }

    /// Reads the stack of a thread, and sets its position to the place at which the stack was read.
    pub(crate) fn read(&mut self, task: &mut Task) -> Stack {
        let mut missing = "it moved during each of 5 readings".to_owned();
        for _ in 0..ATTEMPTS {
            let turns = tasks::turns(self.pid, task.tid);
            task.position = match Position::read(self.pid, task.tid) {
                Ok(position) => position,
                Err(error) => match error.raw_os_error() {
                    Some(libc::ESRCH | libc::ENOENT) => Position::Ended,
                    _ => return Stack::missing(format!("its position cannot be read: {error}")),
                },
            };
            match task.position {
                Position::Ended => return Stack::missing("it has ended".into()),
                Position::Blocked(at) if at.stack > MAX_POINTER => {
                    return Stack::missing(NO_STACK.into());
                }
                Position::Blocked(at) => {
                    let (pid, tid, position) = (self.pid, task.tid, task.position);
                    let is_unmoved = || {
                        tasks::turns(pid, tid) == turns
                            && Position::read(pid, tid).is_ok_and(|again| again == position)
                    };
                    if let Some(stack) = self.blocked(at, is_unmoved) {
                        return stack;
                    }
                }
                Position::Running => {
                    match stop::copy(self.pid, task.tid, self.mappings, self.memory) {
                        Ok(stopped) => return self.stopped(stopped),
                        Err(NotStopped::Blocked) => {}
                        Err(NotStopped::Ended) => missing = "it has ended".into(),
                        Err(NotStopped::Failed(reason)) => missing = reason,
                    }
                }
            }
        }
        Stack::missing(missing)
    }

    /// Returns the stack of a blocked thread; `None` if the thread has moved since before the call.
    fn blocked(&mut self, at: Blocked, is_unmoved: impl Fn() -> bool) -> Option<Stack> {
        // After a system call, the instruction is the call's return address.
        let first = at.instruction.wrapping_add(usize::from(at.call.is_none()));
        let mut memory =
            ForeignStack::blocked(self.memory, self.images, at.stack, &mut self.buffer);
        // Mostly, the walk reads nothing but this copy. So it takes no time during which the thread may move.
        if !is_unmoved() {
            return None;
        }
        let (leaf, rest) = self.frames.split_at_mut(1);
        leaf[0] = first;
        let walk = unwind_tables::walk_without_frame_pointer(
            at.instruction as u64,
            at.stack as u64,
            &mut memory,
            &self.images.modules,
            &mut self.context,
            Frames::new(rest, &mut self.ring),
            |_, _| {},
        );
        let is_one_copy = memory.copies == 1;
        (is_one_copy || is_unmoved()).then(|| Stack {
            frames: self.frames[..=walk.frames].to_vec(),
            pointer: at.stack,
            is_complete: walk.end == End::Outermost,
            ..Stack::default()
        })
    }

    fn stopped(&mut self, stopped: Stopped) -> Stack {
        self.stops += 1;
        self.longest_stop = self.longest_stop.max(stopped.held);
        let Stopped {
            registers,
            is_in_call,
            mut stack,
            ..
        } = stopped;
        let pointer = registers.stack as usize;
        if pointer > MAX_POINTER {
            return Stack::missing(NO_STACK.into());
        }
        let mut memory = ForeignStack::copied(self.memory, self.images, pointer, &mut stack);
        let (leaf, rest) = self.frames.split_at_mut(1);
        leaf[0] = (registers.instruction as usize).wrapping_add(usize::from(!is_in_call));
        let walk = unwind_tables::walk_from_registers(
            registers,
            &mut memory,
            &self.images.modules,
            &mut self.context,
            Frames::new(rest, &mut self.ring),
        );
        Stack {
            frames: self.frames[..=walk.frames].to_vec(),
            pointer,
            is_complete: walk.end == End::Outermost,
            was_stopped: true,
            missing: None,
        }
    }
}

impl Stack {
    fn missing(reason: String) -> Self {
        Self {
            missing: Some(reason),
            ..Self::default()
        }
    }
}
