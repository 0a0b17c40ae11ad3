//! The resident memory of the program over time, read from outside: the program does nothing for it.
//!
//! The kernel reports the current amount and the highest since the program's start, so the maximum is
//! exact; how it is divided is known at the readings only.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use plimsoll_process::cgroup::LimitingGroup;
use serde::Serialize;

/// The time between the first readings.
const FIRST_INTERVAL: Duration = Duration::from_millis(10);

/// The longest time between readings.
const LONGEST_INTERVAL: Duration = Duration::from_millis(250);

/// The part of the program's age that lies between two readings, unless they look for a limit. A reading wakes
/// a processor, which takes 0.1 ms on some virtual machines.
const INTERVAL_PART: u32 = 16;

/// The maximum number of points. When there are as many, they are joined.
const POINTS: usize = 512;

/// The resident memory at one moment, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// The time since the program's start.
    pub seconds: f64,
    /// Memory that belongs to no file: heap, stacks, mappings.
    pub anonymous: u64,
    /// Pages of mapped files, such as code.
    pub files: u64,
    /// Memory that processes share without a file.
    pub shared: u64,
}

impl Point {
    pub fn resident(&self) -> u64 {
        (self.anonymous.saturating_add(self.files)).saturating_add(self.shared)
    }
}

/// The course of the resident memory.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// The highest reading of each interval, in the order of time, at most [`POINTS`].
    pub points: Vec<Point>,
    /// The length of these intervals in seconds.
    pub interval: f64,
    /// The highest reading.
    pub highest: Point,
    /// The last reading.
    pub last: Point,
    /// The highest resident memory in bytes, by the kernel; 0 without a reading.
    pub peak: u64,
    /// The reading at which the process was ended, because it had reached the limit.
    pub ended_at: Option<Point>,
    /// The bytes that its control group held then; 0 if the limit was not the group's.
    pub group_held: u64,
    /// The time from the program's start to its end, as the times of the points.
    pub seconds: f64,
    interval_ends: f64,
}

/// The memory at which a process is ended.
#[derive(Debug)]
pub enum Limit {
    /// Its resident bytes.
    Resident(u64),
    /// The bytes of all processes of its control group that the kernel cannot take back.
    Group(LimitingGroup, u64),
}

impl Limit {
    /// Returns the bytes that the control group holds, or 0 for the other limit; `None` below the limit.
    fn reached(&self, point: &Point) -> Option<u64> {
        match self {
            Self::Resident(bytes) => (point.resident() >= *bytes).then_some(0),
            Self::Group(group, bytes) => group.held(*bytes).filter(|held| held >= bytes),
        }
    }
}

impl Course {
    fn add(&mut self, point: Point, peak: u64) {
        self.peak = self.peak.max(peak).max(point.resident());
        self.last = point;
        if point.resident() > self.highest.resident() {
            self.highest = point;
        }
        if point.seconds < self.interval_ends
            && let Some(current) = self.points.last_mut()
        {
            if point.resident() > current.resident() {
                *current = point;
            }
            return;
        }
        if self.points.len() == POINTS {
            self.halve();
        }
        self.points.push(point);
        self.interval_ends = point.seconds + self.interval;
    }

    /// Returns the resident memory in bytes in intervals of equal length, at most `count`: the highest of each,
    /// or the last one before an interval without a reading.
    pub fn in_equal_intervals(&self, count: usize) -> Vec<u64> {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else {
            return Vec::new();
        };
        let duration = last.seconds - first.seconds;
        let readings = (duration / FIRST_INTERVAL.as_secs_f64()) as usize + 1;
        let mut highest = vec![None; readings.min(count)];
        let each = duration / highest.len() as f64;
        for point in &self.points {
            let interval = ((point.seconds - first.seconds) / each) as usize;
            let interval = interval.min(highest.len() - 1);
            highest[interval] = highest[interval].max(Some(point.resident()));
        }
        let mut before = 0;
        let filled = highest.into_iter().map(|highest| {
            before = highest.unwrap_or(before);
            before
        });
        filled.collect()
    }

