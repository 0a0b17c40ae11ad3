//! Executes compiled functions. All state is in the arena, so the collector can work between any
//! two operations, and [`DEEPEST`] limits recursion instead of the native stack.

use gc_arena::{Collect, Gc};
use plimsoll::label;

use crate::code::Op;
use crate::fault::{Fault, MAX_CALLERS};
use crate::natives::{Host, Run};
use crate::print::written;
use crate::value::{self, Closure, Code, Frame, Heap, Symbol, Value};

/// The maximum depth of calls, and the maximum number of values on the stack.
pub const DEEPEST: usize = 100_000;
const MAX_VALUES: usize = 1_000_000;

/// The longest step, in operations and in allocated bytes.
const STEP_OPS: u32 = 4096;
const STEP_BYTES: u64 = 256 << 10;

#[derive(Default, Collect)]
#[collect(no_drop)]
pub struct Machine<'gc> {
    stack: Vec<Value<'gc>>,
    /// The callers of the current function, which wait for it.
    calls: Vec<Call<'gc>>,
    current: Option<Call<'gc>>,
}

/// A call of a function that is being executed.
#[derive(Clone, Copy, Collect)]
#[collect(no_drop)]
struct Call<'gc> {
    code: Gc<'gc, Code<'gc>>,
    /// The next operation.
    at: usize,
    frame: Option<Gc<'gc, Frame<'gc>>>,
}

impl<'gc> Machine<'gc> {
    /// Starts a function without parameters, in place of the current execution.
    pub fn start(&mut self, code: Gc<'gc, Code<'gc>>) {
        self.clear();
        self.current = Some(Call {
            code,
            at: 0,
            frame: None,
        });
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Executes some operations. Returns the value of the started function once that has returned.
    pub fn step(&mut self, heap: &Heap<'gc>, host: &mut Host) -> Result<Option<Value<'gc>>, Fault> {
        let Some(mut call) = self.current else {
            return Ok(None);
        };
        let before = label::set(call.code.labels(&host.program));
        let outcome = self.run(heap, host, &mut call);
        label::set(before);
        self.current = match outcome {
            Ok(None) => Some(call),
            _ => None,
        };
        outcome.map_err(|message| self.fault(&call, message))
    }

    /// The same as [`Machine::step`], for the innermost call.
    fn run(
        &mut self,
        heap: &Heap<'gc>,
        host: &mut Host,
        call: &mut Call<'gc>,
    ) -> Result<Option<Value<'gc>>, String> {
        for _ in 0..STEP_OPS {
            let op = call.code.ops[call.at];
            call.at += 1;
            match op {
                Op::Constant(at) => self.stack.push(call.code.constants[at as usize]),
                Op::Variable { up, slot } => {
                    let value = frame_above(call.frame, up).get(slot.into());
                    if matches!(value, Value::Undefined) {
                        return Err("a variable is used before its definition".to_owned());
                    }
                    self.stack.push(value);
                }
                Op::Global(at) => {
                    let symbol = constant_symbol(call, at);
                    let value = symbol.value.get();
                    if matches!(value, Value::Undefined) {
                        return Err(format!("{} is not defined", symbol.name));
                    }
                    self.stack.push(value);
                }
                Op::SetVariable { up, slot } => {
                    let value = self.pop();
                    Frame::set(heap, frame_above(call.frame, up), slot.into(), value);
                }
                Op::SetGlobal(at) => {
                    let symbol = constant_symbol(call, at);
                    if matches!(symbol.value.get(), Value::Undefined) {
                        return Err(format!("{} is not defined", symbol.name));
                    }
                    let value = self.pop();
                    Symbol::set(heap, symbol, value);
                }
                Op::Define(at) => {
                    let value = self.pop();
                    Symbol::set(heap, constant_symbol(call, at), value);
                }
                Op::Lambda(at) => {
                    let code = call.code.codes[at as usize];
                    self.stack.push(value::closure(heap, code, call.frame));
                }
                Op::Enter { values, slots } => {
                    let from = self.stack.len() - usize::from(values);
                    let values = &self.stack[from..];
                    call.frame = Some(value::frame(heap, values, slots.into(), call.frame));
                    self.stack.truncate(from);
                }
                Op::Leave => call.frame = call.frame.and_then(|frame| frame.parent),
                Op::Pop => {
                    self.pop();
                }
                Op::Jump(to) => call.at = to as usize,
                Op::JumpIfFalse(to) => {
                    if !self.pop().is_true() {
                        call.at = to as usize;
                    }
                }
                Op::And(to) => self.jump_or_pop(call, to, false),
                Op::Or(to) => self.jump_or_pop(call, to, true),
                Op::Call(arguments) => self.call(heap, host, call, arguments as usize, false)?,
                Op::TailCall(arguments) => self.call(heap, host, call, arguments as usize, true)?,
                Op::Return => {
                    let Some(caller) = self.calls.pop() else {
                        return Ok(Some(self.pop()));
                    };
                    *call = caller;
                    label::set(call.code.labels(&host.program));
                }
            }
            if heap.allocated() > STEP_BYTES {
                break;
            }
        }
        Ok(None)
    }

    /// Pops a value; the compiler ensures that there is one.
    fn pop(&mut self) -> Value<'gc> {
        self.stack.pop().expect("every operation has its operands")
    }

