//! Reads the stacks of the threads of another process.

use std::cell::RefMut;
use std::time::Duration;

use plimsoll_process::deep_stacks::{Limit, root_frames};
use plimsoll_process::stack_memory::Memory as _;
use plimsoll_unwind::registers::Registers;
use plimsoll_unwind::unwind_tables::{self, Context};
use plimsoll_unwind::walk::{End, Frames, Walk};

use crate::foreign_stack::ForeignStack;
use crate::images::Images;
use crate::maps::Mapping;
use crate::memory::ProcessMemory;
use crate::process::Process;
use crate::python::Python;
use crate::stop::{self, NotStopped, Stopped};
use crate::threads::{self, Blocked, Position, Thread};

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
    python: Option<RefMut<'a, Python>>,
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
    pub(crate) fn new(process: &'a Process) -> Self {
        let python = RefMut::filter_map(process.python.borrow_mut(), Option::as_mut);
        Self {
            pid: process.target.pid,
            memory: &process.memory,
            images: &process.images,
            mappings: &process.mappings,
            python: python.ok(),
            context: Context::new_in(),
            buffer: Vec::new(),
            frames: vec![0; DEEPEST].into_boxed_slice(),
            ring: vec![0; root_frames(DEEPEST)].into_boxed_slice(),
            stops: 0,
            longest_stop: Duration::ZERO,
        }
    }

    /// Reads the stack of a thread, and sets its position to the place at which the stack was read.
    pub(crate) fn read(&mut self, thread: &mut Thread) -> Stack {
        let mut missing = "it moved during each of 5 readings".to_owned();
        for _ in 0..ATTEMPTS {
            let turns = threads::turns(self.pid, thread.tid);
            thread.position = match Position::read(self.pid, thread.tid) {
                Ok(position) => position,
                Err(error) => match error.raw_os_error() {
                    Some(libc::ESRCH | libc::ENOENT) => Position::Ended,
                    _ => return Stack::missing(format!("its position cannot be read: {error}")),
                },
            };
            match thread.position {
                Position::Ended => return Stack::missing("it has ended".into()),
                Position::Blocked(at) if at.stack > MAX_POINTER => {
                    return Stack::missing(NO_STACK.into());
                }
                Position::Blocked(at) => {
                    let (pid, tid, position) = (self.pid, thread.tid, thread.position);
                    let mut is_unmoved = || {
                        threads::turns(pid, tid) == turns
                            && Position::read(pid, tid).is_ok_and(|again| again == position)
                    };
                    if let Some(stack) = self.blocked(tid, at, &mut is_unmoved) {
                        return stack;
                    }
                }
                Position::Running => {
                    let (tid, mut python) = (thread.tid, self.python.as_deref_mut());
                    if let Some(python) = &mut python {
                        python.prepare(tid);
                    }
                    let mut is_python = false;
                    let mut read = || {
                        is_python = python.as_mut().is_some_and(|python| {
                            python.read(tid, Limit::new(DEEPEST), &mut || true)
                        });
                    };
                    match stop::copy(self.pid, tid, self.mappings, self.memory, &mut read) {
                        Ok(stopped) => return self.stopped(stopped, is_python),
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
    fn blocked(
        &mut self,
        tid: i32,
        at: Blocked,
        is_unmoved: &mut dyn FnMut() -> bool,
    ) -> Option<Stack> {
        // After a system call, the instruction is the call's return address.
        let leaf = at.instruction.wrapping_add(usize::from(at.call.is_none()));
        let start = Start::Blocked(at.instruction, at.stack);
        let python = self.python.as_deref_mut();
        let is_python =
            python.is_some_and(|python| python.read(tid, Limit::new(DEEPEST), is_unmoved));
        let mut memory =
            ForeignStack::blocked(self.memory, self.images, at.stack, &mut self.buffer);
        // Mostly, the walk reads nothing but this copy. So it takes no time during which the thread may move.
        if !is_unmoved() {
            return None;
        }
        let mut stack = Walker {
            start,
            leaf,
            images: self.images,
            context: &mut self.context,
        }
        .walk(
            &mut memory,
            self.python.as_deref_mut().filter(|_| is_python),
            &mut self.frames,
            &mut self.ring,
        );
        stack.pointer = at.stack;
        let is_one_copy = memory.copies == 1;
        (is_one_copy || is_unmoved()).then_some(stack)
    }

    /// Returns the stack of a thread that was stopped.
    fn stopped(&mut self, stopped: Stopped, is_python: bool) -> Stack {
        self.stops += 1;
        self.longest_stop = self.longest_stop.max(stopped.held);
        let Stopped {
            registers,
            is_in_call,
            stack: mut copy,
            ..
        } = stopped;
        let pointer = registers.stack as usize;
        if pointer > MAX_POINTER {
            return Stack::missing(NO_STACK.into());
        }
        let mut memory = ForeignStack::copied(self.memory, self.images, pointer, &mut copy);
        let leaf = (registers.instruction as usize).wrapping_add(usize::from(!is_in_call));
        let stack = Walker {
            start: Start::Stopped(registers),
            leaf,
            images: self.images,
            context: &mut self.context,
        }
        .walk(
            &mut memory,
            self.python.as_deref_mut().filter(|_| is_python),
            &mut self.frames,
            &mut self.ring,
        );
        Stack {
            pointer,
            was_stopped: true,
            ..stack
        }
    }
}

/// Where a walk begins.
#[derive(Clone, Copy)]
enum Start {
    /// The instruction and the stack pointer of a blocked thread, whose other registers are unknown.
    Blocked(usize, usize),
    Stopped(Registers),
}

struct Walker<'a> {
    start: Start,
    /// The return address that stands for the innermost function.
    leaf: usize,
    images: &'a Images,
    context: &'a mut Context,
}

impl Walker<'_> {
    /// Walks a stack, with Python's functions if the thread executes any.
    fn walk(
        mut self,
        memory: &mut ForeignStack<'_>,
        python: Option<&mut Python>,
        frames: &mut [usize],
        ring: &mut [usize],
    ) -> Stack {
        let merged = python.and_then(|python| {
            python.merge(Limit::new(DEEPEST), |native, note| {
                self.native(memory, native, &mut [], note)
            })
        });
        let (frames, end) = merged.unwrap_or_else(|| {
            let walk = self.native(memory, frames, ring, &mut |_, _| {});
            (&frames[..walk.frames], walk.end)
        });
        Stack {
            frames: frames.to_vec(),
            is_complete: end == End::Outermost,
            ..Stack::default()
        }
    }

    fn native(
        &mut self,
        memory: &mut ForeignStack<'_>,
        frames: &mut [usize],
        ring: &mut [usize],
        note: &mut dyn FnMut(usize, usize),
    ) -> Walk {
        let (leaf, rest) = frames.split_at_mut(1);
        leaf[0] = self.leaf;
        let rest = Frames::new(rest, ring);
        let modules = &self.images.modules;
        let pointer = match self.start {
            Start::Blocked(_, stack) => stack,
            Start::Stopped(registers) => registers.stack as usize,
        };
        note(0, pointer);
        memory.go_on_at(pointer);
        let note = |at: usize, position| note(at + 1, position);
        let walk = match self.start {
            Start::Blocked(instruction, stack) => unwind_tables::walk_without_frame_pointer(
                instruction as u64,
                stack as u64,
                memory,
                modules,
                self.context,
                rest,
                note,
            ),
            Start::Stopped(registers) => unwind_tables::walk_from_registers(
                registers,
                memory,
                modules,
                self.context,
                rest,
                note,
            ),
        };
        Walk {
            frames: walk.frames + 1,
            ..walk
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
