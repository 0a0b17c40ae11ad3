//! The symbol table of the program's file, which also has functions that the program does not export.
//!
//! Readable while the loader is still relocating: the file is mapped by system calls.

use std::ffi::CStr;
use std::ops::Range;

use libc::{Elf64_Ehdr, Elf64_Shdr, Elf64_Sym};

use super::image::{Image, Symbol, symbol_of};
use plimsoll_sys::arch::system_call;

/// A mapped program file with a symbol table. Programs that are stripped have none.
#[derive(Debug)]
pub struct SymbolTable {
    file: File,
    entries: Range<usize>,
    /// The part of the entries that all object files of the program could use. It is the smaller one.
    global: Range<usize>,
    names: Range<usize>,
    bias: usize,
}

impl SymbolTable {
    /// Maps the file of the program that this process executes. Returns `None` if it has no symbol
    /// table, or if the file cannot be read.
    pub fn of_program(image: &Image) -> Option<Self> {
        let file = File::map(c"/proc/self/exe")?;
        let (entries, global, names) = table(file.bytes())?;
        Some(Self {
            file,
            entries,
            global,
            names,
            bias: image.bias(),
        })
    }

    /// Returns whether a function that all object files of the program could use has a name with one of
    /// the prefixes. Takes less time than to search all functions.
    pub fn has_global_function(&self, prefixes: &[&[u8]]) -> bool {
        self.in_range(&self.global).any(|(name, symbol)| {
            symbol.is_function && prefixes.iter().any(|prefix| name.starts_with(prefix))
        })
    }

    /// Returns the functions whose names have one of the prefixes: the index of the prefix, the rest of
    /// the name, and the function, in the order of the table.
    pub fn functions(&self, prefixes: &[&[u8]]) -> impl Iterator<Item = (usize, &[u8], Symbol)> {
        self.in_range(&self.entries)
            .filter_map(move |(name, symbol)| {
                if !symbol.is_function {
                    return None;
                }
                let has = |prefix: &&[u8]| name.starts_with(prefix);
                let prefix = prefixes.iter().position(has)?;
                let rest = &name[prefixes[prefix].len()..];
                let end = rest.iter().position(|&byte| byte == 0)?;
                Some((prefix, &rest[..end], symbol))
            })
    }

    /// Returns the address of a variable.
    pub fn variable(&self, name: &CStr) -> Option<usize> {
        let name = name.to_bytes_with_nul();
        let mut all = self.in_range(&self.entries);
        let is_it = |(its, symbol): &(&[u8], Symbol)| !symbol.is_function && its.starts_with(name);
        let (_, symbol) = all.find(is_it)?;
        Some(symbol.address)
    }

    /// Returns what the program defines in a range of entries, with the names and what follows them.
    fn in_range(&self, range: &Range<usize>) -> impl Iterator<Item = (&[u8], Symbol)> {
        let names = &self.file.bytes()[self.names.clone()];
        let entries = self.file.bytes()[range.clone()].chunks_exact(size_of::<Elf64_Sym>());
        entries.filter_map(move |entry| {
            let entry: Elf64_Sym = at(entry, 0)?;
            let name = names.get(entry.st_name as usize..)?;
            (entry.st_shndx != 0).then(|| (name, symbol_of(&entry, self.bias)))
        })
    }
}

const SHT_SYMTAB: u32 = 2;

/// Returns the ranges of the symbols, of the global ones and of the names in a file of the format ELF.
fn table(file: &[u8]) -> Option<(Range<usize>, Range<usize>, Range<usize>)> {
    let header: Elf64_Ehdr = at(file, 0)?;
    if header.e_ident[..5] != [0x7f, b'E', b'L', b'F', libc::ELFCLASS64] {
        return None;
    }
    let section = |number: usize| -> Option<Elf64_Shdr> {
        let place = number.checked_mul(size_of::<Elf64_Shdr>())?;
        at(file, (header.e_shoff as usize).checked_add(place)?)
    };
    let is_known = usize::from(header.e_shentsize) == size_of::<Elf64_Shdr>();
    let mut sections = (0..usize::from(header.e_shnum)).filter_map(section);
    let symbols = sections.find(|section| section.sh_type == SHT_SYMTAB && is_known)?;
    let names = section(symbols.sh_link as usize)?;
    let range = |section: &Elf64_Shdr| {
        let start = section.sh_offset as usize;
        let end = start.checked_add(section.sh_size as usize)?;
        (end <= file.len()).then_some(start..end)
    };
    let entries = range(&symbols)?;
    // The section's header has the index of the first global symbol.
    let local = (symbols.sh_info as usize).checked_mul(size_of::<Elf64_Sym>())?;
    let global = entries.start.checked_add(local)?.min(entries.end)..entries.end;
    Some((entries, global, range(&names)?))
}

