//! What each pool or cache reserves is what its account declares.

use std::sync::Arc;

use arrow_buffer::Buffer;
use bytes::Bytes;
use datafusion_execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
use plimsoll::stats::Declared;
use plimsoll_pools::arrow::DeclaredBuffers;
use plimsoll_pools::datafusion::DeclaredPool;
use plimsoll_pools::weighed::Weighed;

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

#[test]
fn datafusion_declares_each_consumer() {
    let account = Declared::new("datafusion");
    let pool = Arc::new(DeclaredPool::new(
        GreedyMemoryPool::new(1000),
        account.clone(),
    ));
    let shared: Arc<dyn MemoryPool> = Arc::clone(&pool) as _;
    let (sort, join) = (MemoryConsumer::new("sort"), MemoryConsumer::new("join"));
    let of_sort = pool.account(&sort);
    let rows = sort.register(&shared);
    let table = join.register(&shared);
    rows.try_grow(600).unwrap();
    table.grow(300);
    assert!(rows.try_grow(200).is_err(), "beyond the limit");
    assert_eq!(
        (account.stats().declared, of_sort.stats().declared),
        (900, 600)
    );
    assert_eq!(of_sort.path(), "datafusion/sort");
    let kept = of_sort.charge(|| vec![0_u8; 5000]);
    assert_eq!(of_sort.stats().undeclared(), 4400);
    rows.shrink(100);
    assert_eq!(account.stats().declared, shared.reserved() as u64);
    drop((rows, table));
    assert_eq!(
        (account.stats().declared, account.stats().peak_declared),
        (0, 900)
    );
    drop(kept);
}

#[test]
fn caches_declare_what_they_hold() {
    let account = Declared::new("caches");
    let moka = moka::sync::Cache::builder()
        .max_capacity(10_000)
        .weigher(|_: &u32, value: &Arc<Weighed<Vec<u8>>>| value.weight() as u32)
        .build();
    let quick = quick_cache::sync::Cache::new(4);
    for key in 0..100 {
        let value = || Arc::new(Weighed::new(vec![0_u8; 1000], 1000, &account));
        moka.insert(key, value());
        quick.insert(key, value());
    }
    moka.run_pending_tasks();
    let held = moka.weighted_size() + 1000 * quick.len() as u64;
    // moka frees evicted values some time later.
    assert!((held..=200_000).contains(&account.stats().declared));
    moka.invalidate_all();
    moka.run_pending_tasks();
    drop((moka, quick));
    assert_eq!((account.stats().declared, account.stats().excess), (0, 0));
}

#[test]
fn buffers_are_declared_for_as_long_as_they_exist() {
    let account = Declared::new("buffers");
    let bytes = Bytes::from_owner(Weighed::new(vec![7_u8; 4096], 4096, &account));
    let part = bytes.slice(10..20);
    drop(bytes);
    assert_eq!((account.stats().declared, part[0]), (4096, 7));
    let pool = DeclaredBuffers(account.clone());
    let buffer = Buffer::from(vec![1_u8; 8192]);
    buffer.claim(&pool);
    assert_eq!(account.stats().declared, 4096 + buffer.capacity() as u64);
    drop((part, buffer));
    assert_eq!(account.stats().declared, 0);
}
