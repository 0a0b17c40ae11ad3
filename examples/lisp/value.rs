//! The values of a script. One function allocates each kind, and the heap profile names these
//! functions.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use gc_arena::{Collect, Gc, Lock, Mutation, RefLock, barrier::unlock};
use plimsoll::label::Labels;
use plimsoll_gc_arena::Weight;

use crate::code::Op;
use crate::natives::Native;

/// The longest string, in bytes.
pub const LONGEST_TEXT: usize = 1 << 20;

/// The size of gc-arena's header of each block, in bytes.
const HEADER: usize = 2 * size_of::<usize>();

/// The allocator of the script's values.
pub struct Heap<'gc> {
    pub mutation: &'gc Mutation<'gc>,
    /// Bytes that were allocated through this `Heap`.
    allocated: Cell<u64>,
}

#[derive(Clone, Copy, Collect)]
#[collect(no_drop)]
pub enum Value<'gc> {
    /// A variable whose definition was not reached yet.
    Undefined,
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Char(char),
    Symbol(Gc<'gc, Symbol<'gc>>),
    Pair(Gc<'gc, Pair<'gc>>),
    Text(Gc<'gc, Text>),
    Table(Gc<'gc, Table<'gc>>),
    Closure(Gc<'gc, Closure<'gc>>),
    Native(&'static Native),
}

/// A unique name, and the global variable of that name.
#[derive(Collect)]
#[collect(no_drop)]
pub struct Symbol<'gc> {
    pub name: Box<str>,
    pub value: Lock<Value<'gc>>,
    weight: Weight,
}

#[derive(Collect)]
#[collect(no_drop)]
pub struct Pair<'gc> {
    pub first: Value<'gc>,
    pub rest: Value<'gc>,
    weight: Weight,
}

#[derive(Collect)]
#[collect(no_drop)]
pub struct Text {
    text: Box<str>,
    /// Whether the index of each character is its byte offset.
    ascii: bool,
    weight: Weight,
}

#[derive(Collect)]
#[collect(no_drop)]
pub struct Table<'gc> {
    entries: RefLock<HashMap<Key<'gc>, Value<'gc>>>,
    weight: Weight,
}

/// A key of a table: a value that is compared by its content.
#[derive(Clone, Copy, Collect)]
#[collect(no_drop)]
pub struct Key<'gc>(Value<'gc>);

#[derive(Collect)]
#[collect(no_drop)]
pub struct Closure<'gc> {
    pub code: Gc<'gc, Code<'gc>>,
    pub frame: Option<Gc<'gc, Frame<'gc>>>,
    weight: Weight,
}

/// The variables of a call or of a `let`.
#[derive(Collect)]
#[collect(no_drop)]
pub struct Frame<'gc> {
    slots: RefLock<Vec<Value<'gc>>>,
    pub parent: Option<Gc<'gc, Frame<'gc>>>,
    weight: Weight,
}

/// A compiled function.
#[derive(Collect)]
#[collect(no_drop)]
pub struct Code<'gc> {
    pub name: Box<str>,
    /// The number of parameters, without the rest parameter.
    pub parameters: usize,
    /// Whether there may be more arguments, which form a list.
    pub rest: bool,
    /// The number of variables: parameters, the rest parameter, and local definitions.
    pub slots: usize,
    #[collect(require_static)]
    pub ops: Box<[Op]>,
    /// The line of each operation.
    pub lines: Box<[u32]>,
    pub constants: Box<[Value<'gc>]>,
    pub codes: Box<[Gc<'gc, Code<'gc>>]>,
    /// The number of the running program, and the labels of that program and this function.
    #[collect(require_static)]
    labels: Cell<(u32, Labels)>,
    weight: Weight,
}

impl<'gc> Heap<'gc> {
    pub fn new(mutation: &'gc Mutation<'gc>) -> Self {
        Self {
            mutation,
            allocated: Cell::new(0),
        }
    }

    pub fn allocated(&self) -> u64 {
        self.allocated.get()
    }

