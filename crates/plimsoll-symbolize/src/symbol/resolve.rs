//! Resolves return addresses to [`Symbols`].

use std::io::{self, Read};
use std::ops::Range;

use plimsoll_process::code_mappings::{self, CodeMapping};
use plimsoll_process::deep_stacks::LEFT_OUT;
use plimsoll_sys::os::{files, filter};

use super::former;
use super::maps::{self, Mapped};
use super::objects::{self, Object};
use super::ranges::Ranges;
use super::source::Source;
use super::symtab::{self, Symbol};
use super::table::{Answer, Table};
use super::{Detail, Location, Mapping, Symbols, hexadecimal, placeholder};

pub(super) fn resolve(return_addresses: &[usize], detail: Detail) -> Symbols {
    let mapped = mapped(code_mappings::code_mappings());
    resolve_all(mapped, return_addresses, detail)
}

/// Resolves addresses by the given mappings, the loaded objects, and those that were unloaded.
fn resolve_all(mut mapped: Vec<Mapped>, return_addresses: &[usize], detail: Detail) -> Symbols {
    let loaded = objects::loaded();
    let (unloaded, at) = former::unloaded(&mapped, return_addresses);
    if unloaded.is_empty() {
        return resolve_in(&mapped, &loaded, return_addresses, detail);
    }
    mapped.extend(at);
    mapped.sort_by_key(|mapped| mapped.start);
    let objects = [&loaded[..], &unloaded].concat();
    resolve_in(&mapped, &objects, return_addresses, detail)
}

/// Implements [`super::locate`].
pub(super) fn locate(return_addresses: &[usize]) -> Symbols {
    let mut calls: Vec<usize> = return_addresses
        .iter()
        .filter(|&&address| address != LEFT_OUT)
        .map(|address| address.wrapping_sub(1))
        .collect();
    calls.sort_unstable();
    let remembered = objects::remembered_code();
    let found = (remembered.as_ref())
        .and_then(|all| files_of(&calls, all))
        .or_else(|| files_of(&calls, &code_mappings::code_mappings_of(&calls)?))
        .or_else(code_mappings::code_mappings)
        // A system call filter forbids to ask for them.
        .or_else(|| {
            remembered
                .filter(|_| !filter::may_read_files())
                .map(|all| all.to_vec())
        });
    resolve_all(mapped(found), return_addresses, Detail::Addresses)
}

/// Returns the first mapping and those that contain one of the addresses, which are ordered as the mappings
/// are. Returns `None` if an address is in no mapping of a file.
fn files_of(addresses: &[usize], all: &[CodeMapping]) -> Option<Vec<CodeMapping>> {
    let (first, mut rest) = all.split_first()?;
    let mut found = vec![first];
    for &address in addresses {
        let address = address as u64;
        let contains = |mapping: &CodeMapping| mapping.of_file && mapping.range.contains(&address);
        if !found.last().is_some_and(|last| contains(last)) {
            let behind = rest.partition_point(|mapping| mapping.range.end <= address);
            let (mapping, later) = rest[behind..].split_first()?;
            if !contains(mapping) {
                return None;
            }
            found.push(mapping);
            rest = later;
        }
    }
    Some(found.into_iter().cloned().collect())
}

/// Returns the mappings that were found. If the system did not list them, reads all executable mappings of
/// this process; returns none if they are unknown.
fn mapped(found: Option<Vec<CodeMapping>>) -> Vec<Mapped> {
    if let Some(found) = found {
        return found.into_iter().filter_map(Mapped::of_code).collect();
    }
    let text = read_maps().unwrap_or_default();
    maps::parse(&String::from_utf8_lossy(&text))
}

/// Reads the list of mappings in few calls: each makes the kernel search for its position.
fn read_maps() -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(32 << 10);
    files::open("/proc/self/maps")?.read_to_end(&mut text)?;
    Ok(text)
}

