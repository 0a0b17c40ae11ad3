//! Names of the functions at the addresses of stacks.

use std::path::PathBuf;

use plimsoll_symbolize::Detail;

use crate::symbol;
use plimsoll_core::stack;
use plimsoll_core::{internal_heap, internal_scope, overhead};

/// A function in a call stack, like Go's `runtime.Frame`.
///
/// ```
/// # #[global_allocator]
/// # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// use plimsoll::measure::measure_with_sites;
/// use plimsoll::profile::{Detail, frames};
///
/// let measured = measure_with_sites(|| vec![1, 2, 3]);
/// for frame in measured.sites().iter().flat_map(|site| frames(site.stack, Detail::Full)) {
///     let function = frame.function.as_deref().unwrap_or("?");
///     println!("{:#x} {function} {:?}:{:?}", frame.address, frame.file, frame.line);
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// The return address of the frame. The frame of an inlined call has the address of the
    /// function that contains it.
    pub address: usize,
    /// The path of the function, demangled and without hash; `None` if unknown.
    pub function: Option<String>,
    /// The source file, absolute or as the compiler recorded it; `None` if unknown.
    pub file: Option<PathBuf>,
    /// The line of the call, from 1; `None` if unknown.
    pub line: Option<u32>,
    /// Whether the compiler inlined the function into the function of the next frame.
    pub is_inlined: bool,
}

/// Resolves a stack of return addresses to functions, files and lines, like Go's
/// `runtime.CallersFrames`. Accepts [`Record::stack`](super::Record::stack),
/// [`TaskRecord::stacks`](plimsoll_tasks::task::TaskRecord::stacks) and
/// [`ThreadRecord::stack`](plimsoll_threads::thread::ThreadRecord::stack).
///
/// Returns the frames in the order of `stack`, leaf first. Inlined calls precede the function into
/// which they are inlined. An unknown address has one frame with the address alone; with
/// [`Detail::Addresses`], so does every address.
///
/// Reads the debug information of the program and its libraries, which takes some tenths of a
/// second for a large program. To resolve many stacks, pass all addresses in one call. Signal
/// handlers must not call it. The memory of the lookup is Plimsoll's own; the memory of the result
/// is the program's.
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
    let _time = overhead::measure();
    let symbols = {
        let _own = internal_scope::scope();
        stack::refresh_modules();
        symbol::resolve(stack, detail)
    };
    let mut frames = Vec::with_capacity(stack.len());
    for &address in stack {
        let location = symbols.location(address);
        let location = location.filter(|location| location.is_named);
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
    let _own = internal_scope::scope();
    drop(symbols);
    internal_heap::trim();
    frames
}