    /// Counts a block and the memory that it owns.
    fn weigh<T>(&self, owned: usize) -> Weight {
        let bytes = HEADER + size_of::<T>() + owned;
        self.count(bytes);
        Weight::new(bytes)
    }

    fn count(&self, bytes: usize) {
        self.allocated.set(self.allocated.get() + bytes as u64);
        // gc-arena counts objects; a large one adds as much debt as many small ones.
        if bytes > 1024 {
            self.mutation.metrics().adjust_debt(bytes as f64 / 64.0);
        }
    }
}

#[inline(never)]
pub fn symbol<'gc>(heap: &Heap<'gc>, name: &str) -> Gc<'gc, Symbol<'gc>> {
    let symbol = Symbol {
        name: name.into(),
        value: Lock::new(Value::Undefined),
        weight: heap.weigh::<Symbol>(name.len()),
    };
    Gc::new(heap.mutation, symbol)
}

#[inline(never)]
pub fn cons<'gc>(heap: &Heap<'gc>, first: Value<'gc>, rest: Value<'gc>) -> Value<'gc> {
    let pair = Pair {
        first,
        rest,
        weight: heap.weigh::<Pair>(0),
    };
    Value::Pair(Gc::new(heap.mutation, pair))
}

/// Returns a string, or an error if it is longer than [`LONGEST_TEXT`].
#[inline(never)]
pub fn text<'gc>(heap: &Heap<'gc>, text: String) -> Result<Value<'gc>, String> {
    if text.len() > LONGEST_TEXT {
        return Err(format!("a string of {} bytes is too long", text.len()));
    }
    let text = Text {
        ascii: text.is_ascii(),
        weight: heap.weigh::<Text>(text.len()),
        text: text.into_boxed_str(),
    };
    Ok(Value::Text(Gc::new(heap.mutation, text)))
}

#[inline(never)]
pub fn table<'gc>(heap: &Heap<'gc>) -> Value<'gc> {
    let table = Table {
        entries: RefLock::new(HashMap::new()),
        weight: heap.weigh::<Table>(0),
    };
    Value::Table(Gc::new(heap.mutation, table))
}

#[inline(never)]
pub fn closure<'gc>(
    heap: &Heap<'gc>,
    code: Gc<'gc, Code<'gc>>,
    frame: Option<Gc<'gc, Frame<'gc>>>,
) -> Value<'gc> {
    let closure = Closure {
        code,
        frame,
        weight: heap.weigh::<Closure>(0),
    };
    Value::Closure(Gc::new(heap.mutation, closure))
}

/// Returns the variables of a call, `slots` in total, of which these come first.
#[inline(never)]
pub fn frame<'gc>(
    heap: &Heap<'gc>,
    values: &[Value<'gc>],
    slots: usize,
    parent: Option<Gc<'gc, Frame<'gc>>>,
) -> Gc<'gc, Frame<'gc>> {
    let mut all = Vec::with_capacity(slots);
    all.extend_from_slice(values);
    all.resize(slots, Value::Undefined);
    let frame = Frame {
        weight: heap.weigh::<Frame>(slots * size_of::<Value>()),
        slots: RefLock::new(all),
        parent,
    };
    Gc::new(heap.mutation, frame)
}

/// The parts of a function, from the compiler.
pub struct Parts<'gc> {
    pub name: String,
    pub parameters: usize,
    pub rest: bool,
    pub slots: usize,
    pub ops: Vec<Op>,
    pub lines: Vec<u32>,
    pub constants: Vec<Value<'gc>>,
    pub codes: Vec<Gc<'gc, Code<'gc>>>,
}

