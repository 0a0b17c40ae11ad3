//! The functions that are implemented in Rust.

use std::cmp::Ordering;
use std::fmt;
use std::io::{self, Write};

use gc_arena::Gc;

use crate::machine::shown;
use crate::print::{displayed, written};
use crate::value::{self, Heap, Key, LONGEST_TEXT, Program, Table, Text, Value};

type Plain = for<'gc> fn(&Heap<'gc>, &mut Host, &[Value<'gc>]) -> Result<Value<'gc>, String>;

pub struct Native {
    pub name: &'static str,
    fewest: usize,
    /// The maximum number of arguments; `None` for any number.
    most: Option<usize>,
    pub run: Run,
}

pub enum Run {
    Plain(Plain),
    /// `apply`, which the machine implements.
    Apply,
}

/// The environment of a script.
pub struct Host {
    pub program: Program,
    pub output: Output,
}

/// The destination of a script's output.
pub enum Output {
    Stdout,
    Nowhere,
    #[cfg(test)]
    Kept(String),
}

impl Host {
    fn write(&mut self, text: fmt::Arguments) {
        match &mut self.output {
            // A closed standard output does not stop the script.
            Output::Stdout => drop(io::stdout().lock().write_fmt(text)),
            Output::Nowhere => {}
            #[cfg(test)]
            Output::Kept(kept) => drop(fmt::Write::write_fmt(kept, text)),
        }
    }
}

impl Native {
    pub fn check(&self, arguments: usize) -> Result<(), String> {
        let (name, fewest) = (self.name, self.fewest);
        match self.most {
            Some(most) if arguments > most || arguments < fewest => {
                let needed = if most == fewest {
                    most.to_string()
                } else {
                    format!("{fewest} to {most}")
                };
                Err(format!("{name} takes {needed} arguments, not {arguments}"))
            }
            None if arguments < fewest => Err(format!(
                "{name} takes at least {fewest} arguments, not {arguments}"
            )),
            _ => Ok(()),
        }
    }
}

const fn native(name: &'static str, fewest: usize, most: usize, run: Plain) -> Native {
    Native {
        name,
        fewest,
        most: Some(most),
        run: Run::Plain(run),
    }
}

const fn variadic(name: &'static str, fewest: usize, run: Plain) -> Native {
    Native {
        name,
        fewest,
        most: None,
        run: Run::Plain(run),
    }
}

const APPLY: Native = Native {
    name: "apply",
    fewest: 2,
    most: None,
    run: Run::Apply,
};

/// All native functions.
pub static NATIVES: &[Native] = &[
    APPLY,
    // Numbers.
    variadic("+", 0, |_, _, values| {
        fold(values, 0, i64::checked_add, |a, b| a + b)
    }),
    variadic("*", 0, |_, _, values| {
        fold(values, 1, i64::checked_mul, |a, b| a * b)
    }),
    variadic("-", 1, |_, _, values| {
        if let [only] = values {
            return arithmetic(Value::Int(0), *only, i64::checked_sub, |a, b| a - b);
        }
        fold(&values[1..], values[0], i64::checked_sub, |a, b| a - b)
    }),
    native("/", 2, 2, |_, _, values| divide(values[0], values[1])),
    native("quotient", 2, 2, |_, _, v| whole(v, i64::checked_div)),
    native("remainder", 2, 2, |_, _, v| whole(v, i64::checked_rem)),
    native("modulo", 2, 2, |_, _, v| {
        whole(v, |a, b| {
            let rest = a.checked_rem(b)?;
            Some(if rest != 0 && (rest < 0) != (b < 0) {
                rest + b
            } else {
                rest
            })
        })
    }),
    variadic("=", 1, |_, _, values| compare(values, Ordering::is_eq)),
    variadic("<", 1, |_, _, values| compare(values, Ordering::is_lt)),
    variadic(">", 1, |_, _, values| compare(values, Ordering::is_gt)),
    variadic("<=", 1, |_, _, values| compare(values, Ordering::is_le)),
    variadic(">=", 1, |_, _, values| compare(values, Ordering::is_ge)),
    native("sqrt", 1, 1, |_, _, v| {
        Ok(Value::Float(float(v[0])?.sqrt()))
    }),
    native("float", 1, 1, |_, _, v| Ok(Value::Float(float(v[0])?))),
    native("truncate", 1, 1, |_, _, v| truncate(v[0])),
    native("number->string", 1, 1, |heap, _, v| {
        float(v[0])?;
        value::text(heap, written(v[0]))
    }),
    native("string->number", 1, 1, |_, _, v| {
        let text = string(v[0])?.as_str();
        let whole = text.parse().map(Value::Int).ok();
        let number = whole.or_else(|| text.parse().map(Value::Float).ok());
        Ok(number.unwrap_or(Value::Bool(false)))
    }),
    // Kinds.
    native("null?", 1, 1, |_, _, v| is(matches!(v[0], Value::Nil))),
    native("pair?", 1, 1, |_, _, v| is(matches!(v[0], Value::Pair(_)))),
    native("number?", 1, 1, |_, _, v| {
        is(matches!(v[0], Value::Int(_) | Value::Float(_)))
    }),
    native("integer?", 1, 1, |_, _, v| {
        is(matches!(v[0], Value::Int(_)))
    }),
    native("string?", 1, 1, |_, _, v| {
        is(matches!(v[0], Value::Text(_)))
    }),
    native("symbol?", 1, 1, |_, _, v| {
        is(matches!(v[0], Value::Symbol(_)))
    }),
    native("char?", 1, 1, |_, _, v| is(matches!(v[0], Value::Char(_)))),
    native("boolean?", 1, 1, |_, _, v| {
        is(matches!(v[0], Value::Bool(_)))
    }),
    native("table?", 1, 1, |_, _, v| {
        is(matches!(v[0], Value::Table(_)))
    }),
    native("function?", 1, 1, |_, _, v| {
        is(matches!(v[0], Value::Closure(_) | Value::Native(_)))
    }),
    native("not", 1, 1, |_, _, v| is(!v[0].is_true())),
    native("eq?", 2, 2, |_, _, v| is(v[0].is(v[1]))),
    native("equal?", 2, 2, |_, _, v| is(equal(v[0], v[1])?)),
    // Lists.
    native("cons", 2, 2, |heap, _, v| Ok(value::cons(heap, v[0], v[1]))),
    native("car", 1, 1, |_, _, v| match v[0] {
        Value::Pair(pair) => Ok(pair.first),
        other => Err(needed("a pair", other)),
    }),
    native("cdr", 1, 1, |_, _, v| match v[0] {
        Value::Pair(pair) => Ok(pair.rest),
        other => Err(needed("a pair", other)),
    }),
    variadic("list", 0, |heap, _, v| Ok(value::list(heap, v))),
    native("length", 1, 1, |_, _, v| {
        Ok(Value::Int(elements(v[0])?.len() as i64))
    }),
    native("reverse", 1, 1, |heap, _, v| {
        let mut reversed = Value::Nil;
        for item in elements(v[0])? {
            reversed = value::cons(heap, item, reversed);
        }
        Ok(reversed)
    }),
    variadic("append", 0, |heap, _, v| {
        let Some((&last, lists)) = v.split_last() else {
            return Ok(Value::Nil);
        };
        let mut all = last;
        for &list in lists.iter().rev() {
            all = value::list_before(heap, &elements(list)?, all);
        }
        Ok(all)
    }),
    native("list-ref", 2, 2, |_, _, v| {
        let at = index(v[1])?;
        v[0].items()
            .nth(at)
            .ok_or_else(|| format!("there is no element {at}"))
    }),
    // Strings and characters.
    native("string-length", 1, 1, |_, _, v| {
        Ok(Value::Int(string(v[0])?.length() as i64))
    }),
    native("string-ref", 2, 2, |_, _, v| {
        let at = index(v[1])?;
        let char = string(v[0])?.char_at(at);
        char.map(Value::Char)
            .ok_or_else(|| format!("there is no character {at}"))
    }),
    native("substring", 3, 3, |heap, _, v| {
        let (from, to) = (index(v[1])?, index(v[2])?);
        let part = string(v[0])?.part(from, to);
        let part = part.ok_or_else(|| format!("there are no characters {from} to {to}"))?;
        value::text(heap, part.to_owned())
    }),
    variadic("string-append", 0, |heap, _, v| {
        let mut all = String::new();
        for &value in v {
            let text = string(value)?.as_str();
            if all.len() + text.len() > LONGEST_TEXT {
                return Err("the string would be too long".to_owned());
            }
            all.push_str(text);
        }
        value::text(heap, all)
    }),
    native("string-join", 2, 2, |heap, _, v| {
        let between = string(v[1])?.as_str();
        let mut all = String::new();
        for (at, value) in elements(v[0])?.into_iter().enumerate() {
            let text = string(value)?.as_str();
            if all.len() + between.len() + text.len() > LONGEST_TEXT {
                return Err("the string would be too long".to_owned());
            }
            if at > 0 {
                all.push_str(between);
            }
            all.push_str(text);
        }
        value::text(heap, all)
    }),
    native("string<?", 2, 2, |_, _, v| {
        is(string(v[0])?.as_str() < string(v[1])?.as_str())
    }),
    native("string-downcase", 1, 1, |heap, _, v| {
        value::text(heap, string(v[0])?.as_str().to_lowercase())
    }),
    native("string->list", 1, 1, |heap, _, v| {
        let text = string(v[0])?.as_str();
        let characters: Vec<Value> = text.chars().map(Value::Char).collect();
        Ok(value::list(heap, &characters))
    }),
    native("list->string", 1, 1, |heap, _, v| {
        let characters = elements(v[0])?.into_iter().map(character);
        value::text(heap, characters.collect::<Result<String, String>>()?)
    }),
    native("symbol->string", 1, 1, |heap, _, v| match v[0] {
        Value::Symbol(symbol) => value::text(heap, symbol.name.to_string()),
        other => Err(needed("a symbol", other)),
    }),
    native("char->integer", 1, 1, |_, _, v| {
        Ok(Value::Int(u32::from(character(v[0])?).into()))
    }),
    native("integer->char", 1, 1, |_, _, v| {
        let code = u32::try_from(index(v[0])?).ok();
        let char = code.and_then(char::from_u32).map(Value::Char);
        char.ok_or_else(|| format!("{} is no character's number", shown(v[0])))
    }),
    native("char-alphabetic?", 1, 1, |_, _, v| {
        is(character(v[0])?.is_alphabetic())
    }),
    native("char-numeric?", 1, 1, |_, _, v| {
        is(character(v[0])?.is_numeric())
    }),
    native("char-whitespace?", 1, 1, |_, _, v| {
        is(character(v[0])?.is_whitespace())
    }),
    // Tables.
    native("make-table", 0, 0, |heap, _, _| Ok(value::table(heap))),
    native("table-ref", 2, 3, |_, _, v| {
        let found = table(v[0])?.get(Key::of(v[1])?);
        let otherwise = v.get(2).copied();
        found
            .or(otherwise)
            .ok_or_else(|| format!("there is no key {}", shown(v[1])))
    }),
    native("table-set!", 3, 3, |heap, _, v| {
        Table::insert(heap, table(v[0])?, Key::of(v[1])?, v[2]);
        Ok(Value::Nil)
    }),
    native("table-delete!", 2, 2, |heap, _, v| {
        Table::remove(heap, table(v[0])?, Key::of(v[1])?);
        Ok(Value::Nil)
    }),
    native("table-count", 1, 1, |_, _, v| {
        Ok(Value::Int(table(v[0])?.len() as i64))
    }),
    native("table-keys", 1, 1, |heap, _, v| {
        Ok(value::list(heap, &table(v[0])?.keys()))
    }),
    // Input and output.
    variadic("display", 0, |_, host, v| {
        v.iter()
            .for_each(|&value| host.write(format_args!("{}", displayed(value))));
        Ok(Value::Nil)
    }),
    variadic("print", 0, |_, host, v| {
        v.iter()
            .for_each(|&value| host.write(format_args!("{}", displayed(value))));
        host.write(format_args!("\n"));
        Ok(Value::Nil)
    }),
    native("write", 1, 1, |_, host, v| {
        host.write(format_args!("{}", written(v[0])));
        Ok(Value::Nil)
    }),
    native("write-string", 1, 1, |heap, _, v| {
        value::text(heap, written(v[0]))
    }),
    variadic("error", 1, |_, _, v| {
        Err(v
            .iter()
            .map(|&value| shown_plain(value))
            .collect::<Vec<_>>()
            .join(" "))
    }),
];

fn needed(what: &str, instead: Value<'_>) -> String {
    format!("{} is not {what}", shown(instead))
}

fn shown_plain(value: Value<'_>) -> String {
    match value {
        Value::Text(text) => text.as_str().to_owned(),
        other => shown(other),
    }
}

fn is<'gc>(condition: bool) -> Result<Value<'gc>, String> {
    Ok(Value::Bool(condition))
}

fn string<'gc>(value: Value<'gc>) -> Result<&'gc Text, String> {
    match value {
        Value::Text(text) => Ok(text.as_ref()),
        other => Err(needed("a string", other)),
    }
}

