//! The layouts of types.

use std::rc::Rc;

use gimli::{AttributeValue, UnitOffset, constants};
use rustc_hash::FxHashMap;

use crate::index::{Index, MAX_PARTS, TypeId, joined};

/// A described type.
#[derive(Debug)]
pub(crate) struct Type {
    /// The name with its path.
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) shape: Shape,
    /// The first of its arguments that is a type.
    pub(crate) argument: Option<TypeId>,
}

#[derive(Debug)]
pub(crate) enum Shape {
    Struct(Vec<Member>),
    /// Types with variants, of which one is active.
    Enum {
        /// The number by which the variants differ; `None` if there is one only.
        discriminant: Option<Member>,
        variants: Vec<Variant>,
    },
    /// A pointer or a reference to one value.
    Pointer(TypeId),
    /// A number, or anything else without parts.
    Scalar,
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) name: Rc<str>,
    pub(crate) offset: u64,
    pub(crate) kind: TypeId,
    /// File and line, if they are stated.
    pub(crate) place: Option<(Rc<str>, u64)>,
}

#[derive(Debug)]
pub(crate) struct Variant {
    /// The number that stands for it; `None` for all that stand for no other.
    pub(crate) value: Option<u64>,
    pub(crate) member: Member,
}

/// The types that were needed so far.
pub(crate) struct Types<'a> {
    pub(crate) index: &'a Index<'a>,
    known: FxHashMap<TypeId, Option<Rc<Type>>>,
    /// For each unit, the scope around each namespace and type.
    scopes: FxHashMap<usize, FxHashMap<UnitOffset, Scope>>,
}

/// A namespace or a type.
#[derive(Clone, Debug)]
struct Scope {
    name: String,
    parent: Option<UnitOffset>,
}

type Entry<'e, 'a> = gimli::DebuggingInformationEntry<'e, 'e, crate::sections::Reader<'a>>;

impl<'a> Types<'a> {
    pub(crate) fn new(index: &'a Index<'a>) -> Self {
        Self {
            index,
            known: FxHashMap::default(),
            scopes: FxHashMap::default(),
        }
    }

    /// Returns a type; `None` if it is not described.
    pub(crate) fn get(&mut self, at: TypeId) -> Option<Rc<Type>> {
        if let Some(known) = self.known.get(&at) {
            return known.clone();
        }
        let found = self.read(at).map(Rc::new);
        self.known.insert(at, found.clone());
        found
    }

    /// Returns the type whose functions a table of functions contains.
    pub(crate) fn of_vtable(&self, at: TypeId) -> Option<TypeId> {
        let unit = self.index.units.get(at.unit)?;
        let entry = unit.entry(at.offset).ok()?;
        let value = entry.attr_value(constants::DW_AT_containing_type).ok()??;
        self.index.reference(at.unit, &value)
    }

    fn read(&mut self, at: TypeId) -> Option<Type> {
        let name = self.name(at)?;
        let index = self.index;
        let unit = index.units.get(at.unit)?;
        let mut tree = unit.entries_tree(Some(at.offset)).ok()?;
        let root = tree.root().ok()?;
        let tag = root.entry().tag();
        let size = number(root.entry(), constants::DW_AT_byte_size).unwrap_or(0);
        let mut argument = None;
        let shape = match tag {
            constants::DW_TAG_structure_type | constants::DW_TAG_union_type => {
                let (mut members, mut parts) = (Vec::new(), None);
                let mut children = root.children();
                while let Ok(Some(child)) = children.next() {
                    match child.entry().tag() {
                        constants::DW_TAG_member => {
                            members.extend(self.member(at.unit, child.entry()));
                        }
                        constants::DW_TAG_variant_part => {
                            parts = Some(self.variants(at.unit, child));
                        }
                        constants::DW_TAG_template_type_parameter if argument.is_none() => {
                            argument = self.kind(at.unit, child.entry());
                        }
                        _ => {}
                    }
                }
                parts.unwrap_or(Shape::Struct(members))
            }
            constants::DW_TAG_pointer_type | constants::DW_TAG_reference_type => {
                match self.kind(at.unit, root.entry()) {
                    Some(target) => Shape::Pointer(target),
                    None => Shape::Scalar,
                }
            }
            _ => Shape::Scalar,
        };
        let size = match shape {
            Shape::Pointer(_) => 8,
            _ => size,
        };
        Some(Type {
            name,
            size,
            shape,
            argument,
        })
    }

    fn kind(&self, unit: usize, entry: &Entry<'_, 'a>) -> Option<TypeId> {
        let value = entry.attr_value(constants::DW_AT_type).ok()??;
        self.index.reference(unit, &value)
    }

    fn member(&self, unit: usize, entry: &Entry<'_, 'a>) -> Option<Member> {
        Some(Member {
            name: self.text(unit, entry).unwrap_or_default().into(),
            offset: number(entry, constants::DW_AT_data_member_location).unwrap_or(0),
            kind: self.kind(unit, entry)?,
            place: self.place(unit, entry),
        })
    }

