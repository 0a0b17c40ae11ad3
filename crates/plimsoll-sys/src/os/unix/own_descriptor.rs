//! Descriptors that Plimsoll keeps for long.
//!
//! A program may close all descriptors, as daemons do. The system then gives the numbers of Plimsoll's descriptors to files
//! of the program. So Plimsoll uses and closes a descriptor only while it refers to the file for which it was opened.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::os::filter;

/// The file to which a descriptor refers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The kind of file, as `st_mode` has it.
    pub kind: libc::mode_t,
    /// The device.
    pub device: u64,
    /// The inode.
    pub inode: u64,
}

impl Identity {
    /// Returns the identity of an open file; `None` if the descriptor is not open, if the system gives such files none, or
    /// if a filter forbids to ask. Does not allocate.
    #[allow(
        clippy::unnecessary_cast,
        reason = "on other systems these numbers have other types"
    )]
    pub fn at(descriptor: RawFd) -> Option<Self> {
        let found = status(descriptor)?;
        let identity = Self {
            kind: found.st_mode & libc::S_IFMT,
            device: found.st_dev as u64,
            inode: found.st_ino as u64,
        };
        (identity.inode != 0).then_some(identity)
    }
}

#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
fn status(descriptor: RawFd) -> Option<libc::stat> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let to = found.as_mut_ptr() as usize;
    // SAFETY: `found` is a valid place for the result, and zeros are a valid `stat`.
    unsafe {
        let failed = crate::os::syscall::call3(libc::SYS_fstat, descriptor as usize, to, 0) != 0;
        (!failed).then(|| found.assume_init())
    }
}

#[cfg(not(all(target_os = "linux", not(plimsoll_portable_os))))]
fn status(descriptor: RawFd) -> Option<libc::stat> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: as above.
    unsafe {
        let failed = libc::fstat(descriptor, found.as_mut_ptr()) != 0;
        (!failed).then(|| found.assume_init())
    }
}

/// An open file of Plimsoll's, with a descriptor that the program may close.
#[derive(Debug)]
pub struct OwnDescriptor<F: AsFd> {
    file: ManuallyDrop<F>,
    /// `None` if it is unknown: the descriptor then counts as Plimsoll's.
    identity: Option<Identity>,
}

impl<F: AsFd> OwnDescriptor<F> {
    /// Takes a file over that was just opened.
    pub fn new(file: F) -> Self {
        let identity = Identity::at(file.as_fd().as_raw_fd());
        Self {
            file: ManuallyDrop::new(file),
            identity,
        }
    }

    /// Returns the file; `None` if the program has closed it.
    pub fn get(&self) -> Option<&F> {
        self.is_open().then(|| &*self.file)
    }

    /// Returns the file for a change; `None` if the program has closed it.
    pub fn get_mut(&mut self) -> Option<&mut F> {
        self.is_open().then(|| &mut *self.file)
    }

    /// Returns the number of the descriptor, which may be the program's by now.
    pub fn number(&self) -> RawFd {
        self.file.as_fd().as_raw_fd()
    }

    fn is_open(&self) -> bool {
        self.identity
            .is_none_or(|identity| Identity::at(self.number()) == Some(identity))
    }
}

impl<F: AsFd> AsFd for OwnDescriptor<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl<F: AsFd> Drop for OwnDescriptor<F> {
    fn drop(&mut self) {
        if self.is_open() && filter::may_close_files() {
            // SAFETY: the file is not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::FromRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_descriptor_is_not_used_after_the_program_has_its_number() {
        let (ours, mut other) = UnixStream::pair().unwrap();
        let number = ours.as_raw_fd();
        let ours = OwnDescriptor::new(ours);
        assert!(ours.get().is_some());
        let (reads, writes) = UnixStream::pair().unwrap();
        // SAFETY: the descriptors are open; the number is that of the program's file from now on.
        assert_eq!(unsafe { libc::dup2(reads.as_raw_fd(), number) }, number);
        assert!(ours.get().is_none());
        assert_eq!(other.read(&mut [0]).unwrap(), 0, "its end is closed");
        drop(ours);
        // SAFETY: the drop has not closed it.
        let kept = unsafe { File::from_raw_fd(number) };
        assert!(Identity::at(number).is_some());
        drop((kept, reads, writes));
    }

    #[test]
    fn a_descriptor_is_closed_with_its_owner() {
        let (ours, mut other) = UnixStream::pair().unwrap();
        drop(OwnDescriptor::new(ours));
        assert_eq!(other.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_closed_descriptor_has_no_file() {
        let (ours, _other) = UnixStream::pair().unwrap();
        let ours = OwnDescriptor::new(ours);
        // No other thread of this test's process can get the number between the two calls and keep it: an equal
        // inode would be this socket's.
        // SAFETY: the descriptor is this test's.
        unsafe { libc::close(ours.number()) };
        assert!(ours.get().is_none());
    }
}
