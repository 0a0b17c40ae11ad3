//! Finds symbols by their names in tables that may be large: nothing of a table is kept in memory but
//! one chunk of the file.

use std::fs::File;
use std::os::unix::fs::FileExt;

use object::LittleEndian;
use object::elf::{self, Sym64};

use super::elf::{Elf, Span, Symbol, symbol};

/// The size of a chunk in bytes, a multiple of the size of a symbol.
const CHUNK: usize = SYMBOL << 12;

const SYMBOL: usize = size_of::<Sym64<LittleEndian>>();

/// The size in bytes up to which the names of a table are read at once.
const SMALL: u64 = 64 << 10;

/// Names, with the index of the ones that end in each byte.
struct Wanted<'n> {
    names: &'n [&'n [u8]],
    by_last: [Vec<u16>; 256],
    longest: usize,
}

impl<'n> Wanted<'n> {
    fn new(names: &'n [&'n [u8]]) -> Self {
        let mut by_last = [const { Vec::new() }; 256];
        for (at, name) in (0..).zip(names) {
            if let Some(&last) = name.last() {
                by_last[usize::from(last)].push(at);
            }
        }
        Self {
            names,
            by_last,
            longest: names.iter().map(|name| name.len()).max().unwrap_or(0),
        }
    }

    /// Adds the offsets at which one of the names begins and a zero follows it, with the name. Strings that
    /// end alike may share their bytes, so a name may be the end of a longer one.
    fn find(&self, text: &[u8], begins: u64, from: usize, to: &mut Vec<(u32, u16)>) {
        for zero in memchr::memchr_iter(0, &text[from..]) {
            let before = &text[..from + zero];
            let Some(&last) = before.last() else { continue };
            for &at in &self.by_last[usize::from(last)] {
                let name = self.names[usize::from(at)];
                if before.ends_with(name)
                    && let Ok(offset) =
                        u32::try_from(begins.wrapping_add((before.len() - name.len()) as u64))
                {
                    to.push((offset, at));
                }
            }
        }
    }

    /// Returns the offsets of these names in a table of names, sorted.
    fn offsets(&self, file: &File, names: Span) -> Option<Vec<(u32, u16)>> {
        let mut found = Vec::new();
        // The last bytes of a chunk may be the begin of a name.
        let kept = self.longest;
        let mut buffer = vec![0; kept + CHUNK];
        let mut at = 0;
        while at < names.size {
            let length = (names.size - at).min(CHUNK as u64) as usize;
            let chunk = &mut buffer[kept..kept + length];
            file.read_exact_at(chunk, names.offset + at).ok()?;
            // Before the first chunk, the buffer has zeros, which no name contains.
            let begins = at.wrapping_sub(kept as u64);
            self.find(&buffer[..kept + length], begins, kept, &mut found);
            buffer.copy_within(length..length + kept, 0);
            at += length as u64;
        }
        found.sort_unstable();
        Some(found)
    }
}