/// Resolves addresses by the given mappings and objects.
pub(super) fn resolve_in(
    mapped: &[Mapped],
    objects: &[Object],
    return_addresses: &[usize],
    detail: Detail,
) -> Symbols {
    let mut locations = locations(return_addresses, mapped);
    let mut answers = vec![Answer::default(); locations.len()];
    let mut table = Table::new();
    let code = match detail {
        Detail::Addresses if !mapped.is_empty() => code_of(objects, |code| {
            let overlaps = |other: Range<usize>| code.start < other.end && other.start < code.end;
            mapped.iter().any(|mapping| overlaps(mapping.range()))
        }),
        _ => code_of(objects, |_| true),
    };
    if detail != Detail::Addresses {
        let mut start = 0;
        while start < locations.len() {
            // The objects' code does not overlap, so addresses of one object are adjacent.
            let object = code.owner_of(call_of(&locations[start]));
            let same = |location: &&Location| code.owner_of(call_of(location)) == object;
            let end = start + locations[start..].iter().take_while(same).count();
            if let Some(object) = object.map(|at| &objects[at]) {
                let mapped = locations[start]
                    .mapping
                    .and_then(|at| mapped.get(at as usize));
                let locations = &mut locations[start..end];
                look_up(
                    object,
                    mapped,
                    detail,
                    locations,
                    &mut answers[start..end],
                    &mut table,
                );
            }
            start = end;
        }
    }
    for (location, answer) in locations.iter_mut().zip(&answers) {
        location.is_named = !answer.lines.is_empty();
    }
    let mappings = mappings(mapped, objects, &code, &locations, &answers);
    #[cfg(feature = "debug-info")]
    let advice = (detail == Detail::Full)
        .then(|| super::advice::build_advice(objects, mapped, &locations, &answers, &table))
        .flatten();
    #[cfg(not(feature = "debug-info"))]
    let advice = None;
    placeholder::add(&mappings, &locations, &mut answers, &mut table);
    placeholder::name_left_out(&mut locations, &mut answers, &mut table);
    for (location, answer) in locations.iter_mut().zip(&answers) {
        location.lines = answer.lines.clone();
    }
    let Table {
        texts,
        functions,
        lines,
        ..
    } = table;
    Symbols {
        mappings,
        functions,
        texts: texts.into_texts(),
        advice,
        locations,
        lines,
    }
}

/// Returns the address that is looked up: the last byte of the call instruction.
pub(super) fn call_of(location: &Location) -> usize {
    location.return_address.wrapping_sub(1)
}

/// Returns the locations with their mappings, sorted and without repetition.
fn locations(return_addresses: &[usize], mapped: &[Mapped]) -> Vec<Location> {
    let mut return_addresses = return_addresses.to_vec();
    return_addresses.sort_unstable();
    return_addresses.dedup();
    let ranges = mapped.iter().map(Mapped::range);
    let ranges = Ranges::new(ranges.zip(0..));
    let location = |return_address: usize| {
        let mapping = if return_address == LEFT_OUT {
            None
        } else if mapped.is_empty() {
            Some(0)
        } else {
            ranges.owner_of(return_address.wrapping_sub(1))
        };
        let mapping = mapping.map(|at| at as u32);
        Location {
            return_address,
            mapping,
            symbol_offset: None,
            is_named: false,
            lines: 0..0,
        }
    };
    return_addresses.into_iter().map(location).collect()
}

/// Returns the code ranges of objects for which `is_needed` is true, each with the index of its object.
fn code_of(objects: &[Object], is_needed: impl Fn(&Range<usize>) -> bool) -> Ranges {
    let code = |(at, object)| Object::code(object).map(move |code| (code, at));
    let code = objects.iter().enumerate().flat_map(code);
    Ranges::new(code.filter(|(code, _)| is_needed(code)))
}

/// Resolves locations that all lie in one object.
fn look_up(
    object: &Object,
    mapped: Option<&Mapped>,
    detail: Detail,
    locations: &mut [Location],
    answers: &mut [Answer],
    table: &mut Table,
) {
    let Some(source) = Source::open(object, mapped, detail) else {
        return;
    };
    let calls: Vec<u64> = locations
        .iter()
        .map(|location| call_of(location).wrapping_sub(object.base) as u64)
        .collect();
    let mut symbols: Vec<Option<Symbol<'_>>> = vec![None; calls.len()];
    if detail == Detail::Lines {
        // Code of which the debug information has no function, such as assembly, has lines as well.
        let unnamed = |&start| Some(Symbol { start, name: b"?" });
        symbols = calls.iter().map(unnamed).collect();
        look_up_lines(object, &source, &calls, &symbols, answers, table);
        return;
    }
    for elf in [source.debug(), source.image()].into_iter().flatten() {
        symtab::look_up(elf, &calls, &mut symbols);
    }
    for ((location, call), symbol) in locations.iter_mut().zip(&calls).zip(&symbols) {
        // The call is one byte before the return address.
        location.symbol_offset = symbol.map(|symbol| (call - symbol.start + 1) as usize);
    }
    if detail == Detail::Full {
        look_up_lines(object, &source, &calls, &symbols, answers, table);
    }
    table.answer_with_symbols(&symbols, answers);
    for answer in answers {
        answer.is_looked_up = true;
    }
}

