//! The page in the child of a fork, which has of all threads that were at work on it but one.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::exposition::Format;
use crate::{answer, child, read};

/// Says whether the page is whole, and of this process, by how it ends.
fn in_child(start_of_parent: f64) -> ! {
    // SAFETY: ends the process if it hangs, or when it is done.
    unsafe {
        libc::alarm(60);
        let whole = std::panic::catch_unwind(|| {
            let page = read(answer(Format::Text), Format::Text);
            assert_eq!(page.value("plimsoll_threads", &[]), 1.0);
            assert_eq!(page.value("go_threads", &[]), 1.0);
            let start = page.value("process_start_time_seconds", &[]);
            assert!(start >= start_of_parent);
            // The clock of the processor begins anew.
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
                // SAFETY: the child calls what it must not, in general: here that has to work.
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
