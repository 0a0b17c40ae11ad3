//! The part of a stack that a profile shows: without hidden frames at the leaf, and of a deep stack both ends.

use plimsoll_process::deep_stacks::{LEFT_OUT, kept};

use crate::leaves::{LeafRule, visible};
use plimsoll_symbolize::Symbols;

/// Returns the frames of a stack that `leaf` does not hide, at most `depth`, and the number of hidden innermost
/// lines of the first.
pub fn shown(
    frames: &[usize],
    leaf: LeafRule,
    symbols: &Symbols,
    depth: usize,
) -> (impl Iterator<Item = usize>, usize) {
    let (skip, hidden_lines) = visible(frames, leaf, symbols);
    (kept(&frames[skip..], depth), hidden_lines)
}

/// Returns each address of stacks once, of which at most `depth` frames are shown: stacks have most of their
/// addresses in common.
pub fn addresses<'a>(stacks: impl Iterator<Item = &'a [usize]>, depth: usize) -> Vec<usize> {
    // Grows only if more than half of it is distinct.
    let mut addresses = Vec::with_capacity(256);
    for stack in stacks {
        if addresses.len() + stack.len() > addresses.capacity() {
            remove_repetitions(&mut addresses);
            if addresses.len() > addresses.capacity() / 2 {
                addresses.reserve(addresses.capacity());
            }
        }
        addresses.extend_from_slice(stack);
        if stack.len() > depth {
            addresses.push(LEFT_OUT);
        }
    }
    remove_repetitions(&mut addresses);
    addresses
}

fn remove_repetitions(addresses: &mut Vec<usize>) {
    addresses.sort_unstable();
    addresses.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_many_stacks_are_distinct() {
        // Longer than the first memory for addresses, and repeated more often than that grows.
        let stacks: Vec<Vec<usize>> = (0..1000).map(|at| (at..at + 300).collect()).collect();
        let found = addresses(stacks.iter().map(Vec::as_slice), 100);
        assert!(found.into_iter().eq(0..1299));
        assert!(addresses(std::iter::empty(), 100).is_empty());
    }
}
