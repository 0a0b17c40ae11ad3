//! A query engine whose pool knows a part of its memory.

use plimsoll::stats::{Declared, footprint};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

const MIB: f64 = (1 << 20) as f64;

fn main() {
    let engine = Declared::new("engine");
    let (sort, join) = (engine.child("sort"), engine.child("join"));
    for operator in [&sort, &join] {
        operator.on_undeclared(10, |account| println!("warning: {account}"));
    }
    let rows = sort.charge(|| sort_rows(&sort));
    let table = join.charge(|| build_table(&join));
    // Pages that are read from files, buffers of clients, and all else that no account has.
    let others = vec![1_u8; 8 << 20];

    let memory = footprint();
    println!("declared {:.0} MiB", memory.declared as f64 / MIB);
    println!("allocated {:.0} MiB", memory.allocated as f64 / MIB);
    println!(
        "resident {:.0} MiB",
        memory.resident.unwrap_or(0) as f64 / MIB
    );
    for account in &memory.accounts {
        println!("{account}");
    }
    drop((rows, table, others));
}

/// Declares what it allocates.
fn sort_rows(account: &Declared) -> Vec<u64> {
    let rows = vec![7; 1 << 20];
    account.grow(8 << 20);
    rows
}

/// Declares the keys only.
fn build_table(account: &Declared) -> Vec<(u64, String)> {
    let keys = 0..200_000_u64;
    account.grow(200_000 * 8);
    keys.map(|key| (key, format!("customer {key:>40}")))
        .collect()
}
