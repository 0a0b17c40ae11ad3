//! Replacement of the module list.

use std::sync::OnceLock;

use plimsoll_sys::primitives::{Ordering, fence};
use plimsoll_unwind::modules::ModuleList;

use super::super::unknown_code;
use super::{MODULES, REQUESTS, RetiredList, lock_lists, pool, slots_at};
use crate::internal_scope;

/// The function to be called after each replacement of the module list.
static MODULES_OBSERVER: OnceLock<fn()> = OnceLock::new();

/// Registers the function that [`refresh_modules`] calls after each replacement. A later call has
/// no effect.
pub fn observe_modules(observer: fn()) {
    let _ = MODULES_OBSERVER.set(observer);
}

/// Replaces the module list if the loader has changed something, or if a walk met unknown code.
/// Allocates and takes locks: not for hooks.
pub fn refresh_modules() {
    if !replace_modules() {
        return;
    }
    if let Some(observer) = MODULES_OBSERVER.get() {
        observer();
    }
}

/// Replaces the module list if it is stale. Returns whether it was.
fn replace_modules() -> bool {
    let current = MODULES.load(Ordering::Acquire);
    if current.is_null() {
        return false;
    }
    let _own = internal_scope::scope();
    let mut retired = lock_lists();
    let current = MODULES.load(Ordering::Acquire);
    let unknown = unknown_code::take();
    // SAFETY: lists are only replaced and freed under the lock, which is held.
    let successor = unsafe { (*current).successor(unknown) };
    let replaced = successor.is_some();
    if let Some(list) = successor {
        let old = MODULES.swap(Box::into_raw(Box::new(list)), Ordering::AcqRel);
        retired.push(RetiredList(old as usize));
    }
    // The list was replaced first, the names are read afterwards: the counterpart of `with_list`.
    fence(Ordering::SeqCst);
    retired.retain(|list| {
        let list = list.0 as *mut ModuleList;
        let read = pool()
            .iter()
            .chain(slots_at(&REQUESTS))
            .any(|slot| slot.reading.load(Ordering::Acquire) == list);
        if !read {
            // SAFETY: the list came from `Box::into_raw`, is no longer in `MODULES`, and no slot
            // names it.
            drop(unsafe { Box::from_raw(list) });
        }
        read
    });
    replaced
}

/// Calls `work` with the current list, which is not replaced meanwhile. Returns `None` if there is
/// no list yet. Not for hooks.
pub(in crate::stack) fn with_modules<R>(work: impl FnOnce(&ModuleList) -> R) -> Option<R> {
    let _stays = lock_lists();
    let list = MODULES.load(Ordering::Acquire);
    // SAFETY: lists are only freed under the lock, which is held.
    (!list.is_null()).then(|| work(unsafe { &*list }))
}
