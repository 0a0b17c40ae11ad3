//! Python's functions on the stacks of another process.

use std::collections::HashMap;
use std::ffi::CStr;
use std::path::Path;

use object::read::ReadCache;
use object::{Object as _, ObjectSymbol as _};
use plimsoll_command::files;
use plimsoll_interpreter::{Buffers, Found, MAX_FRAMES, Native, merge_if_on_stack};
use plimsoll_process::deep_stacks::Limit;
use plimsoll_python::{Copies, OtherProcess, is_python};
use plimsoll_symbolize::{InterpretedFrame, Symbols};
use plimsoll_unwind::walk::{End, Walk};

use crate::images::Images;
use crate::memory::ProcessMemory;

/// A Python interpreter in another process, and memory for one stack.
pub(crate) struct Python {
    interpreter: OtherProcess<ProcessMemory>,
    buffers: Buffers,
    native: Box<[usize]>,
    /// The contents of the buffers, for the thread that was read last.
    found: Option<Found>,
}

impl Copies for ProcessMemory {
    fn copy(&self, address: usize, to: &mut [usize]) -> usize {
        self.copy_words(address, to)
    }
}

impl Python {
    /// Looks for an interpreter of a known version.
    pub(crate) fn find(pid: i32, images: &Images) -> Option<Self> {
        let candidates = images.named(|name| is_python(name.as_bytes()));
        let interpreter = candidates.into_iter().find_map(|(path, base, codes)| {
            let symbols = symbols(path)?;
            let symbol = |name: &CStr| {
                let (address, _) = *symbols.get(name.to_bytes())?;
                Some(base.wrapping_add(address))
            };
            let size = |at: usize| {
                let mut all = symbols.values();
                let (_, size) = *all.find(|(address, _)| base.wrapping_add(*address) == at)?;
                Some(size)
            };
            OtherProcess::find(ProcessMemory::open(pid).ok()?, codes, symbol, size)
        })?;
        Some(Self {
            interpreter,
            buffers: Buffers::default(),
            native: vec![0; MAX_FRAMES].into_boxed_slice(),
            found: None,
        })
    }

    /// Makes the next reading of a thread short, during which it may be stopped.
    pub(crate) fn prepare(&mut self, tid: i32) {
        self.interpreter.prepare(tid);
    }

    /// Reads the functions of a thread that does not run. Returns whether it executes any. `is_unmoved` reports whether the
    /// thread has not run meanwhile.
    pub(crate) fn read(
        &mut self,
        tid: i32,
        limit: Limit,
        is_unmoved: &mut dyn FnMut() -> bool,
    ) -> bool {
        let functions = self.buffers.functions();
        self.found = self.interpreter.read(tid, functions, limit, is_unmoved);
        self.found.is_some()
    }

    /// Returns the stack of the thread that was read last, with its functions; `None` if they do not belong to it. `walk`
    /// walks the native stack: it passes the lowest address of each frame's part of the stack on, with its depth.
    pub(crate) fn merge(
        &mut self,
        limit: Limit,
        walk: impl FnOnce(&mut [usize], &mut dyn FnMut(usize, usize)) -> Walk,
    ) -> Option<(&[usize], End)> {
        let found = self.found.take()?;
        let positions = self.buffers.positions();
        let walk = walk(&mut self.native, &mut |at, position| {
            positions[at] = position
        });
        let native = Native {
            frames: &self.native[..walk.frames],
            end: walk.end,
        };
        merge_if_on_stack(native, &mut self.buffers, limit, &found)
    }

    /// Names the functions among symbols.
    pub(crate) fn name(&self, symbols: &mut Symbols) {
        symbols.add_interpreted(|address, found| {
            self.interpreter.describe(address, |frame| {
                found(InterpretedFrame {
                    name: frame.name,
                    file: frame.file,
                    start_line: frame.start_line.into(),
                    line: frame.line.into(),
                });
            });
        });
    }
}

/// Returns addresses and sizes of the interpreter's symbols in a file, by name.
fn symbols(path: &str) -> Option<HashMap<Vec<u8>, (usize, usize)>> {
    let file = ReadCache::new(files::open_regular(Path::new(path)).ok()?);
    let file = object::File::parse(&file).ok()?;
    let mut found = HashMap::new();
    for symbol in file.dynamic_symbols().chain(file.symbols()) {
        let name = symbol.name_bytes().unwrap_or_default();
        let is_own = name.starts_with(b"Py") || name.starts_with(b"_Py");
        if is_own && symbol.is_definition() {
            let place = (symbol.address() as usize, symbol.size() as usize);
            found.entry(name.to_owned()).or_insert(place);
        }
    }
    Some(found)
}
