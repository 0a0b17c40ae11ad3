//! Names for locations that have only an address, from the files that were mapped.

use std::collections::HashMap;

use plimsoll::offline::{self, Frame, MappedCode};
use plimsoll::profile::Detail;

use super::{Function, FunctionId, Line, LocationId, Profile, StoredLocation, StringId};

impl Profile {
    /// Gives names to locations that have none, as far as the files that the profile says were
    /// mapped are still what they were: by their build ids, if the profile has those. Returns how
    /// many got one. With lines and inlined calls, it takes some tenths of a second for a large
    /// program; without, some milliseconds.
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
        // What is looked up is the byte before a return address; a profile has that byte.
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

    fn mapped(&self, mapping: &super::Mapping) -> MappedCode {
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

/// What was added, so that nothing is there twice.
#[derive(Default)]
struct Names {
    strings: HashMap<String, StringId>,
    /// By name, name of the symbol table, file and line.
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
