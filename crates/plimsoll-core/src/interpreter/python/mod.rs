//! CPython 3.9 to 3.14, by the layout of its structures.
//!
//! From 3.13 on, CPython publishes the offsets of its fields in `_PyRuntime` for readers such as this
//! one. For older versions, which do not change any more, they are listed here. Builds without the
//! global lock, debug builds before 3.13 and 32-bit systems have other layouts and are not read.
//!
//! The calling thread changes its frames only outside of hooks, so they are consistent here, with or
//! without the lock. A signal may interrupt it in the middle of a change: each address is checked
//! before it is read, each function by its type, and a chain that does not end is cut.
//!
//! A blocked thread changes nothing, so its frames are consistent, and keep their functions and names
//! in memory. Another thread reads them by copies of the memory, and then checks that the thread did
//! not move. Only then are new names kept.

mod frames;
mod layout;
mod lines;
mod states;
mod thread;

use std::ffi::CStr;
use std::ops::Range;
use std::sync::OnceLock;

use plimsoll_sys::deep_stacks::Limit;
use plimsoll_sys::os::files;
use plimsoll_sys::os::loader;

use super::memory::{Memory, Reader};
use super::merge::Buffers;
use frames::Counts;
use layout::Layout;

pub use states::OtherThreads;

/// What is known of the interpreter in this process.
#[derive(Debug)]
struct Python {
    layout: Layout,
    /// The address of the runtime's state.
    runtime: usize,
    /// The address of the type of code objects.
    code_type: usize,
    /// The code of the interpreter's loop, where the interpreter keeps no record on the stack.
    loop_code: Option<Range<usize>>,
    /// The code of the interpreter, if the program or library contains nothing else.
    own_code: Range<usize>,
}

static FOUND: OnceLock<Python> = OnceLock::new();

/// The functions of a stack.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) functions: usize,
    pub(super) executions: usize,
    /// Whether the functions include the outermost one.
    pub(super) is_complete: bool,
    /// The loop's code, if executions have no position.
    pub(super) loop_code: Option<Range<usize>>,
    /// Code that is left out between functions.
    pub(super) hidden_code: Range<usize>,
}

/// Looks for the interpreter among the loaded objects. Takes the loader's lock: not for hooks. Returns
/// whether a known version exists.
pub(super) fn find() -> bool {
    FOUND.get().is_some() || look_up().is_some_and(|python| FOUND.set(python).is_ok())
}

fn look_up() -> Option<Python> {
    let codes = codes_of_python();
    if codes.is_empty() {
        return None;
    }
    let symbol = |name: &CStr| Some(loader::function(name) as usize).filter(|&at| at != 0);
    let mut reader = Reader::new();
    let version = version(&mut reader, symbol)?;
    let runtime = symbol(c"_PyRuntime")?;
    let layout = match version {
        ..=12 => layout::listed(version)?,
        _ => layout::published(&mut reader, runtime)?,
    };
    let eval = symbol(c"_PyEval_EvalFrameDefault")?;
    let loop_code = match layout.is_on_stack() {
        true => None,
        false => {
            let function = loader::Exported::at(eval)?;
            Some(eval..eval.checked_add(function.size)?)
        }
    };
    let own_code = codes.into_iter().find(|code| code.contains(&eval));
    Some(Python {
        layout,
        runtime,
        code_type: symbol(c"PyCode_Type")?,
        loop_code,
        own_code: own_code.unwrap_or_default(),
    })
}

/// Returns the code of each program and library whose file name begins like Python's. An interpreter
/// within a program of another name is found only if the program loads a library of such a name.
fn codes_of_python() -> Vec<Range<usize>> {
    let is_python = |name: &[u8]| name.starts_with(b"python") || name.starts_with(b"libpython");
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
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        if is_python(name) {
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
fn version(reader: &mut Reader, symbol: impl Fn(&CStr) -> Option<usize>) -> Option<u32> {
    if let Some(number) = symbol(c"Py_Version") {
        let number = reader.word(number)?;
        return (number >> 24 == 3).then_some((number >> 16) as u32 & 0xff);
    }
    symbol(c"PyIter_Send")
        .map(|_| 10)
        .or_else(|| symbol(c"PyObject_GC_IsTracked").map(|_| 9))
}

/// Reads the functions of the calling thread within `limit`, innermost first; `None` if it executes none.
/// For hooks.
pub(super) fn read(buffers: &mut Buffers, limit: Limit) -> Option<Found> {
    let python = FOUND.get()?;
    let mut reader = Reader::new();
    let thread = thread::state(&python.layout, &mut reader)?;
    let counts = frames::read(python, &mut reader, thread, buffers, limit, &mut || true);
    python.found(counts)
}

/// Reads the functions of a blocked thread, as [`read`] does. `is_unmoved` reports whether the thread
/// has been blocked since its native stack was read.
pub(super) fn read_blocked(
    threads: &mut OtherThreads,
    thread: i32,
    buffers: &mut Buffers,
    limit: Limit,
    is_unmoved: &mut dyn FnMut() -> bool,
) -> Option<Found> {
    let python = FOUND.get()?;
    let state = threads.state(python, thread)?;
    let memory = &mut threads.memory;
    let counts = frames::read(python, memory, state, buffers, limit, is_unmoved);
    python.found(counts)
}

impl Python {
    fn found(&self, counts: Counts) -> Option<Found> {
        (counts.functions > 0).then(|| Found {
            functions: counts.functions,
            executions: counts.executions,
            is_complete: counts.is_complete,
            loop_code: self.loop_code.clone(),
            hidden_code: self.own_code.clone(),
        })
    }
}
