//! The reader, from text to values.

use gc_arena::Mutation;

use crate::value::{self, Value};

/// The maximum depth of nested lists in a text.
const MAX_DEPTH: usize = 200;

/// The unread part of a text, and the line in which it begins.
pub struct Reader<'a> {
    pub rest: &'a str,
    pub line: u32,
}

impl<'a> Reader<'a> {
    /// Returns the next form, or `None` at the end of the text or of the current list.
    pub fn form<'gc>(
        &mut self,
        mc: &Mutation<'gc>,
        depth: usize,
    ) -> Result<Option<Value<'gc>>, String> {
        self.skip_space();
        if depth > MAX_DEPTH {
            return Err(format!("lists are nested deeper than {MAX_DEPTH}"));
        }
        let form = match self.rest.chars().next() {
            None => return Ok(None),
            Some(')') if depth > 0 => return Ok(None),
            Some(')') => return Err("no list is open that this ) closes".to_owned()),
            Some('(') => {
                self.take(1);
                let mut forms = Vec::new();
                while let Some(form) = self.form(mc, depth + 1)? {
                    forms.push(form);
                }
                if self.rest.is_empty() {
                    return Err("a list is not closed".to_owned());
                }
                self.take(1);
                value::list(mc, &forms)
            }
            Some('\'') => {
                self.take(1);
                let quoted = self.form(mc, depth + 1)?;
                let quoted = quoted.ok_or("no form follows this '")?;
                let quote = Value::Symbol(value::text(mc, "quote"));
                value::list(mc, &[quote, quoted])
            }
            Some('"') => {
                self.take(1);
                let length = self.rest.find('"').ok_or("a string is not closed")?;
                let text = Value::Text(value::text(mc, self.take(length)));
                self.take(1);
                text
            }
            Some(_) => {
                let ends = |sign: char| sign.is_whitespace() || "()\"';".contains(sign);
                let word = self.take(self.rest.find(ends).unwrap_or(self.rest.len()));
                match (word, word.parse()) {
                    ("#t", _) => Value::Bool(true),
                    ("#f", _) => Value::Bool(false),
                    (_, Ok(number)) => Value::Int(number),
                    _ => Value::Symbol(value::text(mc, word)),
                }
            }
        };
        Ok(Some(form))
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.line += taken.matches('\n').count() as u32;
        self.rest = rest;
        taken
    }

    pub fn skip_space(&mut self) {
        loop {
            self.take(self.rest.len() - self.rest.trim_start().len());
            if !self.rest.starts_with(';') {
                return;
            }
            self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
        }
    }
}