/// Reads a structure of integers at an offset.
fn at<T: Copy>(file: &[u8], offset: usize) -> Option<T> {
    let bytes = file.get(offset..offset.checked_add(size_of::<T>())?)?;
    // SAFETY: the bytes have the length of the structure, whose integers may have any value.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// A file in memory, until it is dropped.
#[derive(Debug)]
struct File {
    base: usize,
    length: usize,
}

impl File {
    fn map(path: &CStr) -> Option<Self> {
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
        let path = path.as_ptr() as usize;
        // SAFETY: the path is a C string; each call gets a descriptor that was just opened, and the
        // mapping is new.
        unsafe {
            let opened = system_call(
                libc::SYS_openat,
                [libc::AT_FDCWD as usize, path, flags, 0, 0, 0],
            );
            let file = usize::try_from(opened).ok()?;
            // As the loader does for each library, so no filter forbids it.
            let mut status = std::mem::zeroed::<libc::stat>();
            let (empty, to) = (c"".as_ptr() as usize, &raw mut status as usize);
            let flags = libc::AT_EMPTY_PATH as usize;
            let failed = system_call(libc::SYS_newfstatat, [file, empty, to, flags, 0, 0]) != 0;
            let end = if failed { 0 } else { status.st_size };
            let (read, private) = (libc::PROT_READ as usize, libc::MAP_PRIVATE as usize);
            let base = system_call(
                libc::SYS_mmap,
                [0, end.max(0) as usize, read, private, file, 0],
            );
            system_call(libc::SYS_close, [file, 0, 0, 0, 0, 0]);
            (end > 0 && base > 0).then_some(Self {
                base: base as usize,
                length: end as usize,
            })
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has this length until `self` is dropped. The file of a program that is
        // executed keeps its length.
        unsafe { std::slice::from_raw_parts(self.base as *const u8, self.length) }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to `self`.
        unsafe { system_call(libc::SYS_munmap, [self.base, self.length, 0, 0, 0, 0]) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    #[unsafe(no_mangle)]
    extern "C" fn plimsoll_function_of_a_test(number: u32) -> u32 {
        std::hint::black_box(number) + 1
    }

    #[unsafe(no_mangle)]
    static PLIMSOLL_VARIABLE_OF_A_TEST: u32 = 7;

    #[test]
    fn functions_that_are_not_exported_have_their_addresses_and_sizes() {
        assert_eq!(plimsoll_function_of_a_test(1), 2);
        let image = Image::of_program().unwrap();
        assert_eq!(image.symbol(c"plimsoll_function_of_a_test"), None);
        let table = SymbolTable::of_program(&image).unwrap();
        let mut found = table.functions(&[b"plimsoll_no", b"plimsoll_function_of"]);
        let (prefix, rest, found_there) = found.next().unwrap();
        assert_eq!((prefix, rest), (1, &b"_a_test"[..]));
        let address = plimsoll_function_of_a_test as *const () as usize;
        assert_eq!(found_there.address, address);
        assert!((1..1000).contains(&found_there.size));
        assert!(image.is_code(address, address + found_there.size));
        assert!(found.next().is_none());
        assert!(table.has_global_function(&[b"no_such", b"plimsoll_function_of_a"]));
        assert!(!table.has_global_function(&[b"no_such", b"PLIMSOLL_VARIABLE"]));
        let variable = &raw const PLIMSOLL_VARIABLE_OF_A_TEST;
        let found = table.variable(c"PLIMSOLL_VARIABLE_OF_A_TEST");
        assert_eq!(found, Some(variable as usize));
        assert_eq!(table.variable(c"PLIMSOLL_VARIABLE_OF_A"), None);
        assert_eq!(table.variable(c"plimsoll_function_of_a_test"), None);
    }

    /// Damaged files have no table, or one within their bytes.
    #[test]
    fn damaged_files_are_read_within_their_bounds() {
        let file = File::map(c"/proc/self/exe").unwrap();
        let header: Elf64_Ehdr = at(file.bytes(), 0).unwrap();
        let sections = header.e_shoff as usize;
        assert!(table(file.bytes()).is_some());
        assert!(table(&file.bytes()[..sections]).is_none());
        assert!(table(&[]).is_none() && table(&[0; 64]).is_none());
        let mut small = vec![0; 64 + 3 * size_of::<Elf64_Shdr>()];
        small[..64].copy_from_slice(&file.bytes()[..64]);
        let mut state = 7_u64;
        for _ in 0..5_000 {
            for byte in &mut small[5..] {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                *byte = match state >> 60 {
                    0 => (state >> 50) as u8,
                    1 => 0xff,
                    2 => 64,
                    3 => 2,
                    _ => 0,
                };
            }
            if let Some((entries, global, names)) = table(&small) {
                assert!(entries.end <= small.len() && names.end <= small.len());
                assert!(entries.start <= global.start && global.end == entries.end);
            }
        }
    }
}
