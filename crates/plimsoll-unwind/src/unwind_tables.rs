//! Unwinds stacks by the tables that every program contains for panics and exceptions
//! (`.eh_frame`).
//!
//! gimli reads the tables in place, where the loader has mapped them. Their rules for an address
//! are reduced to a `Rule` and cached; after that, a frame costs a lookup and two loads. Nothing
//! here allocates or takes a lock.
//!
//! The module list lacks a library that was loaded a moment before. On the calling thread's own
//! stack, the tables of such a library are found through the loader's index: code to which a thread
//! returns is not unloaded. The list's generation does not cover this code, so neither its rules nor
//! the walk are cached.

mod evaluate;
mod generated_code;
pub mod known_rules;
mod unlisted_code;

use gimli::{
    CfaRule, EhFrame, EndianSlice, EvaluationStorage, FrameDescriptionEntry, LittleEndian, Piece,
    Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindSection, UnwindTableRow,
    Value,
};

use plimsoll_sys::os::region::PAGE;

use crate::arch;
use crate::cache_counts;
use crate::frame_heuristics;
use crate::modules::{Cfi, Lookup, ModuleList};
use crate::registers::{Registers, Start};
use crate::rules::{Key, Plain, Rule};
use crate::walk::{End, Frames, Walk};
use crate::walk_cache::Trail;
use known_rules::{RULES, permanent_rules};
use plimsoll_process::stack_memory::{Memory, StackMemory};

type Bytes = EndianSlice<'static, LittleEndian>;

/// The storage of fixed size that gimli needs while it reads a table, so that it does not allocate.
pub struct Storage;

impl UnwindContextStorage<usize> for Storage {
    type Rules = [(Register, RegisterRule<usize>); 32];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

impl EvaluationStorage<Bytes> for Storage {
    type Stack = [Value; 16];
    type ExpressionStack = [(Bytes, Bytes); 2];
    type Result = [Piece<Bytes>; 1];
}

/// The memory in which gimli evaluates a row of a table.
pub type Context = UnwindContext<usize, Storage>;

/// Fills `frames`, from the leaf, with the return addresses of the calling thread's stack beyond
/// `start`.
pub fn walk(
    start: Start,
    modules: &ModuleList,
    context: &mut Context,
    trail: &mut Trail,
    frames: Frames<'_>,
) -> Walk {
    walk_with_positions(start, modules, context, trail, frames, |_, _| {})
}

/// Does the same as [`walk`]. Also passes the depth of each frame to `note`, with the lowest address of
/// the frame's part of the stack.
pub fn walk_with_positions(
    start: Start,
    modules: &ModuleList,
    context: &mut Context,
    trail: &mut Trail,
    frames: Frames<'_>,
    note: impl FnMut(usize, usize),
) -> Walk {
    let at = start.registers();
    let exact = !matches!(start, Start::Caller(_));
    trail.begin(at);
    let walker = Walker {
        at,
        exact,
        trail: Some(trail),
        frame_known: true,
        memory: &mut StackMemory::of_this_thread(at.stack as usize),
        modules,
        context,
        limit: start.limit() as u64,
        believed_records: 0,
        rules: (0, 0),
    };
    walker.walk(frames, note)
}

/// Walks the stack in `memory`, as [`walk_with_positions`] does. The stack belongs to a blocked thread
/// whose frame pointer is unknown.
pub fn walk_without_frame_pointer(
    instruction: u64,
    stack: u64,
    memory: &mut impl Memory,
    modules: &ModuleList,
    context: &mut Context,
    frames: Frames<'_>,
    note: impl FnMut(usize, usize),
) -> Walk {
    let walker = Walker {
        at: Registers {
            instruction,
            stack,
            frame: 0,
            link: 0,
        },
        exact: true,
        trail: None,
        frame_known: false,
        memory,
        modules,
        context,
        limit: u64::MAX,
        believed_records: 0,
        rules: (0, 0),
    };
    walker.walk(frames, note)
}

/// Walks the stack in `memory`, as [`walk_with_positions`] does, from the registers of a thread that was
/// stopped there.
pub fn walk_from_registers(
    registers: Registers,
    memory: &mut impl Memory,
    modules: &ModuleList,
    context: &mut Context,
    frames: Frames<'_>,
    note: impl FnMut(usize, usize),
) -> Walk {
    let walker = Walker {
        at: registers,
        exact: true,
        trail: None,
        frame_known: true,
        memory,
        modules,
        context,
        limit: u64::MAX,
        believed_records: 0,
        rules: (0, 0),
    };
    walker.walk(frames, note)
}

enum Step {
    /// The walker has moved to the caller.
    Caller,
    End(End),
}

struct Walker<'a, M> {
    at: Registers,
    /// Whether `at` is the current instruction, rather than a return address.
    exact: bool,
    /// Whether `at.frame` is the value of the frame pointer register.
    frame_known: bool,
    memory: &'a mut M,
    modules: &'a ModuleList,
    context: &'a mut Context,
    /// Frames that extend beyond this address are left out.
    limit: u64,
    /// The last frame record of generated code that is known to lead to code of a file.
    believed_records: usize,
    /// Records the words on which the walk depends.
    trail: Option<&'a mut Trail>,
    /// The frames whose rules were cached, and those whose were not.
    rules: (u32, u32),
}

