//! Names for the return addresses of another process.

use plimsoll_process::deep_stacks::{LEFT_OUT, LEFT_OUT_NAME};
use plimsoll_symbolize::offline::{self, MappedCode};
use plimsoll_symbolize::{Detail, Symbols};

use crate::images::Images;
use crate::process::Process;

/// The names of a set of return addresses.
pub(crate) struct Names<'a> {
    symbols: Symbols,
    images: &'a Images,
}

/// A function on a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The name of the function, or module and offset.
    pub(crate) name: String,
    /// The source file; empty if unknown.
    pub(crate) file: String,
    /// The line; 0 if unknown.
    pub(crate) line: u64,
    /// Whether it was inlined into the next one.
    pub(crate) is_inlined: bool,
    /// Whether it is a function of Python.
    pub(crate) is_interpreted: bool,
}

impl<'a> Names<'a> {
    /// Finds the names of return addresses.
    pub(crate) fn find(process: &'a Process, addresses: &[usize]) -> Self {
        let images = &process.images;
        let code = images.mapped_code();
        let mapped: Vec<MappedCode> = code.iter().map(|(code, _)| code.clone()).collect();
        let mut symbols = offline::symbols(&mapped, addresses, Detail::Full);
        // The paths in the process, instead of those at which the files were read.
        for mapping in &mut symbols.mappings {
            let start = |(code, _): &&(MappedCode, &str)| code.start == mapping.start;
            if let Some((_, name)) = code.iter().find(start) {
                (*name).clone_into(&mut mapping.file);
            }
        }
        if let Some(python) = &*process.python.borrow() {
            python.name(&mut symbols);
        }
        Self { symbols, images }
    }

    /// Returns the symbols with the paths in the process.
    pub(crate) fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// Returns the functions at a return address, from the innermost inlined call to the physical function.
    pub(crate) fn frames(&self, return_address: usize) -> Vec<Frame> {
        let location = self.symbols.location(return_address);
        let named = location.filter(|location| location.is_named);
        let lines = named.map_or(&[][..], |location| self.symbols.lines(location));
        if lines.is_empty() {
            return vec![Frame {
                name: self.placeholder(return_address),
                file: String::new(),
                line: 0,
                is_inlined: false,
                is_interpreted: false,
            }];
        }
        let texts = &self.symbols.texts;
        let is_interpreted = location.is_some_and(|location| location.mapping.is_none());
        let frames = lines.iter().enumerate().map(|(at, &line)| {
            let function = self.symbols.function(line);
            Frame {
                name: texts.get(function.name).to_owned(),
                file: texts.get(function.file).to_owned(),
                line: line.line,
                is_inlined: at + 1 < lines.len(),
                is_interpreted,
            }
        });
        frames.collect()
    }

    /// Returns the name of an address without a function: its module and the offset in the file, or the address.
    fn placeholder(&self, return_address: usize) -> String {
        if return_address == LEFT_OUT {
            return LEFT_OUT_NAME.into();
        }
        let call = return_address.wrapping_sub(1);
        match self.images.place(call) {
            None => format!("{return_address:#x}"),
            Some(("", _)) => format!("[generated code] {return_address:#x}"),
            Some((path, offset)) => {
                let name = path.rsplit('/').next().unwrap_or(path);
                format!("{name}+{offset:#x}")
            }
        }
    }
}
