//! The lists and locks of `plimsoll-heap`.

#[path = "../../crates/plimsoll-heap/src/counted_lock.rs"]
mod counted_lock;
#[path = "../../crates/plimsoll-heap/src/lists/list.rs"]
mod list;
#[cfg(test)]
#[path = "../../crates/plimsoll-heap/src/models.rs"]
mod models;