#[cfg(feature = "debug-info")]
fn look_up_lines(
    object: &Object,
    source: &Source,
    calls: &[u64],
    symbols: &[Option<Symbol<'_>>],
    answers: &mut [Answer],
    table: &mut Table,
) {
    for elf in [source.debug(), source.image()].into_iter().flatten() {
        super::dwarf::look_up(elf, object.code_start(), calls, symbols, answers, table);
    }
}

#[cfg(not(feature = "debug-info"))]
fn look_up_lines(
    _: &Object,
    _: &Source,
    _: &[u64],
    _: &[Option<Symbol<'_>>],
    _: &mut [Answer],
    _: &mut Table,
) {
}

/// Returns the mappings. Flags show whether names were looked up, and which information all locations in a
/// mapping have.
fn mappings(
    mapped: &[Mapped],
    objects: &[Object],
    code: &Ranges,
    locations: &[Location],
    answers: &[Answer],
) -> Vec<Mapping> {
    let object_in = |range| code.owner_within(range).map(|at| &objects[at]);
    let mut mappings: Vec<Mapping> = mapped
        .iter()
        .map(|mapped| mapping(mapped, object_in(mapped.range())))
        .collect();
    if mappings.is_empty() {
        // pprof's tools expect at least one mapping.
        mappings.push(Mapping::default());
    }
    let mut tried = vec![false; mappings.len()];
    for (location, answer) in locations.iter().zip(answers) {
        let Some(at) = location.mapping.map(|at| at as usize) else {
            continue;
        };
        let mapping = &mut mappings[at];
        let all = !std::mem::replace(&mut tried[at], true);
        let named = !answer.lines.is_empty();
        mapping.has_functions |= answer.is_looked_up;
        mapping.has_filenames = (all || mapping.has_filenames) && named && answer.has_lines;
        mapping.has_line_numbers = mapping.has_filenames;
        mapping.has_inline_frames =
            (all || mapping.has_inline_frames) && named && answer.has_inlined;
    }
    mappings
}

pub(super) fn mapping(mapped: &Mapped, object: Option<&Object>) -> Mapping {
    let build_id = object.map(|object| hexadecimal(&object.build_id));
    Mapping {
        start: mapped.start,
        limit: mapped.limit,
        offset: mapped.offset,
        file: mapped.file.clone(),
        build_id: build_id.unwrap_or_default(),
        ..Mapping::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(range: Range<u64>, of_file: bool) -> CodeMapping {
        CodeMapping {
            range,
            offset: 0,
            of_file,
            name: String::new(),
        }
    }

    #[test]
    fn mappings_of_addresses_are_those_of_files_and_the_first() {
        let all = [
            code(10..20, true),
            code(30..40, true),
            code(50..60, false),
            code(70..80, true),
        ];
        let chosen = |addresses: &[usize]| {
            let found = files_of(addresses, &all)?;
            let starts = found.iter().map(|mapping| mapping.range.start);
            Some(starts.collect::<Vec<u64>>())
        };
        assert_eq!(chosen(&[]), Some(vec![10]));
        assert_eq!(chosen(&[10, 19, 39, 39]), Some(vec![10, 30]));
        assert_eq!(chosen(&[70, 79]), Some(vec![10, 70]));
        for outside in [9, 20, 50, 59, 65, 80, usize::MAX] {
            let mut addresses = [15, 35, 75, outside];
            addresses.sort_unstable();
            assert_eq!(chosen(&addresses), None, "{outside}");
        }
        assert_eq!(files_of(&[], &[]).map(|found| found.len()), None);
    }
}
