//! Unwinding by the tables that every program carries for panics and exceptions (`.eh_frame`).
//!
//! The tables are read with gimli, in place, where the loader has mapped them. What they say of an
//! address is boiled down to a [`Rule`] and remembered, so that a frame costs a look-up and two
//! loads from then on. Nothing here allocates or takes a lock.

use gimli::{
    CfaRule, EhFrame, EndianSlice, Evaluation, EvaluationResult, EvaluationStorage,
    FrameDescriptionEntry, LittleEndian, Location, Piece, Register, RegisterRule, UnwindContext,
    UnwindContextStorage, UnwindExpression, UnwindSection, UnwindTableRow, Value, X86_64,
};

use super::lost_frame;
use super::memory::{Memory, StackMemory};
use super::modules::{Cfi, Lookup, ModuleList};
use super::registers::{Registers, Start};
use super::remembered::Trail;
use super::rules::{Key, Rule, RuleCache};
use crate::os::region::PAGE;

type Bytes = EndianSlice<'static, LittleEndian>;

/// Room that gimli needs while it reads a table, of fixed size, so that it does not allocate.
pub(super) struct Storage;

impl UnwindContextStorage<usize> for Storage {
    type Rules = [(Register, RegisterRule<usize>); 32];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

impl EvaluationStorage<Bytes> for Storage {
    type Stack = [Value; 16];
    type ExpressionStack = [(Bytes, Bytes); 2];
    type Result = [Piece<Bytes>; 1];
}

pub(super) type Context = UnwindContext<usize, Storage>;

static RULES: RuleCache = RuleCache::new();

/// What came of a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    /// Frames filled in.
    pub(crate) frames: usize,
    pub(crate) end: End,
}

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum End {
    /// It has come to where the thread began.
    Outermost = 0,
    /// There was no room for more.
    Room = 1,
    /// The tables or the memory lead no further.
    Lost = 2,
    /// Something was loaded or unloaded since the list was made.
    Stale = 3,
}

impl End {
    pub(crate) fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Outermost,
            1 => Self::Room,
            2 => Self::Lost,
            _ => Self::Stale,
        }
    }
}

/// Fills `frames` from the leaf with the return addresses after `start`, on the calling thread's
/// stack.
pub(super) fn walk(
    start: Start,
    modules: &ModuleList,
    context: &mut Context,
    trail: &mut Trail,
    frames: &mut [usize],
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
    };
    walker.walk(frames)
}

/// The same for the stack in `memory`, of a thread that stands still and whose frame pointer is not
/// known.
pub(super) fn walk_without_frame_pointer(
    instruction: u64,
    stack: u64,
    memory: &mut impl Memory,
    modules: &ModuleList,
    context: &mut Context,
    frames: &mut [usize],
) -> Walk {
    let walker = Walker {
        at: Registers {
            instruction,
            stack,
            frame: 0,
        },
        exact: true,
        trail: None,
        frame_known: false,
        memory,
        modules,
        context,
        limit: u64::MAX,
    };
    walker.walk(frames)
}

enum Step {
    /// The walker is at the caller.
    Caller,
    End(End),
}

struct Walker<'a, M> {
    at: Registers,
    /// Whether `at` is an instruction, rather than the one after a call.
    exact: bool,
    /// Whether `at.frame` is what the register was.
    frame_known: bool,
    memory: &'a mut M,
    modules: &'a ModuleList,
    context: &'a mut Context,
    /// Frames that reach beyond this address are left out.
    limit: u64,
    /// What all of that depends on.
    trail: Option<&'a mut Trail>,
}

