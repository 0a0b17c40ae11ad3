//! Names of functions that an interpreter executes. Their addresses stand for them, outside of all
//! mapped code; the interpreter's reader has the names.

use plimsoll_sys::hash::HashMap;

use super::texts::Text;
use super::{Function, Line, Symbols};

/// A frame of an interpreted function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterpretedFrame<'a> {
    /// The name in the language, such as `Server.answer`.
    pub name: &'a str,
    /// The path of the source file.
    pub file: &'a str,
    /// The line at which the function begins; 0 if unknown.
    pub start_line: u64,
    /// The line that is executed; 0 if unknown.
    pub line: u64,
}

impl InterpretedFrame<'_> {
    /// Returns the name for people: many functions have names such as `main` or `<module>`.
    fn display_name(&self) -> String {
        let short = self.file.rsplit('/').next().unwrap_or(self.file);
        format!("{} ({short})", self.name)
    }

    /// Returns the name in the form in which Python lists its functions for perf.
    fn system_name(&self) -> String {
        format!("py::{}:{}", self.name, self.file)
    }
}

impl Symbols {
    /// Names the addresses without function outside of files. `find` calls the function that it receives
    /// with the frame for which an address stands, if there is one.
    pub fn add_interpreted(
        &mut self,
        mut find: impl FnMut(usize, &mut dyn FnMut(InterpretedFrame<'_>)),
    ) {
        let mut texts: HashMap<String, Text> = HashMap::default();
        let mut functions: HashMap<(Text, u64), u32> = HashMap::default();
        for at in 0..self.locations.len() {
            let location = &self.locations[at];
            if location.mapping.is_some() || !location.lines.is_empty() {
                continue;
            }
            find(location.return_address, &mut |frame| {
                if texts.is_empty() {
                    texts = self.texts.all();
                }
                let mut text = |string: String| {
                    let known = texts.get(&string).copied();
                    known.unwrap_or_else(|| {
                        let text = self.texts.push(&string);
                        texts.insert(string, text);
                        text
                    })
                };
                let name = text(frame.display_name());
                let system_name = text(frame.system_name());
                let file = text(frame.file.to_owned());
                let key = (system_name, frame.start_line);
                let function = *functions.entry(key).or_insert_with(|| {
                    self.functions.push(Function {
                        name,
                        system_name,
                        file,
                        start_line: frame.start_line,
                    });
                    self.functions.len() as u32 - 1
                });
                let from = self.lines.len() as u32;
                self.lines.push(Line {
                    function,
                    line: frame.line,
                });
                self.locations[at].lines = from..from + 1;
                self.locations[at].is_named = true;
            });
        }
    }
}