    fn jump_or_pop(&mut self, call: &mut Call<'gc>, to: u32, jump_if: bool) {
        let top = self.stack.last().expect("every operation has its operands");
        if top.is_true() == jump_if {
            call.at = to as usize;
        } else {
            self.pop();
        }
    }

    /// Calls the function below `arguments` arguments.
    fn call(
        &mut self,
        heap: &Heap<'gc>,
        host: &mut Host,
        call: &mut Call<'gc>,
        mut arguments: usize,
        tail: bool,
    ) -> Result<(), String> {
        loop {
            let first = self.stack.len() - arguments;
            match self.stack[first - 1] {
                Value::Closure(closure) => {
                    return self.call_closure(heap, host, call, closure, first, tail);
                }
                Value::Native(native) => {
                    native.check(arguments)?;
                    let Run::Plain(run) = native.run else {
                        arguments = self.spread(first)?;
                        continue;
                    };
                    let result = run(heap, host, &self.stack[first..]);
                    let result = result.map_err(|message| format!("{}: {message}", native.name))?;
                    self.stack.truncate(first - 1);
                    self.stack.push(result);
                    return Ok(());
                }
                other => return Err(format!("{} is not a function", shown(other))),
            }
        }
    }

    /// Converts `apply f x (y z)` to a call of `f` with x, y and z; returns the number of
    /// arguments.
    fn spread(&mut self, first: usize) -> Result<usize, String> {
        let last = self.pop();
        let mut items = last.items();
        for item in items.by_ref() {
            self.push_checked(item)?;
        }
        if !matches!(items.end(), Value::Nil) {
            return Err(format!("apply: {} is not a list", shown(last)));
        }
        // Removes `apply` itself.
        self.stack.remove(first - 1);
        Ok(self.stack.len() - first)
    }

    fn push_checked(&mut self, value: Value<'gc>) -> Result<(), String> {
        if self.stack.len() >= MAX_VALUES {
            return Err("too many values are under way".to_owned());
        }
        self.stack.push(value);
        Ok(())
    }

    fn call_closure(
        &mut self,
        heap: &Heap<'gc>,
        host: &Host,
        call: &mut Call<'gc>,
        closure: Gc<'gc, Closure<'gc>>,
        first: usize,
        tail: bool,
    ) -> Result<(), String> {
        let code = closure.code;
        let given = self.stack.len() - first;
        if given < code.parameters || (given > code.parameters && !code.rest) {
            let more = if code.rest { "at least " } else { "" };
            let needed = code.parameters;
            let name = &code.name;
            return Err(format!(
                "{name} takes {more}{needed} arguments, not {given}"
            ));
        }
        if code.rest {
            let rest = value::list(heap, &self.stack[first + code.parameters..]);
            self.stack.truncate(first + code.parameters);
            self.stack.push(rest);
        }
        if !tail {
            if self.calls.len() >= DEEPEST || self.stack.len() >= MAX_VALUES {
                return Err(format!("calls are nested deeper than {DEEPEST}"));
            }
            self.calls.push(*call);
        }
        let frame = if code.slots > 0 {
            let values = &self.stack[first..];
            Some(value::frame(heap, values, code.slots, closure.frame))
        } else {
            closure.frame
        };
        self.stack.truncate(first - 1);
        *call = Call { code, at: 0, frame };
        label::set(code.labels(&host.program));
        Ok(())
    }

    fn fault(&self, innermost: &Call<'gc>, message: String) -> Fault {
        let calls = || std::iter::once(innermost).chain(self.calls.iter().rev());
        let callers = calls().take(MAX_CALLERS);
        let callers = callers.map(|call| (call.code.name.to_string(), line(call)));
        Fault {
            line: line(innermost),
            message,
            callers: callers.collect(),
            more_callers: (self.calls.len() + 1).saturating_sub(MAX_CALLERS),
        }
    }
}

fn line(call: &Call<'_>) -> u32 {
    call.code.lines[call.at.saturating_sub(1)]
}

fn constant_symbol<'gc>(call: &Call<'gc>, at: u32) -> Gc<'gc, Symbol<'gc>> {
    match call.code.constants[at as usize] {
        Value::Symbol(symbol) => symbol,
        other => unreachable!("a global variable is a symbol, not {}", other.kind()),
    }
}

fn frame_above<'gc>(frame: Option<Gc<'gc, Frame<'gc>>>, up: u16) -> Gc<'gc, Frame<'gc>> {
    let mut frame = frame;
    for _ in 0..up {
        frame = frame.and_then(|frame| frame.parent);
    }
    frame.expect("the compiler has counted the frames")
}

/// Returns a value for a message, cut if it is long.
pub fn shown(value: Value<'_>) -> String {
    let text = written(value);
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