impl<M: Memory> Walker<'_, M> {
    #[inline]
    fn walk(mut self, frames: &mut [usize]) -> Walk {
        for (depth, slot) in frames.iter_mut().enumerate() {
            match self.step() {
                Step::Caller if self.at.stack <= self.limit => *slot = self.return_address(),
                Step::Caller => {
                    self.trail(Trail::ended_before);
                    return Walk {
                        frames: depth,
                        end: End::Outermost,
                    };
                }
                Step::End(end) => return Walk { frames: depth, end },
            }
        }
        Walk {
            frames: frames.len(),
            end: End::Room,
        }
    }

    /// The address as a return address. One that a signal interrupted at is made to look like one.
    fn return_address(&self) -> usize {
        self.at.instruction as usize + usize::from(self.exact)
    }

    fn step(&mut self) -> Step {
        let address = self.at.instruction as usize - usize::from(!self.exact);
        let permanent = Key::new(address, 0);
        let rule = match RULES.get(permanent) {
            Some(rule) => rule,
            None => {
                let (cfi, key) = match self.modules.look_up(address) {
                    Lookup::Permanent(cfi) => (cfi, permanent),
                    Lookup::Current(cfi) => {
                        self.trail(Trail::spoil);
                        (cfi, Key::new(address, self.modules.generation()))
                    }
                    Lookup::Stale => return Step::End(End::Stale),
                    Lookup::NotCode => return Step::End(End::Lost),
                };
                RULES.get(key).unwrap_or_else(|| {
                    let rule = rule_of(cfi, address, self.context);
                    RULES.put(key, rule);
                    rule
                })
            }
        };
        let caller = match rule {
            Rule::End => return Step::End(End::Outermost),
            Rule::Plain {
                from_frame_pointer,
                offset,
                saved_frame_pointer,
            } => {
                if from_frame_pointer && !self.frame_known && !self.find_frame_pointer(address) {
                    return Step::End(End::Lost);
                }
                let base = if from_frame_pointer {
                    self.trail(Trail::used_frame_pointer);
                    self.at.frame
                } else {
                    self.at.stack
                };
                self.plain(base.wrapping_add_signed(offset.into()), saved_frame_pointer)
            }
            Rule::Evaluate => {
                self.trail(Trail::spoil);
                self.evaluate(address)
            }
        };
        match caller {
            Some(caller) if caller.instruction >= PAGE as u64 => {
                self.at = caller;
                Step::Caller
            }
            // Nobody has called it: so the kernel leaves the stack of what it starts.
            Some(Registers { instruction: 0, .. }) => {
                self.trail(Trail::ended_there);
                Step::End(End::Outermost)
            }
            _ => Step::End(End::Lost),
        }
    }

    #[inline]
    fn trail(&mut self, note: impl FnOnce(&mut Trail)) {
        if let Some(trail) = &mut self.trail {
            note(trail);
        }
    }

    /// Finds out what the frame pointer is in a function that keeps its frame by it.
    #[cold]
    fn find_frame_pointer(&mut self, address: usize) -> bool {
        let function = match self.modules.look_up(address) {
            Lookup::Permanent(cfi) | Lookup::Current(cfi) => cfi
                .describe(address)
                .map(|fde| fde.initial_address() as usize),
            Lookup::Stale | Lookup::NotCode => None,
        };
        let stack = self.at.stack as usize;
        let found = lost_frame::find(function, address, stack, self.memory, self.modules);
        if let Some(frame) = found {
            self.at.frame = frame as u64;
            self.frame_known = true;
        }
        found.is_some()
    }

    /// The caller of a frame at that address, by the usual layout.
    #[inline]
    fn plain(&mut self, frame_address: u64, saved_frame_pointer: Option<i32>) -> Option<Registers> {
        if frame_address <= self.at.stack {
            return None;
        }
        let returns = frame_address.wrapping_sub(8);
        let instruction = self.memory.read(returns as usize)? as u64;
        self.trail(|trail| trail.read_return_address(returns, instruction));
        let frame = match saved_frame_pointer {
            Some(offset) => {
                let at = frame_address.wrapping_add_signed(offset.into());
                self.frame_known = true;
                let frame = self.memory.read(at as usize)? as u64;
                self.trail(|trail| trail.read_frame_pointer(at, frame));
                frame
            }
            None => self.at.frame,
        };
        self.exact = false;
        Some(Registers {
            instruction,
            stack: frame_address,
            frame,
        })
    }

    /// The caller of a frame whose tables have to be read each time.
    #[cold]
    fn evaluate(&mut self, address: usize) -> Option<Registers> {
        let (Lookup::Permanent(cfi) | Lookup::Current(cfi)) = self.modules.look_up(address) else {
            return None;
        };
        let fde = cfi.describe(address)?;
        let row = row_at(cfi, &fde, address, self.context)?;
        let (cfa, frame, returns) = (
            row.cfa().clone(),
            row.register(X86_64::RBP),
            row.register(X86_64::RA),
        );
        let frame_address = match cfa {
            CfaRule::RegisterAndOffset { register, offset } => {
                self.register(register)?.wrapping_add_signed(offset)
            }
            CfaRule::Expression(expression) => self.value(cfi, &fde, expression, None)?,
        };
        let restored = self.restore(cfi, &fde, &frame, frame_address);
        let frame = restored.unwrap_or(self.at.frame);
        let instruction = self.restore(cfi, &fde, &returns, frame_address)?;
        if fde.is_signal_trampoline() {
            // A signal's frame may be on another stack than what it interrupted.
            self.exact = true;
            self.memory.go_on_at(frame_address as usize);
        } else if frame_address > self.at.stack {
            self.exact = false;
        } else {
            return None;
        }
        self.frame_known |= restored.is_some();
        Some(Registers {
            instruction,
            stack: frame_address,
            frame,
        })
    }

    /// The caller's value of a register.
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
            X86_64::RSP => Some(self.at.stack),
            X86_64::RBP => self.frame_known.then_some(self.at.frame),
            X86_64::RA => Some(self.at.instruction),
            _ => None,
        }
    }

    /// What an expression of the tables comes to.
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

