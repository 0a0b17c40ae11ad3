//! What the debug information says of tokio and of futures, found in one pass.

use std::collections::{HashMap, HashSet};

use gimli::{
    AttributeValue, DebugInfoOffset, Dwarf, Operation, UnitOffset, UnitSectionOffset, constants,
};

use crate::sections::{Missing, Reader, Sections};

pub(crate) type Unit<'a> = gimli::Unit<Reader<'a>>;

/// A described type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TypeId {
    pub(crate) unit: usize,
    pub(crate) offset: UnitOffset,
}

/// The debug information of a program, with what was found in it. Addresses are those of the file.
pub struct Index<'a> {
    pub(crate) dwarf: Dwarf<Reader<'a>>,
    pub(crate) units: Vec<Unit<'a>>,
    /// The place of each unit in its section.
    starts: Vec<usize>,
    found: Found<'a>,
}

/// What units contain.
#[derive(Default)]
struct Found<'a> {
    /// Candidates for tokio's variable of each thread, by their distance from the thread-local variables' beginning.
    contexts: Vec<(u64, TypeId)>,
    /// The types of sets of tasks that stay on one thread.
    local_sets: Vec<TypeId>,
    /// The functions that poll tasks, by address.
    polls: HashMap<u64, Unique<Poll<'a>>>,
    /// Functions with an address that are described elsewhere.
    instances: Vec<(u64, TypeId)>,
    /// Described functions that poll tasks: the arguments of their types.
    described_polls: HashMap<TypeId, &'a str>,
    /// The tables of functions of futures: addresses and types.
    vtable_types: Vec<(u64, TypeId)>,
    vtables: HashMap<u64, Unique<TypeId>>,
    /// The types `Pin<&mut T>` of all futures `T`.
    pinned: HashSet<TypeId>,
    /// The names of the types that are futures.
    futures: HashSet<&'a str>,
    /// The symbols of `async` functions and blocks, by their names with their paths.
    symbols: HashMap<String, &'a str>,
    /// Types of tokio's tasks, by their names without the path: several, if there are several versions of a crate.
    types: HashMap<&'a str, Vec<TypeId>>,
}

/// A function that polls tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Poll<'a> {
    /// The types of future and scheduler, as arguments are written.
    pub(crate) arguments: &'a str,
    /// The unit that describes it.
    pub(crate) unit: usize,
}

/// What lies at an address. The linker may put several things that are equal byte for byte at the same one.
#[derive(Clone, Copy, Debug)]
enum Unique<T> {
    One(T),
    Several,
}

impl<T: Copy> Unique<T> {
    fn add(all: &mut HashMap<u64, Self>, address: u64, is_same: impl Fn(T, T) -> bool, found: T) {
        let entry = all.entry(address).or_insert(Self::One(found));
        if !matches!(*entry, Self::One(known) if is_same(known, found)) {
            *entry = Self::Several;
        }
    }

    fn one(self) -> Option<T> {
        match self {
            Self::One(found) => Some(found),
            Self::Several => None,
        }
    }
}

/// The path of the variable with the runtime of each thread.
const CONTEXT: [&str; 4] = ["tokio", "runtime", "context", "CONTEXT"];

/// Futures that are polled by so little code that optimization leaves no function of it.
const SMALL_FUTURES: [&str; 4] = [
    "core::future::pending::Pending<",
    "core::future::ready::Ready<",
    "futures_util::future::pending::Pending<",
    "futures_util::future::ready::Ready<",
];

/// The path of the sets of tasks that stay on one thread.
const LOCAL: [&str; 3] = ["tokio", "task", "local"];

/// The path of what tasks consist of.
const TASK: [&str; 3] = ["tokio", "runtime", "task"];

