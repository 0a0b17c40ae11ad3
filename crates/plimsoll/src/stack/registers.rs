//! The registers from which a stack is unwound.

/// Where a thread stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    /// The next instruction to execute.
    pub(crate) instruction: u64,
    pub(crate) stack: u64,
    pub(crate) frame: u64,
}

/// Where a stack begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    /// At an instruction that is being executed: the first frame is that of its caller.
    Here(Registers),
    /// Where a call will return to: that is the first frame.
    #[cfg_attr(not(feature = "interpose"), allow(dead_code))]
    Caller(Registers),
    /// As [`Start::Here`], and only as far as this address.
    Below(Registers, usize),
}

impl Start {
    pub(crate) fn registers(self) -> Registers {
        match self {
            Self::Here(registers) | Self::Caller(registers) | Self::Below(registers, _) => {
                registers
            }
        }
    }

    /// The address at which the stack is to end.
    pub(super) fn limit(self) -> usize {
        match self {
            Self::Here(_) | Self::Caller(_) => usize::MAX,
            Self::Below(_, limit) => limit,
        }
    }
}

impl Registers {
    /// The caller's own. Always inlined, so that the values are those of a live frame.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn here() -> Self {
        let (instruction, stack, frame);
        // SAFETY: reads three registers.
        unsafe {
            std::arch::asm!(
                "lea {0}, [rip]",
                "mov {1}, rsp",
                "mov {2}, rbp",
                out(reg) instruction,
                out(reg) stack,
                out(reg) frame,
                options(nomem, nostack, preserves_flags),
            );
        }
        Self {
            instruction,
            stack,
            frame,
        }
    }
}
