//! Resolves addresses to symbols: the physical functions that contain the code.
//!
//! The table is read once from end to end. Each symbol searches the sorted addresses for those that
//! it covers, so only one answer per address is stored.

use std::cmp::Ordering;

use super::elf::{CodeSymbol, Elf};

/// The symbol that covers an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol<'a> {
    /// The start of the function, as stated in the file.
    pub(super) start: u64,
    /// The name as stored in the table: mangled.
    pub(super) name: &'a [u8],
}

/// Fills in the symbols of `elf` that cover the `addresses`, which are sorted and as stated in the
/// file. Entries of `known` that are already set stay.
pub(super) fn look_up<'a>(elf: Elf<'a>, addresses: &[u64], known: &mut [Option<Symbol<'a>>]) {
    let mut covering: Vec<Option<CodeSymbol<'a>>> = vec![None; addresses.len()];
    // For each address, the last symbol that begins before it and after the previous address.
    let mut nearest: Vec<Option<CodeSymbol<'a>>> = vec![None; addresses.len()];
    for symbol in elf.code_symbols() {
        let first = addresses.partition_point(|&address| address < symbol.start);
        let after = &addresses[first..];
        if after.is_empty() {
            continue;
        }
        if nearest[first].is_none_or(|best| begins_later(&symbol, &best)) {
            nearest[first] = Some(symbol);
        }
        if symbol.sized {
            let covered = after.partition_point(|&address| address < symbol.end);
            for covering in &mut covering[first..first + covered] {
                if covering.is_none_or(|best| better(&symbol, &best)) {
                    *covering = Some(symbol);
                }
            }
        }
    }
    let mut before: Option<CodeSymbol<'a>> = None;
    for (at, &address) in addresses.iter().enumerate() {
        before = nearest[at].or(before);
        // A label extends to the next symbol.
        let label = before.filter(|symbol| !symbol.sized && address < symbol.end);
        if known[at].is_none() {
            known[at] = covering[at]
                .or(label)
                .map(|symbol| Symbol {
                    start: symbol.start,
                    name: symbol.name(),
                })
                .filter(|symbol| !symbol.name.is_empty());
        }
    }
}

/// Returns whether `new` begins after `best`. Of symbols with the same start, one with a size
/// counts as the later one.
fn begins_later(new: &CodeSymbol<'_>, best: &CodeSymbol<'_>) -> bool {
    match (new.start, new.sized).cmp(&(best.start, best.sized)) {
        Ordering::Equal => better(new, best),
        order => order.is_gt(),
    }
}

/// Returns whether `new` rather than `best` names an address that both cover. The innermost symbol
/// wins. Of aliases, the order is global before weak before local, then fewer leading underscores,
/// then the shorter name.
fn better(new: &CodeSymbol<'_>, best: &CodeSymbol<'_>) -> bool {
    if new.start != best.start {
        return new.start > best.start;
    }
    rank(new) < rank(best)
}

/// Returns the rank of a symbol among its aliases; the lowest wins.
fn rank<'a>(symbol: &CodeSymbol<'a>) -> (bool, u32, usize, usize, &'a [u8]) {
    let binding = match symbol.binding {
        1 => 0,
        2 => 1,
        _ => 2,
    };
    let name = symbol.name();
    let underscores = name.iter().take_while(|&&byte| byte == b'_').count();
    (name.is_empty(), binding, underscores, name.len(), name)
}