fn table<'gc>(value: Value<'gc>) -> Result<Gc<'gc, Table<'gc>>, String> {
    match value {
        Value::Table(table) => Ok(table),
        other => Err(needed("a table", other)),
    }
}

fn character(value: Value<'_>) -> Result<char, String> {
    match value {
        Value::Char(character) => Ok(character),
        other => Err(needed("a character", other)),
    }
}

fn float(value: Value<'_>) -> Result<f64, String> {
    match value {
        Value::Int(number) => Ok(number as f64),
        Value::Float(number) => Ok(number),
        other => Err(needed("a number", other)),
    }
}

fn index(value: Value<'_>) -> Result<usize, String> {
    match value {
        Value::Int(number) => {
            usize::try_from(number).map_err(|_| format!("{number} is less than 0"))
        }
        other => Err(needed("an integer", other)),
    }
}

fn elements<'gc>(list: Value<'gc>) -> Result<Vec<Value<'gc>>, String> {
    let mut items = list.items();
    let elements = items.by_ref().collect();
    match items.end() {
        Value::Nil => Ok(elements),
        _ => Err(needed("a list", list)),
    }
}

fn arithmetic<'gc>(
    a: Value<'gc>,
    b: Value<'gc>,
    of_ints: fn(i64, i64) -> Option<i64>,
    of_floats: fn(f64, f64) -> f64,
) -> Result<Value<'gc>, String> {
    if let (Value::Int(a), Value::Int(b)) = (a, b) {
        let result = of_ints(a, b).map(Value::Int);
        return result.ok_or_else(|| format!("of {a} and {b} is too large for an integer"));
    }
    Ok(Value::Float(of_floats(float(a)?, float(b)?)))
}