    /// Doubles the interval until about half of the points are left, or fewer.
    fn halve(&mut self) {
        while self.points.len() > POINTS / 16 * 9 {
            self.interval *= 2.0;
            let interval = |point: &Point| (point.seconds / self.interval) as u64;
            let pieces = (self.points).chunk_by(|one, next| interval(one) == interval(next));
            let highest = |piece: &[Point]| piece.iter().copied().max_by_key(Point::resident);
            self.points = pieces.filter_map(highest).collect();
        }
    }
}

/// Reads a process until it is stopped.
pub struct Watch {
    began: Instant,
    /// Absent if the process ended before the first reading.
    reader: Option<Reader>,
}

struct Reader {
    /// Whether the thread shall end. A channel would spin before each wait, longer than a reading takes.
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Course>,
}

impl Watch {
    /// Begins to read a process, and ends it by `SIGTERM` at a limit. It must not be reaped before
    /// [`Watch::stop`], so that its id is not another's.
    ///
    /// Returns at the time of the first reading, or when the process has ended: a thread would take longer to
    /// start than many programs run.
    ///
    /// # Errors
    /// The kernel does not report the process, or the system refuses a thread.
    pub fn start(process: u32, limit: Option<Limit>) -> io::Result<Self> {
        let status = File::open(format!("/proc/{process}/status"))?;
        let began = Instant::now();
        if ends_before(process, began + FIRST_INTERVAL) {
            return Ok(Self {
                began,
                reader: None,
            });
        }
        let ends = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ends);
        let watch = move || watch(process, &status, began, limit, &seen);
        let thread = thread::Builder::new().spawn(watch)?;
        let reader = Some(Reader { ends, thread });
        Ok(Self { began, reader })
    }

    /// Returns the course of a process that has just ended.
    pub fn stop(self) -> Course {
        let course = self.reader.map(|Reader { ends, thread }| {
            ends.store(true, Ordering::Relaxed);
            thread.thread().unpark();
            thread.join().unwrap_or_default()
        });
        Course {
            seconds: self.began.elapsed().as_secs_f64(),
            ..course.unwrap_or_default()
        }
    }
}

/// Waits for the end of a child until `time`. Returns false if the system cannot wait for a time.
fn ends_before(process: u32, time: Instant) -> bool {
    // SAFETY: the call takes integers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) } as i32;
    if descriptor < 0 {
        return false;
    }
    // SAFETY: the descriptor was opened above, and nothing else closes it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    loop {
        let rest = time.saturating_duration_since(Instant::now());
        let rest =
            rest.as_millis() as i32 + i32::from(!rest.subsec_nanos().is_multiple_of(1_000_000));
        let mut ready = libc::pollfd {
            fd: descriptor.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `ready` is one valid entry.
        let count = unsafe { libc::poll(&raw mut ready, 1, rest) };
        // A signal that is forwarded to the program interrupts the call.
        let is_interrupted =
            count < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        if !is_interrupted {
            return count > 0;
        }
    }
}

fn watch(
    process: u32,
    status: &File,
    began: Instant,
    mut limit: Option<Limit>,
    ends: &AtomicBool,
) -> Course {
    // The first reading is due.
    let mut interval = Duration::ZERO;
    let mut course = Course {
        interval: FIRST_INTERVAL.as_secs_f64(),
        ..Course::default()
    };
    let mut buffer = vec![0; 4096];
    while !is_over(interval, ends) {
        let length = status.read_at(&mut buffer, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&buffer[..length]);
        if let Some((mut point, peak)) = point(&text) {
            point.seconds = began.elapsed().as_secs_f64();
            course.add(point, peak);
            if let Some(held) = limit.as_ref().and_then(|limit| limit.reached(&point)) {
                limit = None;
                course.ended_at = Some(point);
                course.group_held = held;
                // SAFETY: the process is not reaped before this thread has ended.
                unsafe { libc::kill(process as i32, libc::SIGTERM) };
            }
        }
        interval = match &limit {
            Some(_) => FIRST_INTERVAL,
            None => (began.elapsed() / INTERVAL_PART).clamp(FIRST_INTERVAL, LONGEST_INTERVAL),
        };
    }
    course
}

/// Waits for a time, or until the thread shall end. Returns whether it shall.
fn is_over(interval: Duration, ends: &AtomicBool) -> bool {
    let began = Instant::now();
    while !ends.load(Ordering::Relaxed) {
        let left = interval.saturating_sub(began.elapsed());
        if left.is_zero() {
            return false;
        }
        thread::park_timeout(left);
    }
    true
}