impl<'a> Elf<'a> {
    /// Returns those symbols of a table, as [`Elf::symbols`], that have one of these names. Reads the
    /// table only if the file contains one of the names.
    pub(super) fn symbols_among(&self, table: &str, names: &[&'a [u8]]) -> Option<Vec<Symbol<'a>>> {
        let (symbols, strings) = self.spans_of_table(table)?;
        let file = self.file();
        let offsets = Wanted::new(names).offsets(file, strings)?;
        let mut found = Vec::new();
        if offsets.is_empty() {
            return Some(found);
        }
        let mut buffer = vec![0; CHUNK];
        let mut at = 0;
        while at < symbols.size {
            let length = (symbols.size - at).min(CHUNK as u64) as usize;
            file.read_exact_at(&mut buffer[..length], symbols.offset + at)
                .ok()?;
            let whole = length / SYMBOL;
            let (entries, _) =
                object::slice_from_bytes::<Sym64<LittleEndian>>(&buffer[..length], whole).ok()?;
            for entry in entries {
                let name = entry.st_name.get(LittleEndian);
                if let Ok(place) = offsets.binary_search_by_key(&name, |&(offset, _)| offset) {
                    let (_, at) = offsets[place];
                    found.push(symbol(entry, names[usize::from(at)]));
                }
            }
            at += length as u64;
        }
        Some(found)
    }

    /// Returns those symbols of the dynamic linker's table that have one of these names. Finds what the
    /// file defines as the dynamic linker does, by its hash table, in place of comparing all names.
    pub(super) fn dynamic_symbols_among(&self, names: &[&'a [u8]]) -> Vec<Symbol<'a>> {
        let hashed = || Hashed::from_elf(self)?.symbols_among(names);
        hashed()
            .or_else(|| self.symbols_among(".dynsym", names))
            .unwrap_or_default()
    }
}

/// The dynamic linker's table of symbols, with its hash table.
struct Hashed<'f> {
    file: &'f File,
    hashes: Span,
    symbols: Span,
    strings: Span,
    /// The numbers in the header: of buckets, of the first symbol with a hash, of words in the filter, and
    /// the second shift of the filter.
    buckets: u32,
    first: u32,
    filters: u32,
    shift: u32,
}

impl<'f> Hashed<'f> {
    /// The size of the hash table's header.
    const HEADER: u64 = 16;

    /// Returns `None` without a hash table, or if it is damaged.
    fn from_elf(elf: &Elf<'f>) -> Option<Self> {
        let hashes = elf.span_of(".gnu.hash")?;
        let (symbols, strings) = elf.spans_of_table(".dynsym")?;
        let mut table = Self {
            file: elf.file(),
            hashes,
            symbols,
            strings,
            buckets: 0,
            first: 0,
            filters: 0,
            shift: 0,
        };
        table.buckets = table.half(0)?;
        table.first = table.half(4)?;
        table.filters = table.half(8)?;
        table.shift = table.half(12)?;
        let is_right = table.buckets != 0 && table.filters != 0 && table.shift < u32::BITS;
        is_right.then_some(table)
    }

    fn read<const LENGTH: usize>(&self, span: Span, at: u64) -> Option<[u8; LENGTH]> {
        let mut bytes = [0; LENGTH];
        let end = at.checked_add(LENGTH as u64)?;
        if end > span.size {
            return None;
        }
        self.file
            .read_exact_at(&mut bytes, span.offset.checked_add(at)?)
            .ok()?;
        Some(bytes)
    }

    /// Returns a number of the hash table.
    fn half(&self, at: u64) -> Option<u32> {
        Some(u32::from_le_bytes(self.read(self.hashes, at)?))
    }

    fn symbols_among<'a>(&self, names: &[&'a [u8]]) -> Option<Vec<Symbol<'a>>> {
        let mut found = Vec::new();
        for &name in names {
            if let Some(at) = self.defined(name)? {
                let entry = self.read::<SYMBOL>(self.symbols, u64::from(at) * SYMBOL as u64)?;
                let (entry, _) = object::from_bytes::<Sym64<LittleEndian>>(&entry).ok()?;
                found.push(symbol(entry, name));
            }
        }
        self.add_undefined(names, &mut found)?;
        Some(found)
    }

    /// Returns the index of the symbol that the file defines under a name. The outer result is `None` if
    /// the table is damaged.
    fn defined(&self, name: &[u8]) -> Option<Option<u32>> {
        let hash = elf::gnu_hash(name);
        let filter = u64::from(hash / u64::BITS % self.filters);
        let word = u64::from_le_bytes(self.read(self.hashes, Self::HEADER + 8 * filter)?);
        let second = hash >> self.shift;
        if word >> (hash % u64::BITS) & word >> (second % u64::BITS) & 1 == 0 {
            return Some(None);
        }
        let buckets = Self::HEADER + 8 * u64::from(self.filters);
        let mut at = self.half(buckets + 4 * u64::from(hash % self.buckets))?;
        if at == 0 {
            return Some(None);
        }
        let chains = buckets + 4 * u64::from(self.buckets);
        loop {
            let its = self.half(chains + 4 * u64::from(at.checked_sub(self.first)?))?;
            if its | 1 == hash | 1 {
                let name_at = self.read(self.symbols, u64::from(at) * SYMBOL as u64)?;
                if self.is_at(name, u32::from_le_bytes(name_at)) {
                    return Some(Some(at));
                }
            }
            if its & 1 != 0 {
                return Some(None);
            }
            at = at.checked_add(1)?;
        }
    }

