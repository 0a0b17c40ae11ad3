//! Reads the notes: the program, mapped code, sets of labels.

use std::collections::{BTreeMap, HashMap};

use plimsoll_symbolize::InterpretedFrame;
use plimsoll_symbolize::offline::MappedCode;

use crate::layout::note;

/// The maximum number of labels of all sites together: four for each of a million sites.
const MAX_LABELS: usize = 1 << 22;

/// The notes of a file.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// The program's path; empty if the process ended before `main`.
    pub(crate) program: String,
    /// The name of the allocator; empty if it was not noted.
    pub(crate) allocator: String,
    /// Why the functions of an allocator in the program are not redirected; empty if they are, or if it
    /// has none.
    pub(crate) obstacle: String,
    /// Mapped code by start address. Entries do not overlap.
    pub(crate) modules: BTreeMap<u64, MappedCode>,
    /// Label sets by number.
    pub(crate) labels: HashMap<u32, Vec<(String, String)>>,
    /// The functions of an interpreter by number: first line, name, file.
    pub(crate) functions: HashMap<u32, (u32, String, String)>,
    /// The number of the function and the line, by the address that stands for the frame.
    pub(crate) frames: HashMap<u64, (u32, u32)>,
    /// Whether a note is invalid.
    pub(crate) damaged: bool,
}

/// The unread bytes of a note. Each method removes a value from the beginning.
struct Note<'a>(&'a [u8]);

impl<'a> Note<'a> {
    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn word(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.bytes(8)?.try_into().ok()?))
    }

    fn half(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn text(&mut self, length: u32) -> Option<String> {
        Some(String::from_utf8_lossy(self.bytes(length as usize)?).into_owned())
    }
}

impl Notes {
    /// Reads all notes, up to the first invalid one.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let mut read = Self::default();
        let mut notes = Note(bytes);
        while !notes.0.is_empty() {
            let note = notes.word().and_then(|first| {
                let length = (first >> 32) as usize;
                let note = Note(notes.bytes(length)?);
                notes.bytes(length.next_multiple_of(8) - length)?;
                read.add(first as u32, note)
            });
            if note.is_none() {
                read.damaged = true;
                break;
            }
        }
        read
    }

    fn add(&mut self, kind: u32, mut note: Note<'_>) -> Option<()> {
        match kind {
            note::PROGRAM => self.program = String::from_utf8_lossy(note.0).into_owned(),
            note::MODULE => {
                let [start, limit, offset] = [note.word()?, note.word()?, note.word()?];
                let (build_id, file) = (note.half()?, note.half()?);
                let build_id = note.text(build_id)?;
                let file = note.text(file)?;
                self.add_module(MappedCode {
                    start,
                    limit,
                    offset,
                    file,
                    build_id,
                });
            }
            note::LABELS => {
                let number = note.half()?;
                let mut set = Vec::new();
                while !note.0.is_empty() {
                    let mut text = || {
                        let length = note.half()?;
                        note.text(length)
                    };
                    set.push((text()?, text()?));
                }
                // Number 0 is the empty set, for which no writer adds a note.
                if number == 0 {
                    return None;
                }
                self.labels.insert(number, set);
            }
            note::FUNCTION => {
                let (number, start_line, length) = (note.half()?, note.half()?, note.half()?);
                let name = note.text(length)?;
                let file = String::from_utf8_lossy(note.0).into_owned();
                self.functions.insert(number, (start_line, name, file));
            }
            note::FRAME => {
                let address = note.word()?;
                self.frames.insert(address, (note.half()?, note.half()?));
            }
            note::ALLOCATOR => {
                let length = note.half()?;
                self.allocator = note.text(length)?;
                self.obstacle = String::from_utf8_lossy(note.0).into_owned();
            }
            _ => {}
        }
        Some(())
    }

    /// Returns the frame for which an address stands.
    pub(crate) fn frame(&self, address: usize) -> Option<InterpretedFrame<'_>> {
        let (function, line) = self.frames.get(&(address as u64))?;
        let (start_line, name, file) = self.functions.get(function)?;
        Some(InterpretedFrame {
            name,
            file,
            start_line: u64::from(*start_line),
            line: u64::from(*line),
        })
    }

    /// Adds a module and removes older modules whose addresses it overlaps.
    fn add_module(&mut self, module: MappedCode) {
        if module.start >= module.limit {
            self.damaged = true;
            return;
        }
        // Modules do not overlap, so the module with the greatest start below this limit is the
        // first that can reach into the new one. After its removal the same holds for the one below
        // it.
        while let Some((&start, last)) = self.modules.range(..module.limit).next_back() {
            if last.limit <= module.start {
                break;
            }
            self.modules.remove(&start);
        }
        self.modules.insert(module.start, module);
    }

    /// Sets the numbers of label sets of sites to 0 that would exceed [`MAX_LABELS`] in total.
    pub(crate) fn limit_labels<'a>(&mut self, sites: impl Iterator<Item = &'a mut u32>) {
        let mut left = MAX_LABELS;
        for site in sites {
            let labels = self.labels.get(site).map_or(0, Vec::len);
            match left.checked_sub(labels) {
                Some(rest) => left = rest,
                None => {
                    *site = 0;
                    self.damaged = true;
                }
            }
        }
    }
}
