//! Threads that come and go, other users, processes without `/proc`, and forks.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::crowd::{Crowd, KINDS};
use super::{alone, child, comment_with, goroutine, is_thread_entry, total, within};

/// Returns 500, or the number in `PLIMSOLL_THREAD_PROFILES`.
fn rounds() -> usize {
    let rounds = std::env::var("PLIMSOLL_THREAD_PROFILES");
    rounds.map_or(500, |rounds| rounds.parse().expect("a number"))
}

/// Lets threads work until the guard is dropped.
struct Churn<'a>(&'a AtomicBool);

impl Drop for Churn<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[inline(never)]
fn stays_here(over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        thread::park_timeout(std::time::Duration::from_secs(600));
    }
}

#[test]
fn threads_come_and_go_while_they_are_read() {
    let _alone = alone();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    let short: Vec<_> = (0..4)
                        .map(|work| thread::spawn(move || vec![work; 100].len()))
                        .collect();
                    for thread in short {
                        assert_eq!(thread.join().unwrap(), 100);
                    }
                }
            });
        }
        let stays = scope.spawn(|| stays_here(&over));
        let churn = Churn(&over);
        super::crowd::until_some_thread_is_in("stays_here");
        for _ in 0..rounds() {
            let profile = goroutine();
            let staying: i64 = within(&profile, "hard_cases::stays_here")
                .iter()
                .map(|sample| sample.value[0])
                .sum();
            assert_eq!(staying, 1, "a thread that stays is listed once");
            assert!(total(&profile) >= 4);
        }
        drop(churn);
        stays.thread().unpark();
    });
}

/// Enters and leaves a system call again and again, which fails at once.
#[inline(never)]
fn calls_without_pause(over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        // SAFETY: no descriptor has this number.
        unsafe { libc::close(-1) };
    }
}

#[test]
fn threads_in_short_system_calls_are_read() {
    let _alone = alone();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Churn(&over);
        for _ in 0..2 {
            scope.spawn(|| calls_without_pause(&over));
        }
        super::crowd::until_some_thread_is_in("hard_cases::calls_without_pause");
        for _ in 0..rounds() {
            let profile = goroutine();
            // On a busy machine, a thread may be listed without its stack.
            assert!(total(&profile) >= 3, "each thread is listed");
            let mut calling = 0;
            for sample in within(&profile, "hard_cases::calls_without_pause") {
                let names = profile.names(sample);
                let last = names.last();
                assert!(last.is_some_and(|last| is_thread_entry(last)), "{names:?}");
                calling += sample.value[0];
            }
            assert!(calling <= 2, "a thread is listed twice");
        }
    });
}

#[test]
fn several_threads_read_at_once() {
    let _alone = alone();
    let crowd = Crowd::gather(90);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    assert!(is_whole(&crowd));
                }
            });
        }
    });
}

/// Reports whether every thread is in the profile, with a stack.
fn is_whole(crowd: &Crowd) -> bool {
    let profile = goroutine();
    KINDS.iter().all(|kind| {
        let samples = within(&profile, kind.function);
        let count: i64 = samples.iter().map(|sample| sample.value[0]).sum();
        count == crowd.members(kind)
    })
}

