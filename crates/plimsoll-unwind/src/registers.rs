//! The registers from which a stack is unwound.

use crate::arch::{self, Captured};

/// The registers of a thread that a walk needs.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// The next instruction to execute.
    pub instruction: u64,
    /// The stack pointer.
    pub stack: u64,
    /// The frame pointer.
    pub frame: u64,
    /// The link register, which holds the return address of a function that has not saved it. 0 if
    /// unknown, and on processors without one.
    pub link: u64,
}

/// The point at which a walk begins.
#[derive(Clone, Copy, Debug)]
pub enum Start {
    /// The current instruction: the first frame is its caller's.
    Here(Registers),
    /// The state after a call returns. Its instruction is the first frame, which the capturing code
    /// adds; the walk finds the frames beyond.
    Caller(Registers),
    /// Like [`Start::Here`], limited to frames below this address.
    Limited(Registers, usize),
}

impl Start {
    /// Returns the registers with which the walk begins.
    pub fn registers(self) -> Registers {
        match self {
            Self::Here(registers) | Self::Caller(registers) | Self::Limited(registers, _) => {
                registers
            }
        }
    }

    /// Returns the address at which the stack ends for this walk.
    pub fn limit(self) -> usize {
        match self {
            Self::Here(_) | Self::Caller(_) => usize::MAX,
            Self::Limited(_, limit) => limit,
        }
    }
}

impl Registers {
    /// Returns the registers of the calling function. Always inlined, so that they belong to a live
    /// frame.
    #[inline(always)]
    pub fn here() -> Self {
        arch::here().into()
    }

    /// Returns the registers of the code that a signal interrupted.
    #[cfg(target_os = "linux")]
    pub fn interrupted(context: &libc::ucontext_t) -> Self {
        arch::interrupted(context).into()
    }
}

impl From<Captured> for Registers {
    #[inline(always)]
    fn from(captured: Captured) -> Self {
        let Captured {
            instruction,
            stack,
            frame,
            link,
        } = captured;
        Self {
            instruction,
            stack,
            frame,
            link,
        }
    }
}
