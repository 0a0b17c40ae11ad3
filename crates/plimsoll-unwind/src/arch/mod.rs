//! The properties of each processor that walks depend on, one file per processor with the same items.
//!
//! | item | meaning |
//! |---|---|
//! | `here` | the registers of the calling function |
//! | `interrupted` | the registers in the context of a signal handler |
//! | `is_signal_trampoline`, `is_copied_trampoline`, `signal_frame` | a signal trampoline without unwind tables, and the interrupted registers |
//! | `strip` | removes the signature of a signed return address |
//! | `HAS_LINK_REGISTER` | whether a call stores its return address in a register |
//! | `STACK_POINTER`, `FRAME_POINTER`, `RETURN_ADDRESS` | the registers' numbers in unwind tables |
//! | `VENDOR` | the processor whose extensions of call-frame information the tables may use |
//! | `INSTRUCTION_ALIGNMENT` | the alignment of instructions, in bytes |
//! | `distance_to_frame` | decodes the beginning of a function |
//! | `call_before`, `LONGEST_CALL` | decodes the call before a return address |
//! | `freed_by_epilogue`, `LONGEST_EPILOGUE` | decodes the end of a function without a frame record |
//!
//! Both frame layouts are alike where walks depend on it: a frame pointer is the address of the
//! caller's frame pointer, and the return address follows it.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod other;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use other::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

/// The registers of a thread that a walk needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Captured {
    /// The next instruction to execute.
    pub(crate) instruction: u64,
    /// The stack pointer.
    pub(crate) stack: u64,
    /// The frame pointer.
    pub(crate) frame: u64,
    /// The link register; 0 on processors without one.
    pub(crate) link: u64,
}

/// A call instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code, reason = "no call is decoded")
)]
pub(crate) enum Call {
    /// A call of the function at an address.
    Of(usize),
    /// An indirect call, through a register or memory.
    Indirect,
}

/// The longest beginning of a function that is decoded, in bytes.
pub(crate) const BEGINNING: usize = 64;
