//! The values of a script. One function allocates each kind of object, and the heap profile names
//! these functions.

use std::fmt;

use gc_arena::{Collect, Gc, Lock, Mutation};
use plimsoll::label::Labels;
use plimsoll_gc_arena::Weight;

use crate::natives::Native;

#[derive(Clone, Copy, Collect)]
#[collect(no_drop)]
pub enum Value<'gc> {
    Nil,
    Bool(bool),
    Int(i64),
    Symbol(Gc<'gc, Text>),
    Pair(Gc<'gc, Pair<'gc>>),
    Text(Gc<'gc, Text>),
    Closure(Gc<'gc, Closure<'gc>>),
    Native(&'static Native),
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
    pub text: Box<str>,
    weight: Weight,
}

/// A parameter of a function, or a variable of a `let`.
#[derive(Collect)]
#[collect(no_drop)]
pub struct Variable<'gc> {
    name: Gc<'gc, Text>,
    pub value: Lock<Value<'gc>>,
    outer: Scope<'gc>,
    weight: Weight,
}

/// The innermost visible variable, which refers to the others.
pub type Scope<'gc> = Option<Gc<'gc, Variable<'gc>>>;

#[derive(Collect)]
#[collect(no_drop)]
pub struct Closure<'gc> {
    pub function: Function<'gc>,
    /// The list of the parameters and the forms of the body.
    pub code: Value<'gc>,
    pub scope: Scope<'gc>,
    weight: Weight,
}

/// A function, for messages and profiles. A `lambda` belongs to the function that contains it.
#[derive(Clone, Copy, Collect)]
#[collect(no_drop)]
pub struct Function<'gc> {
    pub script: Gc<'gc, Text>,
    pub name: Gc<'gc, Text>,
    #[collect(require_static)]
    pub labels: Labels,
}

#[inline(never)]
pub fn cons<'gc>(mc: &Mutation<'gc>, first: Value<'gc>, rest: Value<'gc>) -> Value<'gc> {
    let pair = Pair {
        first,
        rest,
        weight: Weight::of::<Pair>(),
    };
    Value::Pair(Gc::new(mc, pair))
}

#[inline(never)]
pub fn text<'gc>(mc: &Mutation<'gc>, text: &str) -> Gc<'gc, Text> {
    let text = Text {
        text: text.into(),
        weight: Weight::of::<Text>().and(text.len()),
    };
    Gc::new(mc, text)
}

#[inline(never)]
pub fn variable<'gc>(
    mc: &Mutation<'gc>,
    name: Gc<'gc, Text>,
    value: Value<'gc>,
    outer: Scope<'gc>,
) -> Scope<'gc> {
    let variable = Variable {
        name,
        value: Lock::new(value),
        outer,
        weight: Weight::of::<Variable>(),
    };
    Some(Gc::new(mc, variable))
}

#[inline(never)]
pub fn closure<'gc>(
    mc: &Mutation<'gc>,
    function: Function<'gc>,
    code: Value<'gc>,
    scope: Scope<'gc>,
) -> Value<'gc> {
    let closure = Closure {
        function,
        code,
        scope,
        weight: Weight::of::<Closure>(),
    };
    Value::Closure(Gc::new(mc, closure))
}

/// Returns a list of these values in their order.
pub fn list<'gc>(mc: &Mutation<'gc>, values: &[Value<'gc>]) -> Value<'gc> {
    let values = values.iter().rev();
    values.fold(Value::Nil, |rest, &first| cons(mc, first, rest))
}

impl<'gc> Function<'gc> {
    pub fn new(script: Gc<'gc, Text>, name: Gc<'gc, Text>) -> Self {
        let labels = Labels::of([("script", &script.text), ("function", &name.text)]);
        Self {
            script,
            name,
            labels,
        }
    }
}

impl<'gc> Variable<'gc> {
    /// Returns the variable of this name that is visible in a scope.
    pub fn find(mut scope: Scope<'gc>, name: &str) -> Scope<'gc> {
        while let Some(variable) = scope
            && &*variable.name.text != name
        {
            scope = variable.outer;
        }
        scope
    }
}

impl<'gc> Value<'gc> {
    /// Returns the elements of a list.
    pub fn items(self) -> impl Iterator<Item = Value<'gc>> {
        let mut rest = self;
        std::iter::from_fn(move || {
            let Self::Pair(pair) = rest else { return None };
            rest = pair.rest;
            Some(pair.first)
        })
    }

    /// Compares strings by their characters. Pairs and functions are unequal.
    pub fn equals(self, other: Self) -> bool {
        match (self, other) {
            (Self::Nil, Self::Nil) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Symbol(a), Self::Symbol(b)) | (Self::Text(a), Self::Text(b)) => a.text == b.text,
            _ => false,
        }
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => write!(f, "()"),
            Self::Bool(true) => write!(f, "#t"),
            Self::Bool(false) => write!(f, "#f"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Pair(_) => write!(f, "#<pair>"),
            Self::Symbol(text) | Self::Text(text) => write!(f, "{}", text.text),
            Self::Closure(closure) => write!(f, "#<function {}>", closure.function.name.text),
            Self::Native((name, _)) => write!(f, "#<function {name}>"),
        }
    }
}
