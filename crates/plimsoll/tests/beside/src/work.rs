//! Tasks with a known number of polls and blocks.

use std::future::poll_fn;
use std::hint::black_box;
use std::mem::replace;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::Notify;

use crate::{POLLS_BEFORE_GATE, SIZE};

/// The blocks of one task.
pub type Kept = Vec<Vec<u8>>;

/// Keeps tasks from ending, until it is opened.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Notify>);

impl Gate {
    /// Lets all tasks end that wait now.
    pub fn open(&self) {
        self.0.notify_waiters();
    }
}

#[inline(never)]
fn keeps_here(kept: &mut Kept) {
    kept.push(black_box(Vec::with_capacity(SIZE)));
    black_box(kept);
}

/// Wakes its task and waits for the next poll. It allocates nothing, unlike tokio's function of that kind, which keeps
/// wakers in a vector.
async fn yields() {
    let mut has_waited = false;
    poll_fn(|context| {
        if replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Allocates a block in each of the first [`POLLS_BEFORE_GATE`] polls, waits in the last of them for the gate, and
/// returns the blocks in the next one. Makes one more allocation, of another size.
pub async fn allocates_in_each_poll(gate: Gate) -> Kept {
    let mut kept = Vec::with_capacity(POLLS_BEFORE_GATE);
    for poll in 1..=POLLS_BEFORE_GATE {
        keeps_here(&mut kept);
        if poll < POLLS_BEFORE_GATE {
            yields().await;
        }
    }
    gate.0.notified().await;
    kept
}
