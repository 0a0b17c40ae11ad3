//! Reads the frames of a thread, and what they execute.

use plimsoll_interpreter::{Execution, Found, Functions, MAX_FILE, MAX_NAME, Names, Source};
use plimsoll_process::deep_stacks::{LEFT_OUT, Limit};
use plimsoll_unwind::walk::{End, Frames};

use crate::layout::{Innermost, Instruction};
use crate::lines;
use crate::memory::Memory;
use crate::runtime::Python;

/// From this owner on, a frame has no function: it is the record of an execution of the loop.
const FIRST_WITHOUT_FUNCTION: u8 = 3;

/// The maximum number of frames and records that are read. A chain that leads back into itself ends there.
const MAX_STEPS: usize = 8192;

/// The contents of the buffers.
pub(crate) struct Counts {
    pub(crate) functions: usize,
    pub(crate) executions: usize,
    /// Whether the functions include the outermost one.
    pub(crate) is_complete: bool,
}

impl Counts {
    /// Returns what was read; `None` if the thread executes no function.
    pub(crate) fn found(self, python: &Python) -> Option<Found> {
        (self.functions > 0).then(|| Found {
            functions: self.functions,
            executions: self.executions,
            is_complete: self.is_complete,
            loop_code: python.loop_code.clone(),
            hidden_code: python.own_code.clone(),
        })
    }
}

/// Fills the buffers with functions within `limit`.
pub(crate) fn read<M: Memory>(
    python: &Python,
    reader: &mut M,
    names: &mut dyn Names,
    thread: usize,
    to: &mut Functions,
    limit: Limit,
    may_keep: &mut dyn FnMut() -> bool,
) -> Counts {
    let mut read = Read {
        python,
        reader,
        names,
        to,
        limit,
        may_keep,
        functions: 0,
        executions: 0,
        steps: 0,
    };
    let is_complete = read.all(thread).is_some();
    read.finish(is_complete);
    Counts {
        functions: read.functions,
        executions: read.executions,
        is_complete,
    }
}

struct Read<'a, M> {
    python: &'a Python,
    reader: &'a mut M,
    names: &'a mut dyn Names,
    to: &'a mut Functions,
    limit: Limit,
    may_keep: &'a mut dyn FnMut() -> bool,
    functions: usize,
    executions: usize,
    steps: usize,
}

