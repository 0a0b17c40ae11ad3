//! Addresses to symbols: the physical function that the code at an address belongs to.
//!
//! The table is read once from end to end, and each symbol looks for the addresses it covers. So
//! nothing is sorted or stored but one answer for each address.

use std::cmp::Ordering;

use super::elf::{CodeSymbol, Elf};

/// The symbol that covers an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol<'a> {
    /// Where the function begins, as stated in the file.
    pub(super) start: u64,
    /// As it is in the table: mangled.
    pub(super) name: &'a [u8],
}

/// Fills in what `elf` knows about the `addresses`, which are sorted and as stated in the file.
/// What is known already stays.
pub(super) fn look_up<'a>(elf: Elf<'a>, addresses: &[u64], known: &mut [Option<Symbol<'a>>]) {
    let mut covering: Vec<Option<CodeSymbol<'a>>> = vec![None; addresses.len()];
    // For each address, the symbol that begins last before it, if that is after the address before.
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
        // A label goes on until the next symbol.
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

/// For symbols that begin together, the one that says where it ends is as if it began later.
fn begins_later(new: &CodeSymbol<'_>, best: &CodeSymbol<'_>) -> bool {
    match (new.start, new.sized).cmp(&(best.start, best.sized)) {
        Ordering::Equal => better(new, best),
        order => order.is_gt(),
    }
}

/// Which of two symbols that cover an address is the one to name: the innermost; of aliases, the
/// one that is meant for use: global before weak before local, then the one with fewer leading
/// underscores, then the shorter one.
fn better(new: &CodeSymbol<'_>, best: &CodeSymbol<'_>) -> bool {
    if new.start != best.start {
        return new.start > best.start;
    }
    rank(new) < rank(best)
}

/// The lower, the better.
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
