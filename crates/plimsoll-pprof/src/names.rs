//! Resolves names for locations with only an address, from the mapped files.

use std::collections::{BTreeMap, HashMap};

use plimsoll_symbolize::offline::{self, DebugFiles, Frame, MappedCode};
use plimsoll_symbolize::{Detail, is_placeholder};

use crate::ids::{FunctionId, LocationId, StringId};
use crate::profile::{Function, Line, Profile, StoredLocation};

/// Resolves names in several profiles as [`Profile::find_names`] does. Reads each file once for all
/// profiles of one process.
pub fn find_names_of_all(profiles: &mut [&mut Profile], with_lines: bool) -> usize {
    find_names(profiles, with_lines, &mut DebugFiles::default())
}

fn find_names(
    profiles: &mut [&mut Profile],
    with_lines: bool,
    files: &mut DebugFiles<'_>,
) -> usize {
    let detail = if with_lines {
        Detail::Full
    } else {
        Detail::Names
    };
    // Consecutive profiles without contradicting mappings.
    let mut groups: Vec<Group> = Vec::new();
    for (profile, of_profile) in profiles.iter().enumerate() {
        let Some(nameless) = of_profile.nameless() else {
            continue;
        };
        if !groups.last().is_some_and(|group| group.takes(&nameless)) {
            groups.push(Group::default());
        }
        if let Some(group) = groups.last_mut() {
            group.add(profile, nameless, of_profile);
        }
    }
    let mut names: Vec<Names> = profiles.iter().map(|_| Names::default()).collect();
    let mut found: Vec<HashMap<LocationId, Vec<Line>>> = vec![HashMap::new(); profiles.len()];
    let mut count = 0;
    for Group { mapped, places, .. } in groups {
        let addresses: Vec<u64> = places.keys().copied().collect();
        offline::symbolize(
            &mapped,
            &addresses,
            detail,
            files,
            |at, frames, is_named| {
                for &(profile, location) in &places[&addresses[at]] {
                    count += usize::from(is_named);
                    let names = &mut names[profile];
                    let lines = frames
                        .iter()
                        .map(|frame| names.line(profiles[profile], frame));
                    found[profile].insert(location, lines.collect());
                }
            },
        );
    }
    for (profile, found) in profiles.iter_mut().zip(&found) {
        if !found.is_empty() {
            profile.set_lines(found);
        }
    }
    count
}

/// Locations without names, and the mappings of their profile.
struct Nameless {
    locations: Vec<LocationId>,
    mapped: Vec<MappedCode>,
}

/// Profiles whose mappings can be those of one process.
#[derive(Default)]
struct Group {
    mapped: Vec<MappedCode>,
    /// The positions of the mappings by their first address. A profile may have any number of them.
    by_start: BTreeMap<u64, usize>,
    /// The profiles and locations of each address. `symbolize` looks up the byte before a return
    /// address, which is the profile's address.
    places: BTreeMap<u64, Vec<(usize, LocationId)>>,
}

impl Group {
    /// Returns whether each mapping of a profile is also the group's, or overlaps none of these.
    fn takes(&self, other: &Nameless) -> bool {
        let agree = |other: &MappedCode| {
            let mut before = self.by_start.range(..other.limit).rev();
            before.next().is_none_or(|(_, &at)| {
                let one = &self.mapped[at];
                one == other || one.limit <= other.start
            })
        };
        other.mapped.iter().all(agree)
    }

    fn add(&mut self, number: usize, nameless: Nameless, profile: &Profile) {
        for code in nameless.mapped {
            let known = self.by_start.get(&code.start);
            if known.is_none_or(|&at| self.mapped[at] != code) {
                self.by_start.insert(code.start, self.mapped.len());
                self.mapped.push(code);
            }
        }
        for id in nameless.locations {
            let places = self
                .places
                .entry(profile.location(id).address.saturating_add(1));
            places.or_default().push((number, id));
        }
    }
}

impl Profile {
    /// Resolves names of locations without functions, from the files that the profile lists as mapped.
    /// If the profile contains build ids, a file is used only if its build id matches. Returns the
    /// number of locations that received names. A location in a file without its name receives a
    /// placeholder of module and offset, and counts as nameless. For a large program, this takes some tenths of a
    /// second with lines and inlined calls, and some milliseconds without.
    pub fn find_names(&mut self, with_lines: bool) -> usize {
        find_names_of_all(&mut [self], with_lines)
    }

    /// Resolves names, lines and inlined calls as [`Profile::find_names`] does, from further files as
    /// well. Returns the number of locations that received names.
    pub fn find_names_in(&mut self, files: &mut DebugFiles<'_>) -> usize {
        find_names(&mut [self], true, files)
    }

    /// Returns the number of locations without names in mapped files.
    pub fn count_nameless(&self) -> usize {
        self.nameless()
            .map_or(0, |nameless| nameless.locations.len())
    }

    /// Returns whether a location has no lines, or a placeholder for an unknown function.
    pub fn is_nameless(&self, id: LocationId) -> bool {
        let location = self.location(id);
        let [line] = location.lines else {
            return location.lines.is_empty();
        };
        let (Some(function), Some(mapping)) = (line.function, location.mapping) else {
            return false;
        };
        let function = self.function(function);
        let name = self.string(function.name);
        self.string(function.file).is_empty()
            && is_placeholder(name, self.string(self.mapping(mapping).file))
    }

