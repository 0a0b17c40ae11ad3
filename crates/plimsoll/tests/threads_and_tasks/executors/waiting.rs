//! The places where the tasks of each executor wait: the chain of functions that await one another.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use plimsoll::profile::Detail;
use plimsoll::task::{TaskState, TrackExt};
use plimsoll_checks::profile::read_with_idle;

use super::chain::{self, outermost};
use super::kinds;
use super::record;

/// A future that keeps its waker and waits for ever.
#[derive(Default)]
pub struct Keeps(Option<Waker>);

impl Future for Keeps {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0.is_none() {
            self.0 = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

/// Checks that exactly one stack has tasks with this name, and that it contains the whole chain.
#[track_caller]
pub fn is_there(task: &str) {
    let profile = read_with_idle("goroutine", Detail::Full);
    let samples: Vec<_> = profile
        .sample
        .iter()
        .filter(|sample| profile.label(sample, "task") == Some(task))
        .collect();
    let [sample] = samples[..] else {
        panic!("{task}: {} samples", samples.len());
    };
    let names = profile.names(sample);
    chain::is_in(&names, task);
}

#[test]
fn the_chain_is_whole_under_each_executor() {
    for kind in kinds::all() {
        let name = format!("chain, {}", kind.name());
        let tracked = outermost(Keeps::default()).tracked_as(&name);
        let id = tracked.id().unwrap();
        let cancel = kind.spawn(Box::pin(tracked));
        kind.run_until("it waits", &|| {
            record(id).unwrap().state() == TaskState::Waiting
        });
        is_there(&name);
        cancel();
        kind.run_until("it is gone", &|| record(id).is_none());
    }
}
