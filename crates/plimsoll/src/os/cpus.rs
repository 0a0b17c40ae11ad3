//! How many processors the kernel may ever number, and how many the process may use.

use super::syscall::call3;
use crate::own;
use crate::primitives::{AtomicUsize, Ordering};

/// How many processors the process may use at once, as it was when that was last looked at.
static AVAILABLE: AtomicUsize = AtomicUsize::new(0);

/// The limit of its control group, as it was in the beginning, since reading it takes some files; 0
/// if that is not known so far. Who comes second does not wait for the first, but looks as well: in
/// the child of a fork, the first may be gone.
static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// How many processors the process may use at once; at least 1.
pub(crate) fn available() -> usize {
    AVAILABLE.load(Ordering::Relaxed).max(1)
}

/// Brings [`available`] up to date: by the affinity of the calling thread, and a limit that is
/// found out once. Not for hooks.
pub(crate) fn look() {
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

/// The limit of the control group, if it is below that of the affinity.
fn limit_beside(affinity: Option<usize>) -> usize {
    let _own = own::scope();
    let found = std::thread::available_parallelism().map_or(1, |found| found.get());
    // It is the lesser of the two.
    if affinity.is_some_and(|affinity| affinity <= found) {
        usize::MAX
    } else {
        found
    }
}

/// The processors that the calling thread may run on; `None` if there may be more than 1024.
fn by_affinity() -> Option<usize> {
    // SAFETY: a set of bits, for which zero is a value, and as long as said.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        let found = libc::sched_getaffinity(0, size, &raw mut set) == 0;
        found.then(|| libc::CPU_COUNT(&set) as usize)
    }
}

/// One more than the highest processor number that can occur, from
/// `/sys/devices/system/cpu/possible`; `None` where that cannot be read.
pub(crate) fn possible() -> Option<usize> {
    let path = c"/sys/devices/system/cpu/possible";
    let mut text = [0u8; 256];
    // SAFETY: the path is NUL-terminated and the buffer is as long as said.
    let length = unsafe {
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
        // AT_FDCWD is negative; the kernel reads the low 32 bits.
        let at = libc::AT_FDCWD as usize;
        let fd = super::syscall::call(
            libc::SYS_openat,
            [at, path.as_ptr() as usize, flags, 0, 0, 0],
        );
        let fd = usize::try_from(fd).ok()?;
        let read = call3(libc::SYS_read, fd, text.as_mut_ptr() as usize, text.len());
        call3(libc::SYS_close, fd, 0, 0);
        usize::try_from(read).ok()?
    };
    parse(&text[..length])
}

/// `0-7`, `0`, `0-3,8-11`: the highest number, plus one.
fn parse(list: &[u8]) -> Option<usize> {
    let mut highest = None;
    let mut number = None;
    for &byte in list {
        match byte {
            b'0'..=b'9' => {
                let digit = usize::from(byte - b'0');
                number = Some(
                    number
                        .unwrap_or(0usize)
                        .checked_mul(10)?
                        .checked_add(digit)?,
                );
                highest = highest.max(number);
            }
            b'-' | b',' | b'\n' => number = None,
            _ => return None,
        }
    }
    highest?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_list_format() {
        assert_eq!(parse(b"0\n"), Some(1));
        assert_eq!(parse(b"0-1\n"), Some(2));
        assert_eq!(parse(b"0-3,8-127\n"), Some(128));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"all"), None);
        assert_eq!(parse(b"99999999999999999999999"), None);
    }

    #[test]
    fn this_machine_has_processors() {
        let all = possible().expect("sysfs is mounted");
        assert!(all >= std::thread::available_parallelism().unwrap().get());
    }
}
