//! The spans that a thread is in, and the labels that they add.
//!
//! A span can be entered many times, by many threads at once; a thread leaves its spans in the
//! opposite order, nearly always. So each thread has a stack of those that it is in, with the
//! labels before each.

use std::cell::RefCell;
use std::sync::{Arc, MutexGuard};

use super::{Labels, current, set};
use crate::own;
use crate::primitives::{AtomicU64, Mutex, Ordering};

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
    /// A set in the upper half, and in the lower half that with the labels added: a span is
    /// entered at each poll of what it is around, mostly with the same labels before. Written
    /// to under the lock of `added`.
    latest: AtomicU64,
}

/// No set has the number that is in its upper half.
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

    /// These labels, with those of the span in place of those with the same keys.
    fn added_to(&self, labels: Labels) -> Labels {
        let latest = self.latest.load(Ordering::Relaxed);
        if latest >> 32 == u64::from(labels.number()) {
            return Labels::of_number(latest as u32);
        }
        let added = self.added();
        let with_added = {
            let _own = own::scope();
            labels.and(added.iter().map(|(key, value)| (key, value)))
        };
        self.latest.store(
            u64::from(labels.number()) << 32 | u64::from(with_added.number()),
            Ordering::Relaxed,
        );
        with_added
    }
}

/// The calling thread enters the span.
pub(super) fn enter(span: Arc<SpanLabels>) {
    let before = current();
    let within = span.added_to(before);
    // After the last of the thread's locals is gone, it has no labels.
    let _ = ENTERED.try_with(|entered| {
        entered.borrow_mut().push(Entered { span, before });
        set(within);
    });
}

/// The calling thread leaves the span, which it entered. The labels are those before again, or, if
/// it is in spans that it entered since, when it has left these.
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

/// The span has more labels, also where the calling thread is in it.
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

/// Where the thread entered the span last.
fn position(entered: &[Entered], span: &Arc<SpanLabels>) -> Option<usize> {
    let is_it = |entered: &Entered| Arc::ptr_eq(&entered.span, span);
    entered.iter().rposition(is_it)
}

/// These labels, for what is polled within the spans that the thread is in: with theirs.
pub(crate) fn within_spans(labels: Labels) -> Labels {
    let within = ENTERED.try_with(|entered| {
        let entered = entered.borrow();
        entered
            .iter()
            .fold(labels, |labels, within| within.span.added_to(labels))
    });
    within.unwrap_or(labels)
}
