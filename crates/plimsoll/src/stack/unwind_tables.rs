//! Unwinding by the tables that every program carries for panics and exceptions.

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64};
use framehop::{FrameAddress, MustNotAllocateDuringUnwind, Unwinder};

use super::memory::StackMemory;
use super::modules::{Lookup, ModuleList};
use super::registers::Registers;

/// Remembers the rules of recently met addresses; made in advance, since it allocates.
pub(crate) type RuleCache = CacheX86_64<MustNotAllocateDuringUnwind>;

/// What came of a walk.
pub(crate) struct Walk {
    /// Frames filled in.
    pub(crate) frames: usize,
    /// Whether something was loaded or unloaded since the list was made, which ended the walk.
    pub(crate) stale: bool,
}

/// Fills `frames` from the leaf with return addresses. Allocates nothing and takes no lock.
pub(crate) fn walk(
    start: Registers,
    modules: &ModuleList,
    cache: &mut RuleCache,
    frames: &mut [usize],
) -> Walk {
    let mut memory = StackMemory::of_this_thread(start.stack as usize);
    let mut read = |address: u64| {
        memory
            .read(address as usize)
            .map(|word| word as u64)
            .ok_or(())
    };
    let mut registers = UnwindRegsX86_64::new(start.instruction, start.stack, start.frame);
    let mut address = FrameAddress::InstructionPointer(start.instruction);
    let mut depth = 0;
    let mut stale = false;
    while depth < frames.len() {
        match modules.look_up(address.address_for_lookup() as usize) {
            Lookup::Known => {}
            Lookup::Stale => {
                stale = true;
                break;
            }
            Lookup::NotCode => break,
        }
        let Ok(Some(caller)) =
            modules
                .unwinder
                .unwind_frame(address, &mut registers, cache, &mut read)
        else {
            break;
        };
        let Some(caller_address) = FrameAddress::from_return_address(caller) else {
            break;
        };
        frames[depth] = caller as usize;
        depth += 1;
        address = caller_address;
    }
    Walk {
        frames: depth,
        stale,
    }
}