/// The rule for an address in a module.
#[cold]
fn rule_of(cfi: &Cfi, address: usize, context: &mut Context) -> Rule {
    // Code that has no description is taken to keep a frame pointer; the walk ends where that leads
    // nowhere.
    const UNDESCRIBED: Rule = Rule::Plain {
        from_frame_pointer: true,
        offset: 16,
        saved_frame_pointer: Some(-16),
    };
    let Some(fde) = cfi.describe(address) else {
        return UNDESCRIBED;
    };
    if fde.is_signal_trampoline() {
        return Rule::Evaluate;
    }
    let Some(row) = row_at(cfi, &fde, address, context) else {
        return UNDESCRIBED;
    };
    match row.register(X86_64::RA) {
        RegisterRule::Undefined => return Rule::End,
        RegisterRule::Offset(-8) => {}
        _ => return Rule::Evaluate,
    }
    let saved = match row.register(X86_64::RBP) {
        RegisterRule::Undefined | RegisterRule::SameValue => None,
        RegisterRule::Offset(offset) => Some(offset),
        _ => return Rule::Evaluate,
    };
    let plain = match *row.cfa() {
        CfaRule::RegisterAndOffset {
            register: X86_64::RSP,
            offset,
        } => Rule::plain(false, offset, saved),
        CfaRule::RegisterAndOffset {
            register: X86_64::RBP,
            offset,
        } => Rule::plain(true, offset, saved),
        _ => None,
    };
    plain.unwrap_or(Rule::Evaluate)
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
    /// The description of the function at an address.
    fn describe(&self, address: usize) -> Option<FrameDescriptionEntry<Bytes>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The functions on the calling thread's stack, from this one's caller on, as libgcc's unwinder
    /// sees them.
    fn reference() -> Vec<usize> {
        use std::ffi::c_void;
        unsafe extern "C" {
            fn _Unwind_Backtrace(
                trace: extern "C" fn(*mut c_void, *mut c_void) -> i32,
                found: *mut c_void,
            ) -> i32;
            fn _Unwind_GetIP(context: *mut c_void) -> usize;
        }
        extern "C" fn trace(context: *mut c_void, found: *mut c_void) -> i32 {
            // SAFETY: the unwinder passes its context, and the caller's list.
            unsafe { (*found.cast::<Vec<usize>>()).push(_Unwind_GetIP(context)) };
            0
        }
        let mut found = Vec::<usize>::new();
        // SAFETY: the callback matches, and the list outlives the call.
        unsafe { _Unwind_Backtrace(trace, (&raw mut found).cast()) };
        // It ends with a frame at 0.
        found.retain(|&address| address != 0);
        found
    }

    fn walked(modules: &ModuleList) -> Vec<usize> {
        let mut frames = [0; 128];
        let walk = walk(
            Start::Here(Registers::here()),
            modules,
            &mut Context::new_in(),
            &mut Trail::new(),
            &mut frames,
        );
        assert_eq!(walk.end, End::Outermost);
        frames[..walk.frames].to_vec()
    }

    /// Everything above the functions that differ.
    fn agree(modules: &ModuleList) {
        for _ in 0..2 {
            let (ours, theirs) = (walked(modules), reference());
            let common = theirs
                .iter()
                .rev()
                .zip(ours.iter().rev())
                .take_while(|(a, b)| a == b)
                .count();
            // All but the two functions called here, and the first frames of this one, which differ
            // by the call.
            assert!(
                common + 2 >= theirs.len().min(ours.len()) - 1 && common > 3,
                "{ours:x?}\n{theirs:x?}"
            );
        }
    }

    #[inline(never)]
    fn deep(levels: usize, work: &mut dyn FnMut()) -> usize {
        let padding = std::hint::black_box([levels; 3]);
        if levels == 0 {
            work();
        } else {
            deep(levels - 1, work);
        }
        padding[1]
    }

    #[test]
    fn agrees_with_the_languages_own_unwinder() {
        let modules = ModuleList::from_loader();
        agree(&modules);
        for levels in [1, 10, 40] {
            deep(levels, &mut || agree(&modules));
        }
        std::thread::scope(|scope| {
            scope.spawn(|| deep(5, &mut || agree(&modules)));
        });
    }

    /// Through the C library, which calls back.
    #[test]
    fn goes_through_foreign_code() {
        static MODULES: std::sync::OnceLock<ModuleList> = std::sync::OnceLock::new();
        MODULES.get_or_init(ModuleList::from_loader);
        extern "C" fn compare(_: *const std::ffi::c_void, _: *const std::ffi::c_void) -> i32 {
            agree(MODULES.get().expect("set above"));
            0
        }
        let mut numbers = [3, 1, 2];
        // SAFETY: sorts three numbers.
        unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 3, 4, Some(compare)) };
    }

    static INTERRUPTED: std::sync::Mutex<Vec<usize>> = std::sync::Mutex::new(Vec::new());

    /// From a signal handler on a stack of its own, down into what it interrupted.
    #[test]
    fn goes_through_a_signal() {
        static MODULES: std::sync::OnceLock<ModuleList> = std::sync::OnceLock::new();
        MODULES.get_or_init(ModuleList::from_loader);
        extern "C" fn handler(_: i32) {
            // The thread that raises the signal holds no lock.
            *INTERRUPTED.lock().unwrap() = walked(MODULES.get().expect("set before"));
        }
        #[inline(never)]
        fn raises() {
            // SAFETY: raises a signal that has a handler.
            unsafe { libc::raise(libc::SIGUSR2) };
        }
        for alternative_stack in [false, true] {
            let mut memory = vec![0u8; 1 << 17];
            // SAFETY: a stack and a handler that outlive the signal; both are taken back below.
            unsafe {
                let mut stack: libc::stack_t = std::mem::zeroed();
                (stack.ss_sp, stack.ss_size) = (memory.as_mut_ptr().cast(), memory.len());
                let mut before: libc::stack_t = std::mem::zeroed();
                assert_eq!(libc::sigaltstack(&raw const stack, &raw mut before), 0);
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as extern "C" fn(i32) as libc::sighandler_t;
                action.sa_flags = if alternative_stack {
                    libc::SA_ONSTACK
                } else {
                    0
                };
                assert_eq!(
                    libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()),
                    0
                );
                deep(3, &mut raises);
                libc::sigaltstack(&raw const before, std::ptr::null_mut());
            }
            let stack = INTERRUPTED.lock().unwrap().clone();
            let within = |function: usize| {
                move |&&address: &&usize| (function..function + 512).contains(&address)
            };
            let levels = stack
                .iter()
                .filter(within(deep as *const () as usize))
                .count();
            assert!(
                levels >= 4,
                "{levels} of 4 frames below the signal: {stack:x?}"
            );
            assert!(
                stack
                    .iter()
                    .any(|address| within(raises as *const () as usize)(&address))
            );
        }
    }

    #[test]
    fn an_address_that_is_no_code_ends_the_walk() {
        let modules = ModuleList::from_loader();
        let mut frames = [0; 16];
        for instruction in [1, 0x1000, 0x7fff_ffff_ffff, u64::MAX / 2] {
            let start = Registers {
                instruction,
                ..Registers::here()
            };
            let walk = walk(
                Start::Here(start),
                &modules,
                &mut Context::new_in(),
                &mut Trail::new(),
                &mut frames,
            );
            assert_eq!(walk.frames, 0, "{instruction:x}");
        }
    }
}
