//! The rules that walks have found, for later walks.

use plimsoll_sys::os::pages;
use plimsoll_sys::os::region::{self, PAGE};
use plimsoll_sys::primitives::{AtomicPtr, Ordering};

use crate::rules::RuleCache;

/// The cache of rules, of this process only.
pub(super) static RULES: RuleCache = RuleCache::new();

/// The cache of rules for code that is never unloaded: [`RULES`], or memory that processes share.
static PERMANENT_RULES: AtomicPtr<RuleCache> = AtomicPtr::new((&raw const RULES).cast_mut());

/// Shares the rules of code that is never unloaded with children of later forks, in both directions: a
/// short child needs the rules that its siblings found. Processes of a fork have this code at the same
/// addresses, and readers of the cache detect parts of different entries. Call before `main`, once.
///
/// A wrong rule leads to a wrong stack, but to no access outside of the stack. So a child that loses
/// privileges cannot harm its parent through this memory.
pub fn share_with_children() {
    const BYTES: usize = size_of::<RuleCache>().next_multiple_of(PAGE);
    if let Some(shared) = pages::map_shared(BYTES) {
        region::note(shared, BYTES);
        PERMANENT_RULES.store(shared as *mut RuleCache, Ordering::Release);
    }
}

/// Returns the cache of rules for code that is never unloaded.
#[inline]
pub(super) fn permanent_rules() -> &'static RuleCache {
    // SAFETY: the pointer is to a static or to mapped pages, which are never unmapped, and zeros are an
    // empty cache.
    unsafe { &*PERMANENT_RULES.load(Ordering::Acquire) }
}
