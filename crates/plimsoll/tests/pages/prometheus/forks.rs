//! The page in the child of a fork, which has only one of the threads that were producing it.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::prometheus::{answer, read};
use plimsoll_testkit::child;
use plimsoll_testkit::exposition::Format;

/// Exits with 0 if the page is complete and describes this process.
fn in_child(start_of_parent: f64) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe {
        plimsoll_testkit::child::kill_after_a_minute();
        let whole = std::panic::catch_unwind(|| {
            let page = read(answer(Format::Text), Format::Text);
            assert_eq!(page.value("plimsoll_threads", &[]), 1.0);
            assert_eq!(page.value("go_threads", &[]), 1.0);
            let start = page.value("process_start_time_seconds", &[]);
            assert!(start >= start_of_parent);
            // CPU time starts anew in the child.
            let used = page.value("process_cpu_seconds_total", &[]);
            assert!((0.0..60.0).contains(&used));
        });
        libc::_exit(if whole.is_ok() { 0 } else { 1 });
    }
}

#[test]
fn a_child_has_the_page_whatever_its_parent_was_doing() {
    let test = || {
        let _plimsoll = plimsoll::start();
        let start =
            read(answer(Format::Text), Format::Text).value("process_start_time_seconds", &[]);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        assert_eq!(answer(Format::OpenMetrics).status, 200);
                    }
                });
            }
            let mut ended = Vec::new();
            for _ in 0..50 {
                let mut status = 0;
                // SAFETY: the child makes calls that are not generally allowed after a fork;
                // Plimsoll promises that they work.
                unsafe {
                    let process = libc::fork();
                    assert!(process >= 0);
                    if process == 0 {
                        in_child(start);
                    }
                    assert_eq!(libc::waitpid(process, &raw mut status, 0), process);
                }
                ended.push(status);
            }
            stop.store(true, Ordering::Relaxed);
            assert!(ended.iter().all(|status| *status == 0), "{ended:?}");
        });
    };
    child::run(
        "forks::a_child_has_the_page_whatever_its_parent_was_doing",
        "go_names=on",
        test,
    );
}
