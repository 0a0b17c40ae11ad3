//! Tests with code that is not in the module list.

#[cfg(target_env = "gnu")]
mod libraries;

use super::*;

#[test]
fn a_walk_with_the_list_before_is_answered_after_a_refresh() {
    prepare(None);
    // Does the work of a walk that began before this refresh and met a new library.
    refresh_modules();
    unknown_code::met_at(1);
    // Nothing has changed since. Another thread may note a different address meanwhile.
    refresh_modules();
    assert_ne!(unknown_code::take(), 1, "no walk calls again");
}