fn fold<'gc>(
    values: &[Value<'gc>],
    first: impl Into<Value<'gc>>,
    of_ints: fn(i64, i64) -> Option<i64>,
    of_floats: fn(f64, f64) -> f64,
) -> Result<Value<'gc>, String> {
    let mut all = first.into();
    for &value in values {
        all = arithmetic(all, value, of_ints, of_floats)?;
    }
    Ok(all)
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

/// Divides; the result is an integer if both are and there is no remainder.
fn divide<'gc>(a: Value<'gc>, b: Value<'gc>) -> Result<Value<'gc>, String> {
    if let (Value::Int(a), Value::Int(b)) = (a, b) {
        if b == 0 {
            return Err(format!("{a} cannot be divided by 0"));
        }
        // `checked_rem` fails only for the least integer divided by -1, which has no remainder.
        if a.checked_rem(b).is_none_or(|rest| rest == 0) {
            let result = a.checked_div(b).map(Value::Int);
            return result.ok_or_else(|| format!("of {a} and {b} is too large for an integer"));
        }
    }
    Ok(Value::Float(float(a)? / float(b)?))
}

fn whole<'gc>(
    values: &[Value<'gc>],
    of_ints: fn(i64, i64) -> Option<i64>,
) -> Result<Value<'gc>, String> {
    match (values[0], values[1]) {
        (Value::Int(a), Value::Int(0)) => Err(format!("{a} cannot be divided by 0")),
        (Value::Int(a), Value::Int(b)) => {
            let result = of_ints(a, b).map(Value::Int);
            result.ok_or_else(|| format!("of {a} and {b} is too large for an integer"))
        }
        (Value::Int(_), other) | (other, _) => Err(needed("an integer", other)),
    }
}

