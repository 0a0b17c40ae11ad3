//! Strings and objects in JSON.

use std::fmt::{self, Write};
use std::time::Duration;

/// Writes a JSON string, which is also safe if a client interprets it as HTML.
pub fn put_string(out: &mut String, text: &str) -> fmt::Result {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..'\x20' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                write!(out, "\\u{:04x}", u32::from(character))?;
            }
            other => out.push(other),
        }
    }
    out.push('"');
    Ok(())
}

/// An object under construction. Members that are 0, false or empty are left out, because the reader takes
/// these values for missing ones.
pub struct Object(String);

// Writing to a string does not fail, so the results are ignored.
impl Object {
    /// Begins an object of about this many bytes. A string that grows leaves gaps.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(String::with_capacity(bytes))
    }

    /// Begins a member.
    fn member(&mut self, name: &str) -> &mut String {
        let before = if self.0.is_empty() { "{\"" } else { ",\"" };
        self.0.push_str(before);
        self.0.push_str(name);
        self.0.push_str("\":");
        &mut self.0
    }

    /// Writes a number; nothing for 0.
    pub fn number(&mut self, name: &str, value: u64) {
        if value != 0 {
            let _ = write!(self.member(name), "{value}");
        }
    }

    /// Writes seconds with nine digits after the point.
    pub fn seconds(&mut self, name: &str, value: Duration) {
        if !value.is_zero() {
            let (whole, rest) = (value.as_secs(), value.subsec_nanos());
            let _ = write!(self.member(name), "{whole}.{rest:09}");
        }
    }

    /// Writes `true`; nothing for `false`.
    pub fn flag(&mut self, name: &str, value: bool) {
        if value {
            self.member(name).push_str("true");
        }
    }

    /// Writes a string; nothing for an empty one.
    pub fn text(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            let _ = put_string(self.member(name), value);
        }
    }

    /// Writes an array of strings.
    pub fn texts<'a>(&mut self, name: &str, values: impl IntoIterator<Item = &'a str>) {
        put_array(self.member(name), values, |out, value| {
            let _ = put_string(out, value);
        });
    }

    /// Writes an array of numbers.
    pub fn numbers(&mut self, name: &str, values: &[u64]) {
        put_numbers(self.member(name), values);
    }

    /// Writes an array of arrays of numbers.
    pub fn rows<const N: usize>(&mut self, name: &str, rows: impl IntoIterator<Item = [u64; N]>) {
        put_array(self.member(name), rows, |out, row| put_numbers(out, &row));
    }

    /// Writes an object.
    pub fn object(&mut self, name: &str, value: Self) {
        let value = value.finish();
        self.member(name).push_str(&value);
    }

    /// Returns the text of the object.
    pub fn finish(mut self) -> String {
        self.0.push_str(if self.0.is_empty() { "{}" } else { "}" });
        self.0
    }
}

fn put_numbers(out: &mut String, values: &[u64]) {
    put_array(out, values, |out, value| {
        let _ = write!(out, "{value}");
    });
}

fn put_array<T>(
    out: &mut String,
    values: impl IntoIterator<Item = T>,
    mut put: impl FnMut(&mut String, T),
) {
    out.push('[');
    for (at, value) in values.into_iter().enumerate() {
        if at != 0 {
            out.push(',');
        }
        put(out, value);
    }
    out.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_the_members_that_are_not_the_reader_s_defaults() {
        assert_eq!(Object::with_capacity(0).finish(), "{}");
        let mut to = Object::with_capacity(0);
        to.number("zero", 0);
        to.flag("no", false);
        to.text("empty", "");
        to.seconds("never", Duration::ZERO);
        to.number("most", u64::MAX);
        to.flag("yes", true);
        to.text("text", "a\n\"<\u{0}");
        to.seconds("time", Duration::new(12, 34));
        to.texts("texts", ["", "a"]);
        to.numbers("numbers", &[1, 0]);
        to.rows("rows", [[1, 2], [3, 4]]);
        to.rows::<1>("none", []);
        let mut inner = Object::with_capacity(0);
        inner.number("one", 1);
        to.object("object", inner);
        assert_eq!(
            to.finish(),
            concat!(
                r#"{"most":18446744073709551615,"yes":true,"text":"a\n\"\u003c\u0000","#,
                r#""time":12.000000034,"texts":["","a"],"numbers":[1,0],"rows":[[1,2],[3,4]],"#,
                r#""none":[],"object":{"one":1}}"#
            )
        );
    }
}
