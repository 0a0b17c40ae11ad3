//! The number of processors that the kernel may ever number, and that the process may use.

use plimsoll_sys::os::filter;
use plimsoll_sys::os::syscall::call3;
use plimsoll_sys::primitives::{AtomicUsize, Ordering};

/// The number of processors that the process could use at once at the last update.
static AVAILABLE: AtomicUsize = AtomicUsize::new(0);

/// The limit of the process's control group at the start; 0 while unknown. It is cached, since
/// reading it takes several files. Concurrent callers both read it instead of waiting: in the child
/// of a fork, the first caller may not exist.
static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of processors that the process may use at once; at least 1.
#[inline]
pub fn available() -> usize {
    AVAILABLE.load(Ordering::Relaxed).max(1)
}

/// Updates [`available`] from the affinity of the calling thread and a limit that is read once, unless a filter forbids
/// that. Not for use in hooks.
pub fn look() {
    // The standard library reads files.
    if filter::check(&filter::FILES).is_err() || !filter::allows(libc::SYS_sched_getaffinity) {
        return;
    }
    let affinity = by_affinity();
    let limit = match LIMIT.load(Ordering::Relaxed) {
        0 => {
            let limit = limit_beside(affinity);
            LIMIT.store(limit, Ordering::Relaxed);
            limit
        }
        limit => limit,
    };
    let available = affinity.map_or(limit, |affinity| affinity.min(limit));
    AVAILABLE.store(available, Ordering::Relaxed);
}

/// Returns the limit of the control group, or `usize::MAX` unless it is below the affinity's.
fn limit_beside(affinity: Option<usize>) -> usize {
    let found = std::thread::available_parallelism().map_or(1, |found| found.get());
    // `found` is the lesser of both limits.
    if affinity.is_some_and(|affinity| affinity <= found) {
        usize::MAX
    } else {
        found
    }
}

/// Returns the number of processors on which the calling thread may run; `None` if there may be
/// more than 1024.
fn by_affinity() -> Option<usize> {
    // SAFETY: all zeros is a valid `cpu_set_t`, and `size` is its length.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        let to = &raw mut set as usize;
        let found = call3(libc::SYS_sched_getaffinity, 0, size, to) >= 0;
        found.then(|| libc::CPU_COUNT(&set) as usize)
    }
}

/// The result of [`possible`], which never changes; 0 while unknown.
static POSSIBLE: AtomicUsize = AtomicUsize::new(0);

/// Returns the highest processor number that can occur, plus one, from
/// `/sys/devices/system/cpu/possible`; `None` if that is unreadable.
pub fn possible() -> Option<usize> {
    match POSSIBLE.load(Ordering::Relaxed) {
        0 => {
            let found = read_possible()?;
            POSSIBLE.store(found, Ordering::Relaxed);
            Some(found)
        }
        found => Some(found),
    }
}

fn read_possible() -> Option<usize> {
    let path = c"/sys/devices/system/cpu/possible";
    // SAFETY: the path is NUL-terminated.
    let file = unsafe {
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
        // AT_FDCWD is negative; the kernel reads the low 32 bits.
        let at = libc::AT_FDCWD as usize;
        plimsoll_sys::os::syscall::call(
            libc::SYS_openat,
            [at, path.as_ptr() as usize, flags, 0, 0, 0],
        )
    };
    let file = usize::try_from(file).ok()?;
    let found = highest_in(|text| {
        // SAFETY: the kernel writes at most `text.len()` bytes.
        let read = unsafe { call3(libc::SYS_read, file, text.as_mut_ptr() as usize, text.len()) };
        usize::try_from(read).ok()
    });
    // SAFETY: the file was opened above.
    unsafe { call3(libc::SYS_close, file, 0, 0) };
    found?.checked_add(1)
}

/// Returns the highest number in a list such as `0-7`, `0` or `0-3,8-11`. `read` fills a buffer with the next bytes of the
/// list, and returns their number: 0 at the end.
fn highest_in(mut read: impl FnMut(&mut [u8]) -> Option<usize>) -> Option<usize> {
    let mut text = [0; 64];
    let (mut highest, mut number) = (None, None);
    loop {
        let length = read(&mut text)?;
        if length == 0 {
            return highest;
        }
        for &byte in text.get(..length)? {
            match byte {
                b'0'..=b'9' => {
                    let before = number.unwrap_or(0usize).checked_mul(10)?;
                    number = Some(before.checked_add(usize::from(byte - b'0'))?);
                    highest = highest.max(number);
                }
                b'-' | b',' | b'\n' => number = None,
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a list that is read in parts of at most `most` bytes.
    fn parse(mut list: &[u8], most: usize) -> Option<usize> {
        highest_in(|text| {
            let length = list.len().min(text.len()).min(most);
            let (part, rest) = list.split_at(length);
            text[..length].copy_from_slice(part);
            list = rest;
            Some(length)
        })
    }

    #[test]
    fn reads_the_kernels_list_format() {
        assert_eq!(parse(b"0\n", 64), Some(0));
        assert_eq!(parse(b"0-1\n", 64), Some(1));
        assert_eq!(parse(b"0-3,8-127\n", 64), Some(127));
        assert_eq!(parse(b"", 64), None);
        assert_eq!(parse(b"all", 64), None);
        assert_eq!(parse(b"99999999999999999999999", 64), None);
        assert_eq!(highest_in(|_| None), None);
    }

    #[test]
    fn a_list_of_any_length_is_read_to_its_end() {
        let numbers: Vec<String> = (0..1000).map(|cpu| (2 * cpu).to_string()).collect();
        let list = numbers.join(",");
        for most in 1..=64 {
            assert_eq!(parse(list.as_bytes(), most), Some(1998), "{most}");
        }
    }

    #[test]
    fn this_machine_has_processors() {
        let all = possible().expect("sysfs is mounted");
        assert!(all >= std::thread::available_parallelism().unwrap().get());
    }
}
