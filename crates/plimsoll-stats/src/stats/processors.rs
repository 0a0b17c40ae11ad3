//! CPU time by class: Go's `/cpu/classes/*`.

use std::time::Duration;

use plimsoll_process::cpus;
use plimsoll_sys::os::clock;
use plimsoll_sys::os::files;
use plimsoll_sys::os::fork::{ForkGuard, ForkLock};

use crate::gc::{self, CpuClass, Figures};
use plimsoll_core::fork::Order;
use plimsoll_core::internal_scope;

/// The time of the processors that the process may use, since its start, by class.
///
/// In each reading, `total` is exactly the sum of `gc_total`, `scavenge_total`, `user` and `idle`.
/// `gc_total` is the sum of its four parts, and `scavenge_total` of its two. No figure ever falls
/// from one reading to a later one.
///
/// Compare these figures only with one another. They depend on the reports of collectors, which
/// arrive late. `user` is the process's CPU time less the reported classes; `idle` is the time of
/// the available processors less all other classes. A pause that stops all threads takes one
/// processor's time from `user` and the other processors' time from `idle`.
///
/// ```
/// let before = plimsoll::cpu_stats();
/// let sum: u64 = (0..1000).map(std::hint::black_box).sum();
/// let after = plimsoll::cpu_stats();
/// println!("{sum} in {:?}", after.user - before.user);
/// assert_eq!(after.total, after.gc_total + after.scavenge_total + after.user + after.idle);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuStats {
    /// Marking by threads of the program. Reported by collectors.
    pub gc_mark_assist: Duration,
    /// Marking by threads of the collectors. Reported by collectors.
    pub gc_mark_dedicated: Duration,
    /// Marking on otherwise idle processors. Reported by collectors.
    pub gc_mark_idle: Duration,
    /// Pauses, multiplied by the number of stopped processors.
    pub gc_pause: Duration,
    /// The sum of the four above.
    pub gc_total: Duration,
    /// Returning memory to the system on threads of the program. Reported by collectors.
    pub scavenge_assist: Duration,
    /// Returning memory to the system on threads of the collectors. Reported by collectors.
    pub scavenge_background: Duration,
    /// The sum of the two above.
    pub scavenge_total: Duration,
    /// CPU time that the process used for anything else.
    pub user: Duration,
    /// Time of available processors that the process did not use.
    pub idle: Duration,
    /// The sum of all: the number of processors that the process may use, times its age. Each
    /// reading determines that number anew.
    pub total: Duration,
}

impl CpuStats {
    /// Returns the share of collections in the total: Go's `GCCPUFraction`. Marking on idle
    /// processors is not counted.
    pub(crate) fn gc_fraction(&self) -> f64 {
        if self.total.is_zero() {
            return 0.0;
        }
        (self.gc_total - self.gc_mark_idle).as_secs_f64() / self.total.as_secs_f64()
    }
}

/// Reads [`CpuStats`]. Takes some microseconds.
pub fn cpu_stats() -> CpuStats {
    let sums = gc::lock().sums(None);
    cpu_stats_with(&sums)
}

static METER: ForkLock<Meter> = ForkLock::new(Order::CpuMeter.rank(), Meter::new());

/// The number of classes that collectors report: pauses, and each [`CpuClass`].
const OWN: usize = 1 + CpuClass::COUNT;

/// What readings of CPU statistics remember of each other.
pub struct Meter {
    /// Time of the last reading, in nanoseconds since boot.
    began: Option<u64>,
    /// The CPU time of the process at that reading.
    cpu: u64,
    /// The collectors' reports at that reading, by class.
    own: [u64; OWN],
    /// The part of those reports that is CPU time of the process.
    in_process: u64,
    /// Reported time that earlier readings had already counted as the program's or as idle; later
    /// readings subtract it.
    user_owed: u64,
    idle_owed: u64,
    user: u64,
    idle: u64,
}

/// Locks the state that readings share.
pub fn lock() -> ForkGuard<Meter> {
    METER.lock()
}

/// Returns the statistics for the collectors' current sums.
pub fn cpu_stats_with(gc: &Figures) -> CpuStats {
    {
        let _own = internal_scope::scope();
        cpus::look();
    }
    let mut meter = lock();
    let now = Now {
        time: clock::since_boot(),
        cpu: clock::process_cpu(),
        processors: cpus::available() as u64,
    };
    let began = meter.began.unwrap_or_else(|| process_began(now.time));
    meter.read(gc, began, &now)
}

struct Now {
    time: u64,
    cpu: u64,
    processors: u64,
}

impl Meter {
    const fn new() -> Self {
        Self {
            began: None,
            cpu: 0,
            own: [0; OWN],
            in_process: 0,
            user_owed: 0,
            idle_owed: 0,
            user: 0,
            idle: 0,
        }
    }

