//! Reads `profile.proto` of `github.com/google/pprof`, one message at a time as the input arrives.

use std::io::{self, Read};

use crate::build::{Builder, RawFunction, RawMapping};
use crate::error::Error;
use crate::limits::Limits;
use crate::profile::Profile;
use crate::{field, varint};

/// The longest message or string that is read. A sample of a thousand frames takes 10 KB.
const LONGEST_MESSAGE: u64 = 64 << 20;

/// Reads an uncompressed profile.
pub(crate) fn read(from: impl Read, limits: Limits) -> Result<Profile, Error> {
    let mut decoder = Decoder::new(Builder::new(limits));
    match decoder.profile(&mut Feed::new(from)) {
        Ok(()) => decoder.builder.finish(),
        // Arbitrary input may begin with one or two valid fields.
        Err(Error::Malformed(what)) if !decoder.builder.has_sample_types() => {
            Err(Error::NotAProfile(what))
        }
        Err(error) => Err(error),
    }
}

/// The tables that several profiles share: strings, locations, functions and mappings.
pub struct SharedTables(Builder);

impl SharedTables {
    /// Decodes uncompressed tables, which are the fields that the profiles lack. The limits are those of a
    /// profile with the tables.
    ///
    /// # Errors
    /// If the input is malformed or exceeds the limits.
    pub fn parse(tables: Vec<u8>, limits: Limits) -> Result<Self, Error> {
        let mut decoder = Decoder::new(Builder::new(limits));
        decoder.profile(&mut Feed::from_bytes(tables))?;
        Ok(Self(decoder.builder))
    }

    /// Decodes an uncompressed profile without tables, and adds these, with all of their locations.
    ///
    /// # Errors
    /// If the profile is malformed or exceeds the limits.
    pub fn profile(&self, profile: Vec<u8>) -> Result<Profile, Error> {
        let mut decoder = Decoder::new(self.0.clone());
        decoder.profile(&mut Feed::from_bytes(profile))?;
        decoder.builder.finish()
    }
}

/// The input, buffered at least as far as the next message needs.
struct Feed<R> {
    /// `None` at the end of the input.
    reader: Option<R>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The number of bytes taken so far: the offset of `start` in the input.
    taken: u64,
}

impl Feed<io::Empty> {
    /// Creates a feed of an input that is in memory.
    fn from_bytes(input: Vec<u8>) -> Self {
        Self {
            reader: None,
            end: input.len(),
            buffer: input,
            start: 0,
            taken: 0,
        }
    }
}

impl<R: Read> Feed<R> {
    /// The length of the buffer at first: most profiles of short runs are not longer.
    const SHORTEST: usize = 8 << 10;

    /// The length up to which the buffer grows each time that the reader has filled it.
    const LONG: usize = 256 << 10;

    fn new(reader: R) -> Self {
        Self {
            reader: Some(reader),
            buffer: Vec::new(),
            start: 0,
            end: 0,
            taken: 0,
        }
    }

    /// Returns the buffered input: at least `wanted` bytes, unless the input ends earlier. The
    /// buffer grows with the bytes that arrive, not with `wanted`, which may be forged.
    fn at_least(&mut self, wanted: usize) -> io::Result<&[u8]> {
        if self.end - self.start < wanted && self.reader.is_some() {
            self.fill(wanted)?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Reads until `wanted` bytes are buffered, or the input ends.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        let was_filled = self.end == self.buffer.len();
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let longer = (4 * self.buffer.len()).clamp(Self::SHORTEST, Self::LONG);
        if was_filled && longer > self.buffer.len() {
            self.buffer.resize(longer, 0);
        }
        while let Some(reader) = self.reader.as_mut().filter(|_| self.end < wanted) {
            if self.end == self.buffer.len() {
                self.buffer.resize(2 * self.end, 0);
            }
            match reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.reader = None,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&mut self, count: usize) {
        self.start += count;
        self.taken += count as u64;
    }

    /// Discards `count` bytes; returns `false` if the input ends earlier.
    fn skip(&mut self, mut count: u64) -> io::Result<bool> {
        while count > 0 {
            let here = self.at_least(1)?.len();
            if here == 0 {
                return Ok(false);
            }
            let part = here.min(usize::try_from(count).unwrap_or(usize::MAX));
            self.take(part);
            count -= part as u64;
        }
        Ok(true)
    }
}

/// A field of a message.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// A value of a type that no field of a profile has.
    Other,
}

/// The fields of a message, which is completely in memory.
struct Fields<'a> {
    rest: &'a [u8],
    /// The name of the message, for errors.
    of: &'static str,
}

