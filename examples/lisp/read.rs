//! The reader, from text to forms with their first lines.

use crate::fault::Fault;

/// The maximum depth of nested forms.
pub const DEEPEST: usize = 200;

/// A form: a piece of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    pub line: u32,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Bool(bool),
    Int(i64),
    Float(f64),
    Char(char),
    Text(String),
    Symbol(String),
    List(Vec<Form>),
}

/// The names of characters that cannot be written as themselves.
pub const CHARACTERS: [(&str, char); 5] = [
    ("space", ' '),
    ("newline", '\n'),
    ("tab", '\t'),
    ("return", '\r'),
    ("nul", '\0'),
];

/// Returns all forms of a text.
pub fn read(source: &str) -> Result<Vec<Form>, Fault> {
    let mut reader = Reader {
        rest: source,
        line: 1,
    };
    let mut forms = Vec::new();
    while let Some(form) = reader.form(0)? {
        forms.push(form);
    }
    if reader.rest.is_empty() {
        Ok(forms)
    } else {
        Err(reader.fault("there is no list that this ) closes"))
    }
}

struct Reader<'a> {
    rest: &'a str,
    line: u32,
}

impl<'a> Reader<'a> {
    fn fault(&self, message: impl Into<String>) -> Fault {
        Fault::new(self.line, message)
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        let lines = taken.bytes().filter(|&byte| byte == b'\n').count();
        self.line = self.line.saturating_add(lines as u32);
        self.rest = rest;
        taken
    }

    fn skip_space(&mut self) {
        loop {
            let space = self.rest.len() - self.rest.trim_start().len();
            self.take(space);
            if !self.rest.starts_with(';') {
                return;
            }
            let comment = self.rest.find('\n').unwrap_or(self.rest.len());
            self.take(comment);
        }
    }

    /// Returns the next form, or `None` at the end of the text or of the current list.
    fn form(&mut self, depth: usize) -> Result<Option<Form>, Fault> {
        self.skip_space();
        let line = self.line;
        let Some(first) = self.rest.chars().next() else {
            return Ok(None);
        };
        if depth > DEEPEST {
            return Err(self.fault(format!("forms are nested deeper than {DEEPEST}")));
        }
        let kind = match first {
            ')' => return Ok(None),
            '(' => {
                self.take(1);
                let mut forms = Vec::new();
                while let Some(form) = self.form(depth + 1)? {
                    forms.push(form);
                }
                if self.rest.is_empty() {
                    return Err(Fault::new(line, "this list is not closed"));
                }
                self.take(1);
                Kind::List(forms)
            }
            '\'' => {
                self.take(1);
                let quoted = self.form(depth + 1)?;
                let quoted = quoted.ok_or_else(|| Fault::new(line, "nothing is quoted"))?;
                let quote = Form {
                    line,
                    kind: Kind::Symbol("quote".to_owned()),
                };
                Kind::List(vec![quote, quoted])
            }
            '"' => Kind::Text(self.text()?),
            _ => self.atom()?,
        };
        Ok(Some(Form { line, kind }))
    }

    fn text(&mut self) -> Result<String, Fault> {
        let line = self.line;
        self.take(1);
        let mut text = String::new();
        loop {
            let Some(plain) = self.rest.find(['"', '\\']) else {
                return Err(Fault::new(line, "this string is not closed"));
            };
            text.push_str(self.take(plain));
            if self.take(1) == "\"" {
                return Ok(text);
            }
            let Some(escaped) = self.rest.chars().next() else {
                return Err(Fault::new(line, "this string is not closed"));
            };
            text.push(match escaped {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                '"' | '\\' => escaped,
                _ => return Err(self.fault(format!("\\{escaped} is not known in strings"))),
            });
            self.take(escaped.len_utf8());
        }
    }

