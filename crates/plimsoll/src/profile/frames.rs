//! Names for the addresses of stacks.

use std::path::PathBuf;

use crate::symbol::{self, Detail};
use crate::{keeper, own, own_time};

/// A function in a call stack: what Go has as `runtime.Frame`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// The return address in the stack that the frame is of. Frames of inlined calls have that of
    /// the function that they are inlined into.
    pub address: usize,
    /// The path of the function, demangled and without hash; `None` if it is not known.
    pub function: Option<String>,
    /// The source file, absolute or as the compiler had it; `None` if it is not known.
    pub file: Option<PathBuf>,
    /// The line of the call, from 1; `None` if it is not known.
    pub line: Option<u32>,
    /// Whether the compiler inlined the function into that of the next frame.
    pub is_inlined: bool,
}

/// Finds the functions, files and lines of a stack of return addresses, such as
/// [`Record::stack`](super::Record::stack), [`TaskRecord::stacks`](crate::task::TaskRecord::stacks)
/// or [`ThreadRecord::stack`](crate::thread::ThreadRecord::stack): what Go has as
/// `runtime.CallersFrames`.
///
/// Returns the frames in the order of `stack`, leaf first, with inlined calls before the function
/// that they are inlined into. An address that nothing is known of has one frame with the address
/// alone, and so has each address with [`Detail::Addresses`].
///
/// Reads the debug information of the program and its libraries, which takes some tenths of a
/// second for a large program: of many stacks, pass the addresses at once. It is not for signal
/// handlers. The memory that the search takes is Plimsoll's own, the result is the program's.
///
/// ```
/// use plimsoll::profile::{Detail, frames};
/// use plimsoll::task::tasks;
///
/// for task in tasks() {
///     for stack in task.stacks() {
///         for frame in frames(stack, Detail::Full) {
///             let function = frame.function.as_deref().unwrap_or("?");
///             println!("{function} {:?}:{:?}", frame.file, frame.line);
///         }
///     }
/// }
/// ```
pub fn frames(stack: &[usize], detail: Detail) -> Vec<Frame> {
    let _time = own_time::measure();
    let symbols = {
        let _own = own::scope();
        keeper::look();
        symbol::resolve(stack, detail)
    };
    let mut frames = Vec::with_capacity(stack.len());
    for &address in stack {
        let location = symbols.location(address);
        let lines = location.map_or(&[][..], |location| symbols.lines(location));
        if lines.is_empty() {
            frames.push(Frame {
                address,
                function: None,
                file: None,
                line: None,
                is_inlined: false,
            });
        }
        frames.extend(lines.iter().enumerate().map(|(at, &line)| {
            let function = symbols.function(line);
            let text = |text| Some(symbols.texts.get(text)).filter(|text| !text.is_empty());
            Frame {
                address,
                function: text(function.name).map(str::to_owned),
                file: text(function.file).map(PathBuf::from),
                line: u32::try_from(line.line).ok().filter(|&line| line != 0),
                is_inlined: at + 1 < lines.len(),
            }
        }));
    }
    let _own = own::scope();
    drop(symbols);
    own::trim();
    frames
}