    fn variants(
        &self,
        unit: usize,
        part: gimli::EntriesTreeNode<'_, '_, '_, crate::sections::Reader<'a>>,
    ) -> Shape {
        let discriminant = part.entry().attr_value(constants::DW_AT_discr);
        let discriminant = match discriminant {
            Ok(Some(AttributeValue::UnitRef(offset))) => Some(offset),
            _ => None,
        };
        let (mut by, mut variants, mut is_listed) = (None, Vec::new(), false);
        let mut children = part.children();
        while let Ok(Some(child)) = children.next() {
            match child.entry().tag() {
                constants::DW_TAG_member if Some(child.entry().offset()) == discriminant => {
                    by = self.member(unit, child.entry());
                }
                constants::DW_TAG_variant => {
                    is_listed |= has(child.entry(), constants::DW_AT_discr_list);
                    let value = number(child.entry(), constants::DW_AT_discr_value);
                    let mut parts = child.children();
                    while let Ok(Some(part)) = parts.next() {
                        if part.entry().tag() == constants::DW_TAG_member
                            && let Some(member) = self.member(unit, part.entry())
                        {
                            variants.push(Variant { value, member });
                        }
                    }
                }
                _ => {}
            }
        }
        Shape::Enum {
            // Variants that stand for several numbers are not distinguished: no compiler of Rust makes them.
            discriminant: by.filter(|_| !is_listed),
            variants,
        }
    }

    fn text(&self, unit: usize, entry: &Entry<'_, 'a>) -> Option<String> {
        let name = entry.attr_value(constants::DW_AT_name).ok()??;
        let unit = self.index.units.get(unit)?;
        let name = self.index.dwarf.attr_string(unit, name).ok()?;
        Some(String::from_utf8_lossy(name.slice()).into_owned())
    }

    /// Returns the file and the line of an entry.
    fn place(&self, unit: usize, entry: &Entry<'_, 'a>) -> Option<(Rc<str>, u64)> {
        let line = number(entry, constants::DW_AT_decl_line)?;
        let file = number(entry, constants::DW_AT_decl_file)?;
        let unit = self.index.units.get(unit)?;
        let header = unit.line_program.as_ref()?.header();
        let file = header.file(file)?;
        let text = |value| {
            let text = self.index.dwarf.attr_string(unit, value).ok()?;
            Some(String::from_utf8_lossy(text.slice()).into_owned())
        };
        let name = text(file.path_name())?;
        let folder = file.directory(header).and_then(text).unwrap_or_default();
        let is_whole = name.starts_with('/') || folder.is_empty();
        let path = if is_whole {
            name
        } else {
            format!("{folder}/{name}")
        };
        Some((path.into(), line))
    }

    /// Returns the name of a type with its path.
    fn name(&mut self, at: TypeId) -> Option<String> {
        let index = self.index;
        let unit = index.units.get(at.unit)?;
        let entry = unit.entry(at.offset).ok()?;
        let own = self.text(at.unit, &entry).unwrap_or_default();
        let scopes = (self.scopes)
            .entry(at.unit)
            .or_insert_with(|| scopes(index, at.unit).unwrap_or_default());
        let mut names = vec![own];
        let mut scope = scopes.get(&at.offset).and_then(|scope| scope.parent);
        while let Some(offset) = scope {
            let Some(around) = scopes.get(&offset).filter(|_| names.len() < MAX_PARTS) else {
                break;
            };
            names.push(around.name.clone());
            scope = around.parent;
        }
        names.reverse();
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        joined(&names)
    }
}

/// Lists the namespaces and types of a unit.
fn scopes(index: &Index<'_>, number: usize) -> Option<FxHashMap<UnitOffset, Scope>> {
    let unit = index.units.get(number)?;
    let mut found = FxHashMap::default();
    let mut around: Vec<(isize, UnitOffset)> = Vec::new();
    let mut entries = unit.entries_raw(None).ok()?;
    while !entries.is_empty() {
        let (offset, depth) = (entries.next_offset(), entries.next_depth());
        let Ok(abbreviation) = entries.read_abbreviation() else {
            break;
        };
        let Some(abbreviation) = abbreviation else {
            continue;
        };
        let is_scope = matches!(
            abbreviation.tag(),
            constants::DW_TAG_namespace
                | constants::DW_TAG_structure_type
                | constants::DW_TAG_union_type
                | constants::DW_TAG_enumeration_type
        );
        if !is_scope {
            if entries.skip_attributes(abbreviation.attributes()).is_err() {
                break;
            }
            continue;
        }
        let mut name = String::new();
        for &specification in abbreviation.attributes() {
            let Ok(attribute) = entries.read_attribute(specification) else {
                return Some(found);
            };
            if attribute.name() == constants::DW_AT_name
                && let Ok(text) = index.dwarf.attr_string(unit, attribute.value())
            {
                name = String::from_utf8_lossy(text.slice()).into_owned();
            }
        }
        while around.last().is_some_and(|(scope, _)| *scope >= depth) {
            around.pop();
        }
        let parent = around.last().map(|(_, offset)| *offset);
        found.insert(offset, Scope { name, parent });
        around.push((depth, offset));
    }
    Some(found)
}

fn number(entry: &Entry<'_, '_>, name: constants::DwAt) -> Option<u64> {
    let value = entry.attr_value(name).ok()??;
    if let AttributeValue::FileIndex(file) = value {
        return Some(file);
    }
    value
        .udata_value()
        .or_else(|| Some(value.sdata_value()? as u64))
}

fn has(entry: &Entry<'_, '_>, name: constants::DwAt) -> bool {
    matches!(entry.attr_value(name), Ok(Some(_)))
}
