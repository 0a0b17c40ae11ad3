//! The line of an instruction, by the table of its function. Each version has its own encoding.

/// The encoding of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    /// 3.9: pairs of bytes, the increments of the instruction and of the line, which is signed.
    Increments,
    /// 3.10: pairs of bytes, the length of a range and the signed increment of the line; -128 for a
    /// range without line.
    Ranges,
    /// From 3.11 on: ranges with lines and columns, of one to many bytes.
    Locations,
}

/// The maximum length of a table that is read, in bytes.
const MAX_LENGTH: usize = 1 << 16;

/// Returns the line of the instruction at a byte offset; the first line of the function for an
/// instruction before its code, and 0 for one without a line. `byte` reads the table, which has
/// `length` bytes.
pub(crate) fn line(
    table: Table,
    start_line: u32,
    instruction: i64,
    length: usize,
    byte: impl FnMut(usize) -> Option<u8>,
) -> u32 {
    if instruction < 0 {
        return start_line;
    }
    let mut bytes = Bytes {
        at: 0,
        length: length.min(MAX_LENGTH),
        byte,
    };
    let start = i64::from(start_line);
    let line = match table {
        Table::Increments => bytes.by_increments(start, instruction),
        Table::Ranges => bytes.by_ranges(start, instruction),
        Table::Locations => bytes.by_locations(start, instruction),
    };
    line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0)
}

struct Bytes<F> {
    at: usize,
    length: usize,
    byte: F,
}

impl<F: FnMut(usize) -> Option<u8>> Bytes<F> {
    fn next(&mut self) -> Option<u8> {
        if self.at >= self.length {
            return None;
        }
        let byte = (self.byte)(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn by_increments(&mut self, mut line: i64, instruction: i64) -> Option<i64> {
        let mut from = 0;
        while let Some(length) = self.next() {
            let step = self.next()? as i8;
            from += i64::from(length);
            if from > instruction {
                break;
            }
            line += i64::from(step);
        }
        Some(line)
    }

    fn by_ranges(&mut self, mut line: i64, instruction: i64) -> Option<i64> {
        let mut end = 0;
        loop {
            end += i64::from(self.next()?);
            let step = self.next()? as i8;
            if step != i8::MIN {
                line += i64::from(step);
            }
            if instruction < end {
                return (step != i8::MIN).then_some(line);
            }
        }
    }

    /// The first byte of a range has its highest bit set, then four bits for its form, and three for
    /// its length in instructions of two bytes, minus 1. No other byte has the highest bit set.
    fn by_locations(&mut self, mut line: i64, instruction: i64) -> Option<i64> {
        const ONE_LINE: u8 = 10;
        const NO_COLUMNS: u8 = 13;
        const LONG: u8 = 14;
        const NONE: u8 = 15;
        let mut end = 0;
        let mut first = self.next()?;
        loop {
            let form = first >> 3 & 15;
            end += 2 * (i64::from(first & 7) + 1);
            match form {
                NO_COLUMNS | LONG => line += self.signed()?,
                ONE_LINE..NO_COLUMNS => line += i64::from(form - ONE_LINE),
                _ => {}
            }
            if instruction < end {
                return (form != NONE).then_some(line);
            }
            first = loop {
                let byte = self.next()?;
                if byte & 0x80 != 0 {
                    break byte;
                }
            };
        }
    }

    /// Reads a number: six bits in each byte, lowest first, while the seventh bit is set. The lowest bit
    /// of the number is its sign.
    fn signed(&mut self) -> Option<i64> {
        let mut number = 0_u64;
        for shift in (0..36).step_by(6) {
            let byte = self.next()?;
            number |= u64::from(byte & 63) << shift;
            if byte & 64 == 0 {
                let size = (number >> 1) as i64;
                return Some(if number & 1 == 0 { size } else { -size });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(table: Table, start: u32, bytes: &[u8], instructions: &[i64]) -> Vec<u32> {
        let at = |&instruction: &i64| {
            let byte = |at: usize| bytes.get(at).copied();
            line(table, start, instruction, bytes.len(), byte)
        };
        instructions.iter().map(at).collect()
    }

    #[test]
    fn tables_of_increments_are_read() {
        // From line 10: 4 bytes, then line 12 for 6 bytes, then line 9.
        let table = [4, 2, 6, 0xfd];
        let found = lines(Table::Increments, 10, &table, &[-1, 0, 3, 4, 9, 10, 500]);
        assert_eq!(found, [10, 10, 10, 12, 12, 9, 9]);
    }

    #[test]
    fn tables_of_ranges_are_read() {
        let table = [4, 0, 6, 2, 2, 0x80, 4, 0xfd];
        let found = lines(Table::Ranges, 10, &table, &[-2, 0, 4, 9, 10, 12, 15, 16]);
        assert_eq!(found, [10, 10, 12, 12, 0, 9, 9, 0]);
    }

    #[test]
    fn tables_of_locations_are_read() {
        // Short form of 1 instruction; one line further, 2 instructions; without columns, 3 lines back,
        // 8 instructions; long, 100 lines on; none; short again.
        let table = [
            0x80,
            0x11,
            0x80 | 11 << 3 | 1,
            5,
            9,
            0x80 | 13 << 3 | 7,
            7,
            0x80 | 14 << 3,
            0x48,
            3,
            2,
            1,
            1,
            0x80 | 15 << 3,
            0x80 | 2 << 3,
            4,
        ];
        let found = lines(
            Table::Locations,
            10,
            &table,
            &[-2, 0, 2, 4, 6, 20, 22, 24, 26, 28],
        );
        assert_eq!(found, [10, 10, 11, 11, 8, 8, 108, 0, 108, 0]);
    }

    #[test]
    fn damaged_tables_end() {
        let mut random = 1_u64;
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random % 40)
                .map(|_| {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    (random >> 33) as u8
                })
                .collect();
            random = random.wrapping_add(1);
            for table in [Table::Increments, Table::Ranges, Table::Locations] {
                lines(table, u32::MAX, &bytes, &[0, 50, i64::MAX]);
                lines(table, 0, &bytes, &[0, 50, i64::MAX]);
            }
        }
    }
}