impl<M: Memory> Walker<'_, M> {
    #[inline]
    fn walk(mut self, mut frames: Frames<'_>, mut note: impl FnMut(usize, usize)) -> Walk {
        let mut depth = 0;
        let end = loop {
            let Some(place) = frames.place(depth) else {
                break End::Full;
            };
            match self.step() {
                Step::Caller if self.at.stack <= self.limit => {
                    note(depth, self.at.stack as usize);
                    *place = self.return_address();
                }
                Step::Caller => {
                    self.trail(Trail::ended_before);
                    break End::Outermost;
                }
                Step::End(end) => break end,
            }
            depth += 1;
        };
        cache_counts::count_rules(self.rules.0, self.rules.1);
        frames.finish(depth, end)
    }

    /// Returns the current address in the form of a return address, also for an interrupted
    /// instruction.
    fn return_address(&self) -> usize {
        self.at.instruction as usize + usize::from(self.exact)
    }

    fn step(&mut self) -> Step {
        let address = self.at.instruction as usize - usize::from(!self.exact);
        if !M::IS_OWN_PROCESS {
            return self.step_elsewhere(address);
        }
        let permanent = Key::new(address, 0);
        let rules = permanent_rules();
        let rule = match rules.get(permanent) {
            Some(rule) => {
                self.rules.0 += 1;
                rule
            }
            None => {
                let (rules, cfi, key) = match self.modules.look_up(address) {
                    Lookup::Permanent(cfi) => (rules, cfi, permanent),
                    Lookup::Current(cfi) => {
                        self.trail(Trail::spoil);
                        let key = Key::new(address, self.modules.generation());
                        (&RULES, cfi, key)
                    }
                    Lookup::Stale(object) => return self.step_in_stale(address, &object),
                    Lookup::Unlisted(object) => return self.step_in_unlisted(address, &object),
                    Lookup::NotCode => return self.without_tables(address),
                };
                let cached = rules.get(key);
                match cached {
                    Some(_) => self.rules.0 += 1,
                    None => self.rules.1 += 1,
                }
                cached.unwrap_or_else(|| {
                    let rule = self.rule_of(cfi, address);
                    rules.put(key, rule);
                    rule
                })
            }
        };
        self.follow(rule, address, None)
    }

    /// Steps to the caller of the code at `address` by its rule. `tables` are the code's tables, if
    /// the module list lacks them.
    #[inline(always)]
    fn follow(&mut self, rule: Rule, address: usize, tables: Option<&Cfi>) -> Step {
        let caller = match rule {
            Rule::End => return Step::End(End::Outermost),
            Rule::Plain(rule) => {
                let base = if rule.from_frame_pointer {
                    if !self.frame_known && !self.find_frame_pointer(address) {
                        return Step::End(End::Lost);
                    }
                    self.trail(Trail::used_frame_pointer);
                    self.at.frame
                } else {
                    self.at.stack
                };
                let frame_address = base.wrapping_add_signed(rule.offset);
                if arch::HAS_LINK_REGISTER && rule.return_address == 0 {
                    if !self.exact {
                        // The function cannot return: its callee overwrote the link register.
                        return Step::End(End::Outermost);
                    }
                    self.trail(Trail::spoil);
                    self.caller_in_link_register(frame_address)
                } else {
                    self.plain(frame_address, rule)
                }
            }
            Rule::Evaluate => {
                self.trail(Trail::spoil);
                match tables {
                    Some(cfi) => self.evaluate(cfi, address),
                    None => self.evaluate_listed(address),
                }
            }
        };
        match caller {
            Some(caller) if caller.instruction >= PAGE as u64 => {
                self.at = caller;
                Step::Caller
            }
            // The frame has no caller: the kernel starts the stack of a new thread in this way.
            Some(Registers { instruction: 0, .. }) => {
                self.trail(Trail::ended_there);
                Step::End(End::Outermost)
            }
            _ if cfg!(target_env = "musl") && self.begins_stack(address) => {
                Step::End(End::Outermost)
            }
            _ => Step::End(End::Lost),
        }
    }

    /// Steps to the caller of code of another process, whose rules are not cached.
    fn step_elsewhere(&mut self, address: usize) -> Step {
        match self.modules.look_up(address) {
            Lookup::Permanent(cfi) | Lookup::Current(cfi) => {
                let may_be_musl = cfi.may_contain_musl && !arch::HAS_LINK_REGISTER;
                if may_be_musl && cfi.describe(address).is_none() {
                    return self.step_in_undescribed();
                }
                let rule = self.rule_of(cfi, address);
                self.follow(rule, address, Some(cfi))
            }
            Lookup::Stale(_) | Lookup::Unlisted(_) | Lookup::NotCode => {
                self.without_tables(address)
            }
        }
    }

    /// Steps to the caller of a function of musl, which has no description in the tables of its object: to the first
    /// word on the stack that is the return address of a call.
    fn step_in_undescribed(&mut self) -> Step {
        let stack = self.at.stack as usize;
        let Some(at) = frame_heuristics::first_return_address(stack, self.memory, self.modules)
        else {
            // The first function of a stack was called by none.
            return Step::End(if self.exact {
                End::Lost
            } else {
                End::Outermost
            });
        };
        let Some(instruction) = self.memory.read(at) else {
            return Step::End(End::Lost);
        };
        self.exact = false;
        self.frame_known = false;
        self.at = Registers {
            instruction: instruction as u64,
            stack: at as u64 + 8,
            frame: 0,
            link: 0,
        };
        Step::Caller
    }

    /// Returns the rule for an address in a module.
    fn rule_of(&mut self, cfi: &Cfi, address: usize) -> Rule {
        let memory = &mut *self.memory;
        rule_of(cfi, address, self.context, |code| {
            is_signal_trampoline(code, memory)
        })
    }

    fn is_signal_trampoline(&mut self, code: usize) -> bool {
        is_signal_trampoline(code, self.memory)
    }

    /// Returns whether the code at `address` is musl's, whose functions have no tables, and no
    /// function with tables called it. Among them are the first functions of a stack.
    #[cold]
    fn begins_stack(&mut self, address: usize) -> bool {
        let (Lookup::Permanent(cfi) | Lookup::Current(cfi)) = self.modules.look_up(address) else {
            return false;
        };
        let stack = self.at.stack as usize;
        !self.exact
            && cfi.describe(address).is_none()
            && !frame_heuristics::has_return_address(stack, self.memory, self.modules)
    }

    #[inline]
    fn trail(&mut self, note: impl FnOnce(&mut Trail)) {
        if let Some(trail) = &mut self.trail {
            note(trail);
        }
    }

    /// Steps to the caller of code without tables: of generated code, of a signal trampoline, or of
    /// code that was interrupted and has its return address in a register. On some processors, this
    /// is the case of the vDSO.
    #[cold]
    fn without_tables(&mut self, address: usize) -> Step {
        self.trail(Trail::spoil);
        if !self.modules.is_code_of_program(next_code(address)) {
            return self.step_in_generated(address);
        }
        let caller = match self.interrupted(address) {
            Some(interrupted) => Some(interrupted),
            None if arch::HAS_LINK_REGISTER && self.exact => self.caller_of_leaf(),
            None => None,
        };
        match caller {
            Some(caller) if caller.instruction >= PAGE as u64 => {
                self.at = caller;
                Step::Caller
            }
            _ => Step::End(End::Lost),
        }
    }

    /// Returns the caller's registers for an interrupted function without tables that has called no
    /// other. If it has saved its return address, the frame pointer is that of its frame.
    fn caller_of_leaf(&mut self) -> Option<Registers> {
        let returns = arch::strip(self.at.link as usize);
        let frame = self.at.frame as usize;
        let saved = self.memory.read(frame.wrapping_add(8)).map(arch::strip);
        self.exact = false;
        let (stack, frame) = match saved == Some(returns) {
            true => (frame as u64 + 16, self.memory.read(frame)? as u64),
            false => (self.at.stack, self.at.frame),
        };
        Some(Registers {
            instruction: returns as u64,
            stack,
            frame,
            link: 0,
        })
    }

    /// Returns the registers that a signal interrupted, if its handler returns to `address`. The code
    /// there must be mapped.
    fn interrupted(&mut self, address: usize) -> Option<Registers> {
        let (code, stack) = (next_code(address), self.at.stack as usize);
        if !self.is_signal_trampoline(code) {
            return None;
        }
        let read = |address| self.memory.read(address);
        let interrupted = Registers::from(arch::signal_frame(stack, read)?);
        self.exact = true;
        self.frame_known = true;
        self.memory.go_on_at(interrupted.stack as usize);
        Some(interrupted)
    }

    /// Determines the frame pointer in a function whose frame is found by it.
    #[cold]
    fn find_frame_pointer(&mut self, address: usize) -> bool {
        let function = match self.modules.look_up(address) {
            Lookup::Permanent(cfi) | Lookup::Current(cfi) => cfi
                .describe(address)
                .map(|fde| fde.initial_address() as usize),
            Lookup::Stale(_) | Lookup::Unlisted(_) | Lookup::NotCode => None,
        };
        let stack = self.at.stack as usize;
        let found = frame_heuristics::find(function, address, stack, self.memory, self.modules);
        if let Some(frame) = found {
            self.at.frame = frame as u64;
            self.frame_known = true;
        }
        found.is_some()
    }

    /// Returns the caller's registers for a frame at that address, by the usual layout.
    #[inline]
    fn plain(&mut self, frame_address: u64, rule: Plain) -> Option<Registers> {
        if frame_address <= self.at.stack {
            return None;
        }
        let returns = frame_address.wrapping_add_signed(rule.return_address);
        let instruction = self.memory.read(returns as usize)?;
        self.trail(|trail| trail.read_return_address(returns, instruction as u64));
        let frame = match rule.saved_frame_pointer {
            Some(offset) => {
                let at = frame_address.wrapping_add_signed(offset);
                self.frame_known = true;
                let frame = self.memory.read(at as usize)? as u64;
                self.trail(|trail| trail.read_frame_pointer(at, frame));
                frame
            }
            None => self.at.frame,
        };
        self.exact = false;
        Some(Registers {
            instruction: arch::strip(instruction) as u64,
            stack: frame_address,
            frame,
            link: 0,
        })
    }

    /// Returns the caller's registers for a function that has not saved its return address. If the
    /// link register is unknown, the caller is, too: returns the registers of the first function
    /// above that has saved its return address.
    #[cold]
    fn caller_in_link_register(&mut self, frame_address: u64) -> Option<Registers> {
        if frame_address < self.at.stack {
            return None;
        }
        self.exact = false;
        if self.at.link != 0 {
            return Some(Registers {
                instruction: arch::strip(self.at.link as usize) as u64,
                stack: frame_address,
                frame: self.at.frame,
                link: 0,
            });
        }
        let stack = frame_address as usize;
        let record = frame_heuristics::first_record(stack, self.memory, self.modules)?;
        let frame = self.memory.read(record)? as u64;
        let instruction = self.memory.read(record + 8)?;
        self.frame_known = true;
        Some(Registers {
            instruction: arch::strip(instruction) as u64,
            stack: record as u64 + 16,
            frame,
            link: 0,
        })
    }
}

