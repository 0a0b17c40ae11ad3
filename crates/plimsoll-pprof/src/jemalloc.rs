//! Reads heap dumps of jemalloc (`prof.dump`). Their text begins with `heap_v2/` and the sampling
//! rate in bytes:
//!
//! ```text
//! heap_v2/524288
//!   t*: 13: 6688 [20: 9000]
//! @ 0x55d1c0ffee 0x55d1c0fff0
//!   t*: 13: 6688 [20: 9000]
//!   t3: 13: 6688 [20: 9000]
//!
//! MAPPED_LIBRARIES:
//! 55d1c0000000-55d1c1000000 r-xp 00000000 08:01 1234 /usr/bin/program
//! ```
//!
//! A stack consists of return addresses, leaf first. `t*` precedes its counts for all threads:
//! objects and bytes in use, and those ever allocated, which are 0 unless `prof_accum` was set.

use std::collections::HashMap;
use std::io::{BufRead, Read};

use crate::build::{Builder, RawMapping};
use crate::error::Error;
use crate::limits::Limits;
use crate::profile::Profile;
use crate::varint;

/// The first bytes of a dump.
pub(crate) const BEGINNING: &[u8] = b"heap_v2/";

/// The longest line, in bytes. A stack of a thousand frames takes 20 KB.
const LONGEST_LINE: u64 = 1 << 20;

/// Reads a dump.
pub(crate) fn read(mut from: impl BufRead, limits: Limits) -> Result<Profile, Error> {
    let mut lines = Lines {
        from: &mut from,
        number: 0,
        line: Vec::new(),
    };
    let mut dump = Dump::new(limits)?;
    let head = lines.next()?.unwrap_or_default();
    let rate = head.strip_prefix("heap_v2/").unwrap_or_default().trim();
    dump.rate = rate
        .parse()
        .map_err(|_| Error::Malformed("the sampling rate is not a number".to_owned()))?;
    let mut in_libraries = false;
    while let Some(line) = lines.next()? {
        let line = line.trim();
        if line == "MAPPED_LIBRARIES:" {
            in_libraries = true;
            continue;
        }
        let read = match in_libraries {
            true => dump.library(line),
            false => dump.line(line),
        };
        read.map_err(|what| Error::Malformed(format!("line {}: {what}", lines.number)))?;
    }
    dump.finish()
}

/// An iterator over the lines of a text, with a limit on their length.
struct Lines<'a, R> {
    from: &'a mut R,
    number: u64,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<'_, R> {
    fn next(&mut self) -> Result<Option<std::borrow::Cow<'_, str>>, Error> {
        self.line.clear();
        self.number += 1;
        self.from
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut self.line)?;
        if self.line.len() as u64 == LONGEST_LINE {
            return Err(Error::Malformed(format!(
                "line {} is too long",
                self.number
            )));
        }
        Ok((!self.line.is_empty()).then(|| String::from_utf8_lossy(&self.line)))
    }
}

struct Sampled {
    stack: Vec<u32>,
    /// Objects and bytes, first in use, then ever allocated.
    values: [i64; 4],
    /// The mean size of an object, in bytes.
    bytes: i64,
}

struct Library {
    start: u64,
    limit: u64,
    offset: u64,
    file: Vec<u8>,
}

impl Library {
    /// Parses a line of addresses, permissions, offset, device, inode and path. Returns `None` if
    /// it is malformed or not executable.
    fn of_line(line: &str) -> Option<Self> {
        let mut rest = line;
        let mut parts = [""; 5];
        for part in &mut parts {
            let (first, behind) = rest.split_once(' ')?;
            (*part, rest) = (first, behind.trim_start());
        }
        let (start, limit) = parts[0].split_once('-')?;
        let hexadecimal = |digits: &str| u64::from_str_radix(digits, 16).ok();
        parts[1].contains('x').then_some(Self {
            start: hexadecimal(start)?,
            limit: hexadecimal(limit)?,
            offset: hexadecimal(parts[2])?,
            file: rest.as_bytes().to_vec(),
        })
    }
}

struct Dump {
    builder: Builder,
    /// The mean distance between two samples, in bytes.
    rate: u64,
    addresses: Vec<u64>,
    indices: HashMap<u64, u32>,
    /// The stack to which the next line belongs.
    stack: Option<Vec<u32>>,
    samples: Vec<Sampled>,
    kept: u64,
    limits: Limits,
    libraries: Vec<Library>,
}