#[inline(never)]
pub fn code<'gc>(heap: &Heap<'gc>, parts: Parts<'gc>) -> Gc<'gc, Code<'gc>> {
    let owned = parts.name.len()
        + size_of_val(&*parts.ops)
        + size_of_val(&*parts.lines)
        + size_of_val(&*parts.constants)
        + size_of_val(&*parts.codes);
    let code = Code {
        name: parts.name.into_boxed_str(),
        parameters: parts.parameters,
        rest: parts.rest,
        slots: parts.slots,
        ops: parts.ops.into_boxed_slice(),
        lines: parts.lines.into_boxed_slice(),
        constants: parts.constants.into_boxed_slice(),
        codes: parts.codes.into_boxed_slice(),
        labels: Cell::new((0, Labels::NONE)),
        weight: heap.weigh::<Code>(owned),
    };
    Gc::new(heap.mutation, code)
}

/// Returns a list of these values in their order.
pub fn list<'gc>(heap: &Heap<'gc>, values: &[Value<'gc>]) -> Value<'gc> {
    list_before(heap, values, Value::Nil)
}

/// Returns a list of these values, followed by `rest`.
pub fn list_before<'gc>(heap: &Heap<'gc>, values: &[Value<'gc>], rest: Value<'gc>) -> Value<'gc> {
    let mut all = rest;
    for &value in values.iter().rev() {
        all = cons(heap, value, all);
    }
    all
}

impl<'gc> Value<'gc> {
    pub fn is_true(self) -> bool {
        !matches!(self, Self::Bool(false))
    }

    /// Returns the kind of the value, for messages.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Undefined => "nothing",
            Self::Nil => "an empty list",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Char(_) => "a character",
            Self::Symbol(_) => "a symbol",
            Self::Pair(_) => "a pair",
            Self::Text(_) => "a string",
            Self::Table(_) => "a table",
            Self::Closure(_) | Self::Native(_) => "a function",
        }
    }

    /// Returns the elements of a list. [`Items::end`] returns the value after the last pair.
    pub fn items(self) -> Items<'gc> {
        Items { rest: self }
    }

    /// Returns whether both are the same object, number, character, or empty list.
    pub fn is(self, other: Self) -> bool {
        match (self, other) {
            (Self::Undefined, Self::Undefined) | (Self::Nil, Self::Nil) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => a == b,
            (Self::Char(a), Self::Char(b)) => a == b,
            (Self::Symbol(a), Self::Symbol(b)) => Gc::ptr_eq(a, b),
            (Self::Pair(a), Self::Pair(b)) => Gc::ptr_eq(a, b),
            (Self::Text(a), Self::Text(b)) => Gc::ptr_eq(a, b),
            (Self::Table(a), Self::Table(b)) => Gc::ptr_eq(a, b),
            (Self::Closure(a), Self::Closure(b)) => Gc::ptr_eq(a, b),
            (Self::Native(a), Self::Native(b)) => std::ptr::eq(a, b),
            _ => false,
        }
    }

    /// Returns whether both are the same, or strings of the same characters.
    pub fn is_like(self, other: Self) -> bool {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => a.text == b.text,
            _ => self.is(other),
        }
    }
}

/// The elements of a list.
pub struct Items<'gc> {
    rest: Value<'gc>,
}

impl<'gc> Items<'gc> {
    /// Returns the rest of the list after the elements that were taken: `Nil` at the end of a list.
    pub fn end(&self) -> Value<'gc> {
        self.rest
    }
}

impl<'gc> Iterator for Items<'gc> {
    type Item = Value<'gc>;

    fn next(&mut self) -> Option<Value<'gc>> {
        let Value::Pair(pair) = self.rest else {
            return None;
        };
        self.rest = pair.rest;
        Some(pair.first)
    }
}

impl Text {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the number of characters.
    pub fn length(&self) -> usize {
        if self.ascii {
            self.text.len()
        } else {
            self.text.chars().count()
        }
    }

    pub fn char_at(&self, at: usize) -> Option<char> {
        if self.ascii {
            self.text.as_bytes().get(at).map(|&byte| byte.into())
        } else {
            self.text.chars().nth(at)
        }
    }

