//! The offsets of fields in the interpreter's structures, in bytes.

use crate::lines::Table;
use crate::memory::Memory;

/// The layout of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// In the state of a thread: the C library's identifier of the thread.
    pub(crate) thread_identifier: usize,
    pub(crate) states: States,
    pub(crate) innermost: Innermost,
    pub(crate) frame: Frame,
    pub(crate) code: Code,
    pub(crate) string: Text,
    /// In any object: its type.
    pub(crate) object_type: usize,
    /// In a string of bytes: its length and its first byte.
    pub(crate) bytes_length: usize,
    pub(crate) bytes: usize,
    pub(crate) lines: Table,
}

/// The lists of interpreters and of their threads' states, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct States {
    /// In the runtime's state: the first interpreter.
    pub(crate) interpreter: usize,
    /// In an interpreter: the next one.
    pub(crate) next_interpreter: usize,
    /// In an interpreter: the state of its first thread.
    pub(crate) thread: usize,
    /// In the state of a thread: the next one's.
    pub(crate) next_thread: usize,
}

/// The way to the innermost frame from the state of a thread, and to the records of executions of the
/// loop, which are on the native stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Innermost {
    /// 3.9: the frame. One execution for each frame, without records.
    Frame { frame: usize },
    /// 3.10: the frame, and the record. One execution for each frame.
    FrameAndRecord {
        frame: usize,
        record: usize,
        previous_record: usize,
    },
    /// 3.11: the record, which contains the innermost frame of its execution. In a frame: whether it is
    /// the outermost of its execution.
    Record {
        record: usize,
        previous_record: usize,
        innermost: usize,
        is_outermost: usize,
    },
    /// 3.12: the record, which contains the innermost frame of all. A frame without a function is the
    /// record of an execution.
    FrameInRecord { record: usize, innermost: usize },
    /// From 3.13 on: the innermost frame. A frame without a function is the record of an execution.
    FrameWithOwner { frame: usize },
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) previous: usize,
    pub(crate) code: usize,
    pub(crate) instruction: Instruction,
    /// The owner's kind, where frames without function exist.
    pub(crate) owner: usize,
}

/// The field with the current instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// A signed number of 4 bytes, and the size of its unit in bytes.
    Number { at: usize, unit: i64 },
    /// A pointer into the code.
    Pointer { at: usize },
}

/// A code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) file: usize,
    /// The name, qualified by classes and functions if the version has that.
    pub(crate) name: usize,
    pub(crate) start_line: usize,
    pub(crate) lines: usize,
    /// The first instruction, if frames contain pointers.
    pub(crate) instructions: usize,
}

/// A string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    /// The number of characters.
    pub(crate) length: usize,
    /// Bits: the size of a character and the storage.
    pub(crate) state: usize,
    /// The first character of an ASCII string, and of any other.
    pub(crate) ascii: usize,
    pub(crate) other: usize,
}

impl Layout {
    /// Returns whether executions of the loop have records on the native stack.
    pub(crate) fn is_on_stack(&self) -> bool {
        !matches!(self.innermost, Innermost::Frame { .. })
    }
}

/// The string up to 3.11, with room for a second encoding, and from 3.12 on.
const TEXT_WITH_WIDE: Text = Text {
    length: 16,
    state: 32,
    ascii: 48,
    other: 72,
};
const TEXT: Text = Text {
    ascii: 40,
    other: 56,
    ..TEXT_WITH_WIDE
};

const fn code(file: usize, start_line: usize, name: usize, lines: usize) -> Code {
    Code {
        file,
        name,
        start_line,
        lines,
        instructions: 0,
    }
}

const V9: Layout = Layout {
    thread_identifier: 176,
    states: States {
        interpreter: 32,
        next_interpreter: 0,
        thread: 8,
        next_thread: 8,
    },
    innermost: Innermost::Frame { frame: 24 },
    frame: Frame {
        previous: 24,
        code: 32,
        instruction: Instruction::Number { at: 104, unit: 1 },
        owner: 0,
    },
    code: code(104, 40, 112, 120),
    string: TEXT_WITH_WIDE,
    object_type: 8,
    bytes_length: 16,
    bytes: 32,
    lines: Table::Increments,
};

const V10: Layout = Layout {
    innermost: Innermost::FrameAndRecord {
        frame: 24,
        record: 48,
        previous_record: 8,
    },
    frame: Frame {
        instruction: Instruction::Number { at: 96, unit: 2 },
        ..V9.frame
    },
    lines: Table::Ranges,
    ..V9
};