impl<M: Memory> Read<'_, M> {
    /// Reads all frames; `None` if the chain cannot be followed to its end.
    fn all(&mut self, thread: usize) -> Option<()> {
        match self.python.layout.innermost {
            Innermost::Frame { frame } => {
                let frame = self.reader.field(thread, frame)?;
                self.one_for_each(frame, None)
            }
            Innermost::FrameAndRecord {
                frame,
                record,
                previous_record,
            } => {
                let frame = self.reader.field(thread, frame)?;
                let record = self.reader.field(thread, record)?;
                self.one_for_each(frame, Some((record, previous_record)))
            }
            Innermost::Record {
                record,
                previous_record,
                innermost,
                is_outermost,
            } => {
                let mut record = self.reader.field(thread, record)?;
                while record != 0 {
                    let mut frame = self.reader.field(record, innermost)?;
                    while frame != 0 {
                        self.function(frame)?;
                        if self.reader.byte(frame.checked_add(is_outermost)?)? != 0 {
                            break;
                        }
                        frame = self.next(frame, self.python.layout.frame.previous)?;
                    }
                    self.end_execution(record)?;
                    record = self.next(record, previous_record)?;
                }
                Some(())
            }
            Innermost::FrameInRecord { record, innermost } => {
                let record = self.reader.field(thread, record)?;
                let frame = self.reader.field(record, innermost)?;
                self.with_owners(frame)
            }
            Innermost::FrameWithOwner { frame } => {
                let frame = self.reader.field(thread, frame)?;
                self.with_owners(frame)
            }
        }
    }

    /// Reads frames of which each has an execution. `record` is the innermost record, and the offset of
    /// the previous one.
    fn one_for_each(&mut self, mut frame: usize, mut record: Option<(usize, usize)>) -> Option<()> {
        while frame != 0 {
            self.function(frame)?;
            self.end_execution(record.map_or(0, |(at, _)| at))?;
            if let Some((at, previous)) = &mut record {
                *at = self.reader.field(*at, *previous)?;
            }
            frame = self.next(frame, self.python.layout.frame.previous)?;
        }
        Some(())
    }

    /// Reads frames among which some are the records of executions.
    fn with_owners(&mut self, mut frame: usize) -> Option<()> {
        let layout = self.python.layout.frame;
        while frame != 0 {
            if self.reader.byte(frame.checked_add(layout.owner)?)? >= FIRST_WITHOUT_FUNCTION {
                self.end_execution(frame)?;
            } else {
                self.function(frame)?;
            }
            frame = self.next(frame, layout.previous)?;
        }
        Some(())
    }

    /// Returns the frame or record that one names at an offset; `None` after too many.
    fn next(&mut self, at: usize, offset: usize) -> Option<usize> {
        self.steps += 1;
        (self.steps < MAX_STEPS).then_some(())?;
        self.reader.field(at, offset)
    }

    /// Ends an execution, to which all functions since the one before belong.
    fn end_execution(&mut self, position: usize) -> Option<()> {
        *self.to.executions.get_mut(self.executions)? = Execution {
            position,
            functions: self.functions,
        };
        self.executions += 1;
        Some(())
    }

    /// Adds the function of a frame. A frame whose function cannot be read is left out. Beyond the limit, the frame
    /// stands for its function until it is known to be among the outermost.
    fn function(&mut self, frame: usize) -> Option<()> {
        let added = match self.functions < self.limit.frames {
            true => self.address(frame),
            false => Some(frame),
        };
        if let Some(added) = added {
            let functions = self.functions;
            *self.kept().place(functions)? = added;
            self.functions += 1;
        }
        Some(())
    }

    fn kept(&mut self) -> Frames<'_> {
        let Functions { frames, ring, .. } = &mut *self.to;
        Frames::new(
            &mut frames[..self.limit.frames],
            &mut ring[..self.limit.root],
        )
    }

    /// Leaves out functions, if there are more than the limit.
    fn finish(&mut self, is_complete: bool) {
        let Limit { frames, root } = self.limit;
        let all = self.functions;
        let beyond = all.saturating_sub(frames);
        if beyond == 0 {
            return;
        }
        let end = if is_complete {
            End::Outermost
        } else {
            End::Lost
        };
        self.functions = self.kept().finish(all, end).frames;
        if is_complete {
            for at in frames - beyond.min(root)..frames {
                let frame = self.to.frames[at];
                self.to.frames[at] = self.address(frame).unwrap_or(LEFT_OUT);
            }
        }
        // The frame that stands for those left out belongs to the execution of the first of them.
        let innermost = frames - root;
        for execution in &mut self.to.executions[..self.executions] {
            let before = execution.functions;
            execution.functions = match is_complete {
                true => before.min(innermost).max(before.saturating_sub(beyond)),
                false => before.min(frames),
            };
        }
    }

    /// Returns the address that stands for a frame.
    fn address(&mut self, frame: usize) -> Option<usize> {
        const TAGS: usize = 7;
        let layout = &self.python.layout;
        let code = self.reader.field(frame, layout.frame.code)? & !TAGS;
        let kind = self.reader.field(code, layout.object_type)?;
        if kind != self.python.code_type {
            return None;
        }
        let instruction = match layout.frame.instruction {
            Instruction::Number { at, unit } => {
                i64::from(self.reader.half(frame.checked_add(at)?)? as i32) * unit
            }
            Instruction::Pointer { at } => {
                let pointer = self.reader.field(frame, at)?;
                pointer.wrapping_sub(code.checked_add(layout.code.instructions)?) as i64
            }
        };
        let file = self.reader.field(code, layout.code.file)?;
        let name = self.reader.field(code, layout.code.name)?;
        let table = self.reader.field(code, layout.code.lines)?;
        let start_line = self
            .reader
            .half(code.checked_add(layout.code.start_line)?)?;
        // Another function at the same address differs in one of these. The addresses of its texts may be
        // the same: functions that are compiled and freed in turn often get the same memory.
        let key = [
            code,
            instruction as usize,
            hash(self.python, self.reader, file)?,
            hash(self.python, self.reader, name)?,
            table,
            start_line as usize,
        ];
        let key = key.into_iter().fold(0, mixed);
        let known = self.names.cached(key);
        known.or_else(|| self.intern(key, [name, file, table], start_line, instruction))
    }

    #[cold]
    fn intern(
        &mut self,
        key: u64,
        [name, file, table]: [usize; 3],
        start_line: u32,
        instruction: i64,
    ) -> Option<usize> {
        let layout = &self.python.layout;
        let length = self.reader.field(table, layout.bytes_length)?;
        let bytes = table.checked_add(layout.bytes)?;
        let line = lines::line(layout.lines, start_line, instruction, length, |at| {
            self.reader.byte(bytes.checked_add(at)?)
        });
        let (name_text, file_text) = self.to.text.split_at_mut(MAX_NAME);
        let name = text(self.python, self.reader, name, name_text)?;
        let file = text(self.python, self.reader, file, &mut file_text[..MAX_FILE])?;
        let source = Source {
            name,
            file,
            start_line,
        };
        (self.may_keep)().then(|| self.names.intern(key, source, line))?
    }
}

