//! The program in memory: its segments and its dynamic symbols.
//!
//! Readable while the loader is still relocating: the C library's functions for this may not be
//! called then.

use std::ffi::CStr;

use libc::{Elf64_Phdr, Elf64_Sym};

use plimsoll_process::loader::{
    DT_GNU_HASH, DT_STRTAB, DT_SYMTAB, Dynamic, dynamic_address, dynamic_entries,
};

/// A function of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// The address of the first byte.
    pub address: usize,
    /// The size in bytes.
    pub size: usize,
    /// Whether the symbol is a function. False for data and for functions that a resolver chooses.
    pub is_function: bool,
}

/// The program that the process executes.
#[derive(Debug)]
pub struct Image {
    headers: &'static [Elf64_Phdr],
    /// The difference between addresses in memory and those in the file.
    bias: usize,
    symbols: usize,
    strings: usize,
    /// The address of the hash table of symbols.
    table: usize,
    /// Whether the loader writes to the program's code.
    has_text_relocations: bool,
}

const DT_TEXTREL: isize = 22;
const DT_FLAGS: isize = 30;
const DF_TEXTREL: usize = 4;

impl Image {
    /// Returns the program of this process; `None` if it has no dynamic symbols with a GNU hash table.
    pub fn of_program() -> Option<Self> {
        // SAFETY: the kernel or the loader passes the address and the number of the program
        // headers, which are never unmapped.
        let headers = unsafe {
            let first = libc::getauxval(libc::AT_PHDR) as *const Elf64_Phdr;
            let count = libc::getauxval(libc::AT_PHNUM) as usize;
            if first.is_null()
                || libc::getauxval(libc::AT_PHENT) as usize != size_of::<Elf64_Phdr>()
            {
                return None;
            }
            std::slice::from_raw_parts(first, count)
        };
        let of_kind = |kind| headers.iter().find(|header| header.p_type == kind);
        let bias =
            (headers.as_ptr() as usize).wrapping_sub(of_kind(libc::PT_PHDR)?.p_vaddr as usize);
        let dynamic = of_kind(libc::PT_DYNAMIC)?;
        let mut image = Self {
            headers,
            bias,
            symbols: 0,
            strings: 0,
            table: 0,
            has_text_relocations: false,
        };
        let section = bias.wrapping_add(dynamic.p_vaddr as usize);
        // SAFETY: the loader has mapped the program's dynamic section, and never unmaps it.
        let entries = unsafe { dynamic_entries(section, dynamic.p_memsz as usize) };
        for &Dynamic { tag, value } in entries {
            match tag {
                DT_SYMTAB => image.symbols = dynamic_address(bias, value),
                DT_STRTAB => image.strings = dynamic_address(bias, value),
                DT_GNU_HASH => image.table = dynamic_address(bias, value),
                DT_TEXTREL => image.has_text_relocations = true,
                DT_FLAGS if value & DF_TEXTREL != 0 => image.has_text_relocations = true,
                _ => {}
            }
        }
        let all = [image.symbols, image.strings, image.table];
        (!all.contains(&0)).then_some(image)
    }

    /// Returns a program that consists of one segment of code.
    #[cfg(test)]
    pub(super) fn of_code(start: usize, length: usize) -> Self {
        let header = Elf64_Phdr {
            p_type: libc::PT_LOAD,
            p_flags: libc::PF_R | libc::PF_X,
            p_offset: 0,
            p_vaddr: start as u64,
            p_paddr: 0,
            p_filesz: length as u64,
            p_memsz: length as u64,
            p_align: 1,
        };
        Self {
            headers: Box::leak(Box::new([header])),
            bias: 0,
            symbols: 0,
            strings: 0,
            table: 0,
            has_text_relocations: false,
        }
    }

    /// Returns whether the loader writes to the program's code.
    pub fn has_text_relocations(&self) -> bool {
        self.has_text_relocations
    }

    /// Returns the difference between addresses in memory and those in the file.
    pub(super) fn bias(&self) -> usize {
        self.bias
    }

