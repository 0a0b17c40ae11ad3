//! Resolves names for locations with only an address, from the mapped files.

use std::collections::HashMap;

use plimsoll_symbolize::Detail;
use plimsoll_symbolize::offline::{self, Frame, MappedCode};

use crate::ids::{FunctionId, LocationId, StringId};
use crate::profile::{Function, Line, Profile, StoredLocation};

impl Profile {
    /// Resolves names of locations without lines, from the files that the profile lists as mapped.
    /// If the profile contains build ids, a file is used only if its build id matches. Returns the
    /// number of locations that received names. For a large program, this takes some tenths of a
    /// second with lines and inlined calls, and some milliseconds without.
    pub fn find_names(&mut self, with_lines: bool) -> usize {
        let detail = if with_lines {
            Detail::Full
        } else {
            Detail::Names
        };
        let nameless: Vec<LocationId> = self
            .location_ids()
            .filter(|&id| {
                let location = self.location(id);
                location.lines.is_empty() && location.mapping.is_some() && location.address != 0
            })
            .collect();
        if nameless.is_empty() {
            return 0;
        }
        let mapped: Vec<MappedCode> = self.mappings.iter().map(|at| self.mapped(at)).collect();
        // `symbolize` looks up the byte before a return address, which is the profile's address.
        let addresses: Vec<u64> = nameless
            .iter()
            .map(|&id| self.location(id).address + 1)
            .collect();
        let mut names = Names::default();
        let mut found: HashMap<LocationId, Vec<Line>> = HashMap::new();
        offline::symbolize(&mapped, &addresses, detail, |at, frames| {
            let lines = frames.iter().map(|frame| names.line(self, frame)).collect();
            found.insert(nameless[at], lines);
        });
        let count = found.len();
        self.set_lines(&found);
        count
    }

    /// Names the locations without lines outside of files, such as those of generated code. `find`
    /// returns the function at an address. Returns the number of locations that received names.
    pub fn name_generated_code<'a>(&mut self, find: impl Fn(u64) -> Option<Frame<'a>>) -> usize {
        let is_in_file = |profile: &Self, id: LocationId| {
            let mapping = profile.location(id).mapping;
            mapping.is_some_and(|id| profile.string(profile.mapping(id).file).starts_with('/'))
        };
        let mut names = Names::default();
        let mut found: HashMap<LocationId, Vec<Line>> = HashMap::new();
        for id in self.location_ids() {
            let location = self.location(id);
            if !location.lines.is_empty() || is_in_file(self, id) {
                continue;
            }
            if let Some(frame) = find(location.address) {
                found.insert(id, vec![names.line(self, &frame)]);
            }
        }
        let count = found.len();
        self.set_lines(&found);
        count
    }

    fn mapped(&self, mapping: &crate::profile::Mapping) -> MappedCode {
        MappedCode {
            start: mapping.start,
            limit: mapping.limit,
            offset: mapping.offset,
            file: self.string(mapping.file).to_owned(),
            build_id: self.string(mapping.build_id).to_owned(),
        }
    }

    fn set_lines(&mut self, found: &HashMap<LocationId, Vec<Line>>) {
        let mut lines = Vec::new();
        let mut locations = Vec::with_capacity(self.locations.len());
        for id in self.location_ids() {
            let first_line = lines.len() as u32;
            match found.get(&id) {
                Some(found) => lines.extend(found),
                None => lines.extend(self.location(id).lines),
            }
            locations.push(StoredLocation {
                first_line,
                ..self.locations[id.index()]
            });
        }
        (self.lines, self.locations) = (lines, locations);
    }
}

/// Strings and functions that were added, so that none is added twice.
#[derive(Default)]
struct Names {
    strings: HashMap<String, StringId>,
    /// The ids of functions by name, name in the symbol table, file and line.
    functions: HashMap<(StringId, StringId, StringId, u32), FunctionId>,
}

impl Names {
    fn string(&mut self, profile: &mut Profile, text: &str) -> StringId {
        if let Some(&known) = self.strings.get(text) {
            return known;
        }
        let id = StringId(profile.strings.push(text.as_bytes()));
        self.strings.insert(text.to_owned(), id);
        id
    }

    fn line(&mut self, profile: &mut Profile, frame: &Frame<'_>) -> Line {
        let function = Function {
            name: self.string(profile, frame.name),
            system_name: self.string(profile, frame.system_name),
            file: self.string(profile, frame.file),
            start_line: u32::try_from(frame.start_line).unwrap_or(0),
        };
        let key = (
            function.name,
            function.system_name,
            function.file,
            function.start_line,
        );
        let function = *self.functions.entry(key).or_insert_with(|| {
            profile.functions.push(function);
            FunctionId(profile.functions.len() as u32 - 1)
        });
        Line {
            function: Some(function),
            line: u32::try_from(frame.line).unwrap_or(0),
        }
    }
}