impl Dump {
    fn new(limits: Limits) -> Result<Self, Error> {
        let mut builder = Builder::new(limits);
        // The format requires that the first string is empty.
        builder.string(b"")?;
        Ok(Self {
            builder,
            rate: 0,
            addresses: Vec::new(),
            indices: HashMap::new(),
            stack: None,
            samples: Vec::new(),
            kept: 0,
            limits,
            libraries: Vec::new(),
        })
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some(stack) = line.strip_prefix('@') {
            let mut frames = Vec::new();
            for address in stack.split_ascii_whitespace() {
                let digits = address.strip_prefix("0x").unwrap_or(address);
                let address = u64::from_str_radix(digits, 16)
                    .map_err(|_| format!("{address} is not an address"))?;
                frames.push(self.location(address));
            }
            self.kept += (size_of::<Sampled>() + 4 * frames.capacity() + 16) as u64;
            self.stack = Some(frames);
            return self.check_size();
        }
        let Some(values) = line.strip_prefix("t*:") else {
            // A line of one thread, or an empty line.
            return match line.is_empty() || line.starts_with('t') {
                true => Ok(()),
                false => Err("the line has an unknown format".to_owned()),
            };
        };
        let mut numbers = values
            .split([':', '[', ']', ' '])
            .filter(|part| !part.is_empty())
            .map(|part| {
                let number: Option<u64> = part.parse().ok();
                number.ok_or_else(|| format!("{part} is not a count"))
            });
        let mut next = || {
            numbers
                .next()
                .unwrap_or(Err("a number is missing".to_owned()))
        };
        let raw = [next()?, next()?, next()?, next()?];
        // The line before the first stack contains the sums of all stacks.
        let Some(stack) = self.stack.take() else {
            return Ok(());
        };
        let (inuse, alloc) = ([raw[0], raw[1]], [raw[2], raw[3]]);
        let bytes = [inuse, alloc]
            .iter()
            .find_map(|[objects, bytes]| bytes.checked_div(*objects))
            .unwrap_or(0);
        let [inuse_objects, inuse_bytes] = self.unbiased(inuse);
        let [alloc_objects, alloc_bytes] = self.unbiased(alloc);
        self.samples.push(Sampled {
            stack,
            values: [inuse_objects, inuse_bytes, alloc_objects, alloc_bytes],
            bytes: bytes as i64,
        });
        Ok(())
    }

    /// Scales sampled objects and bytes to estimates of all. An object of s bytes is sampled with
    /// probability 1 - exp(-s / rate). All objects of a stack are assumed to have their mean size.
    fn unbiased(&self, [objects, bytes]: [u64; 2]) -> [i64; 2] {
        if objects == 0 || self.rate == 0 {
            return [objects as i64, bytes as i64];
        }
        let mean = bytes as f64 / objects as f64;
        let probability = -(-mean / self.rate as f64).exp_m1();
        if probability <= 0.0 {
            return [objects as i64, bytes as i64];
        }
        [objects, bytes].map(|value| (value as f64 / probability).round() as i64)
    }

    /// Checks that what is kept of the dump is within the limit.
    fn check_size(&self) -> Result<(), String> {
        match self.kept + 64 * self.addresses.len() as u64 <= self.limits.kept_bytes {
            true => Ok(()),
            false => Err(format!(
                "the dump needs more than {} MiB of memory",
                self.limits.kept_bytes >> 20
            )),
        }
    }

    /// Returns the index of a return address, which is added if it is new.
    fn location(&mut self, address: u64) -> u32 {
        *self.indices.entry(address).or_insert_with(|| {
            self.addresses.push(address);
            self.addresses.len() as u32 - 1
        })
    }

    /// Adds a library from a line of `/proc/self/maps`. Ignores other lines.
    fn library(&mut self, line: &str) -> Result<(), String> {
        if let Some(library) = Library::of_line(line) {
            // A profile has the file's name once more.
            self.kept += (size_of::<Library>() + 2 * library.file.len()) as u64;
            self.libraries.push(library);
        }
        self.check_size()
    }

    fn finish(mut self) -> Result<Profile, Error> {
        let accumulated = self
            .samples
            .iter()
            .any(|sample| sample.values[2..] != [0, 0]);
        let shown = match accumulated {
            true => SAMPLE_TYPES,
            false => &SAMPLE_TYPES[..2],
        };
        for (name, unit) in shown {
            let (name, unit) = (self.builder.string(name)?, self.builder.string(unit)?);
            self.builder.sample_type(name, unit)?;
        }
        let default = self.builder.string(b"inuse_space")?;
        self.builder.default_sample_type(default);
        let (space, bytes) = (
            self.builder.string(b"space")?,
            self.builder.string(b"bytes")?,
        );
        self.builder.period_type(space, bytes);
        self.builder.period(self.rate);
        self.libraries.sort_by_key(|library| library.start);
        for (index, library) in self.libraries.iter().enumerate() {
            let file = self.builder.string(&library.file)?;
            self.builder.mapping(&RawMapping {
                id: index as u64 + 1,
                start: library.start,
                limit: library.limit,
                offset: library.offset,
                file,
                ..RawMapping::default()
            })?;
        }
        for (index, &address) in self.addresses.iter().enumerate() {
            // The call precedes its return address.
            let address = address.saturating_sub(1);
            let behind = self
                .libraries
                .partition_point(|library| library.start <= address);
            let mapping = match behind.checked_sub(1) {
                Some(index) if address < self.libraries[index].limit => index as u64 + 1,
                _ => 0,
            };
            self.builder
                .location(index as u64 + 1, mapping, address, &[])?;
        }
        let (mut locations, mut values, mut labels) = (Vec::new(), Vec::new(), Vec::new());
        for sample in std::mem::take(&mut self.samples) {
            locations.clear();
            values.clear();
            labels.clear();
            for &index in &sample.stack {
                varint::put(&mut locations, u64::from(index) + 1);
            }
            for &value in &sample.values[..shown.len()] {
                varint::put(&mut values, value as u64);
            }
            for part in [bytes, 0, sample.bytes as u64, 0] {
                varint::put(&mut labels, part);
            }
            self.builder.sample(&locations, &values, &labels)?;
        }
        self.builder.finish()
    }
}

const SAMPLE_TYPES: &[(&[u8], &[u8])] = &[
    (b"inuse_objects", b"count"),
    (b"inuse_space", b"bytes"),
    (b"alloc_objects", b"count"),
    (b"alloc_space", b"bytes"),
];
