//! Opens and creates files whose paths other users may control.
//!
//! A name can lead to a pipe, which blocks the opening process, to a device, or to the file of another user. So
//! files are opened without waiting, and their kind and owner are checked by the descriptor.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, fstatfs};
use rustix::io::Errno;
use rustix::pipe::SpliceFlags;
use rustix::process::geteuid;

use crate::plain_text::hexadecimal;

/// The time for which a named pipe may have no writer.
const WAIT_FOR_WRITER: Duration = Duration::from_secs(5);

/// Returns a name of 128 random bits, which cannot be guessed.
pub fn random_name() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(hexadecimal(&bytes))
}

fn reading(flags: i32) -> OpenOptions {
    let mut options = File::options();
    let flags = flags | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    options.read(true).custom_flags(flags);
    options
}

fn regular(found: &Metadata) -> io::Result<()> {
    match found.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// Opens a regular file. Follows links: the user named the path.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // To open a device can have effects, and a pipe's writer would lose its reader again.
    regular(&path.metadata()?)?;
    let file = reading(0).open(path)?;
    regular(&file.metadata()?)?;
    Ok(file)
}

/// Opens a regular file of any user in a directory that other users can write to. A link fails.
pub fn open_unlinked(path: &Path) -> io::Result<File> {
    regular(&path.symlink_metadata()?)?;
    let file = reading(libc::O_NOFOLLOW).open(path)?;
    regular(&file.metadata()?)?;
    Ok(file)
}

/// The same as [`open_unlinked`] for a file of the effective user or of root.
pub fn open_trusted(path: &Path) -> io::Result<File> {
    let file = open_unlinked(path)?;
    match [geteuid().as_raw(), 0].contains(&file.metadata()?.uid()) {
        true => Ok(file),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Opens an input that the user named: a file, a device, or a pipe. A named pipe needs a writer within a
/// few seconds.
pub(crate) fn open_input(path: &Path) -> io::Result<File> {
    let file = reading(0).open(path)?;
    if file.metadata()?.file_type().is_fifo() && !is_anonymous(&file) {
        wait_for_writer(file.as_fd(), WAIT_FOR_WRITER)?;
    }
    let flags = fcntl_getfl(&file)?;
    fcntl_setfl(&file, flags.difference(OFlags::NONBLOCK))?;
    Ok(file)
}

/// Returns whether a pipe has no name, such as the pipe of the shell's `<(...)`. It has writers, or had them.
fn is_anonymous(pipe: &File) -> bool {
    const PIPEFS: u64 = 0x5049_5045;
    fstatfs(pipe).is_ok_and(|found| found.f_type as u64 == PIPEFS)
}

/// Waits until a named pipe has bytes or a writer.
fn wait_for_writer(pipe: BorrowedFd<'_>, at_most: Duration) -> io::Result<()> {
    let timeout = Timespec {
        tv_sec: at_most.as_secs() as i64,
        tv_nsec: at_most.subsec_nanos().into(),
    };
    let mut wanted = [PollFd::from_borrowed_fd(pipe, PollFlags::IN)];
    if poll(&mut wanted, Some(&timeout))? > 0 {
        return Ok(());
    }
    // Copies a byte without taking it out of the pipe. Without a writer, the pipe is at its end.
    let (_reader, copy) = rustix::pipe::pipe()?;
    match rustix::pipe::tee(pipe, &copy, 1, SpliceFlags::NONBLOCK) {
        Ok(0) => Err(io::Error::other("a named pipe without a writer")),
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Creates a file for the user's eyes only, or empties an existing one, whose mode stays.
pub fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::path::PathBuf;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    /// A temporary directory that is removed on drop.
    struct Scene(PathBuf);

    impl Scene {
        fn new(name: &str) -> Self {
            let name = format!("plimsoll-files-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn pipe(&self) -> PathBuf {
            let path = self.0.join("pipe");
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            path
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn planted_pipes_links_devices_and_files_of_others_are_not_opened() {
        let scene = Scene::new("planted");
        let (pipe, file, link) = (scene.pipe(), scene.0.join("file"), scene.0.join("link"));
        std::fs::write(&file, "text").unwrap();
        symlink(&file, &link).unwrap();
        for open in [open_regular, open_unlinked, open_trusted] {
            assert!(open(&pipe).is_err());
            assert!(open(Path::new("/dev/null")).is_err());
            assert!(open(&scene.0).is_err());
            open(&file).unwrap();
        }
        open_regular(&link).unwrap();
        assert!(open_unlinked(&link).is_err() && open_trusted(&link).is_err());
        if geteuid().is_root() {
            chown(&file, Some(65534), None).unwrap();
            open_unlinked(&file).unwrap();
            assert!(open_trusted(&file).is_err());
        }
    }

    #[test]
    fn a_pipe_is_an_input_if_it_has_a_writer() {
        let scene = Scene::new("pipes");
        let pipe = scene.pipe();
        let reader = reading(0).open(&pipe).unwrap();
        let wait = || wait_for_writer(reader.as_fd(), Duration::from_millis(1));
        let error = wait().unwrap_err().to_string();
        assert_eq!(error, "a named pipe without a writer");
        let mut writer = File::options().write(true).open(&pipe).unwrap();
        wait().unwrap();
        writer.write_all(b"text").unwrap();
        wait().unwrap();
        let mut input = open_input(&pipe).unwrap();
        let mut text = [0; 4];
        input.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"text");
        // The last writer has left, and the shell's pipe has no name.
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"text").unwrap();
        drop(writer);
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        let mut text = String::new();
        let mut input = open_input(Path::new(&path)).unwrap();
        input.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
    }

    #[test]
    fn a_created_file_is_for_its_owner_only() {
        let scene = Scene::new("created");
        let path = scene.0.join("file");
        let mode = |file: &File| file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&create(&path).unwrap()) & 0o177, 0);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(mode(&create(&path).unwrap()), 0o644);
    }
}
