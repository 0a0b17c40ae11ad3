//! The interpreter in a process.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::OnceLock;

use plimsoll_process::loader;
use plimsoll_sys::os::files;

use crate::layout::{self, Layout};
use crate::memory::{Memory, Reader};

/// What is known of the interpreter in a process.
#[derive(Debug)]
pub(crate) struct Python {
    pub(crate) layout: Layout,
    /// The address of the runtime's state.
    pub(crate) runtime: usize,
    /// The address of the type of code objects.
    pub(crate) code_type: usize,
    /// The code of the interpreter's loop, where the interpreter keeps no record on the stack.
    pub(crate) loop_code: Option<Range<usize>>,
    /// The code of the interpreter, if the program or library contains nothing else.
    pub(crate) own_code: Range<usize>,
}

/// The interpreter in this process. Set once.
pub(crate) static FOUND: OnceLock<Python> = OnceLock::new();

/// Looks for the interpreter among the loaded objects, unless it is known. Takes the loader's lock: not for
/// hooks. Returns whether a known version exists.
pub(crate) fn find() -> bool {
    FOUND.get().is_some() || look_up().is_some_and(|python| FOUND.set(python).is_ok())
}

fn look_up() -> Option<Python> {
    let codes = codes_of_python();
    if codes.is_empty() {
        return None;
    }
    let symbol = |name: &CStr| Some(loader::function(name) as usize).filter(|&at| at != 0);
    #[cfg(target_env = "gnu")]
    let size = |at: usize| Some(loader::Exported::at(at)?.size);
    // Only 3.9 needs it.
    #[cfg(not(target_env = "gnu"))]
    let size = |_| None;
    Python::read(&mut Reader::new(), codes, symbol, size)
}

impl Python {
    /// Reads what is needed of an interpreter. `codes` are ranges of code of programs and libraries with its name;
    /// `symbol` returns the address of an exported symbol, and `size` the size of the function at an address.
    pub(crate) fn read(
        memory: &mut impl Memory,
        codes: Vec<Range<usize>>,
        symbol: impl Fn(&CStr) -> Option<usize>,
        size: impl Fn(usize) -> Option<usize>,
    ) -> Option<Self> {
        let version = version(memory, &symbol)?;
        let runtime = symbol(c"_PyRuntime")?;
        let layout = match version {
            ..=12 => layout::listed(version)?,
            _ => layout::published(memory, runtime)?,
        };
        let eval = symbol(c"_PyEval_EvalFrameDefault")?;
        let loop_code = match layout.is_on_stack() {
            true => None,
            false => Some(eval..eval.checked_add(size(eval)?)?),
        };
        let own_code = codes.into_iter().find(|code| code.contains(&eval));
        Some(Self {
            layout,
            runtime,
            code_type: symbol(c"PyCode_Type")?,
            loop_code,
            own_code: own_code.unwrap_or_default(),
        })
    }
}

/// Returns whether the file at a path may contain an interpreter, by its name.
pub fn is_python(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    name.starts_with(b"python") || name.starts_with(b"libpython")
}

/// Returns the code of each program and library whose file name begins like Python's. An interpreter
/// within a program of another name is found only if the program loads a library of such a name.
fn codes_of_python() -> Vec<Range<usize>> {
    let mut codes = Vec::new();
    loader::each_object(|object| {
        let own;
        let path = match object.name.to_bytes() {
            b"" => {
                let link = files::read_link("/proc/self/exe").unwrap_or_default();
                own = link.into_os_string().into_encoded_bytes();
                &own[..]
            }
            path => path,
        };
        if is_python(path) {
            let parts = object.segments();
            let code = |part: &loader::Segment| {
                part.kind == loader::LOAD && part.flags & loader::EXECUTABLE != 0
            };
            codes.extend(parts.filter(code).map(|part| {
                let start = object.base.wrapping_add(part.address as usize);
                start..start.saturating_add(part.memory_size as usize)
            }));
        }
        true
    });
    codes
}

/// Returns the minor version: by its number, which exists from 3.11 on, or by functions that first
/// appeared in it.
fn version(reader: &mut impl Memory, symbol: impl Fn(&CStr) -> Option<usize>) -> Option<u32> {
    if let Some(number) = symbol(c"Py_Version") {
        let number = reader.word(number)?;
        return (number >> 24 == 3).then_some((number >> 16) as u32 & 0xff);
    }
    symbol(c"PyIter_Send")
        .map(|_| 10)
        .or_else(|| symbol(c"PyObject_GC_IsTracked").map(|_| 9))
}
