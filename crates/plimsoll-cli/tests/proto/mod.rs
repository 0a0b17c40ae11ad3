//! Writes valid and invalid profiles for tests, in pprof's `profile.proto`.

#![allow(dead_code, reason = "each test uses some of it")]

/// A message of protocol buffers.
#[derive(Clone, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub fn number(mut self, field: u64, value: i64) -> Self {
        self.varint(field << 3);
        self.varint(value as u64);
        self
    }

    pub fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn message(self, field: u64, message: &Message) -> Self {
        self.bytes(field, &message.0)
    }

    pub fn packed(self, field: u64, values: impl IntoIterator<Item = i64>) -> Self {
        let mut packed = Message::default();
        for value in values {
            packed.varint(value as u64);
        }
        self.bytes(field, &packed.0)
    }
}

/// A profile that is assembled frame by frame. Ids and indices are derived from names.
#[derive(Clone)]
pub struct Writer {
    strings: Vec<String>,
    functions: Vec<String>,
    locations: Vec<String>,
    sample_types: usize,
    body: Message,
    /// The first id, and the difference between ids.
    pub ids: (u64, u64),
}

impl Writer {
    /// Creates a profile with these sample types, such as `("inuse_space", "bytes")`.
    pub fn new(sample_types: &[(&str, &str)]) -> Self {
        let mut writer = Self {
            strings: vec![String::new()],
            functions: Vec::new(),
            locations: Vec::new(),
            sample_types: sample_types.len(),
            body: Message::default(),
            ids: (1, 1),
        };
        for (name, unit) in sample_types {
            let message = Message::default()
                .number(1, writer.string(name))
                .number(2, writer.string(unit));
            writer.body = std::mem::take(&mut writer.body).message(1, &message);
        }
        writer
    }

    pub fn string(&mut self, text: &str) -> i64 {
        position(&mut self.strings, text) as i64
    }

    /// Sets a field of the profile that contains the index of a string.
    pub fn text(&mut self, field: u64, text: &str) {
        let index = self.string(text);
        self.number(field, index);
    }

    /// Sets a field of the profile that contains a number.
    pub fn number(&mut self, field: u64, value: i64) {
        self.body = std::mem::take(&mut self.body).number(field, value);
    }

    /// Sets the type and the length of the sampling period.
    pub fn period(&mut self, name: &str, unit: &str, period: i64) {
        let message = Message::default()
            .number(1, self.string(name))
            .number(2, self.string(unit));
        self.body = std::mem::take(&mut self.body)
            .message(11, &message)
            .number(12, period);
    }

    fn id(&self, index: usize) -> i64 {
        (self.ids.0 + self.ids.1 * index as u64) as i64
    }

    /// Adds a sample. Its stack is leaf first. A frame is `function@line` or `function=file@line`,
    /// or several of them, the innermost first, separated by `|`. `0x10` is an address without
    /// names.
    pub fn sample(&mut self, stack: &[&str], values: &[i64]) {
        self.labelled(stack, values, &[], &[]);
    }

    /// Adds a sample with text labels, and numeric labels with a unit.
    pub fn labelled(
        &mut self,
        stack: &[&str],
        values: &[i64],
        texts: &[(&str, &str)],
        numbers: &[(&str, i64, &str)],
    ) {
        assert_eq!(values.len(), self.sample_types);
        let locations: Vec<i64> = stack
            .iter()
            .map(|frame| {
                let index = position(&mut self.locations, frame);
                self.id(index)
            })
            .collect();
        let mut sample = Message::default()
            .packed(1, locations)
            .packed(2, values.iter().copied());
        for (key, text) in texts {
            let label = Message::default()
                .number(1, self.string(key))
                .number(2, self.string(text));
            sample = sample.message(3, &label);
        }
        for (key, number, unit) in numbers {
            let label = Message::default()
                .number(1, self.string(key))
                .number(3, *number)
                .number(4, self.string(unit));
            sample = sample.message(3, &label);
        }
        self.body = std::mem::take(&mut self.body).message(2, &sample);
    }

    /// Returns the profile, uncompressed.
    pub fn finish(mut self) -> Vec<u8> {
        let mut locations = Message::default();
        for (index, frames) in self.locations.clone().iter().enumerate() {
            let mut location = Message::default().number(1, self.id(index)).number(2, 1);
            if let Some(address) = frames.strip_prefix("0x") {
                let address = i64::from_str_radix(address, 16).unwrap();
                location = location.number(3, address);
            } else {
                location = location.number(3, 0x1000 + 16 * index as i64);
                for frame in frames.split('|') {
                    let (function, line) = frame.rsplit_once('@').unwrap_or((frame, "0"));
                    let function = position(&mut self.functions, function);
                    let line = Message::default()
                        .number(1, self.id(function))
                        .number(2, line.parse().unwrap());
                    location = location.message(4, &line);
                }
            }
            locations = locations.message(4, &location);
        }
        let mut functions = Message::default();
        for (index, name) in self.functions.clone().iter().enumerate() {
            let (name, file) = name.split_once('=').unwrap_or((name, "src/program.rs"));
            let function = Message::default()
                .number(1, self.id(index))
                .number(2, self.string(name))
                .number(4, self.string(file));
            functions = functions.message(5, &function);
        }
        let mapping = Message::default()
            .number(1, 1)
            .number(2, 0x1000)
            .number(3, 0x100_0000)
            .number(5, self.string("/usr/bin/program"))
            .number(6, self.string("abcdef"))
            // Functions, files and lines are present, so Go's tool searches for no symbols.
            .number(7, 1)
            .number(8, 1)
            .number(9, 1);
        let mut bytes = self.body.0;
        bytes.extend(locations.0);
        bytes.extend(functions.0);
        bytes.extend(Message::default().message(3, &mapping).0);
        for string in &self.strings {
            bytes.extend(Message::default().bytes(6, string.as_bytes()).0);
        }
        bytes
    }
}

/// Returns the index of `text`, which is appended if it is missing.
fn position(texts: &mut Vec<String>, text: &str) -> usize {
    let found = texts.iter().position(|known| known == text);
    found.unwrap_or_else(|| {
        texts.push(text.to_owned());
        texts.len() - 1
    })
}

/// Compresses the bytes by gzip.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
