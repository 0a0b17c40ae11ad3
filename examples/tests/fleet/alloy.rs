//! Reads the language of Grafana Alloy, as far as the file in `contrib` uses it: components and blocks
//! with labels, and attributes whose values are texts, booleans, references, lists and maps.

use serde_json::{Map, Value, json};

/// A component or a block inside one.
#[derive(Debug)]
pub struct Block {
    pub name: String,
    pub label: Option<String>,
    /// References are maps with the key `reference`.
    pub attributes: Map<String, Value>,
    pub blocks: Vec<Block>,
}

impl Block {
    /// Returns the blocks of this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.blocks.iter().filter(move |block| block.name == name)
    }

    /// Returns the block of this name and label. Panics if it does not exist.
    pub fn component(&self, name: &str, label: &str) -> &Self {
        let is_it = |block: &&Self| block.name == name && block.label.as_deref() == Some(label);
        let component = self.blocks.iter().find(is_it);
        component.unwrap_or_else(|| panic!("no component {name} {label:?}"))
    }
}

/// Returns the file as a block without a name.
pub fn parse(text: &str) -> Block {
    let mut parser = Parser {
        tokens: tokens(text),
        at: 0,
    };
    let file = parser.body(String::new(), None);
    assert_eq!(parser.next(), Token::End, "a brace too many");
    file
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Symbol(char),
    End,
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = |of: char| of.is_ascii_alphanumeric() || of == '_' || of == '.';
        let length = match first {
            _ if rest.starts_with("//") => rest.find('\n').expect("the file ends with a line end"),
            '"' => {
                // The file has no escaped quotes.
                let length = rest[1..].find('"').expect("a text ends") + 2;
                tokens.push(Token::Text(rest[1..length - 1].replace("\\\\", "\\")));
                length
            }
            first if is_word(first) => {
                let length = rest.find(|of| !is_word(of)).unwrap_or(rest.len());
                tokens.push(Token::Word(rest[..length].to_owned()));
                length
            }
            '{' | '}' | '[' | ']' | '=' | ',' => {
                tokens.push(Token::Symbol(first));
                1
            }
            first => {
                assert!(first.is_ascii_whitespace(), "{first:?}");
                1
            }
        };
        rest = &rest[length..];
    }
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Token {
        self.tokens.get(self.at).cloned().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn expect(&mut self, symbol: char) {
        assert_eq!(self.next(), Token::Symbol(symbol), "token {}", self.at);
    }

    /// Reads attributes and blocks up to a closing brace or the end.
    fn body(&mut self, name: String, label: Option<String>) -> Block {
        let mut block = Block {
            name,
            label,
            attributes: Map::new(),
            blocks: Vec::new(),
        };
        while let Token::Word(name) = self.peek() {
            self.next();
            if self.peek() == Token::Symbol('=') {
                self.next();
                let value = self.value();
                let before = block.attributes.insert(name.clone(), value);
                assert_eq!(before, None, "{name} twice");
                continue;
            }
            let label = match self.peek() {
                Token::Text(label) => {
                    self.next();
                    Some(label)
                }
                _ => None,
            };
            self.expect('{');
            let inner = self.body(name, label);
            self.expect('}');
            block.blocks.push(inner);
        }
        block
    }

    fn value(&mut self) -> Value {
        match self.next() {
            Token::Text(text) => text.into(),
            Token::Word(word) if word == "true" || word == "false" => (word == "true").into(),
            Token::Word(word) => json!({ "reference": word }),
            Token::Symbol('[') => {
                let mut items = Vec::new();
                while self.peek() != Token::Symbol(']') {
                    items.push(self.value());
                    if self.peek() != Token::Symbol(']') {
                        self.expect(',');
                    }
                }
                self.next();
                items.into()
            }
            Token::Symbol('{') => {
                let mut entries = Map::new();
                while self.peek() != Token::Symbol('}') {
                    let Token::Text(key) = self.next() else {
                        panic!("a key is a text: token {}", self.at);
                    };
                    self.expect('=');
                    entries.insert(key, self.value());
                    if self.peek() != Token::Symbol('}') {
                        self.expect(',');
                    }
                }
                self.next();
                entries.into()
            }
            other => panic!("no value: {other:?}, token {}", self.at),
        }
    }
}
