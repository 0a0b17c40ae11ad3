//! The processors whose programs are examined, one file per processor with the same items. Each file
//! is compiled for all processors: `doctor` examines programs for other machines.
//!
//! | item | meaning |
//! |---|---|
//! | `NAME` | the name in messages |
//! | `FRAME_POINTER` | the number of the frame pointer in unwind tables |
//! | `begins_with_frame_pointer` | whether the first instructions of a function set up a frame pointer |

mod aarch64;
mod x86_64;

use gimli::Register;
use object::elf;

/// A kind of machine, identified by its processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// x86-64.
    X86_64,
    /// aarch64.
    Aarch64,
}

impl Machine {
    /// Returns the machine that this command is compiled for; `None` if its programs are not
    /// examined.
    pub fn of_this_process() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// Returns the machine with this number in the header of an ELF file with 64-bit addresses.
    pub(super) fn of_elf(number: u16) -> Option<Self> {
        match number {
            elf::EM_X86_64 => Some(Self::X86_64),
            elf::EM_AARCH64 => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// Returns its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::X86_64 => x86_64::NAME,
            Self::Aarch64 => aarch64::NAME,
        }
    }

    /// Returns the number of its frame pointer in unwind tables.
    pub(super) fn frame_pointer(self) -> Register {
        match self {
            Self::X86_64 => x86_64::FRAME_POINTER,
            Self::Aarch64 => aarch64::FRAME_POINTER,
        }
    }

    /// Returns whether a function with these first instructions sets up a frame pointer.
    pub(super) fn begins_with_frame_pointer(self, code: &[u8]) -> bool {
        match self {
            Self::X86_64 => x86_64::begins_with_frame_pointer(code),
            Self::Aarch64 => aarch64::begins_with_frame_pointer(code),
        }
    }
}