impl<'a> Index<'a> {
    /// Reads the debug information.
    ///
    /// # Errors
    /// It describes no types, or lies in other files.
    pub fn read(sections: &'a Sections) -> Result<Self, Missing> {
        let dwarf = sections.dwarf();
        let (mut units, mut starts, mut is_split) = (Vec::new(), Vec::new(), false);
        let mut headers = dwarf.units();
        // A damaged header ends the list: what came before counts.
        while let Ok(Some(header)) = headers.next() {
            let UnitSectionOffset::DebugInfoOffset(DebugInfoOffset(start)) = header.offset() else {
                continue;
            };
            if let Ok(unit) = dwarf.unit(header) {
                is_split |=
                    unit.dwo_id.is_some() && unit.dwo_name().is_ok_and(|name| name.is_some());
                units.push(unit);
                starts.push(start);
            }
        }
        let mut found = Found::default();
        let mut has_types = false;
        for (number, unit) in units.iter().enumerate() {
            let mut scan = Scan::new(&dwarf, unit, number, &starts);
            // Of a damaged unit, what came before the damage counts.
            let _ = scan.all();
            has_types |= scan.has_types;
            found.add(scan.found);
        }
        match has_types {
            true => {
                found.resolve(&dwarf, &units);
                Ok(Self {
                    dwarf,
                    units,
                    starts,
                    found,
                })
            }
            false if is_split => Err(Missing::Split),
            false => Err(Missing::Types),
        }
    }

    /// Returns whether the program contains tokio.
    pub fn has_tokio(&self) -> bool {
        !self.found.contexts.is_empty()
    }

    pub(crate) fn contexts(&self) -> &[(u64, TypeId)] {
        &self.found.contexts
    }

    /// Returns the types of sets of tasks that stay on one thread.
    pub(crate) fn local_sets(&self) -> &[TypeId] {
        &self.found.local_sets
    }

    /// Returns the function that polls tasks at an address; `None` if there is none, or tasks of several types have it.
    pub(crate) fn polled_by(&self, address: u64) -> Option<Poll<'a>> {
        self.found.polls.get(&address)?.one()
    }

    /// Returns the type of the table of functions at an address.
    pub(crate) fn vtable(&self, address: u64) -> Option<TypeId> {
        self.found.vtables.get(&address)?.one()
    }

    /// Returns whether a type implements `Future`, by its full name.
    pub(crate) fn is_future(&self, name: &str) -> bool {
        let is_small = || SMALL_FUTURES.iter().any(|small| name.starts_with(small));
        self.found.futures.contains(name) || is_small()
    }

    /// Returns the name of an `async` function or block in profiles, by the full name of its type.
    pub(crate) fn function(&self, kind: &str) -> String {
        let described = kind.replacen("_env#", "#", 1);
        match self.found.symbols.get(&described) {
            Some(symbol) => format!("{:#}", rustc_demangle::demangle(symbol)),
            // The compiler keeps one of several functions that are equal.
            None => like_symbol(&described),
        }
    }

    /// Returns the types of tokio's tasks with a name without the path, those of `unit` first.
    pub(crate) fn task_types(&self, name: &str, unit: usize) -> Vec<TypeId> {
        let mut types = self.found.types.get(name).cloned().unwrap_or_default();
        types.sort_by_key(|at| at.unit != unit);
        types
    }

    /// Returns the type to which an attribute of an entry of `unit` refers.
    pub(crate) fn reference(
        &self,
        unit: usize,
        value: &AttributeValue<Reader<'a>>,
    ) -> Option<TypeId> {
        reference(&self.starts, unit, value)
    }
}

/// Returns the full name of an `async` function or block in the form of its symbol, without arguments of types.
fn like_symbol(described: &str) -> String {
    let (mut name, mut rest) = (String::new(), described);
    while let Some(at) = rest.find("{async_") {
        name.push_str(&rest[..at]);
        name.push_str("{{closure}}");
        let end = rest[at..].find('}').map_or(rest.len(), |end| at + end + 1);
        rest = without_arguments(&rest[end..]);
    }
    name + rest
}