impl<'a> Fields<'a> {
    fn new(of: &'static str, rest: &'a [u8]) -> Self {
        Self { rest, of }
    }

    #[inline]
    fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, Error> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let cut = |of: &str| Error::Malformed(format!("a {of} is truncated"));
        let tag = varint::take(&mut self.rest).ok_or_else(|| cut(self.of))?;
        let field = tag >> 3;
        let value = match tag & 7 {
            _ if field == 0 => {
                return Err(Error::Malformed(format!(
                    "a {} contains a field 0",
                    self.of
                )));
            }
            0 => Value::Number(varint::take(&mut self.rest).ok_or_else(|| cut(self.of))?),
            1 => self.fixed(8).ok_or_else(|| cut(self.of))?,
            2 => {
                let length = varint::take(&mut self.rest).ok_or_else(|| cut(self.of))?;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let (bytes, rest) = self
                    .rest
                    .split_at_checked(length)
                    .ok_or_else(|| cut(self.of))?;
                self.rest = rest;
                Value::Bytes(bytes)
            }
            5 => self.fixed(4).ok_or_else(|| cut(self.of))?,
            other => {
                return Err(Error::Malformed(format!(
                    "a {} contains a field of type {other}",
                    self.of
                )));
            }
        };
        Ok(Some((field, value)))
    }

    fn fixed(&mut self, length: usize) -> Option<Value<'a>> {
        self.rest = self.rest.get(length..)?;
        Some(Value::Other)
    }
}

struct Decoder {
    builder: Builder,
    /// Parts of the current message; kept for their capacity.
    lines: Vec<(u64, u64)>,
    locations: Vec<u8>,
    values: Vec<u8>,
    labels: Vec<u8>,
}

impl Decoder {
    fn new(builder: Builder) -> Self {
        Self {
            builder,
            lines: Vec::new(),
            locations: Vec::new(),
            values: Vec::new(),
            labels: Vec::new(),
        }
    }

    fn profile(&mut self, feed: &mut Feed<impl Read>) -> Result<(), Error> {
        loop {
            let mut head = feed.at_least(2 * varint::LONGEST)?;
            if head.is_empty() {
                return Ok(());
            }
            let before = head.len();
            let ends = || Error::Malformed("the profile ends in the middle of a field".to_owned());
            let tag = varint::take(&mut head).ok_or_else(ends)?;
            let number = match tag & 7 {
                0 | 2 => Some(varint::take(&mut head).ok_or_else(ends)?),
                _ => None,
            };
            let head_length = before - head.len();
            let at = feed.taken;
            feed.take(head_length);
            let field = tag >> 3;
            match (tag & 7, number) {
                _ if field == 0 => {
                    return Err(Error::Malformed(format!("invalid field at byte {at}")));
                }
                (0, Some(number)) => self.number(field, number)?,
                (2, Some(length)) if (1..=13).contains(&field) => {
                    if length > LONGEST_MESSAGE {
                        return Err(Error::Malformed(format!(
                            "field {field} at byte {at} has {length} bytes, which is too long"
                        )));
                    }
                    let length = length as usize;
                    let bytes = feed.at_least(length)?.get(..length).ok_or_else(ends)?;
                    self.message(field, bytes)?;
                    feed.take(length);
                }
                (2, Some(length)) => {
                    if !feed.skip(length)? {
                        return Err(ends());
                    }
                }
                (1, _) => {
                    if !feed.skip(8)? {
                        return Err(ends());
                    }
                }
                (5, _) => {
                    if !feed.skip(4)? {
                        return Err(ends());
                    }
                }
                (other, _) => {
                    return Err(Error::Malformed(format!(
                        "invalid field of type {other} at byte {at}"
                    )));
                }
            }
        }
    }

