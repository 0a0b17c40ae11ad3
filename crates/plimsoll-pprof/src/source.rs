//! What there is to be read: which format it is of, and how much of it is read.

use std::io::{self, BufReader, Read};

use super::{Error, Profile, gunzip, jemalloc, proto};

/// How much is read before it is an error.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Uncompressed.
    pub read_bytes: u64,
    /// Of the profile in memory. Below 4 GiB, so that there are fewer of everything.
    pub kept_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            read_bytes: 4 << 30,
            kept_bytes: 1 << 30,
        }
    }
}

/// Reads a profile from bytes: compressed or not, of pprof's or jemalloc's format.
///
/// # Errors
/// If they are no profile, a broken one, or one beyond the limits.
pub fn parse(bytes: &[u8], limits: Limits) -> Result<Profile, Error> {
    read(bytes, limits)
}

/// The same, from whatever can be read. What is compressed is decompressed by a second thread.
///
/// # Errors
/// If it cannot be read, or is no profile, a broken one, or one beyond the limits.
pub fn read(from: impl Read + Send, limits: Limits) -> Result<Profile, Error> {
    let (head, from) = peek(from)?;
    if !head.starts_with(GZIP) {
        return read_plain(&head, from, limits);
    }
    let from = BufReader::with_capacity(256 << 10, from);
    gunzip::while_reading(from, |from| {
        let (head, from) = peek(from)?;
        read_plain(&head, from, limits)
    })
}

/// How what is compressed by gzip begins.
const GZIP: &[u8] = &[0x1f, 0x8b];

fn read_plain(head: &[u8], from: impl Read, limits: Limits) -> Result<Profile, Error> {
    if head.is_empty() {
        return Err(Error::NotAProfile("it is empty".to_owned()));
    }
    let from = Bounded {
        from,
        left: limits.read_bytes,
    };
    if head.starts_with(jemalloc::BEGINNING) {
        return jemalloc::read(BufReader::with_capacity(64 << 10, from), limits);
    }
    for (beginning, what) in OTHERS {
        if head.starts_with(beginning) {
            return Err(Error::NotAProfile((*what).to_owned()));
        }
    }
    proto::read(from, limits)
}

/// The first bytes, as many as are needed to tell what it is, and all of it.
fn peek<R: Read>(mut from: R) -> io::Result<(Vec<u8>, impl Read + use<R>)> {
    let mut head = Vec::new();
    (&mut from).take(32).read_to_end(&mut head)?;
    Ok((head.clone(), io::Cursor::new(head).chain(from)))
}

/// What is often taken for a profile. None can be the beginning of one.
const OTHERS: &[(&[u8], &str)] = &[
    (GZIP, "it is compressed twice"),
    (
        b"heap profile:",
        "a profile's text, which is asked for by debug=1; without that, there is a profile",
    ),
    (
        b"goroutine profile:",
        "a profile's text, which is asked for by debug=1; without that, there is a profile",
    ),
    (
        b"plimpost",
        "a post-mortem, which is read from a file of its own: it has holes",
    ),
    (b"<", "a web page"),
    (b"\x7fELF", "a program or a library"),
    (b"PK", "a zip archive"),
    (
        b"\x28\xb5\x2f\xfd",
        "compressed by zstd; decompress it first",
    ),
];

/// Fails behind a number of bytes.
struct Bounded<R> {
    from: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(to)?;
        self.left = self
            .left
            .checked_sub(read as u64)
            .ok_or_else(|| io::Error::other("it is too large, uncompressed"))?;
        Ok(read)
    }
}