    /// Returns the nameless locations in mapped files, with the mappings. `None` if there are none.
    fn nameless(&self) -> Option<Nameless> {
        let locations: Vec<LocationId> = self
            .location_ids()
            .filter(|&id| {
                let location = self.location(id);
                self.is_nameless(id) && location.mapping.is_some() && location.address != 0
            })
            .collect();
        (!locations.is_empty()).then(|| Nameless {
            locations,
            mapped: self.mappings.iter().map(|at| self.mapped(at)).collect(),
        })
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

/// Strings that were added to a profile, so that none is added twice.
#[derive(Default)]
pub(crate) struct AddedStrings(HashMap<String, StringId>);

impl AddedStrings {
    pub(crate) fn add(&mut self, profile: &mut Profile, text: &str) -> StringId {
        if let Some(&known) = self.0.get(text) {
            return known;
        }
        let id = StringId(profile.strings.push(text.as_bytes()));
        self.0.insert(text.to_owned(), id);
        id
    }
}

/// Strings and functions that were added, so that none is added twice.
#[derive(Default)]
struct Names {
    strings: AddedStrings,
    /// The ids of functions by name, name in the symbol table, file and line.
    functions: HashMap<(StringId, StringId, StringId, u32), FunctionId>,
}

impl Names {
    fn line(&mut self, profile: &mut Profile, frame: &Frame<'_>) -> Line {
        let function = Function {
            name: self.strings.add(profile, frame.name),
            system_name: self.strings.add(profile, frame.system_name),
            file: self.strings.add(profile, frame.file),
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

#[cfg(test)]
mod tests {
    use plimsoll_leaves::leaves::Leaf;

    use super::*;
    use crate::symbolized::{Encoder, Head, Stack, Tables};
    use crate::{Limits, parse};

    fn mapped(start: u64, limit: u64, file: &str) -> MappedCode {
        MappedCode {
            start,
            limit,
            file: file.to_owned(),
            ..MappedCode::default()
        }
    }

    /// The last page of a program's code mostly ends behind its code.
    #[test]
    fn a_mapping_keeps_its_names_beside_an_address_without_one() {
        let here = mapped as *const () as usize + 1;
        let mappings = plimsoll_symbolize::locate(&[here]).mappings;
        let is_here = |mapping: &&plimsoll_symbolize::Mapping| {
            (mapping.start..mapping.limit).contains(&(here as u64))
        };
        let behind = mappings.iter().find(is_here).expect("it is listed").limit as usize;
        let symbols = plimsoll_symbolize::locate(&[here, behind]);
        let mut tables = Tables::new(&symbols);
        let head = Head {
            sample_types: &[("samples", "count")],
            default_sample_type: "",
            period_type: ("samples", "count"),
            period: 1,
            time_nanos: 0,
            duration_nanos: 0,
        };
        let mut encoder = Encoder::new(&head, &mut tables, |_, _| Leaf::Shown, 100);
        let frames = [here, behind];
        encoder.sample(Stack::new(&frames, false), &[], &[1]);
        let encoded = encoder.finish([]);
        let encoded = tables.finish(encoded);
        let mut profile = parse(&encoded, Limits::default()).unwrap();
        assert_eq!(profile.count_nameless(), 2);
        assert_eq!(profile.find_names(false), 1);
        assert_eq!(profile.count_nameless(), 1);
        assert_eq!(profile.find_names(true), 0, "there is still none");
        let written = parse(&profile.to_bytes(|_| true), Limits::default()).unwrap();
        assert_eq!(written.count_nameless(), 1);
        let names = written.location_ids().map(|id| {
            let location = written.location(id);
            let mapping = written.mapping(location.mapping.expect("it is in a file"));
            assert!(mapping.has_functions);
            let [line] = location.lines else {
                panic!("{location:?}");
            };
            written.function_name(line.function.expect("it has a function"))
        });
        let names: Vec<&str> = names.collect();
        assert!(names[0].ends_with("names::tests::mapped"), "{names:?}");
        assert!(names[1].contains("+0x"), "{names:?}");
    }

    #[test]
    fn a_group_takes_profiles_whose_mappings_agree() {
        let of = |mapped: &[MappedCode]| Nameless {
            locations: Vec::new(),
            mapped: mapped.to_vec(),
        };
        let mut group = Group::default();
        let profile = Profile::default();
        group.add(
            0,
            of(&[mapped(10, 20, "/a"), mapped(30, 40, "/b")]),
            &profile,
        );
        for (start, limit, file, is_taken) in [
            (10, 20, "/a", true),
            (20, 30, "/c", true),
            (0, 10, "/c", true),
            (40, 50, "/c", true),
            (10, 20, "/c", false),
            (19, 21, "/c", false),
            (5, 11, "/c", false),
            (0, 100, "/c", false),
            (12, 15, "/a", false),
        ] {
            let one = of(&[mapped(start, limit, file)]);
            assert_eq!(group.takes(&one), is_taken, "{start} to {limit}: {file}");
        }
        group.add(
            1,
            of(&[mapped(10, 20, "/a"), mapped(50, 60, "/c")]),
            &profile,
        );
        assert_eq!(group.mapped.len(), 3);
    }

    #[test]
    fn many_mappings_are_added_in_little_time() {
        let all = (0..200_000).map(|at| mapped(at * 7 % 1000, at, "/a"));
        let many = Nameless {
            locations: Vec::new(),
            mapped: all.collect(),
        };
        let mut group = Group::default();
        assert!(group.takes(&many));
        group.add(0, many, &Profile::default());
        assert!(group.mapped.len() > 1000);
    }
}
