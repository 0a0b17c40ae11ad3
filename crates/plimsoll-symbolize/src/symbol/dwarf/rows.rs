//! Resolves addresses to files and lines, by a unit's line program.

use super::Bytes;
use super::units::Unit;

/// A line of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// The file's number in the unit.
    pub(super) file: u64,
    /// The line number; 0 for code without a line.
    pub(super) line: u64,
}

/// Returns the row of each of the sorted `addresses`. Runs the line program once, without storing
/// it.
pub(super) fn read(unit: &Unit<'_>, code_start: u64, addresses: &[u64]) -> Vec<Option<Row>> {
    let mut rows = vec![None; addresses.len()];
    if let Some(program) = unit.line_program() {
        // After an error, the rows found before it remain.
        let _ = run(program, code_start, addresses, &mut rows);
    }
    rows
}

fn run(
    program: gimli::IncompleteLineProgram<Bytes<'_>>,
    code_start: u64,
    addresses: &[u64],
    found: &mut [Option<Row>],
) -> gimli::Result<()> {
    let mut rows = program.rows();
    // The row that applies up to the next row's address. `None` between sequences, and in sequences
    // of code that the linker dropped.
    let mut current: Option<Row> = None;
    let mut in_sequence = false;
    let mut kept = false;
    // The first address that the current row may cover.
    let mut next = 0;
    while let Some((_, row)) = rows.next_row()? {
        let address = row.address();
        if !in_sequence {
            kept = address >= code_start;
            next = addresses.partition_point(|&wanted| wanted < address);
        }
        while next < addresses.len() && addresses[next] < address {
            if found[next].is_none() {
                found[next] = current;
            }
            next += 1;
        }
        in_sequence = !row.end_sequence();
        current = (in_sequence && kept).then(|| Row {
            file: row.file_index(),
            line: row.line().map_or(0, std::num::NonZeroU64::get),
        });
    }
    Ok(())
}