fn mixed(hash: u64, word: usize) -> u64 {
    let mixed = (hash.rotate_left(23) ^ word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

/// The characters of a string.
struct Characters {
    first: usize,
    number: usize,
    /// The bytes of each.
    size: usize,
}

impl Characters {
    fn new(python: &Python, reader: &mut impl Memory, string: usize) -> Option<Self> {
        const COMPACT: u32 = 1 << 5;
        const ASCII: u32 = 1 << 6;
        let layout = &python.layout.string;
        let state = reader.half(string.checked_add(layout.state)?)?;
        let number = reader.field(string, layout.length)?;
        if state & COMPACT == 0 {
            return None;
        }
        let is_ascii = state & ASCII != 0;
        let offset = if is_ascii { layout.ascii } else { layout.other };
        Some(Self {
            first: string.checked_add(offset)?,
            number,
            size: (state >> 2 & 7) as usize,
        })
    }
}

/// Returns a hash of the first [`MAX_FILE`] bytes of a string and of its length.
fn hash(python: &Python, reader: &mut impl Memory, string: usize) -> Option<usize> {
    const WORD: usize = size_of::<usize>();
    let characters = Characters::new(python, reader, string)?;
    let bytes = characters.number.checked_mul(characters.size)?;
    let mut hash = mixed(0, bytes);
    for at in (0..bytes.min(MAX_FILE)).step_by(WORD) {
        let word = reader.word(characters.first.checked_add(at)?)?;
        // The last word may reach beyond the string.
        let unused = 8 * (at + WORD).saturating_sub(bytes);
        hash = mixed(hash, word & usize::MAX >> unused);
    }
    Some(hash as usize)
}

/// Reads a string, up to the length of the buffer in UTF-8.
fn text<'a>(
    python: &Python,
    reader: &mut impl Memory,
    string: usize,
    to: &'a mut [u8],
) -> Option<&'a str> {
    let Characters {
        first,
        number,
        size,
    } = Characters::new(python, reader, string)?;
    let mut length = 0;
    for at in 0..number {
        let place = first.checked_add(size * at)?;
        let character = match size {
            1 => u32::from(reader.byte(place)?),
            2 => u32::from(reader.quarter(place)?),
            4 => reader.half(place)?,
            _ => return None,
        };
        let character = char::from_u32(character).unwrap_or(char::REPLACEMENT_CHARACTER);
        let end = length + character.len_utf8();
        let Some(place) = to.get_mut(length..end) else {
            break;
        };
        character.encode_utf8(place);
        length = end;
    }
    std::str::from_utf8(&to[..length]).ok()
}

#[cfg(test)]
mod tests;
