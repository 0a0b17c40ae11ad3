//! Exact counts of what tasks allocate.

use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use plimsoll::measure::{TaskAccount, accounts_by_label};
use plimsoll::task::{TrackExt, Tracked};

fn block(size: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(size))
}

fn poll<F: Future>(task: Pin<&mut F>) -> Poll<F::Output> {
    task.poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns allocations, frees, and the bytes of both.
fn counts(account: &TaskAccount) -> [u64; 4] {
    let read = account.read();
    [
        read.allocations,
        read.frees,
        read.allocated_bytes,
        read.freed_bytes,
    ]
}

/// Returns a future that calls the function with the number of each poll, and ends when it returns
/// true.
fn each_poll(mut work: impl FnMut(u32) -> bool) -> impl Future<Output = ()> {
    let mut polls = 0;
    poll_fn(move |_| {
        polls += 1;
        match work(polls) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
}

/// Returns a future that allocates and frees a block of this size.
fn allocates(size: usize) -> impl Future<Output = ()> + Unpin {
    each_poll(move |_| {
        drop(block(size));
        true
    })
}

#[test]
fn polls_and_the_drop_of_the_task_count_and_what_lies_between_does_not() {
    let mut kept = Vec::with_capacity(2);
    let mut task = each_poll(move |polls| {
        kept.push(block(100));
        drop(block(1000));
        polls == 2
    })
    .tracked();
    let account = task.account();
    let mut task = Box::pin(task);
    assert_eq!(counts(&account), [0; 4]);
    assert!(poll(task.as_mut()).is_pending());
    assert_eq!(counts(&account), [2, 1, 1100, 1000]);
    let others = [block(10), block(20)];
    assert!(poll(task.as_mut()).is_ready());
    drop(others);
    assert_eq!(counts(&account), [4, 2, 2200, 2000]);
    assert_eq!(
        (account.read().max_bytes, account.read().max_blocks),
        (1200, 3)
    );
    // The vector of the blocks was made before.
    drop(task);
    assert_eq!(account.read().frees, 5);
    let vector = 2 * size_of::<Vec<u8>>() as i64;
    assert_eq!(account.read().net_bytes(), -vector);
}

/// Returns tasks that are created while a task with a new account is polled, and the account.
fn with_children<F: Future>(
    make: impl FnMut() -> F,
    count: usize,
) -> (TaskAccount, Vec<Pin<Box<Tracked<F>>>>) {
    let mut make = make;
    let mut children = Vec::new();
    let mut parent = each_poll(|_| {
        children.extend((0..count).map(|_| Box::pin(make().tracked())));
        true
    })
    .tracked();
    let account = parent.account();
    assert!(poll(pin!(parent)).is_ready());
    (account, children)
}

#[test]
fn tasks_that_a_task_creates_add_to_its_account_on_every_thread() {
    const THREADS: usize = 4;
    const POLLS: u64 = 5000;
    let allocates = || allocates(64);
    let (account, children) = with_children(allocates, THREADS);
    let before = counts(&account);
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        for mut child in children {
            let barrier = &barrier;
            scope.spawn(move || {
                barrier.wait();
                for _ in 0..POLLS {
                    assert!(poll(child.as_mut()).is_ready());
                }
            });
        }
    });
    let polls = THREADS as u64 * POLLS;
    let expected = [polls, polls, 64 * polls, 64 * polls];
    let after = counts(&account);
    assert_eq!(std::array::from_fn(|at| after[at] - before[at]), expected);
    // A task that is created elsewhere does not belong to it.
    let mut other = Box::pin(allocates().tracked());
    assert!(poll(other.as_mut()).is_ready());
    assert_eq!(counts(&account), after);
}

#[test]
fn the_maximum_is_that_of_all_tasks_at_one_time() {
    const THREADS: usize = 4;
    let barrier = Arc::new(Barrier::new(THREADS));
    let holds = || {
        let barrier = barrier.clone();
        each_poll(move |_| {
            let held = block(1 << 20);
            barrier.wait();
            drop(held);
            true
        })
    };
    let (account, children) = with_children(holds, THREADS);
    thread::scope(|scope| {
        for mut child in children {
            scope.spawn(move || assert!(poll(child.as_mut()).is_ready()));
        }
    });
    let max = account.read().max_bytes;
    // Besides, the boxes of the children.
    let blocks = (THREADS as u64) << 20;
    assert!((blocks..blocks + 4096).contains(&max), "{max}");
}

/// Makes random allocations, reallocations and frees, which are the same for each seed, and returns the
/// maximum of the bytes held and of the blocks.
fn random_work(seed: u64, kept: &mut Vec<Vec<u8>>) -> (u64, u64) {
    const SIZES: [u64; 5] = [8, 100, 1100, 30_000, 100_000];
    let mut state = seed;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let (mut held, mut max, mut max_blocks) = (0, 0, 0);
    for _ in 0..400 {
        let below = SIZES[random(5) as usize];
        let size = 1 + random(below) as usize;
        let at = random(kept.len().max(1) as u64) as usize;
        match random(3) {
            0 if !kept.is_empty() => held -= kept.swap_remove(at).capacity() as u64,
            1 if !kept.is_empty() => {
                held -= kept[at].capacity() as u64;
                kept[at].reserve_exact(size);
                held += kept[at].capacity() as u64;
            }
            _ if kept.len() < kept.capacity() => {
                kept.push(block(size));
                held += size as u64;
            }
            _ => {}
        }
        max = max.max(held);
        max_blocks = max_blocks.max(kept.len() as u64);
    }
    kept.clear();
    (max, max_blocks)
}

#[test]
fn the_maximum_is_exact_however_the_account_is_used() {
    for seed in 0..20 {
        for (shares_in, has_limit) in [(0, false), (1, false), (2, false), (0, true)] {
            let mut kept = Vec::with_capacity(64);
            let mut expected = (0, 0);
            let result = &mut expected;
            let mut task = each_poll(move |polls| {
                let of_poll = random_work(seed + u64::from(polls), &mut kept);
                *result = (result.0.max(of_poll.0), result.1.max(of_poll.1));
                if polls == shares_in {
                    // Another task has the account from here on.
                    drop(each_poll(|_| true).tracked());
                }
                let of_poll = random_work(seed + 100 + u64::from(polls), &mut kept);
                *result = (result.0.max(of_poll.0), result.1.max(of_poll.1));
                polls == 3
            })
            .tracked();
            let account = task.account();
            if has_limit {
                account.set_limit(1000, |_| {});
            }
            {
                let mut task = pin!(task);
                while poll(task.as_mut()).is_pending() {}
            }
            let read = account.read();
            assert_eq!(
                (read.max_bytes, read.max_blocks),
                expected,
                "{seed}, {shares_in}"
            );
        }
    }
}

#[test]
fn a_nested_task_counts_once_in_each_account() {
    let mut inner = allocates(10).tracked();
    let of_inner = inner.account();
    let mut inner = Box::pin(inner);
    let mut of_made = None;
    let mut outer = each_poll(|_| {
        assert!(poll(inner.as_mut()).is_ready());
        // This one has the outer task's account, and one inside it.
        let mut made = allocates(100).tracked();
        let plain = allocates(1000).tracked();
        of_made = Some(made.account());
        assert!(poll(pin!(made)).is_ready());
        assert!(poll(pin!(plain)).is_ready());
        drop(block(10_000));
        true
    })
    .tracked();
    let of_outer = outer.account();
    assert!(poll(pin!(outer)).is_ready());
    assert_eq!(counts(&of_inner), [1, 1, 10, 10]);
    assert_eq!(counts(&of_made.unwrap())[..2], [1, 1]);
    assert_eq!(counts(&of_outer), [4, 4, 11_110, 11_110]);
}

#[test]
fn a_task_without_an_account_inside_a_poll_counts_for_the_poll() {
    let mut inner = Box::pin(allocates(10).tracked());
    let mut outer = each_poll(|_| poll(inner.as_mut()).is_ready()).tracked();
    let account = outer.account();
    assert!(poll(pin!(outer)).is_ready());
    assert_eq!(counts(&account), [1, 1, 10, 10]);
}

#[test]
fn accounts_of_a_label_sum_its_tasks() {
    let task =
        |tenant: &str, size: usize| allocates(size).tracked().label("accounts.tenant", tenant);
    let mut first = task("a", 1);
    let mut second = task("a", 10);
    let mut third = task("b", 100);
    let mut unlabelled = each_poll(|_| true).tracked();
    assert!(unlabelled.account_by_label("accounts.tenant").is_none());
    let of_a = first.account_by_label("accounts.tenant").unwrap();
    second.account_by_label("accounts.tenant").unwrap();
    third.account_by_label("accounts.tenant").unwrap();
    let of_first = first.account();
    for task in [first, second, third] {
        assert!(poll(pin!(task)).is_ready());
    }
    assert_eq!(counts(&of_first), [1, 1, 1, 1]);
    assert_eq!(counts(&of_a), [2, 2, 11, 11]);
    let all = accounts_by_label("accounts.tenant");
    let bytes = all
        .iter()
        .map(|(value, account)| (*value, account.read().allocated_bytes));
    assert_eq!(bytes.collect::<Vec<_>>(), [("a", 11), ("b", 100)]);
    assert!(accounts_by_label("another").is_empty());
}

#[test]
fn a_passed_limit_calls_back_once_at_the_end_of_the_poll() {
    let mut kept = Vec::with_capacity(4);
    let is_polled = Arc::new(AtomicBool::new(false));
    let polled = is_polled.clone();
    let mut task = each_poll(move |polls| {
        polled.store(true, Ordering::Relaxed);
        match polls {
            1 => kept.push(block(1000)),
            // Passes the limit, falls below, and passes it again.
            2 => {
                kept.push(block(1));
                kept.pop();
                kept.push(block(2));
            }
            3 => kept.push(block(5000)),
            4 => kept.clear(),
            _ => kept.push(block(1001)),
        }
        polled.store(false, Ordering::Relaxed);
        polls == 5
    })
    .tracked();
    let account = task.account();
    let calls = Arc::new(AtomicU64::new(0));
    account.set_limit(0, |_| panic!("this limit is replaced"));
    account.set_limit(1000, {
        let calls = calls.clone();
        move |account| {
            assert!(!is_polled.load(Ordering::Relaxed));
            assert!(account.read().net_bytes() > 1000);
            // What the callback allocates does not belong to the task.
            drop(block(1 << 20));
            calls.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut task = Box::pin(task);
    let mut after = Vec::with_capacity(8);
    while poll(task.as_mut()).is_pending() {
        after.push(calls.load(Ordering::Relaxed));
    }
    assert_eq!(after, [0, 1, 1, 1]);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    assert_eq!(account.read().max_bytes, 6002);
}

#[test]
fn a_limit_may_be_replaced_and_the_account_dropped_by_its_callback() {
    let mut task = allocates(100).tracked();
    let account = Mutex::new(Some(task.account()));
    let calls = Arc::new(AtomicU64::new(0));
    let called = calls.clone();
    account
        .lock()
        .unwrap()
        .as_ref()
        .unwrap()
        .set_limit(10, move |account| {
            called.fetch_add(1, Ordering::Relaxed);
            let called = called.clone();
            account.set_limit(50, move |_| {
                called.fetch_add(100, Ordering::Relaxed);
            });
        });
    account.lock().unwrap().take();
    let mut task = Box::pin(task);
    for _ in 0..2 {
        assert!(poll(task.as_mut()).is_ready());
    }
    assert_eq!(calls.load(Ordering::Relaxed), 101);
}

#[test]
fn a_panic_ends_the_poll_of_an_account() {
    let mut task = each_poll(|_| {
        drop(block(100));
        panic!("deliberate");
    })
    .tracked();
    let account = task.account();
    account.set_limit(10, |_| panic!("not after a panic"));
    let mut task = Box::pin(task);
    catch_unwind(AssertUnwindSafe(|| poll(task.as_mut()))).unwrap_err();
    // The panic's own blocks count, too.
    assert!(account.read().allocated_bytes >= 100);
    let before = counts(&account);
    drop(block(1000));
    assert_eq!(counts(&account), before);
}

#[test]
fn counts_are_equal_in_each_run_beside_busy_tasks() {
    let run = || {
        let mut kept = Vec::new();
        let mut task = each_poll(move |polls| {
            for size in 1..200 {
                kept.push(block(size * 7));
            }
            kept.drain(..100);
            polls == 3
        })
        .tracked();
        let account = task.account();
        let mut task = Box::pin(task);
        while poll(task.as_mut()).is_pending() {}
        drop(task);
        let read = account.read();
        assert_eq!(read.net_bytes(), 0);
        (counts(&account), read.max_bytes, read.max_blocks)
    };
    let expected = run();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut busy = Box::pin(
                    each_poll(|_| {
                        drop(block(100));
                        false
                    })
                    .tracked(),
                );
                while !is_over.load(Ordering::Relaxed) {
                    assert!(poll(busy.as_mut()).is_pending());
                }
            });
        }
        let results: Vec<_> = (0..300).map(|_| run()).collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(results.iter().all(|result| *result == expected));
    });
}

#[cfg(not(plimsoll_sanitized))]
/// Returns a future that lets other tasks run. Tokio's own allocates in its scheduler.
fn yields() -> impl Future<Output = ()> {
    let mut is_second = false;
    poll_fn(move |context| {
        context.waker().wake_by_ref();
        match std::mem::replace(&mut is_second, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
}

#[cfg(not(plimsoll_sanitized))]
#[test]
fn tasks_of_tokio_that_move_between_threads_have_exact_accounts() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .build()
        .unwrap();
    runtime.block_on(async {
        let tasks = (1..=50).map(|at: usize| {
            let mut task = async move {
                for _ in 0..20 {
                    let held = block(at);
                    yields().await;
                    drop(held);
                }
            }
            .tracked();
            let account = task.account();
            (at, account, tokio::spawn(task))
        });
        let tasks: Vec<_> = tasks.collect();
        for (at, account, task) in tasks {
            task.await.unwrap();
            let read = account.read();
            assert_eq!(counts(&account), [20, 20, 20 * at as u64, 20 * at as u64]);
            assert_eq!((read.max_bytes, read.max_blocks), (at as u64, 1));
        }
    });
}
