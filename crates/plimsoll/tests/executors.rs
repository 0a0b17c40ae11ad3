//! Tracked futures on executors of all kinds: what their wakers are asked for, where tasks wait,
//! and what happens around them.

mod chain;
mod pprof;

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

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

fn record(id: TaskId) -> Option<TaskRecord> {
    task::tasks().into_iter().find(|task| task.id() == id)
}
