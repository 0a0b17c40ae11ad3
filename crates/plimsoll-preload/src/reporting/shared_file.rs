//! The file in which forked children of a user leave their reports.
//!
//! A program may fork thousands of children that live for some milliseconds. A file for each would take a
//! file system longer to create and to remove than all else at the end of a child.
//!
//! # Concurrency
//! Children append at the same time. Each writes its report by one call, in the append mode, in which the
//! system moves to the end of the file and writes as one step. A call that writes less than its all leaves
//! an incomplete piece, which readers skip: every piece begins with a line that states its length, and ends
//! with another that repeats the process.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use plimsoll_process::file_size;

/// The longest report in bytes that is appended. A longer one has a separate file.
const LONGEST: usize = 256 << 10;

/// Appends the report of a process, which consists of these pieces. After an error, the file has no
/// complete report of the process.
pub(super) fn append(directory: &Path, process: u32, report: &[&[u8]]) -> io::Result<()> {
    let length: usize = report.iter().map(|piece| piece.len()).sum();
    if length > LONGEST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let first = format!("plimsoll report {process} {length}\n");
    let last = format!("end {process}\n");
    let mut pieces = Vec::with_capacity(report.len() + 2);
    pieces.push(IoSlice::new(first.as_bytes()));
    pieces.extend(report.iter().map(|piece| IoSlice::new(piece)));
    pieces.push(IoSlice::new(last.as_bytes()));
    let mut file = open(directory)?;
    let written = file_size::without_signal(|| file.write_vectored(&pieces))?;
    match written == first.len() + length + last.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Opens the file of the effective user, or creates it. Processes of several users may write to the
/// directory, so a file that another user planted is refused, and so is a link.
fn open(directory: &Path) -> io::Result<File> {
    // SAFETY: the call has no arguments and does not fail.
    let user = unsafe { libc::geteuid() };
    let file = File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(directory.join(format!("{user}.reports")))?;
    let found = file.metadata()?;
    if found.is_file() && found.uid() == user && found.nlink() == 1 {
        return Ok(file);
    }
    Err(io::ErrorKind::PermissionDenied.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    use super::*;

    /// A temporary directory that is removed on drop.
    struct Scene(PathBuf);

    impl Scene {
        fn new(name: &str) -> Self {
            let name = format!("plimsoll-shared-file-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn shared(&self) -> PathBuf {
            // SAFETY: the call has no arguments and does not fail.
            let user = unsafe { libc::geteuid() };
            self.0.join(format!("{user}.reports"))
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn concurrent_reports_do_not_mix() {
        const EACH: usize = 100;
        let scene = Scene::new("mix");
        std::thread::scope(|scope| {
            for process in 1..=4_u8 {
                let directory = &scene.0;
                scope.spawn(move || {
                    let report = vec![b'0' + process; 5000 * usize::from(process)];
                    let (begin, end) = report.split_at(usize::from(process));
                    for _ in 0..EACH {
                        append(directory, process.into(), &[begin, end]).unwrap();
                    }
                });
            }
        });
        let text = fs::read_to_string(scene.shared()).unwrap();
        let mut counts = [0; 5];
        let mut rest = text.as_str();
        while let Some(piece) = rest.strip_prefix("plimsoll report ") {
            let process: usize = piece[..1].parse().unwrap();
            let report = process.to_string().repeat(5000 * process);
            let piece = piece[1..].strip_prefix(&format!(" {}\n", report.len()));
            let piece = piece.and_then(|piece| piece.strip_prefix(&report));
            rest = piece
                .and_then(|piece| piece.strip_prefix(&format!("end {process}\n")))
                .unwrap();
            counts[process] += 1;
        }
        assert_eq!((rest, counts), ("", [0, EACH, EACH, EACH, EACH]));
        let mode = fs::metadata(scene.shared()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_planted_file_is_not_written() {
        let scene = Scene::new("planted");
        let victim = scene.0.join("victim");
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, scene.shared()).unwrap();
        assert!(append(&scene.0, 1, &[b"rep", b"ort"]).is_err());
        fs::remove_file(scene.shared()).unwrap();
        fs::hard_link(&victim, scene.shared()).unwrap();
        assert!(append(&scene.0, 1, &[b"rep", b"ort"]).is_err());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        fs::remove_file(scene.shared()).unwrap();
        append(&scene.0, 1, &[b"rep", b"ort"]).unwrap();
        assert!(append(&scene.0, 1, &[&vec![0; LONGEST], &[0]]).is_err());
        let text = fs::read_to_string(scene.shared()).unwrap();
        assert_eq!(text, "plimsoll report 1 6\nreportend 1\n");
    }
}
