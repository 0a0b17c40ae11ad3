//! Linux: figures from `/proc` and the C library.

use std::sync::atomic::{AtomicU64, Ordering};

use super::super::Process;
use plimsoll_sys::os::files;
use plimsoll_sys::os::syscall::{call, call3};
use plimsoll_sys::os::{filter, process_id};

/// Returns the system's figures.
pub(in super::super) fn read() -> Process {
    let stat = files::read("/proc/self/stat").ok();
    let stat = stat.as_deref().and_then(Stat::parse).unwrap_or_default();
    Process {
        cpu_seconds: seconds(libc::CLOCK_PROCESS_CPUTIME_ID),
        open_files: open_files(),
        most_files: limit(libc::RLIMIT_NOFILE),
        resident_bytes: stat.resident_pages.map(|pages| pages * page_bytes()),
        virtual_bytes: stat.virtual_bytes,
        most_virtual_bytes: limit(libc::RLIMIT_AS),
        start_seconds: stat.start_ticks.and_then(start),
    }
}

/// The type of the numbers of limits.
#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

/// Some fields of `/proc/self/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Stat {
    start_ticks: Option<u64>,
    virtual_bytes: Option<u64>,
    resident_pages: Option<u64>,
}

impl Stat {
    fn parse(line: &[u8]) -> Option<Self> {
        // The name before these fields, in parentheses, may contain any bytes.
        let end = line.iter().rposition(|&byte| byte == b')')?;
        let rest = std::str::from_utf8(&line[end + 1..]).ok()?;
        let mut fields = rest.split_ascii_whitespace().skip(19);
        let mut next = || fields.next()?.parse().ok();
        Some(Self {
            start_ticks: next(),
            virtual_bytes: next(),
            resident_pages: next(),
        })
    }
}

/// Returns the time at which the process began, in seconds since 1970, computed once from ticks
/// since the system's start. Every call returns the same number, although two clocks that drift are
/// involved: a scraper takes a changed number for another process.
fn start(ticks: u64) -> Option<f64> {
    /// The process number in the upper bits, and hundredths of a second in the lower ones.
    static START: AtomicU64 = AtomicU64::new(0);
    const LOWER: u32 = 40;
    let process = u64::from(process_id());
    let known = START.load(Ordering::Relaxed);
    let hundredths = if known >> LOWER == process {
        known
    } else {
        // SAFETY: `sysconf` has no preconditions.
        let ticks_a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        let began = seconds(libc::CLOCK_REALTIME)? - seconds(libc::CLOCK_BOOTTIME)?;
        let start = began + ticks as f64 / ticks_a_second as f64;
        let new = process << LOWER | (start * 100.0).round() as u64;
        match START.compare_exchange(known, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => new,
            // Another thread of this process was first.
            Err(theirs) => theirs,
        }
    };
    Some((hundredths & ((1 << LOWER) - 1)) as f64 / 100.0)
}

fn seconds(clock: libc::clockid_t) -> Option<f64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let (number, to) = (clock as usize, &raw mut time as usize);
    // SAFETY: `time` is writable for the call.
    let read = unsafe { call3(libc::SYS_clock_gettime, number, to, 0) };
    (read == 0).then(|| time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

fn limit(of: Resource) -> Option<u64> {
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let arguments = [0, of as usize, 0, &raw mut limits as usize, 0, 0];
    // SAFETY: `limits` is writable for the call, which only reads the limits of this process.
    let read = unsafe { call(libc::SYS_prlimit64, arguments) };
    (read == 0).then_some(limits.rlim_cur)
}

/// Returns the number of open files. Kernels from 6.2 on report it as the size of the directory.
fn open_files() -> Option<u64> {
    const LIST: &str = "/proc/self/fd";
    filter::check(&filter::FILES).ok()?;
    match std::fs::metadata(LIST).ok()?.len() {
        // One of them is the directory's own.
        0 => Some((files::read_dir(LIST).ok()?.count() as u64).saturating_sub(1)),
        count => Some(count),
    }
}

fn page_bytes() -> u64 {
    // SAFETY: `sysconf` has no preconditions.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_whatever_the_process_is_called() {
        let line =
            b"7 (a) b ( 1 2\n) S 1 7 7 0 -1 4 1 2 3 4 5 6 7 8 20 0 3 0 777 4096000 99 1844 1 1";
        let expected = Stat {
            start_ticks: Some(777),
            virtual_bytes: Some(4_096_000),
            resident_pages: Some(99),
        };
        assert_eq!(Stat::parse(line), Some(expected));
        for (line, parsed) in [
            (&b""[..], None),
            (b"7 (x", None),
            (b"7 (x) S \xff", None),
            (b"7 (x) S 1 2", Some(Stat::default())),
        ] {
            assert_eq!(Stat::parse(line), parsed, "{line:?}");
        }
    }

    #[test]
    fn the_figures_of_this_process_are_right() {
        let before = read();
        let file = std::fs::File::open("/proc/self/stat").expect("/proc is mounted");
        let memory = vec![1u8; 64 << 20];
        let after = read();
        drop(file);
        assert!(after.cpu_seconds > before.cpu_seconds && before.cpu_seconds > Some(0.0));
        assert!(after.open_files > Some(3) && after.open_files < after.most_files);
        // Other tests free memory meanwhile, but not all of it.
        assert!(after.resident_bytes > Some(memory.len() as u64));
        assert!(after.virtual_bytes > after.resident_bytes);
        assert!(after.most_virtual_bytes >= after.virtual_bytes);
        assert_eq!(after.start_seconds, before.start_seconds);
        let since_1970 = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let age = since_1970.as_secs_f64() - after.start_seconds.expect("it is known");
        assert!((-0.1..3600.0).contains(&age), "{age}");
    }
}
