//! Futures that await one another, five deep, each in a separate function.

use std::future::Future;

pub async fn outermost(future: impl Future) {
    fourth(future).await;
}

async fn fourth(future: impl Future) {
    third(future).await;
}

async fn third(future: impl Future) {
    second(future).await;
}

pub async fn second(future: impl Future) {
    innermost(future).await;
}

async fn innermost(future: impl Future) {
    future.await;
}

/// Checks that all of these functions are among the names of a stack, in order. With line tables
/// only, an inlined function appears as an unnamed async function of this file.
#[track_caller]
pub fn is_in<S: AsRef<str>>(names: &[S], task: &str) {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    let mut rest = names.iter();
    for function in ["innermost", "second", "third", "fourth", "outermost"] {
        let is_it = |name: &str| {
            name.contains(&format!("chain::{function}"))
                || (!cfg!(debug_assertions) && name.ends_with("chain::{async_fn#0}"))
        };
        assert!(
            rest.any(|name| is_it(name)),
            "{task}: {function} is missing, or not in its place: {names:#?}"
        );
    }
}