/// Returns the rule for an address in a module. `is_signal_trampoline` reports whether undescribed code there
/// is one.
#[cold]
fn rule_of(
    cfi: &Cfi,
    address: usize,
    context: &mut Context,
    is_signal_trampoline: impl FnOnce(usize) -> bool,
) -> Rule {
    // Code without a description is assumed to keep a frame pointer. If that leads nowhere, the
    // walk ends.
    const UNDESCRIBED: Rule = Rule::Plain(Plain {
        from_frame_pointer: true,
        offset: 16,
        return_address: -8,
        saved_frame_pointer: Some(-16),
    });
    let Some(fde) = cfi.describe(address) else {
        return match is_signal_trampoline(next_code(address)) {
            true => Rule::Evaluate,
            false => UNDESCRIBED,
        };
    };
    if fde.is_signal_trampoline() {
        return Rule::Evaluate;
    }
    let Some(row) = row_at(cfi, &fde, address, context) else {
        return UNDESCRIBED;
    };
    let return_address = match row.register(arch::RETURN_ADDRESS) {
        RegisterRule::Undefined | RegisterRule::SameValue if arch::HAS_LINK_REGISTER => 0,
        RegisterRule::Undefined => return Rule::End,
        RegisterRule::Offset(offset) if offset != 0 => offset,
        _ => return Rule::Evaluate,
    };
    let saved_frame_pointer = match row.register(arch::FRAME_POINTER) {
        RegisterRule::Undefined | RegisterRule::SameValue => None,
        RegisterRule::Offset(offset) => Some(offset),
        _ => return Rule::Evaluate,
    };
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
        return Rule::Evaluate;
    };
    match register {
        arch::STACK_POINTER | arch::FRAME_POINTER => Rule::plain(Plain {
            from_frame_pointer: register == arch::FRAME_POINTER,
            offset,
            return_address,
            saved_frame_pointer,
        }),
        _ => Rule::Evaluate,
    }
}

