//! Damaged files: lookups in them terminate, do not panic, and stay in bounds.

use crate::symbol::elf::Elf;
use crate::symbol::symtab;
use crate::symbol::table::{Answer, Table};

const FIXTURES: [&[u8]; 6] = [
    include_bytes!("../../tests/fixtures/four.so"),
    include_bytes!("../../tests/fixtures/five.so"),
    include_bytes!("../../tests/fixtures/zlib.so"),
    include_bytes!("../../tests/fixtures/lto.so"),
    include_bytes!("../../tests/fixtures/skeleton.so"),
    include_bytes!("../../tests/fixtures/split.debug"),
];

/// The range of the fixtures' code.
const CODE: std::ops::Range<u64> = 0x300..0x500;

/// Looks up `addresses` in `bytes`, whatever they contain. Returns the number of answers.
fn look_up(bytes: &[u8], addresses: &[u64]) -> usize {
    let Some(elf) = Elf::parse(bytes) else {
        return 0;
    };
    let _ = (elf.build_id(), elf.debug_link(), elf.segments().count());
    let mut symbols = vec![None; addresses.len()];
    symtab::look_up(elf, addresses, &mut symbols);
    for (symbol, address) in symbols.iter().zip(addresses) {
        assert!(symbol.is_none_or(|symbol| symbol.start <= *address));
    }
    let mut table = Table::new();
    let mut answers = vec![Answer::default(); addresses.len()];
    #[cfg(feature = "debug-info")]
    crate::symbol::dwarf::look_up(elf, 1, addresses, &symbols, &mut answers, &mut table);
    table.answer_with_symbols(&symbols, &mut answers);
    for answer in &answers {
        for line in &table.lines[answer.lines.start as usize..answer.lines.end as usize] {
            let function = table.functions[line.function as usize];
            for text in [function.name, function.system_name, function.file] {
                table.texts.get(text);
            }
        }
    }
    answers
        .iter()
        .filter(|answer| !answer.lines.is_empty())
        .count()
}

/// A small generator of random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

#[test]
fn whole_fixtures_have_answers() {
    let addresses: Vec<u64> = CODE.collect();
    for bytes in FIXTURES {
        assert!(look_up(bytes, &addresses) > 30);
    }
}

#[test]
fn files_cut_off_anywhere_do_no_harm() {
    let addresses: Vec<u64> = CODE.step_by(7).collect();
    for bytes in FIXTURES {
        for length in (0..bytes.len()).step_by(3) {
            look_up(&bytes[..length], &addresses);
        }
    }
}

/// Truncates one section at a time; all others stay complete.
#[test]
fn sections_cut_off_anywhere_do_no_harm() {
    const SIZE: usize = 32;
    let addresses: Vec<u64> = CODE.step_by(7).collect();
    for bytes in FIXTURES {
        let mut bytes = bytes.to_vec();
        let word =
            |bytes: &[u8], at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().unwrap());
        let headers = word(&bytes, 40) as usize;
        for header in (headers..bytes.len() - 63).step_by(64) {
            let size = word(&bytes, header + SIZE);
            for cut in (0..size.min(2000)).step_by(5).chain([size + 1, u64::MAX]) {
                bytes[header + SIZE..][..8].copy_from_slice(&cut.to_ne_bytes());
                look_up(&bytes, &addresses);
            }
            bytes[header + SIZE..][..8].copy_from_slice(&size.to_ne_bytes());
        }
    }
}

#[test]
fn files_with_random_bytes_do_no_harm() {
    let addresses: Vec<u64> = CODE.step_by(3).collect();
    let mut random = Random(0x5eed);
    for bytes in FIXTURES {
        for round in 0..1500 {
            let mut bytes = bytes.to_vec();
            for _ in 0..=random.below(1 + round % 40) {
                // Every byte past the headers can affect symbols.
                let at = random.below(bytes.len());
                bytes[at] = match random.below(4) {
                    0 => 0,
                    1 => 0xff,
                    2 => bytes[at] ^ 1 << random.below(8),
                    _ => random.below(256) as u8,
                };
            }
            look_up(&bytes, &addresses);
        }
    }
}

/// Tests the output of the current compiler.
#[test]
fn damaged_copies_of_this_program_do_no_harm() {
    let mut bytes = std::fs::read("/proc/self/exe").unwrap();
    let elf = Elf::parse(&bytes).unwrap();
    let code = elf.code_symbols().map(|symbol| symbol.start);
    let mut addresses: Vec<u64> = code.step_by(50).collect();
    addresses.sort_unstable();
    assert!(look_up(&bytes, &addresses) > 20);
    let mut random = Random(0xbad5eed);
    for _ in 0..6 {
        for _ in 0..bytes.len() / 4000 {
            // The header and the tables are kept; without them there are no symbols.
            let at = 64 + random.below(bytes.len() - 10_000);
            bytes[at] ^= 1 << random.below(8);
        }
        look_up(&bytes, &addresses);
    }
    for eighth in 0..8 {
        look_up(&bytes[..bytes.len() / 8 * eighth], &addresses);
    }
}
