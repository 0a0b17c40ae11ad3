//! Frames of code that the module list lacks.

use crate::modules::module_of;
use crate::walk::End;
use crate::walk_cache::Trail;
use plimsoll_process::loader::LoadedObject;
use plimsoll_process::stack_memory::Memory;

use super::{Step, Walker};

impl<M: Memory> Walker<'_, M> {
    /// Steps to the caller of code in an object that was loaded after the list was made.
    #[cold]
    pub(super) fn step_in_stale(&mut self, address: usize, object: &LoadedObject) -> Step {
        self.trail(|trail| trail.met_unknown_code(address));
        let step = self.step_by_object(address, object);
        step.unwrap_or(Step::End(End::Stale))
    }

    /// Steps to the caller of code in an object that the loader never lists.
    #[cold]
    pub(super) fn step_in_unlisted(&mut self, address: usize, object: &LoadedObject) -> Step {
        self.trail(Trail::spoil);
        let step = self.step_by_object(address, object);
        step.unwrap_or(Step::End(End::Lost))
    }

    /// Steps to the caller of the code at `address`, by the tables of its object. Returns `None` for
    /// another thread's stack, and if the object cannot be read.
    #[inline(never)]
    fn step_by_object(&mut self, address: usize, object: &LoadedObject) -> Option<Step> {
        if !M::IS_OWN_STACK {
            return None;
        }
        // SAFETY: the loader's index contained the object after this walk met its code. The code is
        // on this thread's stack. Until the thread returns to it, only a faulty program unloads it.
        // So the object stays loaded during this call. As for `Lookup::Current`, this fails where a
        // frame without a description led the walk to code of a library that is being unloaded.
        let module = unsafe { module_of(object) }?;
        Some(match module.tables_at(address) {
            Some(cfi) => {
                let rule = self.rule_of(cfi, address);
                self.follow(rule, address, Some(cfi))
            }
            None => self.without_tables(address),
        })
    }
}

#[cfg(all(
    test,
    target_os = "linux",
    target_env = "gnu",
    not(plimsoll_portable_os)
))]
mod tests;
