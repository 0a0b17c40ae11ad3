//! The report of a process that confines itself: by a system call filter, another user, another root directory, or a
//! limit of its files.
//!
//! Such a process cannot create the file of its report at its end. So the file is created and mapped before, while
//! that is possible. At the end, the report is copied to the mapping, which takes no system call. The file belongs to
//! the user of that time, and no other process has it open: so its reader knows which process wrote it.
//!
//! The file is `PID.confined`, or `PID-N.confined` if that exists. It begins with [`MAGIC`] and the length of the report
//! in bytes, which is 0 until the report is complete. It has all of its memory from the beginning, since a writer to a
//! hole of a full file system receives SIGBUS.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use plimsoll_process::file_size;
use plimsoll_sys::os::region;
use plimsoll_sys::os::syscall::call;
use plimsoll_sys::os::{pages, process_id};
use plimsoll_sys::primitives::{AtomicU64, AtomicUsize, Ordering};

/// The first bytes of the file.
const MAGIC: [u8; 16] = *b"plimsoll confine";

/// The bytes before the report: [`MAGIC`] and the length.
const HEAD: usize = 24;

/// The bytes of the file. Most reports have a tenth of that; a longer one is written without its profiles.
const BYTES: usize = 256 << 10;

/// The number of names that are tried for the file.
const NAMES: u32 = 16;

/// The address of the mapped file; 0 without one.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// Creates the file in the directory for reports, and maps it, unless that is done.
///
/// # Errors
/// The system's error; the process then has no report.
pub(super) fn prepare(directory: &Path) -> io::Result<()> {
    if is_prepared() {
        return Ok(());
    }
    let (file, path) = create(directory)?;
    let mapped = map(&file).inspect_err(|_| {
        // An empty file would be taken for a report that is missing.
        let _ = std::fs::remove_file(&path);
    })?;
    region::note(mapped, BYTES);
    MAPPED.store(mapped, Ordering::Release);
    Ok(())
}

/// Returns whether the process has such a file.
pub(super) fn is_prepared() -> bool {
    MAPPED.load(Ordering::Acquire) != 0
}

/// Forgets the parent's file in the child of a fork, which does not have it in its memory.
pub(super) fn after_fork_in_child() {
    MAPPED.store(0, Ordering::Relaxed);
}

fn create(directory: &Path) -> io::Result<(File, std::path::PathBuf)> {
    let process = process_id();
    let mut number = 0;
    loop {
        let name = match number {
            0 => format!("{process}.confined"),
            number => format!("{process}-{number}.confined"),
        };
        let path = directory.join(name);
        let mut options = File::options();
        options.read(true).write(true).create_new(true).mode(0o600);
        match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < NAMES => {
                number += 1;
            }
            opened => return Ok((opened?, path)),
        }
    }
}

/// Gives the file its memory, and maps it. Children of forks do not have the mapping.
fn map(file: &File) -> io::Result<usize> {
    let descriptor = file.as_raw_fd() as usize;
    let checked = |result: isize| match usize::try_from(result) {
        Ok(result) => Ok(result),
        Err(_) => Err(io::Error::from_raw_os_error(-result as i32)),
    };
    // Otherwise the call below would raise SIGXFSZ.
    if file_size::limit()? < BYTES as u64 {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    // SAFETY: the calls affect this file, and map it at an address that the kernel chooses.
    unsafe {
        checked(call(libc::SYS_fallocate, [descriptor, 0, 0, BYTES, 0, 0]))?;
        let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        let flags = libc::MAP_SHARED as usize;
        let mapped = checked(call(
            libc::SYS_mmap,
            [0, BYTES, access, flags, descriptor, 0],
        ))?;
        let advice = libc::MADV_DONTFORK as usize;
        let unshared = checked(call(libc::SYS_madvise, [mapped, BYTES, advice, 0, 0, 0]));
        if let Err(error) = unshared {
            pages::unmap(mapped, BYTES);
            return Err(error);
        }
        Ok(mapped)
    }
}

/// Writes the report, in place of an earlier one. Returns false if it does not fit. Makes no system call.
pub(super) fn write(report: &[&[u8]]) -> bool {
    let mapped = MAPPED.load(Ordering::Acquire);
    let length: usize = report.iter().map(|piece| piece.len()).sum();
    if mapped == 0 || length > BYTES - HEAD {
        return false;
    }
    // SAFETY: the file is mapped with this length for the rest of the process, and aligned to pages. One thread writes a
    // report at a time. A reader of the file may read meanwhile, and finds the length 0.
    unsafe {
        let written = &*((mapped + MAGIC.len()) as *const AtomicU64);
        written.store(0, Ordering::SeqCst);
        (mapped as *mut [u8; MAGIC.len()]).write(MAGIC);
        let mut to = (mapped + HEAD) as *mut u8;
        for piece in report {
            to.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
            to = to.add(piece.len());
        }
        written.store((length as u64).to_le(), Ordering::SeqCst);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_lies_behind_its_length_and_replaces_an_earlier_one() {
        let directory = std::env::temp_dir().join(format!("plimsoll-confined-{}", process_id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).unwrap();
        let taken = directory.join(format!("{}.confined", process_id()));
        std::fs::write(&taken, "").unwrap();
        assert!(!write(&[b"none"]));
        prepare(&directory).unwrap();
        let path = directory.join(format!("{}-1.confined", process_id()));
        let read = || {
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(bytes.len(), BYTES);
            let length = u64::from_le_bytes(bytes[16..HEAD].try_into().unwrap()) as usize;
            (bytes[..16].to_vec(), bytes[HEAD..HEAD + length].to_vec())
        };
        assert_eq!(read().1, b"");
        assert!(write(&[b"a longer ", b"report"]));
        assert_eq!(read(), (MAGIC.to_vec(), b"a longer report".to_vec()));
        assert!(write(&[b"short"]));
        assert_eq!(read().1, b"short");
        assert!(write(&[&vec![7; BYTES - HEAD]]) && !write(&[&vec![7; BYTES - HEAD], b"1"]));
        assert_eq!(read().1, vec![7; BYTES - HEAD]);
        // A second file is not made.
        prepare(&directory).unwrap();
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 2);
        let _ = std::fs::remove_dir_all(&directory);
    }
}
