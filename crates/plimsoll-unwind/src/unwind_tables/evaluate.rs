//! Frames whose tables must be evaluated each time: signal frames, and rules that are expressions.

use gimli::{
    CfaRule, Evaluation, EvaluationResult, FrameDescriptionEntry, Location, Piece, Register,
    RegisterRule, UnwindExpression, Value,
};

use crate::arch;
use crate::modules::{Cfi, Lookup};
use crate::registers::Registers;
use plimsoll_process::stack_memory::Memory;

use super::{Bytes, Storage, Walker, row_at};

impl<M: Memory> Walker<'_, M> {
    /// Does the same as [`Walker::evaluate`], for code in the module list.
    #[cold]
    pub(super) fn evaluate_listed(&mut self, address: usize) -> Option<Registers> {
        match self.modules.look_up(address) {
            Lookup::Permanent(cfi) | Lookup::Current(cfi) => self.evaluate(cfi, address),
            Lookup::Stale(_) | Lookup::Unlisted(_) | Lookup::NotCode => None,
        }
    }

    /// Returns the caller's registers for a frame whose tables must be evaluated each time.
    #[cold]
    pub(super) fn evaluate(&mut self, cfi: &Cfi, address: usize) -> Option<Registers> {
        let fde = cfi.describe(address);
        let is_signal = FrameDescriptionEntry::is_signal_trampoline;
        if fde.as_ref().is_none_or(is_signal) {
            let interrupted = self.interrupted(address);
            if interrupted.is_some() {
                return interrupted;
            }
        }
        let fde = fde?;
        let row = row_at(cfi, &fde, address, self.context)?;
        let (cfa, frame, returns) = (
            row.cfa().clone(),
            row.register(arch::FRAME_POINTER),
            row.register(arch::RETURN_ADDRESS),
        );
        let frame_address = match cfa {
            CfaRule::RegisterAndOffset { register, offset } => {
                self.register(register)?.wrapping_add_signed(offset)
            }
            CfaRule::Expression(expression) => self.value(cfi, &fde, expression, None)?,
        };
        let restored = self.restore(cfi, &fde, &frame, frame_address);
        let frame = restored.unwrap_or(self.at.frame);
        let link = (self.exact && self.at.link != 0).then_some(self.at.link);
        let in_register = matches!(returns, RegisterRule::Undefined | RegisterRule::SameValue);
        let instruction = if arch::HAS_LINK_REGISTER && in_register {
            link?
        } else {
            self.restore(cfi, &fde, &returns, frame_address)?
        };
        if fde.is_signal_trampoline() {
            // A signal's frame may be on another stack than the interrupted code's.
            self.exact = true;
            self.memory.go_on_at(frame_address as usize);
        } else if frame_address > self.at.stack
            || (arch::HAS_LINK_REGISTER && in_register && frame_address == self.at.stack)
        {
            self.exact = false;
        } else {
            return None;
        }
        self.frame_known |= restored.is_some();
        Some(Registers {
            instruction: arch::strip(instruction as usize) as u64,
            stack: frame_address,
            frame,
            link: 0,
        })
    }

    /// Returns the caller's value of a register.
    fn restore(
        &mut self,
        cfi: &Cfi,
        fde: &FrameDescriptionEntry<Bytes>,
        rule: &RegisterRule<usize>,
        frame_address: u64,
    ) -> Option<u64> {
        let at = match rule {
            RegisterRule::Offset(offset) => frame_address.wrapping_add_signed(*offset),
            RegisterRule::ValOffset(offset) => {
                return Some(frame_address.wrapping_add_signed(*offset));
            }
            RegisterRule::Register(register) => return self.register(*register),
            RegisterRule::Expression(expression) => {
                self.value(cfi, fde, *expression, Some(frame_address))?
            }
            RegisterRule::ValExpression(expression) => {
                return self.value(cfi, fde, *expression, Some(frame_address));
            }
            _ => return None,
        };
        Some(self.memory.read(at as usize)? as u64)
    }

    fn register(&self, register: Register) -> Option<u64> {
        match register {
            arch::STACK_POINTER => Some(self.at.stack),
            arch::FRAME_POINTER => self.frame_known.then_some(self.at.frame),
            arch::RETURN_ADDRESS if arch::HAS_LINK_REGISTER => {
                (self.at.link != 0).then_some(self.at.link)
            }
            arch::RETURN_ADDRESS => Some(self.at.instruction),
            _ => None,
        }
    }

    /// Evaluates an expression of the tables.
    fn value(
        &mut self,
        cfi: &Cfi,
        fde: &FrameDescriptionEntry<Bytes>,
        expression: UnwindExpression<usize>,
        initial: Option<u64>,
    ) -> Option<u64> {
        let expression = expression.get(&cfi.eh_frame).ok()?;
        let mut evaluation =
            Evaluation::<Bytes, Storage>::new_in(expression.0, fde.cie().encoding());
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut result = evaluation.evaluate().ok()?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = Value::Generic(self.register(register)?);
                    evaluation.resume_with_register(value).ok()?
                }
                EvaluationResult::RequiresMemory {
                    address, size: 8, ..
                } => {
                    let value = Value::Generic(self.memory.read(address as usize)? as u64);
                    evaluation.resume_with_memory(value).ok()?
                }
                _ => return None,
            };
        }
        match evaluation.as_result() {
            [
                Piece {
                    location: Location::Address { address },
                    ..
                },
            ] => Some(*address),
            _ => None,
        }
    }
}
