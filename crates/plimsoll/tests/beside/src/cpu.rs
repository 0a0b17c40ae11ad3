//! A known amount of CPU time.

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Duration;

use plimsoll::profile::{Detail, cpu};
use plimsoll::task::TrackExt;
use plimsoll_testkit::pprof::Profile;
use tokio::runtime::Runtime;

use crate::{Done, finish, read, within};

/// The CPU time that one task uses.
pub const BURN: Duration = Duration::from_millis(500);

/// On a busy machine, the kernel may send a thread its signal many periods late. The sample then stands for all of
/// them, and may be in another function.
const ATTEMPTS: u64 = 20;

/// Returns the CPU time of the calling thread in nanoseconds.
pub fn thread_cpu() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is writable.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Uses [`BURN`] of CPU time. Returns the exact amount in nanoseconds.
#[inline(never)]
pub fn burns_here() -> u64 {
    let began = thread_cpu();
    loop {
        for turn in 0..1000 {
            black_box(turn);
        }
        let used = thread_cpu() - began;
        if used >= BURN.as_nanos() as u64 {
            return used;
        }
    }
}

/// Returns whether samples of one thread with that period stand for the CPU time that it used. The samples are the
/// time in periods, rounded up or down. The clock of the samples and the thread's differ by less than 5 per cent.
pub fn is_about(sampled: u64, used: u64, period: u64) -> bool {
    sampled.abs_diff(used) <= 2 * period + used / 20
}

/// Uses CPU time in a task, and compares the profiles of CPU time and of long polls with that.
pub fn uses_cpu_time(runtime: &Runtime, pages: SocketAddr) -> Done {
    let mut done = Done { burns: 0, cpu: 0 };
    loop {
        cpu::start().expect("no other profile is recorded");
        let task = async { burns_here() }.tracked_as("burns");
        let used = finish(runtime, runtime.spawn(task));
        done.burns += 1;
        done.cpu += used;
        let snapshot = cpu::stop().expect("it was started");
        let mut bytes = Vec::new();
        snapshot
            .write_to(&mut bytes, Detail::Names)
            .expect("memory can be written to");
        let profile = Profile::read(&bytes);
        let samples = within(&profile, "burns_here");
        let sampled: i64 = samples.iter().map(|sample| sample.value[1]).sum();
        if is_about(sampled as u64, used, profile.period as u64) {
            break;
        }
        assert!(
            done.burns < ATTEMPTS,
            "{sampled} ns sampled of {used} ns of CPU time"
        );
    }
    // A poll is in the profile after its end.
    let profile = read(pages, "longpoll");
    let polls = within(&profile, "burns_here");
    let polls: i64 = polls.iter().map(|sample| sample.value[0]).sum();
    assert_eq!(polls, done.burns as i64);
    done
}
