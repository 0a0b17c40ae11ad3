//! The spans that a thread is in, and the labels that they add.
//!
//! Several threads can enter a span at once, and many times. A thread nearly always leaves its
//! spans in the opposite order. Each thread therefore has a stack of its spans, with the labels
//! before each.

use std::cell::RefCell;
use std::sync::{Arc, MutexGuard};

use plimsoll_sys::primitives::{AtomicU64, Mutex, Ordering};

use super::{Labels, current, set};
use crate::internal_scope;

thread_local! {
    static ENTERED: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) };
}

struct Entered {
    span: Arc<SpanLabels>,
    before: Labels,
}

/// A label that a span adds.
pub(super) type Added = (&'static str, String);

/// The labels that a span adds.
pub(super) struct SpanLabels {
    added: Mutex<Vec<Added>>,
    /// A cache: a set in the upper half, and in the lower half the same set with the labels added.
    /// A span is entered at each poll of the work inside it, mostly with the same labels before.
    /// Written under the lock of `added`.
    latest: AtomicU64,
}

/// No set has the number in its upper half.
const NO_SET: u64 = u64::MAX;

impl SpanLabels {
    pub(super) fn new(added: Vec<Added>) -> Arc<Self> {
        Arc::new(Self {
            added: Mutex::new(added),
            latest: AtomicU64::new(NO_SET),
        })
    }

    fn added(&self) -> MutexGuard<'_, Vec<Added>> {
        self.added
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns these labels with the span's, which replace those with the same keys.
    fn added_to(&self, labels: Labels) -> Labels {
        let latest = self.latest.load(Ordering::Relaxed);
        if latest >> 32 == u64::from(labels.number()) {
            return Labels::of_number(latest as u32);
        }
        let added = self.added();
        let with_added = {
            let _own = internal_scope::scope();
            labels.and(added.iter().map(|(key, value)| (key, value)))
        };
        self.latest.store(
            u64::from(labels.number()) << 32 | u64::from(with_added.number()),
            Ordering::Relaxed,
        );
        with_added
    }
}

/// Enters the span on the calling thread.
pub(super) fn enter(span: Arc<SpanLabels>) {
    let before = current();
    let within = span.added_to(before);
    // A thread is unlabelled once its locals are destroyed.
    let _ = ENTERED.try_with(|entered| {
        entered.borrow_mut().push(Entered { span, before });
        set(within);
    });
}

/// Leaves the span, which the calling thread has entered. Restores the labels from before; if the
/// thread is in spans that it entered later, this happens when it leaves those.
pub(super) fn exit(span: &Arc<SpanLabels>) {
    let _ = ENTERED.try_with(|entered| {
        let mut entered = entered.borrow_mut();
        let Some(at) = position(&entered, span) else {
            return;
        };
        let before = entered.remove(at).before;
        match entered.get_mut(at) {
            Some(within) => within.before = before,
            None => {
                set(before);
            }
        }
    });
}

/// Adds labels to the span, also for the calling thread if it is in the span.
pub(super) fn record(span: &Arc<SpanLabels>, more: Vec<Added>) {
    {
        let mut added = span.added();
        for label in &more {
            added.retain(|(key, _)| *key != label.0);
        }
        added.extend(more.iter().cloned());
        span.latest.store(NO_SET, Ordering::Relaxed);
    }
    let _ = ENTERED.try_with(|entered| {
        let mut entered = entered.borrow_mut();
        let Some(at) = position(&entered, span) else {
            return;
        };
        let mut more = more;
        for within in &mut entered[at + 1..] {
            within.before = within
                .before
                .and(more.iter().map(|(key, value)| (key, value)));
            let hidden = within.span.added();
            more.retain(|(key, _)| hidden.iter().all(|(other, _)| other != key));
        }
        set(current().and(more));
    });
}

/// Returns the position of the thread's last entry of the span.
fn position(entered: &[Entered], span: &Arc<SpanLabels>) -> Option<usize> {
    let is_it = |entered: &Entered| Arc::ptr_eq(&entered.span, span);
    entered.iter().rposition(is_it)
}

/// Returns these labels with those of the spans that the thread is in, for tasks polled there.
pub fn within_spans(labels: Labels) -> Labels {
    let within = ENTERED.try_with(|entered| {
        let entered = entered.borrow();
        entered
            .iter()
            .fold(labels, |labels, within| within.span.added_to(labels))
    });
    within.unwrap_or(labels)
}