    fn loaded(&self) -> impl Iterator<Item = (&Elf64_Phdr, std::ops::Range<usize>)> {
        let loaded = self.headers.iter();
        loaded
            .filter(|header| header.p_type == libc::PT_LOAD)
            .map(|header| {
                let start = self.bias.wrapping_add(header.p_vaddr as usize);
                (header, start..start.wrapping_add(header.p_memsz as usize))
            })
    }

    /// Returns the addresses from the first to the last byte of the program.
    pub(super) fn range(&self) -> std::ops::Range<usize> {
        let start = self.loaded().map(|(_, range)| range.start).min();
        let end = self.loaded().map(|(_, range)| range.end).max();
        start.unwrap_or(0)..end.unwrap_or(0)
    }

    /// Returns whether an address lies within the program.
    pub fn contains(&self, address: usize) -> bool {
        self.range().contains(&address)
    }

    /// Returns whether a range that is not empty lies in one segment of code.
    pub(super) fn is_code(&self, start: usize, end: usize) -> bool {
        start < end && self.protection(start, end).is_some()
    }

    /// Returns the protection of the segment of code that contains a range.
    pub(super) fn protection(&self, start: usize, end: usize) -> Option<i32> {
        let (header, _) = self
            .loaded()
            .find(|(_, range)| range.contains(&start) && end <= range.end)?;
        let has = |flag: u32, protection: i32| match header.p_flags & flag {
            0 => 0,
            _ => protection,
        };
        (header.p_flags & (libc::PF_X | libc::PF_R) == libc::PF_X | libc::PF_R).then(|| {
            has(libc::PF_R, libc::PROT_READ)
                | has(libc::PF_W, libc::PROT_WRITE)
                | has(libc::PF_X, libc::PROT_EXEC)
        })
    }

    /// Finds a symbol that the program exports.
    pub fn symbol(&self, name: &CStr) -> Option<Symbol> {
        let hash = hash(name);
        // SAFETY: the table has the form of a GNU hash table: four numbers, the filter, the buckets
        // and the chains. The loader relies on it, too.
        unsafe {
            let words = self.table as *const u32;
            let [buckets, first, filters, shift] = [0, 1, 2, 3].map(|at| *words.add(at));
            if buckets == 0 || filters == 0 {
                return None;
            }
            let filter = words.add(4).cast::<u64>();
            let word = *filter.add((hash / 64 % filters) as usize);
            if word >> (hash % 64) & word >> ((hash >> (shift % 32)) % 64) & 1 == 0 {
                return None;
            }
            let bucket = filter.add(filters as usize).cast::<u32>();
            let chains = bucket.add(buckets as usize);
            let mut at = *bucket.add((hash % buckets) as usize);
            if at < first {
                return None;
            }
            loop {
                let its = *chains.add((at - first) as usize);
                if its | 1 == hash | 1 {
                    if let Some(found) = self.named(at, name) {
                        return Some(found);
                    }
                }
                if its & 1 != 0 {
                    return None;
                }
                at += 1;
            }
        }
    }

    /// Returns the symbol at an index if it has that name and is defined.
    ///
    /// # Safety
    /// The index belongs to the table of symbols.
    unsafe fn named(&self, at: u32, name: &CStr) -> Option<Symbol> {
        // SAFETY: the symbol exists, by this function's contract, and its name is a C string.
        let symbol = unsafe {
            let symbol = &*(self.symbols as *const Elf64_Sym).add(at as usize);
            let its = CStr::from_ptr((self.strings + symbol.st_name as usize) as *const _);
            if its != name || symbol.st_shndx == 0 {
                return None;
            }
            symbol
        };
        Some(symbol_of(symbol, self.bias))
    }
}

/// Converts an entry of a symbol table. `bias` is the difference between addresses in memory and those in
/// the file.
pub(super) fn symbol_of(entry: &Elf64_Sym, bias: usize) -> Symbol {
    const STT_FUNC: u8 = 2;
    Symbol {
        address: bias.wrapping_add(entry.st_value as usize),
        size: entry.st_size as usize,
        is_function: entry.st_info & 0xf == STT_FUNC,
    }
}

fn hash(name: &CStr) -> u32 {
    let bytes = name.to_bytes().iter();
    bytes.fold(5381, |hash: u32, &byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(byte))
    })
}
