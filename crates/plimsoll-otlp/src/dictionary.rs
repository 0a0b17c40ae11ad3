//! The tables to which all profiles of a request refer.

use plimsoll_pprof::message::Message;
use plimsoll_pprof::varint;

use crate::attribute::Value;
use crate::field;
use crate::table::Table;

/// The tables of a request.
#[derive(Debug)]
pub(crate) struct Dictionary {
    pub(crate) mappings: Table,
    pub(crate) locations: Table,
    pub(crate) functions: Table,
    strings: Table,
    attributes: Table,
    pub(crate) stacks: Table,
}

impl Dictionary {
    pub(crate) fn new() -> Self {
        Self {
            mappings: Table::new(field::dictionary::MAPPING),
            locations: Table::new(field::dictionary::LOCATION),
            functions: Table::new(field::dictionary::FUNCTION),
            strings: Table::new(field::dictionary::STRING),
            attributes: Table::new(field::dictionary::ATTRIBUTE),
            stacks: Table::new(field::dictionary::STACK),
        }
    }

    /// Returns the index of a string.
    pub(crate) fn string(&mut self, text: &str) -> u64 {
        self.strings.index(text.as_bytes())
    }

    /// Returns the index of an attribute. An empty `unit` states none.
    pub(crate) fn attribute(&mut self, key: &str, value: &Value<'_>, unit: &str) -> u64 {
        let mut attribute = Message::default();
        attribute.number(field::key_value_and_unit::KEY, self.string(key));
        attribute.message(field::key_value_and_unit::VALUE, &value.encode());
        attribute.number(field::key_value_and_unit::UNIT, self.string(unit));
        self.attributes.index(attribute.as_bytes())
    }

    /// Returns a `ValueType`.
    pub(crate) fn value_type(&mut self, name: &str, unit: &str) -> Message {
        let mut value_type = Message::default();
        value_type.number(field::value_type::TYPE, self.string(name));
        value_type.number(field::value_type::UNIT, self.string(unit));
        value_type
    }

    /// Returns the dictionary.
    pub(crate) fn encode(&self) -> Message {
        // The table of links has only its zero entry.
        let links = Table::new(field::dictionary::LINK);
        let tables = [
            &self.mappings,
            &self.locations,
            &self.functions,
            &links,
            &self.strings,
            &self.attributes,
            &self.stacks,
        ];
        let mut dictionary = Message::default();
        for table in tables {
            dictionary.append(table.encoded());
        }
        dictionary
    }
}

/// Writes a packed field of indices, unless there are none.
pub(crate) fn put_indices(to: &mut Message, field: u64, indices: &[u64]) {
    if indices.is_empty() {
        return;
    }
    let mut packed = Vec::with_capacity(2 * indices.len());
    for &index in indices {
        varint::put(&mut packed, index);
    }
    to.bytes(field, &packed);
}
