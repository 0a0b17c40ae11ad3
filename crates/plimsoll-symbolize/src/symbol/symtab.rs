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
    let pages = Pages::from_addresses(addresses);
    for symbol in elf.code_symbols() {
        let first = pages.first_from(addresses, symbol.start);
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

/// The positions of sorted addresses by page, since there are many more symbols than addresses.
struct Pages {
    /// The size of a page as a power of two.
    shift: u32,
    /// The page of the first address.
    first: u64,
    /// For each page from that on, the position of the first address in it or after it.
    begins: Vec<usize>,
}

impl Pages {
    fn from_addresses(addresses: &[u64]) -> Self {
        /// The least size of a page, as a power of two, and about the maximum number of pages.
        const MIN_SHIFT: u32 = 12;
        const MAX_PAGES: u64 = 1 << 14;
        let low = addresses.first().copied().unwrap_or(0);
        let high = addresses.last().copied().unwrap_or(0);
        let shift = u64::BITS - ((high - low) / MAX_PAGES).leading_zeros();
        let shift = shift.max(MIN_SHIFT);
        let (first, last) = (low >> shift, high >> shift);
        let mut at = 0;
        let begins = (first..=last).map(|page| {
            at += (addresses[at..].iter())
                .take_while(|&&address| address >> shift < page)
                .count();
            at
        });
        Self {
            shift,
            first,
            begins: begins.collect(),
        }
    }

    /// Returns the position of the first address that is not below `start`.
    fn first_from(&self, addresses: &[u64], start: u64) -> usize {
        let Some(page) = (start >> self.shift).checked_sub(self.first) else {
            return 0;
        };
        let begins = |page| {
            let begins = usize::try_from(page)
                .ok()
                .and_then(|page| self.begins.get(page));
            begins.copied().unwrap_or(addresses.len())
        };
        let (from, to) = (begins(page), begins(page.saturating_add(1)));
        from + addresses[from..to].partition_point(|&address| address < start)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_by_page_as_by_a_search() {
        let near: Vec<u64> = (0..500).map(|at| 0x5000 + at * at * 7).collect();
        let far = vec![
            3,
            3,
            1 << 20,
            (1 << 20) + 1,
            1 << 45,
            u64::MAX - 1,
            u64::MAX,
        ];
        for addresses in [near, far, vec![0x1234], vec![0, u64::MAX], Vec::new()] {
            let pages = Pages::from_addresses(&addresses);
            assert!(pages.begins.len() < 1 << 16);
            let around = addresses.iter().flat_map(|&address| {
                [0, 1, 4095, 4096, 1 << 40]
                    .map(|by| [address.wrapping_sub(by), address.wrapping_add(by)])
            });
            for start in around.flatten().chain([0, u64::MAX]) {
                let expected = addresses.partition_point(|&address| address < start);
                assert_eq!(pages.first_from(&addresses, start), expected, "{start}");
            }
        }
    }
}
