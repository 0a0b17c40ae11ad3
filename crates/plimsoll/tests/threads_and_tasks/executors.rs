//! Tracked futures on executors of all kinds: the calls of their wakers, the places where tasks
//! wait, and events around tasks.

use crate::chain;

#[path = "executors/around.rs"]
mod around;
#[path = "executors/contract.rs"]
mod contract;
#[path = "executors/counted.rs"]
mod counted;
#[cfg(feature = "hyper")]
#[path = "executors/hyper.rs"]
mod hyper;
#[path = "executors/kinds.rs"]
mod kinds;
#[path = "executors/waiting.rs"]
mod waiting;

use plimsoll::task::{self, TaskId, TaskRecord};

fn record(id: TaskId) -> Option<TaskRecord> {
    task::tasks().into_iter().find(|task| task.id() == id)
}
