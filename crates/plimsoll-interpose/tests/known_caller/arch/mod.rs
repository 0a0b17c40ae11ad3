//! The known caller's assembly and single steps, one file per processor with the same items.
//!
//! | item | meaning |
//! |---|---|
//! | `caller` | the caller's instructions |
//! | `REGISTERS` | the number of registers that functions preserve |
//! | `FRAME_POINTER` | the position of the frame pointer among them |
//! | `FRAME_POINTER_NUMBER` | its number in DWARF |
//! | `JUMP` | the instructions of a function that only jumps to another one |
//! | `instruction` | the instruction at which a signal interrupted a thread |
//! | `begin`, `end` | make the instructions of a function trap, and stop that |
//! | `pause`, `go_on` | the beginning and the end of a trap: the function is unchanged in between |
//! | `leave` | the end of a trap of another thread |

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
