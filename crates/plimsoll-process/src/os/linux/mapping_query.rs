//! The request `PROCMAP_QUERY` of `/proc/self/maps`: one mapping for each call, without the text of that
//! file. Linux 6.11 and later.

use std::fs::File;
use std::os::fd::AsRawFd;

use plimsoll_sys::os::files;
use plimsoll_sys::os::syscall::call3;

/// The request's argument.
#[repr(C)]
pub(super) struct Query {
    size: u64,
    flags: u64,
    address: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) permissions: u64,
    /// The size of its pages, which is larger for huge pages of a file system.
    pub(super) page_size: u64,
    /// The offset of its start in the file; 0 without a file.
    pub(super) offset: u64,
    /// 0 without a file.
    pub(super) inode: u64,
    device: [u32; 2],
    /// The space for the name before the call; the length of the name with its zero after that.
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

/// The request's number.
const QUERY: usize = 0xc068_6611;

/// The permissions `PROCMAP_QUERY_VMA_READABLE`, `_WRITABLE`, `_EXECUTABLE` and `_SHARED`, which are also
/// conditions for a mapping.
pub(super) const READABLE: u64 = 0x01;
pub(super) const WRITABLE: u64 = 0x02;
pub(super) const EXECUTABLE: u64 = 0x04;
pub(super) const SHARED: u64 = 0x08;

/// The flag `PROCMAP_QUERY_COVERING_OR_NEXT_VMA`.
const HERE_OR_NEXT: u64 = 0x10;

/// More than the longest name.
const NAME_SIZE: usize = 4096;

/// Reads mappings of this process.
pub(super) struct Reader {
    file: File,
    name: [u8; NAME_SIZE],
}

/// The kernel refuses the request.
pub(super) struct Refused;

impl Reader {
    /// Returns `None` if the list of mappings cannot be opened.
    pub(super) fn open() -> Option<Self> {
        Some(Self {
            file: files::open("/proc/self/maps").ok()?,
            name: [0; NAME_SIZE],
        })
    }

    /// Returns the first mapping that ends above `address` and has the `permissions`, with its path or its
    /// name in brackets; `None` if no such mapping follows, or only `[vsyscall]`, which the kernel shows in
    /// the text only.
    pub(super) fn next(
        &mut self,
        permissions: u64,
        address: u64,
    ) -> Result<Option<(Query, &[u8])>, Refused> {
        let mut query = Query {
            size: size_of::<Query>() as u64,
            flags: permissions | HERE_OR_NEXT,
            address,
            start: 0,
            end: 0,
            permissions: 0,
            page_size: 0,
            offset: 0,
            inode: 0,
            device: [0; 2],
            name_size: NAME_SIZE as u32,
            build_id_size: 0,
            name: self.name.as_mut_ptr() as u64,
            build_id: 0,
        };
        // SAFETY: the kernel writes to `query`, and at most `name_size` bytes to `name`.
        let answer = unsafe {
            let argument = &raw mut query as usize;
            let file = self.file.as_raw_fd() as usize;
            call3(libc::SYS_ioctl, file, QUERY, argument)
        };
        if answer == -(libc::ENOENT as isize) {
            return Ok(None);
        }
        if answer != 0 || query.end <= address {
            return Err(Refused);
        }
        let length = (query.name_size as usize).saturating_sub(1);
        let name = self.name.get(..length).ok_or(Refused)?;
        Ok(Some((query, name)))
    }
}

/// Calls `found` with each mapping that has the `permissions`, ordered by address. Returns `None` if the
/// kernel refuses the request.
pub(super) fn each(permissions: u64, mut found: impl FnMut(&Query, &[u8])) -> Option<()> {
    let mut reader = Reader::open()?;
    let mut address = 0;
    while let Some((query, name)) = reader.next(permissions, address).ok()? {
        found(&query, name);
        address = query.end;
    }
    Some(())
}
