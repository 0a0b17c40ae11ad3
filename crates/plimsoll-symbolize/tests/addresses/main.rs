//! Looks up addresses of known code.

#![cfg_attr(not(feature = "debug-info"), allow(dead_code))]

mod libraries;
mod program;

use plimsoll_symbolize::{Location, Mapping, Symbols};

/// A line of a location, with the fields of its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call<'s> {
    name: &'s str,
    file: &'s str,
    start_line: u64,
    line: u64,
}

fn calls<'s>(symbols: &'s Symbols, location: &Location) -> Vec<Call<'s>> {
    let lines = symbols.lines(location).iter();
    let calls = lines.map(|&line| {
        let function = symbols.function(line);
        Call {
            name: symbols.texts.get(function.name),
            file: symbols.texts.get(function.file),
            start_line: function.start_line,
            line: line.line,
        }
    });
    calls.collect()
}

/// Returns the calls at one resolved address.
fn calls_at(symbols: &Symbols, return_address: usize) -> Vec<Call<'_>> {
    calls(
        symbols,
        symbols.location(return_address).expect("was requested"),
    )
}

/// Returns one location for each address, sorted by address.
fn locations(symbols: &Symbols) -> impl Iterator<Item = &Location> {
    (0..symbols.location_count()).map(|position| symbols.location_at(position))
}

fn mapping_of(symbols: &Symbols, return_address: usize) -> &Mapping {
    let mapping = symbols.location(return_address).unwrap().mapping;
    &symbols.mappings[mapping.expect("is in a file") as usize]
}