    fn number(&mut self, field: u64, number: u64) -> Result<(), Error> {
        match field {
            field::profile::DROP_FRAMES => self.builder.drop_frames(number),
            field::profile::KEEP_FRAMES => self.builder.keep_frames(number),
            field::profile::TIME_NANOS => self.builder.time_ns(number),
            field::profile::DURATION_NANOS => self.builder.duration_ns(number),
            field::profile::PERIOD => self.builder.period(number),
            field::profile::COMMENT => self.builder.comment(number)?,
            field::profile::DEFAULT_SAMPLE_TYPE => self.builder.default_sample_type(number),
            field::profile::SAMPLE_TYPE..=field::profile::STRING_TABLE
            | field::profile::PERIOD_TYPE => {
                return Err(Error::Malformed(format!(
                    "field {field} is a number instead of a message"
                )));
            }
            _ => {}
        }
        Ok(())
    }

    fn message(&mut self, field: u64, bytes: &[u8]) -> Result<(), Error> {
        match field {
            field::profile::SAMPLE => self.sample(bytes),
            field::profile::LOCATION => self.location(bytes),
            field::profile::FUNCTION => self.function(bytes),
            field::profile::STRING_TABLE => self.builder.string(bytes).map(drop),
            field::profile::SAMPLE_TYPE => {
                let (name, unit) = value_type(bytes)?;
                self.builder.sample_type(name, unit)
            }
            field::profile::PERIOD_TYPE => {
                let (name, unit) = value_type(bytes)?;
                self.builder.period_type(name, unit);
                Ok(())
            }
            field::profile::MAPPING => self.mapping(bytes),
            field::profile::COMMENT => {
                let mut rest = bytes;
                while !rest.is_empty() {
                    let text = varint::take(&mut rest)
                        .ok_or_else(|| Error::Malformed("a comment is truncated".to_owned()))?;
                    self.builder.comment(text)?;
                }
                Ok(())
            }
            _ => Err(Error::Malformed(format!(
                "field {field} is a message instead of a number"
            ))),
        }
    }

    fn sample(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.labels.clear();
        let mut locations = Numbers::new(&mut self.locations);
        let mut values = Numbers::new(&mut self.values);
        let mut fields = Fields::new("sample", bytes);
        while let Some((field, value)) = fields.next()? {
            match (field, value) {
                (field::sample::LOCATION_ID, value) => locations.add(value),
                (field::sample::VALUE, value) => values.add(value),
                (field::sample::LABEL, Value::Bytes(bytes)) => label(bytes, &mut self.labels)?,
                _ => {}
            }
        }
        let (locations, values) = (locations.bytes(), values.bytes());
        self.builder.sample(locations, values, &self.labels)
    }

    fn mapping(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut mapping = RawMapping::default();
        let mut fields = Fields::new("mapping", bytes);
        while let Some((field, value)) = fields.next()? {
            if let Value::Number(number) = value {
                match field {
                    field::mapping::ID => mapping.id = number,
                    field::mapping::MEMORY_START => mapping.start = number,
                    field::mapping::MEMORY_LIMIT => mapping.limit = number,
                    field::mapping::FILE_OFFSET => mapping.offset = number,
                    field::mapping::FILENAME => mapping.file = number,
                    field::mapping::BUILD_ID => mapping.build_id = number,
                    field::mapping::HAS_FUNCTIONS => mapping.has_functions = number != 0,
                    _ => {}
                }
            }
        }
        self.builder.mapping(&mapping)
    }

