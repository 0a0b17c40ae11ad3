//! Allocations of a measurement by stack.

use std::cell::Cell;

use crate::stack::{self, StackName};

/// The number of different sites that a measurement records.
const MAX_SITES: usize = 64;

/// Allocations by stack. All that exceed the number of sites, or have no stack, are counted together.
pub struct Sites {
    sites: [Site; MAX_SITES],
    used: Cell<usize>,
    /// Allocations beyond those.
    pub others: Cell<u64>,
}

struct Site {
    stack: Cell<StackName>,
    allocations: Cell<u64>,
    bytes: Cell<u64>,
}

impl Sites {
    /// The caller allocates it within a scope.
    pub fn new() -> Box<Self> {
        Box::new(Self {
            sites: [const {
                Site {
                    stack: Cell::new(StackName(0)),
                    allocations: Cell::new(0),
                    bytes: Cell::new(0),
                }
            }; MAX_SITES],
            used: Cell::new(0),
            others: Cell::new(0),
        })
    }

    pub(super) fn add(&self, stack: Option<StackName>, size: usize) {
        let used = self.used.get();
        let of_stack = stack.and_then(|stack| {
            let known = self.sites[..used]
                .iter()
                .find(|site| site.stack.get() == stack);
            known.or_else(|| {
                let next = self.sites.get(used)?;
                next.stack.set(stack);
                self.used.set(used + 1);
                Some(next)
            })
        });
        match of_stack {
            Some(site) => {
                site.allocations.set(site.allocations.get() + 1);
                site.bytes.set(site.bytes.get() + size as u64);
            }
            None => self.others.set(self.others.get() + 1),
        }
    }

    /// Returns stack, allocations and bytes of each site, in the order of the first allocation.
    pub fn iter(&self) -> impl Iterator<Item = (&'static [usize], u64, u64)> {
        self.sites[..self.used.get()].iter().map(|site| {
            let stack = stack::TABLE.stack(site.stack.get());
            (stack, site.allocations.get(), site.bytes.get())
        })
    }
}
