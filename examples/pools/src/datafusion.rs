//! The memory pool of a query engine: each consumer has an account inside the pool's.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;

use datafusion_common::Result;
use datafusion_execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use plimsoll::stats::Declared;

/// Declares all that another pool of datafusion reserves.
#[derive(Debug)]
pub struct DeclaredPool<P> {
    inner: P,
    account: Declared,
    consumers: Mutex<HashMap<usize, Declared>>,
}

impl<P: MemoryPool> DeclaredPool<P> {
    pub fn new(inner: P, account: Declared) -> Self {
        let consumers = Mutex::default();
        Self {
            inner,
            account,
            consumers,
        }
    }

    /// Returns the account of a consumer, to charge its work to.
    pub fn account(&self, consumer: &MemoryConsumer) -> Declared {
        let mut consumers = self.consumers.lock().unwrap();
        let account = || self.account.child(consumer.name());
        consumers
            .entry(consumer.id())
            .or_insert_with(account)
            .clone()
    }
}

impl<P: MemoryPool> MemoryPool for DeclaredPool<P> {
    fn name(&self) -> &str {
        "plimsoll"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.inner.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.inner.unregister(consumer);
        self.consumers.lock().unwrap().remove(&consumer.id());
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.inner.grow(reservation, additional);
        self.account(reservation.consumer()).grow(additional as u64);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.account(reservation.consumer()).shrink(shrink as u64);
        self.inner.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.inner.try_grow(reservation, additional)?;
        self.account(reservation.consumer()).grow(additional as u64);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.inner.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.inner.memory_limit()
    }
}

impl<P: MemoryPool> fmt::Display for DeclaredPool<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.inner, f)
    }
}