/// Returns what follows the arguments with which a text begins, if it begins with some.
fn without_arguments(text: &str) -> &str {
    let mut depth = 0_usize;
    let bytes = text.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'<' => depth += 1,
            // An arrow closes nothing.
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return match at {
                0 => text,
                at => &text[at + 1..],
            };
        }
    }
    text
}

fn reference(starts: &[usize], unit: usize, value: &AttributeValue<Reader<'_>>) -> Option<TypeId> {
    match *value {
        AttributeValue::UnitRef(offset) => Some(TypeId { unit, offset }),
        AttributeValue::DebugInfoRef(DebugInfoOffset(at)) => {
            let unit = starts
                .partition_point(|&start| start <= at)
                .checked_sub(1)?;
            let offset = UnitOffset(at - starts[unit]);
            Some(TypeId { unit, offset })
        }
        _ => None,
    }
}

impl<'a> Found<'a> {
    fn add(&mut self, other: Self) {
        self.contexts.extend(other.contexts);
        self.local_sets.extend(other.local_sets);
        self.instances.extend(other.instances);
        self.described_polls.extend(other.described_polls);
        self.vtable_types.extend(other.vtable_types);
        self.pinned.extend(other.pinned);
        self.symbols.extend(other.symbols);
        for (name, types) in other.types {
            self.types.entry(name).or_default().extend(types);
        }
    }

    /// Finds what takes all units: references may lead from one to another.
    fn resolve(&mut self, dwarf: &Dwarf<Reader<'a>>, units: &[Unit<'a>]) {
        for (address, at) in std::mem::take(&mut self.instances) {
            if let Some(&arguments) = self.described_polls.get(&at) {
                let found = Poll {
                    arguments,
                    unit: at.unit,
                };
                let is_same = |a: Poll<'_>, b: Poll<'_>| a.arguments == b.arguments;
                Unique::add(&mut self.polls, address, is_same, found);
            }
        }
        let name = |at: TypeId| type_name(dwarf, units.get(at.unit)?, at);
        for (address, kind) in std::mem::take(&mut self.vtable_types) {
            let is_same = |a: TypeId, b: TypeId| a == b || name(a) == name(b);
            Unique::add(&mut self.vtables, address, is_same, kind);
        }
        let names = self.pinned.iter().filter_map(|&at| {
            let name = name(at)?.strip_prefix("Pin<&mut ")?;
            name.strip_suffix('>')
        });
        self.futures = names.collect();
    }
}

/// The reading of one unit.
struct Scan<'a, 'u> {
    dwarf: &'u Dwarf<Reader<'a>>,
    unit: &'u Unit<'a>,
    number: usize,
    starts: &'u [usize],
    /// The namespaces and types around the entry, with their depths.
    scopes: Vec<(isize, &'a str)>,
    /// The depth of the function `poll` whose first parameter is expected next.
    poll: Option<isize>,
    has_types: bool,
    found: Found<'a>,
}

/// The attributes of an entry.
#[derive(Default)]
struct Attributes<'a> {
    name: Option<&'a str>,
    symbol: Option<&'a str>,
    low_pc: Option<u64>,
    origin: Option<TypeId>,
    kind: Option<AttributeValue<Reader<'a>>>,
    location: Option<AttributeValue<Reader<'a>>>,
    is_declaration: bool,
}

impl<'a, 'u> Scan<'a, 'u> {
    fn new(
        dwarf: &'u Dwarf<Reader<'a>>,
        unit: &'u Unit<'a>,
        number: usize,
        starts: &'u [usize],
    ) -> Self {
        Self {
            dwarf,
            unit,
            number,
            starts,
            scopes: Vec::new(),
            poll: None,
            has_types: false,
            found: Found::default(),
        }
    }