/// Returns whether a signal handler returns to the code at an address, which has no unwind tables. Code of this
/// process must be mapped.
fn is_signal_trampoline<M: Memory>(code: usize, memory: &mut M) -> bool {
    if M::IS_OWN_PROCESS {
        return arch::is_signal_trampoline(code);
    }
    let mut copy = [0; 8];
    memory.copy_code(code, &mut copy) && arch::is_copied_trampoline(copy)
}

/// Returns the address of the instruction that follows the call before it, or that is current:
/// `address` is the latter, or the last byte of a call.
fn next_code(address: usize) -> usize {
    address.next_multiple_of(arch::INSTRUCTION_ALIGNMENT)
}

fn row_at<'c>(
    cfi: &Cfi,
    fde: &FrameDescriptionEntry<Bytes>,
    address: usize,
    context: &'c mut Context,
) -> Option<&'c UnwindTableRow<usize, Storage>> {
    fde.unwind_info_for_address(&cfi.eh_frame, &cfi.bases, context, address as u64)
        .ok()
}

impl Cfi {
    /// Returns the description of the function at an address.
    pub(crate) fn describe(&self, address: usize) -> Option<FrameDescriptionEntry<Bytes>> {
        let table = self.hdr.table()?;
        let pointer = table.lookup(address as u64, &self.bases).ok()?;
        let offset = table.pointer_to_offset(pointer).ok()?;
        let fde = self
            .eh_frame
            .fde_from_offset(&self.bases, offset, EhFrame::cie_from_offset)
            .ok()?;
        fde.contains(address as u64).then_some(fde)
    }
}