    fn atom(&mut self) -> Result<Kind, Fault> {
        if let Some(character) = self.rest.strip_prefix("#\\") {
            // The first character may be a delimiter.
            let first = character.chars().next();
            let first = first.ok_or_else(|| self.fault("#\\ at the end of the text"))?;
            let name = &character[first.len_utf8()..];
            let length = first.len_utf8() + delimiter(name);
            let name = &self.take(2 + length)[2..];
            if name.len() == first.len_utf8() {
                return Ok(Kind::Char(first));
            }
            let named = CHARACTERS.iter().find(|(known, _)| *known == name);
            return match named {
                Some(&(_, character)) => Ok(Kind::Char(character)),
                None => Err(self.fault(format!("there is no character #\\{name}"))),
            };
        }
        let word = self.take(delimiter(self.rest));
        Ok(match word {
            "#t" => Kind::Bool(true),
            "#f" => Kind::Bool(false),
            "." => return Err(self.fault("dotted pairs cannot be written")),
            _ if word.starts_with('#') => return Err(self.fault(format!("{word} is not known"))),
            _ => number(word).map_err(|message| self.fault(message))?,
        })
    }
}

/// Returns the end of a word.
fn delimiter(text: &str) -> usize {
    let ends = |sign: char| sign.is_whitespace() || "()\"';".contains(sign);
    text.find(ends).unwrap_or(text.len())
}

fn number(word: &str) -> Result<Kind, String> {
    let unsigned = word.strip_prefix(['-', '+']).unwrap_or(word);
    let digits = unsigned.strip_prefix('.').unwrap_or(unsigned);
    if !digits.starts_with(|sign: char| sign.is_ascii_digit()) {
        return Ok(Kind::Symbol(word.to_owned()));
    }
    if unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        let number = word.parse().map(Kind::Int);
        return number.map_err(|_| format!("{word} is too large"));
    }
    let number = word.parse().map(Kind::Float);
    number.map_err(|_| format!("{word} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<Kind> {
        let forms = read(source).expect(source);
        forms.into_iter().map(|form| form.kind).collect()
    }

    #[test]
    fn atoms_are_read_by_their_form() {
        let symbol = |name: &str| Kind::Symbol(name.to_owned());
        assert_eq!(
            kinds("1 -2 +3 1.5 -.5 1e3 - + -x ; nothing\n a.b #t #f #\\a #\\( #\\space #\\é"),
            [
                Kind::Int(1),
                Kind::Int(-2),
                Kind::Int(3),
                Kind::Float(1.5),
                Kind::Float(-0.5),
                Kind::Float(1000.0),
                symbol("-"),
                symbol("+"),
                symbol("-x"),
                symbol("a.b"),
                Kind::Bool(true),
                Kind::Bool(false),
                Kind::Char('a'),
                Kind::Char('('),
                Kind::Char(' '),
                Kind::Char('é'),
            ]
        );
    }

    #[test]
    fn strings_have_escapes_and_lines() {
        assert_eq!(kinds(r#""a\n\"\\é""#), [Kind::Text("a\n\"\\é".to_owned())]);
        let forms = read("\"a\nb\"\n(c\n d)").unwrap();
        assert_eq!((forms[0].line, forms[1].line), (1, 3));
        let Kind::List(list) = &forms[1].kind else {
            panic!("{forms:?}")
        };
        assert_eq!(list[1].line, 4);
    }

    #[test]
    fn every_mistake_has_its_line() {
        for (source, line, message) in [
            ("\n(a (b)", 2, "this list is not closed"),
            ("a\n)", 2, "there is no list that this ) closes"),
            ("\n\n\"abc", 3, "this string is not closed"),
            ("\"abc\\", 1, "this string is not closed"),
            ("\"\\q\"", 1, "\\q is not known in strings"),
            ("'", 1, "nothing is quoted"),
            ("(')", 1, "nothing is quoted"),
            ("#\\", 1, "#\\ at the end of the text"),
            ("#\\nothing", 1, "there is no character #\\nothing"),
            ("#wrong", 1, "#wrong is not known"),
            ("12x", 1, "12x is not a number"),
            (
                "99999999999999999999",
                1,
                "99999999999999999999 is too large",
            ),
            ("(a . b)", 1, "dotted pairs cannot be written"),
        ] {
            let fault = read(source).expect_err(source);
            assert_eq!((fault.line, fault.message.as_str()), (line, message));
        }
    }

    #[test]
    fn nesting_has_an_end() {
        for opening in ["(", "'"] {
            let fault = read(&opening.repeat(1_000_000)).expect_err("too deep");
            assert_eq!(fault.message, "forms are nested deeper than 200");
        }
        let deep = "(".repeat(200) + &")".repeat(200);
        assert!(read(&deep).is_ok());
    }
}
