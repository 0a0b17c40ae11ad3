//! How many processors the kernel may ever number.

use super::syscall::call3;

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
