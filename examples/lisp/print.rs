//! Values as text.

use std::fmt::Write;

use crate::read::CHARACTERS;
use crate::value::Value;

/// The maximum depth of written lists, and the maximum length of a text in bytes. `...` replaces
/// the rest.
const DEEPEST: usize = 100;
const LONGEST: usize = 1 << 20;

/// Returns a value as programs write it.
pub fn written(value: Value<'_>) -> String {
    let mut text = String::new();
    put(&mut text, value, true, 0);
    text
}

/// Returns a value with strings and characters unquoted.
pub fn displayed(value: Value<'_>) -> String {
    let mut text = String::new();
    put(&mut text, value, false, 0);
    text
}

fn put(out: &mut String, value: Value<'_>, quoted: bool, depth: usize) {
    if depth > DEEPEST || out.len() > LONGEST {
        out.push_str("...");
        return;
    }
    // Writing to a string does not fail.
    let _ = match value {
        Value::Undefined => write!(out, "#<undefined>"),
        Value::Nil => write!(out, "()"),
        Value::Bool(true) => write!(out, "#t"),
        Value::Bool(false) => write!(out, "#f"),
        Value::Int(number) => write!(out, "{number}"),
        Value::Float(number) => write!(out, "{number:?}"),
        Value::Char(character) if !quoted => write!(out, "{character}"),
        Value::Char(character) => {
            let named = CHARACTERS.iter().find(|(_, known)| *known == character);
            match named {
                Some((name, _)) => write!(out, "#\\{name}"),
                None => write!(out, "#\\{character}"),
            }
        }
        Value::Symbol(symbol) => write!(out, "{}", symbol.name),
        Value::Text(text) if !quoted => write!(out, "{}", text.as_str()),
        Value::Text(text) => put_quoted(out, text.as_str()),
        Value::Table(table) => write!(out, "#<table of {}>", table.len()),
        Value::Closure(closure) => write!(out, "#<function {}>", closure.code.name),
        Value::Native(native) => write!(out, "#<function {}>", native.name),
        Value::Pair(_) => {
            put_list(out, value, quoted, depth);
            Ok(())
        }
    };
}

fn put_list(out: &mut String, list: Value<'_>, quoted: bool, depth: usize) {
    let mut items = list.items();
    let mut before = '(';
    for item in items.by_ref() {
        out.push(before);
        before = ' ';
        if out.len() > LONGEST {
            out.push_str("...)");
            return;
        }
        put(out, item, quoted, depth + 1);
    }
    if !matches!(items.end(), Value::Nil) {
        out.push_str(" . ");
        put(out, items.end(), quoted, depth + 1);
    }
    out.push(')');
}

fn put_quoted(out: &mut String, text: &str) -> std::fmt::Result {
    out.push('"');
    for character in text.chars() {
        match character {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '"' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            _ => out.push(character),
        }
    }
    out.write_char('"')
}