fn truncate(value: Value<'_>) -> Result<Value<'_>, String> {
    match value {
        Value::Float(number) => {
            let whole = number.trunc();
            // The bounds are powers of two, which floats represent exactly.
            let fits = (-(2f64.powi(63))..2f64.powi(63)).contains(&whole);
            if fits {
                Ok(Value::Int(whole as i64))
            } else {
                Err(format!("{number:?} is too large for an integer"))
            }
        }
        Value::Int(_) => Ok(value),
        other => Err(needed("a number", other)),
    }
}

fn compare<'gc>(values: &[Value<'gc>], holds: fn(Ordering) -> bool) -> Result<Value<'gc>, String> {
    let mut all = true;
    for &value in values {
        float(value)?;
    }
    for pair in values.windows(2) {
        let order = match (pair[0], pair[1]) {
            (Value::Int(a), Value::Int(b)) => Some(a.cmp(&b)),
            (a, b) => float(a)?.partial_cmp(&float(b)?),
        };
        all &= order.is_some_and(holds);
    }
    is(all)
}

/// Compares lists by their elements and other values by [`Value::is_like`].
fn equal<'gc>(a: Value<'gc>, b: Value<'gc>) -> Result<bool, String> {
    /// Lists that share parts can be exponentially longer than they look.
    const MAX_COMPARED: usize = 4_000_000;
    let mut left = vec![(a, b)];
    for _ in 0..MAX_COMPARED {
        match left.pop() {
            None => return Ok(true),
            Some((Value::Pair(a), Value::Pair(b))) => {
                if !Gc::ptr_eq(a, b) {
                    left.push((a.rest, b.rest));
                    left.push((a.first, b.first));
                }
            }
            Some((a, b)) => {
                if !a.is_like(b) {
                    return Ok(false);
                }
            }
        }
    }
    Err("these are too large to be compared".to_owned())
}