    /// Returns whether a string of the table is a name.
    fn is_at(&self, name: &[u8], at: u32) -> bool {
        const LONGEST: usize = 64;
        let mut bytes = [0; LONGEST];
        let Some(bytes) = bytes.get_mut(..=name.len()) else {
            return false;
        };
        let end = u64::from(at) + bytes.len() as u64;
        end <= self.strings.size
            && (self.file)
                .read_exact_at(bytes, self.strings.offset + u64::from(at))
                .is_ok()
            && bytes.split_last() == Some((&0, name))
    }

    /// Adds the symbols that other files define: the hash table does not contain them, and they precede all
    /// others.
    fn add_undefined<'a>(&self, names: &[&'a [u8]], found: &mut Vec<Symbol<'a>>) -> Option<()> {
        let size = u64::from(self.first).checked_mul(SYMBOL as u64)?;
        if size > self.symbols.size {
            return None;
        }
        let mut entries = vec![0; size as usize];
        self.file
            .read_exact_at(&mut entries, self.symbols.offset)
            .ok()?;
        let (entries, _) =
            object::slice_from_bytes::<Sym64<LittleEndian>>(&entries, self.first as usize).ok()?;
        let mut strings = Vec::new();
        if self.strings.size <= SMALL {
            strings.resize(self.strings.size as usize, 0);
            self.file
                .read_exact_at(&mut strings, self.strings.offset)
                .ok()?;
        }
        let longest = names.iter().map(|name| name.len()).max().unwrap_or(0);
        let mut part = vec![0; longest + 1];
        for entry in entries {
            let at = entry.st_name.get(LittleEndian);
            let text = match strings.get(at as usize..) {
                Some(text) if !strings.is_empty() => text,
                _ => {
                    let there = self.strings.size.saturating_sub(at.into());
                    let length = there.min(part.len() as u64) as usize;
                    let text = &mut part[..length];
                    self.file
                        .read_exact_at(text, self.strings.offset + u64::from(at))
                        .ok()?;
                    text
                }
            };
            let is_it = |name: &&&[u8]| text.starts_with(name) && text.get(name.len()) == Some(&0);
            if let Some(name) = names.iter().find(is_it) {
                found.push(symbol(entry, name));
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn names_are_found_at_every_position_of_a_chunk_and_as_ends_of_others() {
        let names: [&[u8]; 3] = [b"malloc", b"je_malloc", b"free"];
        let wanted = Wanted::new(&names);
        let path = std::env::temp_dir().join(format!("plimsoll-named-{}", std::process::id()));
        for padding in [0, 1, CHUNK - 12, CHUNK - 9, CHUNK - 3, CHUNK, CHUNK + 5] {
            let mut text = vec![b'x'; padding];
            text.extend(b"\0xje_malloc\0malloc2\0free");
            let last = text.len() as u64;
            File::create(&path).unwrap().write_all(&text).unwrap();
            let of = |size| {
                let names = Span { offset: 0, size };
                wanted.offsets(&File::open(&path).unwrap(), names)
            };
            let begins = padding as u32 + 2;
            // The last name has no zero.
            assert_eq!(of(last), Some(vec![(begins, 1), (begins + 3, 0)]));
            assert_eq!(of(last + 1), None, "beyond the file");
        }
        std::fs::remove_file(path).unwrap();
    }
}
