//! Accounts that the program defines: counted in hooks, read at one instant together with the heap.

use plimsoll_checks::relations;
use plimsoll_testkit::child;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use plimsoll::stats::{self, Account, AccountStats};
use plimsoll::{http, size_class};
use relations::Until;

static POOL: Account = Account::new("pool");
static BLOCKS: Account = Account::new("blocks");

fn of(account: &Account) -> AccountStats {
    let accounts = stats::accounts();
    let mut found = accounts.iter().filter(|stats| stats.name == account.name());
    let stats = *found.next().expect("it was used");
    assert!(found.next().is_none(), "each is there once");
    stats
}

/// A block size that no other code uses.
const BLOCK: usize = 6100;

/// Charges a pool, whose memory another thread releases in part. Also charges blocks before they
/// are allocated and releases them after they are freed.
fn work(seed: usize, elsewhere: &mpsc::Sender<usize>, enough: &AtomicBool) {
    let mut size = seed;
    while !enough.load(Ordering::Relaxed) {
        size = size * 69_069 % 65_537 + 1;
        POOL.reserve(2 * size);
        POOL.commit(size);
        POOL.commit(size / 2);
        if size % 3 == 0 {
            elsewhere.send(size).unwrap();
        } else {
            give_back(size);
        }
        BLOCKS.commit(BLOCK);
        drop(black_box(Vec::<u8>::with_capacity(BLOCK)));
        BLOCKS.release(BLOCK);
    }
}

fn give_back(size: usize) {
    POOL.release(size / 2);
    POOL.release(size);
    POOL.unreserve(2 * size);
}

fn hammered() {
    const READINGS: usize = 1000;
    let enough = AtomicBool::new(false);
    let class = size_class::of(BLOCK).unwrap();
    let mut most = 0;
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (send, receive) = mpsc::channel();
            let enough = &enough;
            scope.spawn(move || work(seed + 1, &send, enough));
            scope.spawn(move || receive.into_iter().for_each(give_back));
        }
        let _until = Until(&enough);
        let begun = Instant::now();
        while stats::accounts().len() < 2 {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        let mut before: Option<AccountStats> = None;
        for _ in 0..READINGS {
            let (heap, accounts) = stats::heap_stats_with_accounts();
            assert!(heap.exact);
            for stats in &accounts {
                assert_eq!(stats.excess, 0, "{stats:?}");
            }
            let of = |account: &Account| {
                let mut accounts = accounts.iter();
                *accounts.find(|stats| stats.name == account.name()).unwrap()
            };
            let (pool, blocks) = (of(&POOL), of(&BLOCKS));
            assert!(pool.committed <= pool.reserved, "{pool:?}");
            if let Some(before) = before {
                assert!(before.total_reserved <= pool.total_reserved);
                assert!(before.total_committed <= pool.total_committed);
            }
            before = Some(pool);
            let counts = heap.by_class[class];
            let there = (counts.mallocs - counts.frees) * BLOCK as u64;
            assert!(there <= blocks.committed, "{counts:?}, {blocks:?}");
            most = most.max(blocks.committed);
        }
    });
    assert!(most > 0, "some were seen");
    let (pool, blocks) = (of(&POOL), of(&BLOCKS));
    assert_eq!((pool.reserved, pool.committed), (0, 0));
    assert_eq!((blocks.reserved, blocks.committed), (0, 0));
    assert!(pool.total_reserved > 0 && blocks.total_committed > 0);
}

#[test]
fn accounts_add_up_in_every_reading_counted_per_processor() {
    child::run(
        "accounts_add_up_in_every_reading_counted_per_processor",
        "ledger=per-cpu",
        hammered,
    );
}

#[test]
fn accounts_add_up_in_every_reading_counted_per_thread() {
    child::run(
        "accounts_add_up_in_every_reading_counted_per_thread",
        "ledger=per-thread",
        hammered,
    );
}

#[test]
fn accounts_add_up_in_every_reading_counted_with_fences() {
    child::run(
        "accounts_add_up_in_every_reading_counted_with_fences",
        "ledger=fenced",
        hammered,
    );
}

/// Readings that are checked twice allocate, so the test does not apply to them.
#[cfg(not(feature = "double-check"))]
#[test]
fn counting_allocates_nothing_from_the_first_time_on() {
    static NEW: Account = Account::new("new");
    assert!(relations::allocates_nothing(|| {
        NEW.reserve(7);
        NEW.commit(5);
        NEW.release(5);
        NEW.unreserve(7);
    }));
    let stats = of(&NEW);
    assert_eq!((stats.reserved, stats.committed, stats.excess), (0, 0, 0));
    assert_eq!(stats.total_reserved % 7, 0);
}

fn more_than_there_is_room_for() {
    static MANY: [Account; Account::MOST + 5] =
        [const { Account::new("one of many") }; Account::MOST + 5];
    for (number, account) in MANY.iter().enumerate() {
        account.commit(1 << number);
    }
    for (number, account) in MANY.iter().enumerate().rev() {
        account.commit(1 << number);
    }
    let accounts = stats::accounts();
    assert_eq!(accounts.len(), Account::MOST + 1);
    for (number, stats) in accounts[..Account::MOST].iter().enumerate() {
        assert_eq!((stats.name, stats.committed), ("one of many", 2 << number));
    }
    let others = &accounts[Account::MOST];
    assert_eq!(others.name, "(other accounts)");
    assert_eq!(others.committed, 2 * (0b11111 << Account::MOST));
}

#[test]
fn accounts_beyond_the_last_count_together() {
    child::run(
        "accounts_beyond_the_last_count_together",
        "",
        more_than_there_is_room_for,
    );
}

fn seen_from_outside() {
    let page = |path| String::from_utf8(http::handle("GET", path, "").body).unwrap();
    assert!(!page("/metrics").contains("memory_account"));
    // The page has the command line, and so the path of the test.
    let vars = || -> serde_json::Value { serde_json::from_str(&page("/debug/vars")).unwrap() };
    assert_eq!(vars().get("plimsoll_accounts"), None);
    POOL.reserve(4096);
    POOL.commit(1000);
    POOL.release(3000);
    assert_eq!(of(&POOL).excess, 2000);
    let metrics = page("/metrics");
    for line in [
        "plimsoll_memory_account_reserved_bytes{account=\"pool\"} 4096",
        "plimsoll_memory_account_committed_bytes{account=\"pool\"} 0",
        "plimsoll_memory_account_commits_bytes_total{account=\"pool\"} 1000",
        "plimsoll_memory_account_excess_bytes{account=\"pool\"} 2000",
    ] {
        assert!(
            metrics.lines().any(|found| found == line),
            "{line}\n{metrics}"
        );
    }
    assert_eq!(
        vars()["plimsoll_accounts"],
        serde_json::json!([{"Name": "pool", "Reserved": 4096, "Committed": 0, "Excess": 2000}])
    );
}

#[test]
fn accounts_and_their_errors_are_in_the_pages() {
    child::run(
        "accounts_and_their_errors_are_in_the_pages",
        "",
        seen_from_outside,
    );
}
