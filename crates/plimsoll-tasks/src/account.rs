//! Exact counts of what tasks allocate.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use plimsoll_sys::os::fork::{ForkGuard, ForkLock};

use crate::measured::Measured;
use crate::task::Tracked;
use plimsoll_core::alloc::measured::Totals;
use plimsoll_core::fork::Order;
use plimsoll_core::internal_scope;

/// What tracked tasks allocate and free in their polls, and when they are dropped, on any thread. All
/// counts are exact.
///
/// An account is a task's, by [`Tracked::account`], or that of all tasks with a label, by
/// [`Tracked::account_by_label`]. Tasks that are [tracked](crate::task::track) while a task with an
/// account is polled belong to that account, too, wherever they run.
///
/// ```
/// # #[global_allocator]
/// # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// use plimsoll::task::TrackExt;
///
/// async fn answer() -> usize {
///     vec![0u8; 1000].len()
/// }
///
/// # fn block_on<F: Future>(task: F) -> F::Output {
/// #     use std::task::{Context, Poll, Waker};
/// #     match std::pin::pin!(task).poll(&mut Context::from_waker(Waker::noop())) {
/// #         Poll::Ready(output) => output,
/// #         Poll::Pending => unreachable!(),
/// #     }
/// # }
/// let mut task = answer().tracked().label("tenant", "acme");
/// let acme = task.account_by_label("tenant").unwrap();
/// let account = task.account();
/// block_on(task);
///
/// assert_eq!(account.read().allocated_bytes, 1000);
/// assert_eq!(account.read().max_bytes, 1000);
/// assert_eq!(acme.read().net_bytes(), 0);
/// ```
///
/// * What threads do for the task outside of its polls does not count, such as work that is given to
///   `spawn_blocking`. A block that a task leaves to others stays part of its net amount, because
///   only the task's own frees are subtracted.
/// * Each operation of an accounted task takes longer. Tasks without an account, and all other code,
///   run the same instructions as without this type.
/// * The rules of measurements apply otherwise.
///
/// A clone is the same account.
#[derive(Clone)]
pub struct TaskAccount(Arc<Totals>);

impl TaskAccount {
    /// Returns the counts. All are of polls that have ended; the maxima also include polls in progress.
    /// While a poll ends on another thread, parts of its counts may be missing.
    pub fn read(&self) -> Measured {
        <Measured>::of_account(&self.0)
    }

    /// Calls a function when the bytes allocated less those freed pass `bytes` upwards. Each time, the
    /// function is called once, at the end of the poll in which this happened, on the polling thread.
    /// Replaces an earlier limit of the account. The allocation succeeds: the function decides what
    /// follows, for example by a `tokio::task::AbortHandle`.
    ///
    /// A limit that is set while a task of the account is polled may be in force only from the next poll
    /// on. The function is not called if the poll panics. A panic of the function is one of the poll.
    pub fn set_limit(&self, bytes: u64, on_passed: impl Fn(&Self) + Send + Sync + 'static) {
        let limit = i64::try_from(bytes).unwrap_or(i64::MAX);
        let callback = move |totals: &Arc<Totals>| on_passed(&Self(Arc::clone(totals)));
        let callback = Arc::new(callback);
        self.0.set_limit(limit, callback);
    }
}

impl fmt::Debug for TaskAccount {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "TaskAccount({})", self.read())
    }
}

impl<F> Tracked<F> {
    /// Returns a new account, to which this task's allocations are charged from now on, with those of
    /// all tasks that are tracked in its polls.
    ///
    /// If the task has an account already, for example that of the task in which it was created, the
    /// new one lies inside it: both are charged.
    pub fn account(&mut self) -> TaskAccount {
        let outer = self.account.take();
        let totals = Totals::new(outer);
        self.account = Some(Arc::clone(&totals));
        TaskAccount(totals)
    }

    /// Returns the account of all tasks with this label, and charges this task's allocations to it from
    /// now on. Returns `None` if the task has no label with this key.
    ///
    /// Call it before [`account`](Self::account): it replaces an account that the task has already. The
    /// accounts of labels are kept until the process ends, one for each value.
    pub fn account_by_label(&mut self, key: &str) -> Option<TaskAccount> {
        let (key, value) = self.labels().iter().find(|label| label.0 == key)?;
        let totals = {
            let _own = internal_scope::scope();
            let mut accounts = by_label();
            Arc::clone(
                accounts
                    .entry((key, value))
                    .or_insert_with(|| Totals::new(None)),
            )
        };
        totals.share();
        self.account = Some(Arc::clone(&totals));
        Some(TaskAccount(totals))
    }
}

type ByLabel = BTreeMap<(&'static str, &'static str), Arc<Totals>>;

/// The accounts of labels.
static BY_LABEL: ForkLock<ByLabel> = ForkLock::new(Order::MeasuredLabels.rank(), BTreeMap::new());

fn by_label() -> ForkGuard<ByLabel> {
    BY_LABEL.lock()
}

/// Returns the accounts of all values of a label, in the order of the values: those that tasks got by
/// [`Tracked::account_by_label`].
pub fn accounts_by_label(key: &str) -> Vec<(&'static str, TaskAccount)> {
    let accounts = by_label();
    let of_key = accounts.iter().filter(|((of, _), _)| *of == key);
    of_key
        .map(|((_, value), totals)| (*value, TaskAccount(Arc::clone(totals))))
        .collect()
}
