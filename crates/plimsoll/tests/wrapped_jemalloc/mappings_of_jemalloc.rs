//! An allocator in the program that maps memory through the interposed functions. Its mappings
//! count as the allocator's, and its blocks in use are part of them.

use plimsoll_testkit::child;
use std::hint::black_box;

use plimsoll::stats::{Basis, Reconciliation, Row, reconcile};

const MIB: i64 = 1 << 20;

fn row<'a>(reconciliation: &'a Reconciliation, name: &str) -> &'a Row {
    let mut rows = reconciliation.rows.iter();
    let row = rows.find(|row| row.name == name);
    row.unwrap_or_else(|| panic!("{name}: {reconciliation}"))
}

fn rows() {
    let mut blocks: Vec<Vec<u8>> = (0..40_000).map(|_| vec![1; 1000]).collect();
    let full = reconcile();
    let in_use = row(&full, "heap: blocks in use");
    assert_eq!(in_use.basis, Basis::Measured, "{full}");
    let near = |found: i64, expected: i64| {
        assert!((found - expected).abs() < 3 * MIB, "{found}, {expected}");
    };
    near(in_use.resident as i64, 41 * MIB);
    near(full.unexplained().unwrap(), 0);
    let mut number = 0;
    blocks.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    let cheese = reconcile();
    let held = |of: &Reconciliation| row(of, "heap: held or fragmented").resident as i64;
    near(held(&cheese) - held(&full), 20 * MIB);
    near(cheese.unexplained().unwrap(), 0);
    // The allocator's memory does not count as the program's.
    assert!(
        row(&cheese, "mapped by the program").resident < 1 << 20,
        "{cheese}"
    );
    black_box(blocks);
}

#[test]
fn blocks_in_use_are_a_part_of_the_allocators_mappings() {
    child::run(
        "blocks_in_use_are_a_part_of_the_allocators_mappings",
        "",
        rows,
    );
}
