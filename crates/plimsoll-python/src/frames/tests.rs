//! Structures of an interpreter, made up of words, and damaged ones.

use std::cell::RefCell;

use super::*;
use crate::layout::{self, Layout};
use crate::memory::Reader;
use crate::other_process::OwnNames;

const FRAME: usize = 0x80;
const TYPE: usize = 0x7e57;

/// The memory of an interpreter. Never freed, as names may be cached by its addresses.
struct Memory(&'static mut [usize]);

impl Memory {
    fn new() -> Self {
        Self(vec![0; 4096].leak())
    }

    fn address(&self, offset: usize) -> usize {
        self.0.as_ptr() as usize + offset
    }

    fn set(&mut self, offset: usize, word: usize) {
        assert_eq!(offset % 8, 0);
        self.0[offset / 8] = word;
    }

    fn set_byte(&mut self, offset: usize, byte: u8) {
        let word = &mut self.0[offset / 8];
        let mut bytes = word.to_ne_bytes();
        bytes[offset % 8] = byte;
        *word = usize::from_ne_bytes(bytes);
    }

    /// Writes a string, and returns its address.
    fn string(&mut self, at: usize, text: &str, layout: &Layout) -> usize {
        self.set(at + layout.string.length, text.len());
        // Characters of one byte, compact, ASCII.
        self.set_byte(at + layout.string.state, 1 << 2 | 1 << 5 | 1 << 6);
        for (index, byte) in text.bytes().enumerate() {
            self.set_byte(at + layout.string.ascii + index, byte);
        }
        self.address(at)
    }

    /// Writes a function that begins at a line, and returns its address.
    fn function(&mut self, at: usize, name: &str, line: u8, layout: &Layout) -> usize {
        let code = layout.code;
        let name = self.string(at + 0x200, name, layout);
        let file = self.string(at + 0x280, "/srv/made_up.py", layout);
        let table = self.address(at + 0x300);
        self.set(at + layout.object_type, TYPE);
        self.set(at + code.name, name);
        self.set(at + code.file, file);
        self.set(at + code.lines, table);
        self.set_byte(at + code.start_line, line);
        self.address(at)
    }
}

fn python(layout: Layout) -> Python {
    Python {
        layout,
        runtime: 0,
        code_type: TYPE,
        loop_code: None,
        own_code: 0..0,
    }
}

/// Reads the frames, and returns the names of functions and the executions.
fn read_all(python: &Python, thread: usize, limit: usize) -> (Vec<String>, Vec<Execution>) {
    read_both_ends(python, thread, Limit::leaf_end(limit))
}

/// The same with a limit that includes functions at the root end. Functions that are left out have no name.
fn read_both_ends(python: &Python, thread: usize, limit: Limit) -> (Vec<String>, Vec<Execution>) {
    thread_local! {
        // One for all readings: what it has cached must not name another function.
        static NAMES: RefCell<OwnNames> = RefCell::default();
    }
    NAMES.with_borrow_mut(|names| read_into(names, python, thread, limit))
}

fn read_into(
    names: &mut OwnNames,
    python: &Python,
    thread: usize,
    limit: Limit,
) -> (Vec<String>, Vec<Execution>) {
    let mut functions = Functions::default();
    let mut reader = Reader::new();
    let counts = read(
        python,
        &mut reader,
        names,
        thread,
        &mut functions,
        limit,
        &mut || true,
    );
    let named = |&address: &usize| names.describe(address, |frame| frame.name.to_owned());
    let found = functions.frames[..counts.functions].iter().map(named);
    let found = found.map(Option::unwrap_or_default);
    (
        found.collect(),
        functions.executions[..counts.executions].to_vec(),
    )
}

fn positions(executions: &[Execution]) -> Vec<(usize, usize)> {
    let all = executions.iter();
    all.map(|execution| (execution.position, execution.functions))
        .collect()
}

/// Two functions in an inner execution, one in the outer, as 3.12 links them.
fn of_3_12() -> (Python, Memory, usize) {
    let layout = layout::listed(12).unwrap();
    let mut memory = Memory::new();
    let codes = ["inner", "middle", "outer"].into_iter().enumerate();
    let codes = codes.map(|(at, name)| memory.function(0x1000 + 0x400 * at, name, 7, &layout));
    let [inner, middle, outer] = codes.collect::<Vec<_>>()[..] else {
        unreachable!();
    };
    let frame = |number: usize| 0x100 + FRAME * number;
    for (number, code) in [inner, middle, 0, outer, 0].into_iter().enumerate() {
        let previous = match number {
            4 => 0,
            _ => memory.address(frame(number + 1)),
        };
        memory.set(frame(number) + layout.frame.code, code);
        memory.set(frame(number) + layout.frame.previous, previous);
        let owner = if code == 0 { FIRST_WITHOUT_FUNCTION } else { 0 };
        memory.set_byte(frame(number) + layout.frame.owner, owner);
    }
    let Innermost::FrameInRecord { record, .. } = layout.innermost else {
        unreachable!();
    };
    memory.set(0x80, memory.address(frame(0)));
    memory.set(record, memory.address(0x80));
    let thread = memory.address(0);
    (python(layout), memory, thread)
}

#[test]
fn functions_belong_to_the_execution_whose_record_follows() {
    let (python, memory, thread) = of_3_12();
    let (names, executions) = read_all(&python, thread, 100);
    assert_eq!(names, ["inner", "middle", "outer"]);
    let record = |number: usize| memory.address(0x100 + FRAME * number);
    assert_eq!(positions(&executions), [(record(2), 2), (record(4), 3)]);
    let (names, executions) = read_all(&python, thread, 2);
    assert_eq!(names, ["inner", "middle"], "at most two");
    assert_eq!(positions(&executions), [(record(2), 2)]);
}

#[test]
fn a_deep_recursion_keeps_its_outermost_functions() {
    const FRAMES: usize = 150;
    let (python, mut memory, thread) = of_3_12();
    let layout = &python.layout;
    let [inner, middle, outer] = [0x1000, 0x1400, 0x1800].map(|at| memory.address(at));
    let frame = |number: usize| match number {
        0 => 0x100,
        _ => 0x2000 + FRAME * number,
    };
    let records = [3, 100, FRAMES - 1];
    for number in 0..FRAMES {
        let code = match number {
            0 => inner,
            _ if number == FRAMES - 2 => outer,
            _ => middle,
        };
        let previous = match number + 1 {
            FRAMES => 0,
            next => memory.address(frame(next)),
        };
        let is_record = records.contains(&number);
        let owner = if is_record { FIRST_WITHOUT_FUNCTION } else { 0 };
        memory.set(frame(number) + layout.frame.code, code);
        memory.set(frame(number) + layout.frame.previous, previous);
        memory.set_byte(frame(number) + layout.frame.owner, owner);
    }
    let kept = |frames, root| {
        let (names, executions) = read_both_ends(&python, thread, Limit { frames, root });
        let functions = executions.iter().map(|execution| execution.functions);
        (names.join(" "), functions.collect::<Vec<_>>())
    };
    let both = "inner middle middle middle middle  middle outer".to_owned();
    assert_eq!(kept(8, 2), (both, vec![3, 6, 8]));
    let leaf = "inner middle middle middle".to_owned();
    assert_eq!(kept(4, 0), (leaf, vec![3]));
    let (names, functions) = kept(FRAMES - 3, 30);
    assert!(names.ends_with("middle middle outer") && !names.contains("  "));
    assert_eq!(functions, [3, 99, FRAMES - 3]);
    // The chain leads back into itself.
    memory.set(
        frame(120) + layout.frame.previous,
        memory.address(frame(110)),
    );
    let (names, functions) = read_both_ends(&python, thread, Limit { frames: 8, root: 2 });
    assert_eq!(names[1..], ["middle"; 7]);
    assert!(functions.iter().all(|execution| execution.functions <= 8));
}

/// Code that is compiled and freed in turn often gets the same memory, with its texts.
#[test]
fn another_function_in_the_same_memory_is_recognized() {
    let (python, mut memory, thread) = of_3_12();
    let mut seen = |name: &str| {
        memory.function(0x1000, name, 7, &python.layout);
        let (names, _) = read_all(&python, thread, 1);
        assert_eq!(names, [name]);
    };
    // Names that differ in each character, and that begin alike.
    for at in 0..24 {
        for letter in ["a", "b"] {
            seen(&format!(
                "{}{letter}{}",
                &"x".repeat(at),
                &"x".repeat(24 - at)
            ));
        }
        seen(&"y".repeat(at + 1));
    }
}

#[test]
fn records_of_3_11_have_the_functions_up_to_the_outermost() {
    let layout = layout::listed(11).unwrap();
    let Innermost::Record {
        record,
        previous_record,
        innermost,
        is_outermost,
    } = layout.innermost
    else {
        unreachable!();
    };
    let mut memory = Memory::new();
    let code = memory.function(0x1000, "called", 3, &layout);
    for (number, is_last) in [(0, 0), (1, 1), (2, 1)] {
        let at = 0x200 + FRAME * number;
        memory.set(at + layout.frame.code, code);
        let previous = memory.address(at + FRAME);
        memory.set(at + layout.frame.previous, previous);
        memory.set_byte(at + is_outermost, is_last);
    }
    let (inner, outer) = (memory.address(0x100), memory.address(0x140));
    memory.set(record, inner);
    memory.set(0x100 + innermost, memory.address(0x200));
    memory.set(0x100 + previous_record, outer);
    memory.set(0x140 + innermost, memory.address(0x200 + 2 * FRAME));
    let (names, executions) = read_all(&python(layout), memory.address(0), 100);
    assert_eq!(names, ["called"; 3]);
    assert_eq!(positions(&executions), [(inner, 2), (outer, 3)]);
}

#[test]
fn each_frame_of_3_10_has_a_record() {
    let layout = layout::listed(10).unwrap();
    let Innermost::FrameAndRecord {
        frame,
        record,
        previous_record,
    } = layout.innermost
    else {
        unreachable!();
    };
    let mut memory = Memory::new();
    let code = memory.function(0x1000, "called", 3, &layout);
    let (inner, outer) = (memory.address(0x100), memory.address(0x140));
    memory.set(frame, memory.address(0x200));
    memory.set(record, inner);
    memory.set(0x100 + previous_record, outer);
    for at in [0x200, 0x200 + FRAME] {
        memory.set(at + layout.frame.code, code);
    }
    let previous = memory.address(0x200 + FRAME);
    memory.set(0x200 + layout.frame.previous, previous);
    let (names, executions) = read_all(&python(layout), memory.address(0), 100);
    assert_eq!(names, ["called"; 2]);
    assert_eq!(positions(&executions), [(inner, 1), (outer, 2)]);
}

/// A signal may interrupt the interpreter in the middle of a change, and a build may have another layout.
#[test]
fn damaged_chains_end() {
    for minor in 9..13 {
        let layout = layout::listed(minor).unwrap();
        let thread = |memory: &mut Memory, word: usize| {
            // Whatever leads to the innermost frame has this value.
            (0..0x80).step_by(8).for_each(|at| memory.set(at, word));
            memory.address(0)
        };
        for garbage in [8, 1 << 40, usize::MAX - 7, usize::MAX - 100, usize::MAX] {
            let mut memory = Memory::new();
            let thread = thread(&mut memory, garbage);
            let (names, _) = read_all(&python(layout), thread, 100);
            assert!(names.is_empty(), "3.{minor}");
        }
        // Frame, record and function are one structure that names itself everywhere.
        let mut memory = Memory::new();
        let cycle = memory.address(0x800);
        let thread = thread(&mut memory, cycle);
        for at in (0x800..0xa00).step_by(8) {
            memory.set(at, cycle);
        }
        let (names, _) = read_all(&python(layout), thread, 100);
        assert!(names.is_empty(), "3.{minor}");
    }
}
