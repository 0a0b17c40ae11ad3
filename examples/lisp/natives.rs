//! The functions that are implemented in Rust.

use std::io::Write;

use gc_arena::{Gc, Mutation};

use crate::value::{self, Pair, Value};

/// A function's name, and its implementation. An error does not repeat the name.
pub type Native = (&'static str, Run);
type Run = for<'gc> fn(&Mutation<'gc>, &mut dyn Write, &[Value<'gc>]) -> Result<Value<'gc>, String>;

/// All native functions.
pub static NATIVES: [Native; 16] = [
    ("+", |_, _, v| {
        integers(v, |a, b| a.checked_add(b).map(Value::Int))
    }),
    ("-", |_, _, v| {
        integers(v, |a, b| a.checked_sub(b).map(Value::Int))
    }),
    ("*", |_, _, v| {
        integers(v, |a, b| a.checked_mul(b).map(Value::Int))
    }),
    ("quotient", |_, _, v| {
        integers(v, |a, b| a.checked_div(b).map(Value::Int))
    }),
    ("remainder", |_, _, v| {
        integers(v, |a, b| a.checked_rem(b).map(Value::Int))
    }),
    ("=", |_, _, v| integers(v, |a, b| Some(Value::Bool(a == b)))),
    ("<", |_, _, v| integers(v, |a, b| Some(Value::Bool(a < b)))),
    ("equal?", |_, _, v| {
        let [a, b] = arguments(v)?;
        Ok(Value::Bool(a.equals(b)))
    }),
    ("cons", |mc, _, v| {
        let [first, rest] = arguments(v)?;
        Ok(value::cons(mc, first, rest))
    }),
    ("car", |_, _, v| Ok(pair(v)?.first)),
    ("cdr", |_, _, v| Ok(pair(v)?.rest)),
    ("list", |mc, _, v| Ok(value::list(mc, v))),
    ("string-join", |mc, _, v| {
        let [list, between] = arguments(v)?;
        let texts: Result<Vec<_>, _> = list.items().map(text).collect();
        let joined = texts?.join(text(between)?);
        Ok(Value::Text(value::text(mc, &joined)))
    }),
    ("string-split", |mc, _, v| {
        let [value] = arguments(v)?;
        let words = text(value)?.split_whitespace();
        let words: Vec<Value> = words
            .map(|word| Value::Text(value::text(mc, word)))
            .collect();
        Ok(value::list(mc, &words))
    }),
    ("print", |_, output, v| {
        let line: String = v.iter().map(Value::to_string).collect();
        // A closed standard output does not stop the script.
        let _ = writeln!(output, "{line}");
        Ok(Value::Nil)
    }),
    ("assert", |_, _, v| match arguments(v)? {
        [Value::Bool(false)] => Err("this does not hold".to_owned()),
        [_] => Ok(Value::Nil),
    }),
];

fn arguments<'gc, const N: usize>(values: &[Value<'gc>]) -> Result<[Value<'gc>; N], String> {
    let exact = values.try_into();
    exact.map_err(|_| format!("{N} arguments are needed, not {}", values.len()))
}

fn pair<'gc>(values: &[Value<'gc>]) -> Result<Gc<'gc, Pair<'gc>>, String> {
    match arguments(values)? {
        [Value::Pair(pair)] => Ok(pair),
        [other] => Err(format!("{other} is not a pair")),
    }
}

fn text(value: Value<'_>) -> Result<&str, String> {
    match value {
        Value::Text(text) => Ok(&text.as_ref().text),
        other => Err(format!("{other} is not a string")),
    }
}

fn integers<'gc>(
    values: &[Value<'gc>],
    operation: fn(i64, i64) -> Option<Value<'gc>>,
) -> Result<Value<'gc>, String> {
    let (a, b) = match arguments(values)? {
        [Value::Int(a), Value::Int(b)] => (a, b),
        [Value::Int(_), other] | [other, _] => return Err(format!("{other} is not a number")),
    };
    operation(a, b).ok_or_else(|| format!("{a} and {b} have no 64-bit result"))
}