fn is_root() -> bool {
    // SAFETY: has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// A user without privileges.
const UNPRIVILEGED: u32 = 65534;

#[test]
fn an_unprivileged_user_reads_blocked_threads() {
    const MARK: &str = "PLIMSOLL_TEST_NOBODY";
    if std::env::var_os(MARK).is_some() {
        // SAFETY: only prevents the process from gaining privileges.
        let refused = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
        assert_eq!(refused, 0);
        assert!(!is_root());
        let crowd = Crowd::gather(90);
        assert!(is_whole(&crowd));
        assert_eq!(crowd.interruptions(), 0);
        return;
    }
    // A copy of the program that any user can run.
    let program =
        std::env::temp_dir().join(format!("plimsoll-unprivileged-{}", std::process::id()));
    plimsoll_testkit::child::copy_program(&std::env::current_exe().unwrap(), &program);
    let mut command = Command::new(&program);
    command
        .args([
            &*plimsoll_testkit::child::full_name("an_unprivileged_user_reads_blocked_threads"),
            "--exact",
        ])
        .env(MARK, "1")
        .current_dir("/");
    if is_root() {
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    let output = command.output().unwrap();
    std::fs::remove_file(&program).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{output:?}"
    );
}

fn unreadable_threads_are_interrupted() {
    if !is_root() {
        return plimsoll_testkit::skip!("only root can become another user");
    }
    let crowd = Crowd::gather(90);
    // The files under /proc still belong to root.
    //
    // SAFETY: drops the privileges of all threads.
    unsafe {
        assert_eq!(libc::setgid(UNPRIVILEGED), 0);
        assert_eq!(libc::setuid(UNPRIVILEGED), 0);
    }
    assert!(std::fs::read_to_string("/proc/self/task/self/syscall").is_err());
    let profile = goroutine();
    assert!(
        comment_with(&profile, "every thread was interrupted"),
        "{:?}",
        profile.comments()
    );
    // On a busy machine, some threads may not respond in time.
    assert!((0..50).any(|_| is_whole(&crowd)));
    assert!(crowd.interruptions() > 0, "the cost is bounded");
}

#[test]
fn threads_are_interrupted_where_memory_may_not_be_read() {
    child::run(
        "hard_cases::threads_are_interrupted_where_memory_may_not_be_read",
        "",
        unreadable_threads_are_interrupted,
    );
}

fn without_proc() {
    if !is_root() {
        return plimsoll_testkit::skip!("only root can leave /proc behind");
    }
    let empty = std::env::temp_dir().join(format!("plimsoll-empty-{}", std::process::id()));
    std::fs::create_dir_all(&empty).unwrap();
    let crowd = Crowd::gather(9);
    let path = std::ffi::CString::new(empty.to_str().unwrap()).unwrap();
    // SAFETY: the path is a valid C string.
    assert_eq!(unsafe { libc::chroot(path.as_ptr()) }, 0);
    assert!(std::fs::read_dir("/proc").is_err());
    let profile = goroutine();
    assert_eq!(total(&profile), 1);
    assert!(comment_with(
        &profile,
        "only the calling thread is included"
    ));
    let mut dump = Vec::new();
    plimsoll::profile::lookup("goroutine")
        .unwrap()
        .write_to(&mut dump, plimsoll::profile::Format::Dump)
        .unwrap();
    assert!(dump.starts_with(b"goroutine "));
    assert_eq!(plimsoll::profile::lookup("goroutine").unwrap().count(), 1);
    // Without `/proc`, the threads' waits can no longer be checked: the test leaks the crowd.
    std::mem::forget(crowd);
}

#[test]
fn only_the_calling_thread_is_visible_without_proc() {
    child::run(
        "hard_cases::only_the_calling_thread_is_visible_without_proc",
        "",
        without_proc,
    );
}

#[test]
fn a_forks_child_has_one_thread() {
    let _alone = alone();
    let _crowd = Crowd::gather(20);
    let _spinners = super::spinning::Spinners::start(1, || {});
    for _ in 0..10 {
        goroutine();
        // SAFETY: the calls that the child makes after `fork` are the subject of the test.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            plimsoll_testkit::child::kill_after_a_minute();
            let one = plimsoll::profile::lookup("goroutine").unwrap().count() == 1;
            let profile = goroutine();
            let one = one && total(&profile) == 1;
            let here = within(&profile, "hard_cases::a_forks_child_has_one_thread").len() == 1;
            let two = thread::spawn(|| total(&goroutine()) == 2).join().unwrap();
            // SAFETY: ends the child without running exit handlers of the parent.
            unsafe { libc::_exit(i32::from(!one) + 2 * i32::from(!here) + 4 * i32::from(!two)) };
        }
        let status = plimsoll_testkit::child::wait(child);
        assert_eq!(status, 0);
    }
}