    /// Returns the characters from `from` up to but not including `to`, if both are in range and in
    /// order.
    pub fn part(&self, from: usize, to: usize) -> Option<&str> {
        if self.ascii {
            return self.text.get(from..to);
        }
        let mut places = self.text.char_indices().map(|(at, _)| at);
        let end = self.text.len();
        let length = self.length();
        if from > to || to > length {
            return None;
        }
        let start = places.nth(from).unwrap_or(end);
        let stop = if to == from {
            start
        } else {
            places.nth(to - from - 1).unwrap_or(end)
        };
        self.text.get(start..stop)
    }
}

impl<'gc> Key<'gc> {
    /// Makes a key of an integer, a string, a symbol, a character, a boolean or an empty list.
    pub fn of(value: Value<'gc>) -> Result<Self, String> {
        match value {
            Value::Int(_)
            | Value::Text(_)
            | Value::Symbol(_)
            | Value::Char(_)
            | Value::Bool(_)
            | Value::Nil => Ok(Self(value)),
            _ => Err(format!("{} cannot be a key", value.kind())),
        }
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_like(other.0)
    }
}

impl Eq for Key<'_> {}

impl Hash for Key<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.0 {
            Value::Int(number) => number.hash(state),
            Value::Text(text) => text.text.hash(state),
            Value::Symbol(symbol) => Gc::as_ptr(symbol).hash(state),
            Value::Char(char) => char.hash(state),
            Value::Bool(bool) => bool.hash(state),
            _ => {}
        }
    }
}

impl<'gc> Table<'gc> {
    pub fn get(&self, key: Key<'gc>) -> Option<Value<'gc>> {
        self.entries.borrow().get(&key).copied()
    }

    pub fn len(&self) -> usize {
        self.entries.borrow().len()
    }

    pub fn keys(&self) -> Vec<Value<'gc>> {
        self.entries.borrow().keys().map(|key| key.0).collect()
    }

    #[inline(never)]
    pub fn insert(heap: &Heap<'gc>, table: Gc<'gc, Self>, key: Key<'gc>, value: Value<'gc>) {
        let mut entries = Self::entries(heap, table).borrow_mut();
        let before = entries.capacity();
        entries.insert(key, value);
        let room = entries.capacity();
        if room != before {
            // An entry and a control byte for each slot, whose number is a power of two.
            let each = size_of::<(Key, Value)>() + 1;
            let owned = room.next_power_of_two() * each;
            heap.count(owned);
            table.weight.set(HEADER + size_of::<Self>() + owned);
        }
    }

    pub fn remove(heap: &Heap<'gc>, table: Gc<'gc, Self>, key: Key<'gc>) {
        Self::entries(heap, table).borrow_mut().remove(&key);
    }

    fn entries(
        heap: &Heap<'gc>,
        table: Gc<'gc, Self>,
    ) -> &'gc RefCell<HashMap<Key<'gc>, Value<'gc>>> {
        unlock!(Gc::write(heap.mutation, table), Table, entries)
    }
}

impl Code<'_> {
    /// Returns the labels of this function in a program.
    pub fn labels(&self, program: &Program) -> Labels {
        let (number, labels) = self.labels.get();
        if number == program.number {
            return labels;
        }
        let labels = Labels::of([("script", &*program.name), ("function", &*self.name)]);
        self.labels.set((program.number, labels));
        labels
    }
}

/// A running program.
pub struct Program {
    pub name: String,
    /// A different number for each run, from 1.
    pub number: u32,
}

impl<'gc> Frame<'gc> {
    pub fn get(&self, slot: usize) -> Value<'gc> {
        self.slots.borrow()[slot]
    }

    pub fn set(heap: &Heap<'gc>, frame: Gc<'gc, Self>, slot: usize, value: Value<'gc>) {
        let slots = unlock!(Gc::write(heap.mutation, frame), Frame, slots);
        slots.borrow_mut()[slot] = value;
    }
}

impl<'gc> Symbol<'gc> {
    pub fn set(heap: &Heap<'gc>, symbol: Gc<'gc, Self>, value: Value<'gc>) {
        unlock!(Gc::write(heap.mutation, symbol), Symbol, value).set(value);
    }
}