const V11: Layout = Layout {
    thread_identifier: 152,
    states: States {
        interpreter: 40,
        thread: 16,
        ..V9.states
    },
    innermost: Innermost::Record {
        record: 56,
        previous_record: 16,
        innermost: 8,
        is_outermost: 68,
    },
    frame: Frame {
        previous: 48,
        code: 32,
        instruction: Instruction::Pointer { at: 56 },
        owner: 0,
    },
    code: Code {
        instructions: 184,
        ..code(112, 72, 128, 136)
    },
    lines: Table::Locations,
    ..V9
};

const V12: Layout = Layout {
    thread_identifier: 136,
    states: States {
        thread: 72,
        ..V11.states
    },
    innermost: Innermost::FrameInRecord {
        record: 56,
        innermost: 0,
    },
    frame: Frame {
        previous: 8,
        code: 0,
        instruction: Instruction::Pointer { at: 56 },
        owner: 70,
    },
    code: Code {
        instructions: 192,
        ..code(112, 68, 128, 136)
    },
    string: TEXT,
    ..V11
};

/// Returns the layout of a version before 3.13.
pub(crate) fn listed(minor: u32) -> Option<Layout> {
    match minor {
        9 => Some(V9),
        10 => Some(V10),
        11 => Some(V11),
        12 => Some(V12),
        _ => None,
    }
}

/// The beginning of the published offsets.
const COOKIE: u64 = u64::from_ne_bytes(*b"xdebugpy");

/// The indices of the published offsets in words, for 3.13 and 3.14. The structures that are described
/// differ in the number of their fields.
struct Indices {
    minor: u64,
    runtime: usize,
    interpreter: usize,
    thread: usize,
    frame: usize,
    code: usize,
    object: usize,
    bytes: usize,
    string: usize,
}

const PUBLISHED: [Indices; 2] = [
    Indices {
        minor: 13,
        runtime: 3,
        interpreter: 6,
        thread: 19,
        frame: 28,
        code: 34,
        object: 44,
        bytes: 64,
        string: 67,
    },
    Indices {
        minor: 14,
        runtime: 3,
        interpreter: 6,
        thread: 22,
        frame: 31,
        code: 39,
        object: 50,
        bytes: 74,
        string: 77,
    },
];

/// Reads the published offsets at the beginning of the runtime's state; `None` if these are of another
/// version, or of a build without the global lock.
pub(crate) fn published(reader: &mut impl Memory, runtime: usize) -> Option<Layout> {
    /// A larger offset is no field of these structures.
    const MAX_OFFSET: usize = 1 << 16;
    let mut word = |index: usize| reader.field(runtime, 8 * index);
    if word(0)? as u64 != COOKIE {
        return None;
    }
    let version = word(1)? as u64;
    let is_free_threaded = word(2)? != 0;
    let known = PUBLISHED
        .iter()
        .find(|known| known.minor == version >> 16 & 0xff)?;
    if version >> 24 != 3 || is_free_threaded {
        return None;
    }
    let mut field =
        |structure: usize, at: usize| word(structure + at).filter(|&at| at < MAX_OFFSET);
    let asciis = field(known.string, 3)?;
    Some(Layout {
        thread_identifier: field(known.thread, 5)?,
        states: States {
            interpreter: field(known.runtime, 2)?,
            next_interpreter: field(known.interpreter, 2)?,
            thread: field(known.interpreter, 3)?,
            next_thread: field(known.thread, 2)?,
        },
        innermost: Innermost::FrameWithOwner {
            frame: field(known.thread, 4)?,
        },
        frame: Frame {
            previous: field(known.frame, 1)?,
            code: field(known.frame, 2)?,
            instruction: Instruction::Pointer {
                at: field(known.frame, 3)?,
            },
            owner: field(known.frame, 5)?,
        },
        code: Code {
            file: field(known.code, 1)?,
            name: field(known.code, 3)?,
            lines: field(known.code, 4)?,
            start_line: field(known.code, 5)?,
            instructions: field(known.code, 9)?,
        },
        string: Text {
            state: field(known.string, 1)?,
            length: field(known.string, 2)?,
            ascii: asciis,
            // The other strings have their length in UTF-8 and a pointer to it before the characters.
            other: asciis + 16,
        },
        object_type: field(known.object, 1)?,
        bytes_length: field(known.bytes, 1)?,
        bytes: field(known.bytes, 2)?,
        lines: Table::Locations,
    })
}