    fn read(&mut self, gc: &Figures, began: u64, now: &Now) -> CpuStats {
        let mut own = [gc.pause_cpu_ns; OWN];
        own[1..].copy_from_slice(&gc.cpu_ns);
        let in_process = gc.paused_ns.saturating_add(gc.cpu_ns.iter().sum());
        // Concurrent readers may arrive with sums of different moments.
        for (own, last) in own.iter_mut().zip(self.own) {
            *own = last.max(*own);
        }
        let in_process = self.in_process.max(in_process);

        let there = now
            .time
            .saturating_sub(began)
            .saturating_mul(now.processors);
        // In the child of a fork, the CPU time starts at 0 again.
        let used = now.cpu.checked_sub(self.cpu).unwrap_or(now.cpu);
        let of_own: u64 = own.iter().sum::<u64>() - self.own.iter().sum::<u64>();
        let of_user = less(used, in_process - self.in_process, &mut self.user_owed);
        self.user += of_user;
        self.idle += less(there, of_own.saturating_add(of_user), &mut self.idle_owed);

        self.began = Some(now.time);
        self.cpu = now.cpu;
        self.own = own;
        self.in_process = in_process;
        self.stats()
    }

    fn stats(&self) -> CpuStats {
        let [
            pause,
            assist,
            dedicated,
            mark_idle,
            scavenge_assist,
            scavenge_background,
        ] = self.own.map(Duration::from_nanos);
        let gc_total = assist + dedicated + mark_idle + pause;
        let scavenge_total = scavenge_assist + scavenge_background;
        let (user, idle) = (
            Duration::from_nanos(self.user),
            Duration::from_nanos(self.idle),
        );
        CpuStats {
            gc_mark_assist: assist,
            gc_mark_dedicated: dedicated,
            gc_mark_idle: mark_idle,
            gc_pause: pause,
            gc_total,
            scavenge_assist,
            scavenge_background,
            scavenge_total,
            user,
            idle,
            total: gc_total + scavenge_total + user + idle,
        }
    }
}

/// Returns `all` less `part` and less the debt in `owed`, at least 0. The deficit becomes the new
/// debt.
fn less(all: u64, part: u64, owed: &mut u64) -> u64 {
    let without = owed.saturating_add(part);
    *owed = without.saturating_sub(all);
    all.saturating_sub(without)
}

/// Returns the start time of the process, or `now` if the system does not report it.
fn process_began(now: u64) -> u64 {
    let _own = internal_scope::scope();
    let ticks = files::read_to_string("/proc/self/stat")
        .ok()
        .and_then(|stat| {
            // The program's name may contain any character; it ends with the last parenthesis.
            let (_, fields) = stat.rsplit_once(')')?;
            fields.split_ascii_whitespace().nth(19)?.parse::<u64>().ok()
        });
    match (ticks, clock::proc_ticks_per_second()) {
        (Some(ticks), per_second @ 1..) => {
            let nanoseconds = u128::from(ticks) * 1_000_000_000 / u128::from(per_second);
            u64::try_from(nanoseconds).unwrap_or(now).min(now)
        }
        _ => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_pauses(pause_cpu_ns: u64, paused_ns: u64) -> Figures {
        Figures {
            pause_cpu_ns,
            paused_ns,
            ..Figures::default()
        }
    }

    fn now(time: u64, cpu: u64) -> Now {
        Now {
            time,
            cpu,
            processors: 2,
        }
    }

    fn parts(stats: &CpuStats) -> [u64; 4] {
        [stats.gc_total, stats.user, stats.idle, stats.total].map(|time| time.as_nanos() as u64)
    }

    #[test]
    fn a_pause_takes_one_processor_from_the_program_and_the_others_from_idleness() {
        let mut meter = Meter::new();
        let none = Figures::default();
        assert_eq!(
            parts(&meter.read(&none, 0, &now(100, 60))),
            [0, 60, 140, 200]
        );
        let paused = meter.read(&of_pauses(20, 10), 100, &now(200, 130));
        assert_eq!(parts(&paused), [20, 120, 260, 400]);
    }

    #[test]
    fn late_reports_are_owed_and_nothing_falls() {
        let mut meter = Meter::new();
        meter.read(&Figures::default(), 0, &now(100, 200));
        // Up to this point, all of it counted as the program's.
        let late = meter.read(&of_pauses(150, 150), 100, &now(110, 210));
        assert_eq!(parts(&late), [150, 200, 0, 350]);
        // 140 of the 150 are still owed by `user`, and 130 by `idle`.
        let later = meter.read(&of_pauses(150, 150), 110, &now(310, 410));
        assert_eq!(parts(&later), [150, 260, 210, 620]);
    }

    #[test]
    fn a_forks_child_goes_on() {
        let mut meter = Meter::new();
        meter.read(&Figures::default(), 0, &now(100, 90));
        let child = meter.read(&Figures::default(), 100, &now(110, 5));
        assert_eq!(parts(&child), [0, 95, 125, 220]);
    }

    #[test]
    fn the_process_began_before_now() {
        let now = clock::since_boot();
        let began = process_began(now);
        assert!(
            began <= now && now - began < 3_600_000_000_000,
            "{began} {now}"
        );
    }
}