    fn all(&mut self) -> gimli::Result<()> {
        let mut entries = self.unit.entries_raw(None)?;
        while !entries.is_empty() {
            let (offset, depth) = (entries.next_offset(), entries.next_depth());
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            let tag = abbreviation.tag();
            let is_wanted = match tag {
                constants::DW_TAG_namespace
                | constants::DW_TAG_structure_type
                | constants::DW_TAG_subprogram
                | constants::DW_TAG_variable => true,
                constants::DW_TAG_formal_parameter => self.poll == Some(depth - 1),
                _ => false,
            };
            if !is_wanted {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let mut attributes = Attributes::default();
            for &specification in abbreviation.attributes() {
                let name = specification.name();
                let value = entries.read_attribute(specification)?.value();
                match name {
                    constants::DW_AT_name => attributes.name = self.text(value),
                    constants::DW_AT_linkage_name => attributes.symbol = self.text(value),
                    constants::DW_AT_low_pc => {
                        attributes.low_pc =
                            self.dwarf.attr_address(self.unit, value).ok().flatten();
                    }
                    constants::DW_AT_abstract_origin | constants::DW_AT_specification => {
                        attributes.origin = reference(self.starts, self.number, &value);
                    }
                    constants::DW_AT_type => attributes.kind = Some(value),
                    constants::DW_AT_location => attributes.location = Some(value),
                    constants::DW_AT_declaration => attributes.is_declaration = true,
                    _ => {}
                }
            }
            self.entry(tag, offset, depth, &attributes);
        }
        Ok(())
    }

    fn text(&self, value: AttributeValue<Reader<'a>>) -> Option<&'a str> {
        let text = self.dwarf.attr_string(self.unit, value).ok()?;
        std::str::from_utf8(text.slice()).ok()
    }

    fn entry(
        &mut self,
        tag: constants::DwTag,
        offset: UnitOffset,
        depth: isize,
        attributes: &Attributes<'a>,
    ) {
        while self.scopes.last().is_some_and(|(scope, _)| *scope >= depth) {
            self.scopes.pop();
        }
        let at = TypeId {
            unit: self.number,
            offset,
        };
        match tag {
            constants::DW_TAG_formal_parameter => {
                self.poll = None;
                self.future(attributes);
            }
            constants::DW_TAG_subprogram => self.function(at, depth, attributes),
            constants::DW_TAG_variable => self.variable(attributes),
            _ => {
                if tag == constants::DW_TAG_structure_type && !attributes.is_declaration {
                    self.has_types = true;
                    if let (Some(name), true) = (attributes.name, self.is_inside(&TASK)) {
                        self.found.types.entry(name).or_default().push(at);
                    }
                    if attributes.name == Some("LocalSet") && self.is_inside(&LOCAL) {
                        self.found.local_sets.push(at);
                    }
                }
                self.scopes
                    .push((depth, attributes.name.unwrap_or_default()));
            }
        }
    }

    fn is_inside(&self, path: &[&str]) -> bool {
        self.scopes.len() >= path.len() && self.scopes.iter().zip(path).all(|((_, a), b)| a == b)
    }

    fn function(&mut self, at: TypeId, depth: isize, attributes: &Attributes<'a>) {
        self.poll = None;
        if let Some(address) = attributes.low_pc.filter(|&address| address != 0) {
            let described = attributes.origin.unwrap_or(at);
            self.found.instances.push((address, described));
        }
        if let (Some(name), Some(symbol)) = (attributes.name, attributes.symbol)
            && name.starts_with("{async_")
        {
            let scopes = self.scopes.iter().map(|(_, scope)| *scope);
            let path: Vec<&str> = scopes.chain([name]).collect();
            if let Some(path) = joined(&path) {
                self.found.symbols.insert(path, symbol);
            }
        }
        let Some(name) = attributes.name.filter(|name| name.starts_with("poll")) else {
            return;
        };
        if let Some(arguments) = name
            .strip_prefix("poll<")
            .and_then(|rest| rest.strip_suffix('>'))
            && self.is_inside(&TASK)
            && self.scopes.last().is_some_and(|(_, scope)| *scope == "raw")
        {
            self.found.described_polls.insert(at, arguments);
        }
        if name == "poll" || name.starts_with("poll<") {
            self.poll = Some(depth);
        }
    }

    /// Notes the type of `self: Pin<&mut T>`.
    fn future(&mut self, attributes: &Attributes<'a>) {
        let kind = attributes.kind.as_ref();
        let kind = kind.and_then(|kind| reference(self.starts, self.number, kind));
        self.found.pinned.extend(kind);
    }

    fn variable(&mut self, attributes: &Attributes<'a>) {
        let Some(kind) = &attributes.kind else {
            return;
        };
        let Some(kind) = reference(self.starts, self.number, kind) else {
            return;
        };
        if self.is_inside(&CONTEXT) {
            if let Some(Location::Thread(offset)) = self.location(attributes) {
                self.found.contexts.push((offset, kind));
            }
        } else if let Some(name) = attributes.name
            && name.ends_with(" as core::future::future::Future>::{vtable}")
            && let Some(Location::Address(address)) = self.location(attributes)
            && address != 0
        {
            self.found.vtable_types.push((address, kind));
        }
    }

    fn location(&self, attributes: &Attributes<'a>) -> Option<Location> {
        let AttributeValue::Exprloc(expression) = attributes.location.as_ref()? else {
            return None;
        };
        let mut operations = expression.operations(self.unit.encoding());
        let number = match operations.next().ok()?? {
            Operation::Address { address } => return Some(Location::Address(address)),
            Operation::AddressIndex { index } => {
                let address = self.dwarf.address(self.unit, index).ok()?;
                return Some(Location::Address(address));
            }
            Operation::UnsignedConstant { value } => value,
            Operation::SignedConstant { value } => u64::try_from(value).ok()?,
            Operation::ConstantIndex { index } => self.dwarf.address(self.unit, index).ok()?,
            _ => return None,
        };
        matches!(operations.next(), Ok(Some(Operation::TLS))).then_some(Location::Thread(number))
    }
}

fn type_name<'a>(dwarf: &Dwarf<Reader<'a>>, unit: &Unit<'a>, at: TypeId) -> Option<&'a str> {
    let entry = unit.entry(at.offset).ok()?;
    let name = entry.attr_value(constants::DW_AT_name).ok()??;
    let name = dwarf.attr_string(unit, name).ok()?;
    std::str::from_utf8(name.slice()).ok()
}

/// The most parts of a name with its path, and its greatest length in bytes.
pub(crate) const MAX_PARTS: usize = 64;
const MAX_NAME: usize = 64 << 10;

/// Returns a name with its path; `None` if it is too long to be one.
pub(crate) fn joined(parts: &[&str]) -> Option<String> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    (parts.len() <= MAX_PARTS && length <= MAX_NAME).then(|| parts.join("::"))
}

/// The place of a variable.
enum Location {
    /// In the program.
    Address(u64),
    /// Its distance from the beginning of a thread's variables.
    Thread(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_described_name_becomes_one_like_a_symbols() {
        for (described, name) in [
            ("app::load::{async_fn#0}", "app::load::{{closure}}"),
            (
                "app::runs::{async_block#3}<app::A, app::b::{async_fn#0}::{async_block_env#1}<fn() -> u8>>",
                "app::runs::{{closure}}",
            ),
            (
                "app::start::{async_fn#0}<app::A>::{async_block#1}",
                "app::start::{{closure}}::{{closure}}",
            ),
            (
                "app::odd::{async_fn#0}<app::A",
                "app::odd::{{closure}}<app::A",
            ),
            ("app::odd::{async_fn", "app::odd::{{closure}}"),
            ("", ""),
        ] {
            assert_eq!(like_symbol(described), name);
        }
    }
}