    fn location(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let (mut id, mut mapping, mut address) = (0, 0, 0);
        self.lines.clear();
        let mut fields = Fields::new("location", bytes);
        while let Some((field, value)) = fields.next()? {
            match (field, value) {
                (field::location::ID, Value::Number(number)) => id = number,
                (field::location::MAPPING_ID, Value::Number(number)) => mapping = number,
                (field::location::ADDRESS, Value::Number(number)) => address = number,
                (field::location::LINE, Value::Bytes(bytes)) => self.lines.push(line(bytes)?),
                _ => {}
            }
        }
        self.builder.location(id, mapping, address, &self.lines)
    }

    fn function(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut function = RawFunction::default();
        let mut fields = Fields::new("function", bytes);
        while let Some((field, value)) = fields.next()? {
            if let Value::Number(number) = value {
                match field {
                    field::function::ID => function.id = number,
                    field::function::NAME => function.name = number,
                    field::function::SYSTEM_NAME => function.system_name = number,
                    field::function::FILENAME => function.file = number,
                    field::function::START_LINE => function.start_line = number,
                    _ => {}
                }
            }
        }
        self.builder.function(&function)
    }
}

/// A repeated number: packed in one or more pieces, or encoded as one field for each element.
struct Numbers<'a, 'b> {
    /// The whole packed value, as long as there is only one piece.
    only: &'a [u8],
    pieces: &'b mut Vec<u8>,
}

impl<'a, 'b> Numbers<'a, 'b> {
    fn new(pieces: &'b mut Vec<u8>) -> Self {
        pieces.clear();
        Self { only: &[], pieces }
    }

    fn add(&mut self, value: Value<'a>) {
        let is_first = self.only.is_empty() && self.pieces.is_empty();
        self.pieces
            .extend_from_slice(std::mem::take(&mut self.only));
        match value {
            Value::Bytes(bytes) if is_first => self.only = bytes,
            Value::Bytes(bytes) => self.pieces.extend_from_slice(bytes),
            Value::Number(number) => varint::put(self.pieces, number),
            Value::Other => {}
        }
    }

    fn bytes(self) -> &'b [u8]
    where
        'a: 'b,
    {
        match self.only {
            [] => self.pieces,
            only => only,
        }
    }
}

fn value_type(bytes: &[u8]) -> Result<(u64, u64), Error> {
    let (mut name, mut unit) = (0, 0);
    let mut fields = Fields::new("value type", bytes);
    while let Some((field, value)) = fields.next()? {
        match (field, value) {
            (field::value_type::NAME, Value::Number(number)) => name = number,
            (field::value_type::UNIT, Value::Number(number)) => unit = number,
            _ => {}
        }
    }
    Ok((name, unit))
}

fn label(bytes: &[u8], to: &mut Vec<u8>) -> Result<(), Error> {
    let (mut key, mut text, mut number, mut unit) = (0, 0, 0, 0);
    let mut fields = Fields::new("label", bytes);
    while let Some((field, value)) = fields.next()? {
        if let Value::Number(value) = value {
            match field {
                field::label::KEY => key = value,
                field::label::TEXT => text = value,
                field::label::NUMBER => number = value,
                field::label::UNIT => unit = value,
                _ => {}
            }
        }
    }
    for part in [key, text, number, unit] {
        varint::put(to, part);
    }
    Ok(())
}

/// Returns the function's id and the number of a line.
fn line(bytes: &[u8]) -> Result<(u64, u64), Error> {
    let (mut function, mut line) = (0, 0);
    let mut fields = Fields::new("line", bytes);
    while let Some((field, value)) = fields.next()? {
        match (field, value) {
            (field::line::FUNCTION_ID, Value::Number(number)) => function = number,
            (field::line::LINE, Value::Number(number)) => line = number,
            _ => {}
        }
    }
    Ok((function, line))
}