/// Reads the resident memory and its maximum from the text of `/proc/PID/status`; `None` for a process
/// that has ended.
fn point(status: &str) -> Option<(Point, u64)> {
    let bytes = |name: &str| {
        let mut lines = status.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = value.trim().strip_suffix(" kB")?.trim_end().parse().ok()?;
        Some(kib.saturating_mul(1024))
    };
    let point = Point {
        seconds: 0.0,
        anonymous: bytes("RssAnon")?,
        files: bytes("RssFile")?,
        shared: bytes("RssShmem")?,
    };
    Some((point, bytes("VmHWM")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64, anonymous: u64) -> Point {
        Point {
            seconds,
            anonymous,
            ..Point::default()
        }
    }

    #[test]
    fn a_long_course_keeps_its_maximum_and_a_bounded_number_of_points() {
        let mut course = Course {
            interval: 0.01,
            ..Course::default()
        };
        let mut seconds = 0.0;
        for number in 0..100_000_u64 {
            let bytes = if number == 70_001 {
                5_000
            } else {
                number % 1000
            };
            course.add(at(seconds, bytes), 0);
            seconds += 0.01;
        }
        assert!(course.points.len() <= POINTS && course.points.len() >= POINTS / 2);
        let highest = course.points.iter().map(Point::resident).max();
        assert_eq!((highest, course.highest.resident()), (Some(5_000), 5_000));
        assert_eq!((course.peak, course.last.resident()), (5_000, 999));
        let spans = course.points.windows(2);
        assert!(spans.clone().all(|pair| pair[0].seconds < pair[1].seconds));
        assert!(
            course.interval >= 1.28 && course.interval <= 5.12,
            "{}",
            course.interval
        );
    }

    #[test]
    fn points_at_growing_distances_are_joined_to_points_at_one_distance() {
        let mut course = Course {
            interval: 0.01,
            ..Course::default()
        };
        let mut seconds = 0.0_f64;
        while seconds < 2000.0 {
            course.add(at(seconds, 1), 0);
            let [first, longest] = [FIRST_INTERVAL, LONGEST_INTERVAL].map(|it| it.as_secs_f64());
            seconds += (seconds / f64::from(INTERVAL_PART)).clamp(first, longest);
        }
        let last = course.points.last().unwrap().seconds;
        let half = |from: f64, to: f64| {
            let points = course.points.iter();
            points
                .filter(|point| (from..to).contains(&point.seconds))
                .count()
        };
        let (first, second) = (half(0.0, last / 2.0), half(last / 2.0, last));
        assert!(
            first.abs_diff(second) <= first / 4,
            "{first} and {second} in {last} s"
        );
    }

    #[test]
    fn intervals_are_of_equal_length_and_repeat_the_last_value_if_there_is_no_reading() {
        let of = |readings: &[(f64, u64)], count| {
            let points = readings.iter().map(|&(seconds, bytes)| at(seconds, bytes));
            let course = Course {
                points: points.collect(),
                ..Course::default()
            };
            course.in_equal_intervals(count)
        };
        assert_eq!(of(&[], 5), [0_u64; 0]);
        assert_eq!(of(&[(0.2, 7)], 5), [7]);
        let readings = [(0.0, 1), (0.05, 9), (0.1, 3), (0.5, 4), (1.0, 5)];
        assert_eq!(of(&readings, 4), [9, 9, 4, 5]);
        assert_eq!(of(&readings, 10), [9, 3, 3, 3, 3, 4, 4, 4, 4, 5]);
        assert_eq!(of(&readings[..2], 60), [1, 1, 1, 1, 1, 9], "10 ms each");
    }

    #[test]
    fn the_kernels_text_is_read_and_that_of_an_ended_process_has_no_memory() {
        let text = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1024 kB\nRssAnon:\t     512 kB\n\
                    RssFile:\t     500 kB\nRssShmem:\t      12 kB\n";
        let (point, peak) = point(text).unwrap();
        assert_eq!((point.resident(), peak), (1024 << 10, 2048 << 10));
        assert_eq!((point.anonymous, point.shared), (512 << 10, 12 << 10));
        assert_eq!(super::point("Name:\tx\nState:\tZ (zombie)\n"), None);
    }
}
